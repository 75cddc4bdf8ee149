//! Support for the tests of services: simulated losses, and a controlled clock.

use std::time::Duration;

use rlock_core::{DrainOutcome, LockClient, LockError, LostCause, StoreUrl};
use rlock_testkit::{RedisServer, within};

use crate::common::{LONG, begin, cause_of, client, connect, ms};

const HOUR: Duration = Duration::from_secs(60 * 60);

async fn in_tokio_time(store: &str) -> LockClient {
    let client = LockClient::builder().tokio_time().connect(store).await;
    client.expect("a client")
}

#[tokio::test]
async fn a_lock_that_is_revoked_is_lost_at_once_and_the_next_waiter_has_it() {
    let (client, other) = (
        connect("memory:revoked").await,
        connect("memory:revoked").await,
    );
    for renews in [true, false] {
        // Neither the end of the lease nor a renewal finds the loss.
        let lock = client.lock("k").lease(HOUR).watchdog(renews);
        let guard = lock.acquire().await.expect("free");
        let waiter = client.lock("k").wait(LONG);
        let mut waiter = Box::pin(waiter.acquire());
        begin(&mut waiter).await;
        assert!(other.simulate_loss("k").expect("the embedded store"));
        let cause = within(LONG, "the loss is notified", guard.lost()).await;
        assert_eq!(cause, LostCause::Removed);
        assert!(!guard.is_valid());
        let next = waiter.await.expect("granted");
        assert!(next.token() > guard.token());
        assert_eq!(cause_of(guard.release().await), Some(LostCause::Removed));
        let released = next.release().await;
        released.expect("the loss of another is not its own");
    }
    assert!(
        !client.simulate_loss("k").expect("the embedded store"),
        "free"
    );
}

#[tokio::test]
async fn a_lock_on_a_server_is_not_revoked() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let guard = client.lock("k").acquire().await.expect("free");
    let error = client.simulate_loss("k").expect_err("a server");
    assert!(matches!(error, LockError::Refused { .. }), "{error:?}");
    assert!(format!("{error:#}").contains("force_release"), "{error:#}");
    assert!(guard.is_valid());
    guard.release().await.expect("held");
    client.shutdown().await.expect("in good order");
    let error = client.simulate_loss("k").expect_err("closed");
    assert!(matches!(error, LockError::Closed { .. }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn clients_that_share_a_store_wait_by_its_paused_clock() {
    let one = in_tokio_time("memory:paused").await;
    tokio::time::advance(HOUR).await;
    let other = in_tokio_time("memory:paused").await;
    let held = one.lock("k").acquire().await.expect("free");
    let error = other.lock("k").wait(HOUR).acquire().await;
    let Err(LockError::Taken { waited, .. }) = error else {
        panic!("{error:?}")
    };
    assert!(waited >= HOUR && waited < HOUR + ms(100), "{waited:?}");
    assert!(held.is_valid(), "it was renewed for an hour");
    held.release().await.expect("held");

    let brief = one.lock("k").lease(HOUR).watchdog(false);
    let held = brief.acquire().await.expect("free");
    let waiter = other.lock("k").wait(HOUR * 2).acquire().await;
    let waiter = waiter.expect("the lease ends before the wait does");
    assert!(!held.is_valid());
    waiter.release().await.expect("held");
}

#[tokio::test(start_paused = true)]
async fn leases_end_by_the_paused_clock() {
    let client = in_tokio_time("memory:").await;
    let guard = client.lock("k").lease(HOUR).watchdog(false);
    let guard = guard.acquire().await.expect("free");
    tokio::time::advance(HOUR).await;
    assert!(!guard.is_valid());
    assert_eq!(guard.lost().await, LostCause::Expired);
    let capped = client.lock("other").max_hold(HOUR);
    let stopped = capped.run(std::future::pending::<()>()).await;
    assert_eq!(cause_of(stopped), Some(LostCause::MaxHold));
    let night = client.lock("night").min_hold(HOUR);
    let kept = night.acquire().await.expect("free");
    kept.release().await.expect("held");
    assert!(night.try_acquire().await.expect("a reply").is_none());
    tokio::time::advance(HOUR).await;
    let later = night.try_acquire().await.expect("a reply");
    drop(later.expect("free after an hour"));
    let drained = client.drain(HOUR).await.expect("in good order");
    assert_eq!(drained, DrainOutcome::Completed);
}

#[test]
fn time_of_tokio_is_refused_outside_of_a_runtime_and_for_servers() {
    let refused = |outcome: Result<LockClient, LockError>, why: &str| {
        let error = outcome.expect_err("refused");
        assert!(
            matches!(
                error,
                LockError::InvalidOption {
                    option: "tokio_time",
                    ..
                }
            ),
            "{error:?}"
        );
        assert!(error.to_string().contains(why), "{error}");
    };
    let builder = || LockClient::builder().tokio_time();
    refused(builder().in_memory(), "no Tokio runtime");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = builder().connect("redis://127.0.0.1/");
    refused(runtime.block_on(server), "server");
    let quorum = builder().connect(StoreUrl::quorum(["redis://127.0.0.1/"]));
    refused(runtime.block_on(quorum), "server");
}
