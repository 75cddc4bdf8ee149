//! Invalid options are refused.

use std::time::Duration;

use rlock_core::{LockClient, LockError};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_client_refuses_options_out_of_bounds() {
    let long = "x".repeat(257);
    let new = LockClient::builder;
    let reason = "have 1 to 256 characters";
    for (builder, named) in [
        (new().default_lease(Duration::ZERO), "lease"),
        (new().default_wait(Duration::MAX), "wait"),
        (
            new().default_retain(Duration::from_secs(24 * 60 * 60 + 1)),
            "24h",
        ),
        (
            new().default_retain(MINUTE).default_watchdog(false),
            "default_watchdog(false)",
        ),
        (new().response_timeout(Duration::ZERO), "response_timeout"),
        (new().connect_timeout(Duration::MAX), "connect_timeout"),
        (new().connect_retry_for(Duration::MAX), "connect_retry_for"),
        (new().fence_retention(59 * MINUTE / 60), "`fence_retention`"),
        (new().fence_retention(Duration::MAX), "1m to 366 days"),
        (new().wait_for_replicas(0, MINUTE), "at least one replica"),
        (
            new().wait_for_replicas(1, Duration::ZERO),
            "a time-out is between",
        ),
        (new().wait_for_replicas(1, MINUTE), "have no replicas"),
        (new().prefix("{x}"), "prefix"),
        (new().prefix("jobs: "), "prefix"),
        (new().prefix("jobs:\0"), "prefix"),
        (new().service("", "1.4.2"), reason),
        (new().service("billing", ""), reason),
        (new().service("billing", &long), reason),
        (new().service(&long, "1.4.2"), reason),
    ] {
        for error in [
            builder.clone().in_memory().expect_err(named),
            builder.connect("memory:").await.expect_err(named),
        ] {
            assert!(
                matches!(error, LockError::InvalidOption { .. }),
                "{error:?}"
            );
            assert!(error.to_string().contains(named), "{error}");
        }
    }
    let longest = "ü".repeat(256);
    let builder = new().service(&*longest, &*longest);
    builder.in_memory().expect("within the bounds");
    let client = LockClient::in_memory();
    let lock = client.lock("k");
    for (lock, named) in [
        (lock.clone().retain(Duration::MAX), "`retain`"),
        (lock.watchdog(false).retain(MINUTE), "watchdog(false)"),
    ] {
        let error = lock.acquire().await.expect_err(named).to_string();
        assert!(error.contains(named), "{error}");
    }
    let retaining = new().default_retain(MINUTE).in_memory().expect("a client");
    let guard = retaining.lock("k").watchdog(false).acquire().await;
    guard.expect("free").release().await.expect("held");
    assert!(retaining.inspect("k").await.expect("a reply").is_none());
}

#[tokio::test]
async fn a_lock_refuses_options_out_of_bounds() {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    const ENDLESS: &str = "18446744073709551615";
    let client = LockClient::in_memory();
    let lock = || client.lock("k");
    let nanosecond = Duration::from_nanos(1);
    for (lock, option, value) in [
        (lock().lease(Duration::ZERO), "`lease`", "0s"),
        (
            lock().lease(Duration::from_nanos(9_999_999)),
            "`lease`",
            "9.999999ms",
        ),
        (
            lock().lease(DAY + nanosecond),
            "`lease`",
            "86400.000000001s",
        ),
        (lock().lease(Duration::MAX), "`lease`", ENDLESS),
        (lock().wait(Duration::MAX), "`wait`", ENDLESS),
        (lock().max_hold(Duration::ZERO), "`max_hold`", "0s"),
        (lock().min_hold(Duration::MAX), "`min_hold`", ENDLESS),
        (
            lock().max_hold(DAY / 2).min_hold(DAY),
            "`max_hold`",
            "shorter than `min_hold`, 86400s",
        ),
    ] {
        for refused in [
            lock.acquire().await.map(drop),
            lock.run(async { unreachable!("it is not held") }).await,
        ] {
            let error = refused.expect_err(option);
            assert!(
                matches!(error, LockError::InvalidOption { .. }),
                "{error:?}"
            );
            let text = error.to_string();
            assert!(text.contains(option) && text.contains(value), "{text}");
        }
    }
    for key in ["", "a{", "{}", &"x".repeat(1025)] {
        let error = client.lock(key).acquire().await.expect_err(key);
        assert!(matches!(error, LockError::InvalidKey { .. }), "{error:?}");
    }
    for lease in [Duration::from_millis(10), DAY] {
        drop(lock().lease(lease).acquire().await.expect("within bounds"));
    }
}
