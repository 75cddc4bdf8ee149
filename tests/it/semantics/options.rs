//! Invalid options are refused, and nothing is sent.

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
