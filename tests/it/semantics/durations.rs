//! Extreme durations: none becomes zero, and none overflows.

use std::time::Duration;

use rlock_testkit::RedisServer;

use crate::common::{LASTING, assert_soon_free, client, enqueued, hold, its_turn, ms, name};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[tokio::test]
async fn the_longest_durations_do_not_overflow() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    // The server gets whole milliseconds, and keeps the lock for no shorter than its holder relies on it.
    for lease in [
        Duration::from_nanos(60_000_999_999),
        DAY.saturating_sub(Duration::from_nanos(1)),
        DAY,
    ] {
        let lock = one.lock("k").lease(lease).max_hold(Duration::MAX);
        let outer = lock.acquire().await.expect("within bounds");
        let inner = outer.scope(lock.acquire()).await.expect("enters");
        let kept = server.pttl(&name("k")).await;
        assert!(
            Duration::from_millis(kept.unsigned_abs()) <= lease,
            "{kept}"
        );
        let believed = inner.valid_for().as_millis();
        assert!(
            believed <= u128::from(kept.unsigned_abs()),
            "{kept} for {believed}"
        );
        assert!(believed > lease.as_millis() / 2, "{believed} of {lease:?}");
        let fence = server.pttl(&format!("{}:fence", name("k"))).await;
        assert!(fence > kept, "the token outlives it");
        inner.release().await.expect("held");
        outer.release().await.expect("held");
    }

    let held = hold(&other, "k").await;
    let longest = DAY * 366;
    let waiting = enqueued(&server, one.lock("k").wait(longest)).await;
    held.release().await.expect("held");
    its_turn(waiting).await.release().await.expect("held");
    let too_long = longest + Duration::from_nanos(1);
    let refused = one.lock("k").wait(too_long).acquire().await;
    let error = refused.expect_err("out of bounds");
    assert!(error.to_string().contains("`wait`"), "{error}");
}

#[tokio::test]
async fn durations_below_a_millisecond_are_accepted() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let tiny = Duration::from_nanos(1);
    // The lock is kept for a time that rounds to zero.
    let lock = client.lock("k").lease(LASTING).min_hold(tiny);
    lock.run(async {}).await.expect("free");
    assert_soon_free(&server, "k").await;
    // A lock that is kept for a fraction of a millisecond is not kept forever.
    let lock = client.lock("k").lease(LASTING).min_hold(ms(30));
    let guard = lock.acquire().await.expect("free");
    let until = guard
        .valid_for()
        .saturating_sub(Duration::from_micros(29_500));
    while guard.valid_for() > until {
        std::thread::yield_now();
    }
    guard.release().await.expect("held");
    assert_soon_free(&server, "k").await;
}
