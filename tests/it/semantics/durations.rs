//! Extreme durations: none truncates to zero, and none overflows.

use std::time::Duration;

use rlock_core::{LockClient, LockError};
use rlock_testkit::RedisServer;

use crate::common::{
    LASTING, LONG, acquiring, assert_soon_free, client, hold, its_turn, ms, name, timed,
};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn assert_names(error: &LockError, option: &str) {
    assert!(
        matches!(error, LockError::InvalidOption { .. }),
        "{error:?}"
    );
    assert!(
        error.to_string().contains(&format!("`{option}`")),
        "{error}"
    );
}

#[tokio::test]
async fn a_lease_out_of_bounds_is_refused_before_anything_is_sent() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let mut watch = server.watch_commands().await;
    for lease in [
        Duration::ZERO,
        Duration::from_nanos(1),
        Duration::from_micros(9_999),
        Duration::from_nanos(9_999_999),
        DAY + Duration::from_nanos(1),
        Duration::from_millis(1 << 53),
        Duration::from_millis(i64::MAX as u64),
        Duration::from_millis(u64::MAX),
        Duration::MAX,
    ] {
        let lock = client.lock("k").lease(lease);
        assert_names(&lock.acquire().await.expect_err("out of bounds"), "lease");
        assert_names(
            &lock.try_acquire().await.expect_err("out of bounds"),
            "lease",
        );
        let body = lock.run(async { unreachable!("it is not held") });
        assert_names(&body.await.expect_err("out of bounds"), "lease");
        let builder = LockClient::builder().default_lease(lease);
        let built = builder.connect(&server.url()).await;
        built.expect_err("out of bounds");
    }
    let sent = watch.seen().await;
    let scripts = sent.iter().filter(|command| command.is("EVALSHA"));
    assert_eq!(scripts.count(), 0, "{sent:?}");
}

#[tokio::test]
async fn the_server_keeps_a_lease_no_shorter_than_its_holder_relies_on() {
    let server = RedisServer::start();
    let client = client(&server).await;
    // The server gets whole milliseconds.
    for lease in [
        Duration::from_micros(500_999),
        Duration::from_nanos(1_000_999_999),
        DAY.saturating_sub(Duration::from_nanos(1)),
        DAY,
    ] {
        let lock = client.lock("k").lease(lease).watchdog(false);
        let guard = lock.acquire().await.expect("within bounds");
        let believed = guard.valid_for();
        let kept = server.pttl(&name("k")).await;
        let kept = ms(u64::try_from(kept).expect("a time to live"));
        // The server's value is read later, so it may only be shorter by the time between.
        assert!(kept + ms(200) >= believed, "{kept:?} for {believed:?}");
        assert!(believed < lease && kept <= lease, "{kept:?} of {lease:?}");
        guard.release().await.expect("held");
    }
}

#[tokio::test]
async fn the_shortest_lease_ends_by_itself_and_the_longest_does_not_overflow() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = client.lock("k").lease(ms(10)).watchdog(false).wait(LONG);
    match lock.acquire().await {
        // On a busy machine the lease may have ended before the reply.
        Ok(guard) => {
            assert!(guard.valid_for() < ms(10));
            std::mem::forget(guard);
        }
        Err(error) => panic!("the retry of a free lock: {error}"),
    }
    assert_soon_free(&server, "k").await;

    let lock = client
        .lock("k")
        .lease(DAY)
        .wait(LONG)
        .max_hold(Duration::MAX);
    let outer = lock.acquire().await.expect("free");
    let inner = outer.scope(lock.acquire()).await.expect("enters");
    assert!(inner.valid_for() > DAY * 48 / 49);
    let fence = server.pttl(&format!("{}:fence", name("k"))).await;
    assert!(
        fence > server.pttl(&name("k")).await,
        "the token outlives it"
    );
    inner.release().await.expect("held");
    outer.release().await.expect("held");
    assert_soon_free(&server, "k").await;
}

#[tokio::test]
async fn times_below_a_millisecond_are_times_and_not_errors() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let tiny = Duration::from_nanos(1);
    // The lock is kept for a time that rounds to zero.
    let lock = client.lock("k").lease(LASTING).at_least(tiny);
    lock.run(async {}).await.expect("free");
    assert_soon_free(&server, "k").await;
    // A lock that is kept for a fraction of a millisecond is not kept for ever.
    let lock = client.lock("k").lease(LASTING).at_least(ms(30));
    let guard = lock.acquire().await.expect("free");
    let until = guard
        .valid_for()
        .saturating_sub(Duration::from_micros(29_500));
    while guard.valid_for() > until {
        std::thread::yield_now();
    }
    guard.release().await.expect("held");
    assert_soon_free(&server, "k").await;
    // Nothing completes in so short a time.
    let lock = client.lock("k").lease(LASTING).max_hold(tiny);
    let stopped = lock.run(std::future::pending::<()>()).await;
    assert!(
        matches!(stopped, Err(LockError::Lost { .. })),
        "{stopped:?}"
    );
    assert_soon_free(&server, "k").await;
    // A wait that ends before it begins.
    let held = hold(&client, "k").await;
    let (outcome, took) = timed(client.lock("k").wait(tiny).acquire()).await;
    assert!(
        matches!(outcome, Err(LockError::Timeout { .. })),
        "{outcome:?}"
    );
    assert!(took < ms(2000), "{took:?}");
    held.release().await.expect("held");
}

#[tokio::test]
async fn the_longest_wait_waits_and_a_longer_one_is_refused() {
    let server = RedisServer::start();
    let (client, other) = (client(&server).await, client(&server).await);
    let held = hold(&other, "k").await;
    let longest = DAY * 366;
    let waiting = acquiring(client.lock("k").wait(longest));
    tokio::time::sleep(ms(200)).await;
    assert!(!waiting.is_finished());
    held.release().await.expect("held");
    let guard = its_turn(waiting).await;
    guard.release().await.expect("held");
    for wait in [longest + Duration::from_nanos(1), Duration::MAX] {
        let refused = client.lock("k").wait(wait).acquire().await;
        assert_names(&refused.expect_err("out of bounds"), "wait");
    }
}
