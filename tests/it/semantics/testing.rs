//! Support for the tests of services: simulated losses, and a controlled clock.

use std::time::{Duration, Instant};

use rlock_core::{LockClient, LockError, LostCause};
use rlock_testkit::{RedisServer, within};

use crate::common::{LONG, acquiring, client, its_turn, ms};

const HOUR: Duration = Duration::from_secs(60 * 60);

fn in_tokio_time() -> LockClient {
    let client = LockClient::builder().tokio_time().in_memory();
    client.expect("a client")
}

#[tokio::test]
async fn a_lock_that_is_revoked_is_lost_at_once_and_the_next_waiter_has_it() {
    let client = LockClient::in_memory();
    for renews in [true, false] {
        let guard = client
            .lock("k")
            .watchdog(renews)
            .acquire()
            .await
            .expect("free");
        let waiter = client.lock("k").wait(LONG);
        let waiter = tokio::spawn(async move { waiter.acquire().await });
        tokio::time::sleep(ms(50)).await;
        let started = Instant::now();
        assert!(client.revoke("k").expect("the embedded store"));
        let cause = within(LONG, "the loss is notified", guard.lost()).await;
        assert_eq!(cause, LostCause::Removed);
        assert!(started.elapsed() < Duration::from_secs(3));
        assert!(!guard.is_valid());
        let next = within(LONG, "its turn", waiter).await.expect("no panic");
        let next = next.expect("granted");
        assert!(next.fencing_token() > guard.fencing_token());
        let error = guard.release().await.expect_err("lost");
        assert!(matches!(error, LockError::Lost { .. }), "{error:?}");
        next.release()
            .await
            .expect("the loss of another is not its own");
    }
    assert!(!client.revoke("k").expect("the embedded store"), "free");
}

#[tokio::test]
async fn clients_of_one_embedded_store_revoke_each_others_locks() {
    let (one, other) = (
        LockClient::connect("memory:revoked")
            .await
            .expect("a store"),
        LockClient::connect("memory:revoked")
            .await
            .expect("a store"),
    );
    let guard = one.lock("k").acquire().await.expect("free");
    assert!(other.revoke("k").expect("the embedded store"));
    let cause = within(LONG, "the loss is notified", guard.lost()).await;
    assert_eq!(cause, LostCause::Removed);
}

#[tokio::test]
async fn a_lock_on_a_server_is_not_revoked() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let guard = client.lock("k").acquire().await.expect("free");
    let error = client.revoke("k").expect_err("a server");
    assert!(matches!(error, LockError::Store { .. }), "{error:?}");
    assert!(error.to_string().contains("force_release"), "{error}");
    assert!(guard.is_valid());
    guard.release().await.expect("held");
    client.shutdown().await.expect("in good order");
    let error = client.revoke("k").expect_err("closed");
    assert!(matches!(error, LockError::Closed { .. }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_in_no_time_where_the_clock_is_paused() {
    let started = Instant::now();
    let client = in_tokio_time();
    let held = client.lock("k").acquire().await.expect("free");
    let error = client.lock("k").wait(HOUR).acquire().await;
    let Err(LockError::Timeout { waited, .. }) = error else {
        panic!("{error:?}")
    };
    assert!(waited >= HOUR && waited < HOUR + ms(100), "{waited:?}");
    assert!(held.is_valid(), "it was renewed for an hour");
    held.release().await.expect("held");
    assert!(started.elapsed() < LONG, "in real time");
}

#[tokio::test(start_paused = true)]
async fn leases_end_by_the_paused_clock() {
    let started = Instant::now();
    let client = in_tokio_time();
    let guard = client.lock("k").lease(HOUR).watchdog(false);
    let guard = guard.acquire().await.expect("free");
    tokio::time::advance(HOUR / 2).await;
    assert!(guard.is_valid());
    tokio::time::advance(HOUR / 2).await;
    assert!(!guard.is_valid());
    assert_eq!(guard.lost().await, LostCause::Expired);
    let capped = client.lock("other").max_hold(HOUR);
    let error = capped
        .run(std::future::pending::<()>())
        .await
        .expect_err("capped");
    assert!(
        matches!(
            error,
            LockError::Lost {
                cause: LostCause::MaxHold,
                ..
            }
        ),
        "{error:?}"
    );
    let kept = client
        .lock("night")
        .at_least(HOUR)
        .acquire()
        .await
        .expect("free");
    kept.release().await.expect("held");
    let at_once = client.lock("night").try_acquire().await.expect("a reply");
    assert!(at_once.is_none());
    tokio::time::advance(HOUR).await;
    let later = client.lock("night").try_acquire().await.expect("a reply");
    later
        .expect("free after an hour")
        .release()
        .await
        .expect("held");
    let drained = client.drain(HOUR).await.expect("in good order");
    assert_eq!(drained, rlock_core::Drained::Completed);
    assert!(started.elapsed() < LONG, "in real time");
}

#[tokio::test(start_paused = true)]
async fn clients_that_share_a_store_share_its_time() {
    let connect = async || {
        let builder = LockClient::builder().tokio_time();
        builder.connect("memory:paused").await.expect("a store")
    };
    let one = connect().await;
    tokio::time::advance(HOUR).await;
    let other = connect().await;
    let held = one
        .lock("k")
        .lease(HOUR)
        .watchdog(false)
        .acquire()
        .await
        .expect("free");
    let waiter = other.lock("k").wait(HOUR * 2).acquire().await;
    let waiter = waiter.expect("the lease ends before the wait does");
    assert!(!held.is_valid());
    waiter.release().await.expect("held");
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
    refused(
        LockClient::builder().tokio_time().in_memory(),
        "no Tokio runtime",
    );
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = LockClient::builder()
        .tokio_time()
        .connect("redis://127.0.0.1/");
    refused(runtime.block_on(server), "server");
    let quorum = LockClient::builder()
        .tokio_time()
        .quorum(["redis://127.0.0.1/"]);
    refused(runtime.block_on(quorum), "server");
}

#[tokio::test]
async fn a_lock_that_another_client_takes_is_not_passed_on_in_its_process() {
    let silent = LockClient::builder().answers(false);
    let silent = silent.connect("memory:taken").await.expect("a store");
    let other = LockClient::connect("memory:taken").await.expect("a store");
    let guard = silent.lock("k").acquire().await.expect("free");
    let its_next = acquiring(silent.lock("k").wait(LONG));
    let others = acquiring(other.lock("k").wait(LONG));
    tokio::time::sleep(ms(50)).await;
    assert!(other.force_release("k").await.expect("a store"));
    let others = its_turn(others).await;
    let error = guard.release().await.expect_err("it was taken");
    assert!(matches!(error, LockError::Lost { .. }), "{error:?}");
    tokio::time::sleep(ms(50)).await;
    assert!(!its_next.is_finished());
    let token = others.fencing_token();
    others.release().await.expect("held");
    assert!(its_turn(its_next).await.fencing_token() > token);
}
