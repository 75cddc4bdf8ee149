//! A `CurrentHold` after the end of its hold: it is invalid, and returns the cause.

use std::{future::pending, time::Duration};

use rlock_core::{
    CurrentHold, InCurrentScope, LockClient, LockError, LostCause, Reentry, distributed_lock,
    testing::simulate_loss,
};
use rlock_testkit::{Proxy, RedisServer, within};
use tokio::sync::oneshot;

use crate::common::{LASTING, LONG, cause_of, connect, here, on_tokio_clock, two_clients};

/// Asserts that the hold is invalid with this cause, and that its token can still be read.
async fn assert_over(hold: &CurrentHold, cause: LostCause) {
    assert!(!hold.is_valid(), "{hold:?}");
    assert_eq!(hold.valid_for(), Duration::ZERO);
    let reported = within(LONG, "an ended hold reports its cause", hold.lost()).await;
    assert_eq!(reported, cause, "{hold:?}");
    assert!(hold.keys().all(|key| hold.token_of(key).is_some()));
}

#[tokio::test]
async fn a_hold_that_is_kept_beyond_its_call_is_not_valid_while_another_has_the_lock() {
    let [one, other] = two_clients("memory:current-hold").await;
    let lock = one.lock("k").lease(LASTING);
    let kept = lock.run(async {
        assert!(here().is_valid());
        here()
    });
    let kept = kept.await.expect("free");
    let next = other.lock("k").acquire().await.expect("free");
    assert_over(&kept, LostCause::Released).await;
    assert!(next.token() > kept.token());
    next.release().await.expect("held");

    // The next call of the client gets the retained lock with the same owner.
    let lock = lock.retain(LONG);
    let kept = lock.run(async { here() }).await.expect("free");
    assert_over(&kept, LostCause::Released).await;
    let next = lock.acquire().await.expect("retained");
    assert_eq!(next.owner(), kept.owner());
    assert!(!kept.is_valid() && next.is_valid());
}

#[tokio::test]
async fn each_way_out_of_a_body_ends_its_hold() {
    #[distributed_lock(key = ["k", "other"], wait = "1m", client = client)]
    async fn both(client: &LockClient) -> Result<CurrentHold, rlock_core::LockError> {
        assert!(here().is_valid());
        Ok(here())
    }
    let client = LockClient::in_memory();
    let lock = client.lock("k").lease(LASTING).wait(LONG);
    let kept = both(&client).await.expect("free");
    assert_over(&kept, LostCause::Released).await;

    for panics in [true, false] {
        let (sender, hold) = oneshot::channel();
        let lock = lock.clone();
        let call = tokio::spawn(async move {
            let body = async {
                sender.send(here()).expect("the test waits");
                assert!(!panics, "on purpose");
                pending::<()>().await;
            };
            lock.run(body).await
        });
        let hold = hold.await.expect("sent");
        call.abort();
        assert!(call.await.is_err());
        assert_over(&hold, LostCause::Released).await;
    }

    let synchronous = tokio::task::spawn_blocking({
        let lock = lock.clone();
        move || lock.run_blocking(here)
    });
    let kept = synchronous.await.expect("no panic").expect("free");
    assert_over(&kept, LostCause::Released).await;

    for releases in [true, false] {
        let guard = lock.acquire().await.expect("free");
        let of_guard = guard.scope(async { here() }).await;
        assert!(of_guard.is_valid(), "the guard still holds it");
        if releases {
            guard.release().await.expect("held");
        } else {
            drop(guard);
        }
        assert_over(&of_guard, LostCause::Released).await;
    }
}

/// The nested call of a task outlives the outer one.
#[tokio::test]
async fn a_nested_hold_ends_with_its_own_call() {
    for reentry in [Reentry::Local, Reentry::Counted] {
        let client = LockClient::builder().reentry(reentry).in_memory();
        let client = client.expect("a client");
        let lock = client.lock("k").lease(LASTING);
        let (inside, entered) = oneshot::channel();
        let (go, word) = oneshot::channel::<()>();
        let nested = lock.clone();
        let parent = lock.run(async {
            let inner = nested.run(async { here() }).await.expect("enters");
            assert_over(&inner, LostCause::Released).await;
            assert!(here().is_valid(), "{reentry:?}");
            let child = async move {
                let body = async {
                    inside.send(()).expect("the parent waits");
                    word.await.expect("the test sends a signal");
                    assert!(here().is_valid(), "{reentry:?}");
                    here()
                };
                nested.run(body).await.expect("enters")
            };
            let child = tokio::spawn(child.in_current_scope());
            entered.await.expect("the child is inside");
            let lost = async { here().lost().await }.in_current_scope();
            (here(), child, tokio::spawn(lost))
        });
        let (outer, child, lost) = parent.await.expect("free");
        assert_over(&outer, LostCause::Released).await;
        let reported = within(LONG, "a task of the body is notified", lost).await;
        assert_eq!(reported.expect("no panic"), LostCause::Released);
        go.send(()).expect("the child waits");
        let inner = child.await.expect("no panic");
        assert_over(&inner, LostCause::Released).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_keeps_the_cause_of_its_end() {
    let client = on_tokio_clock("memory:").await;
    for cause in [LostCause::Removed, LostCause::MaxHold, LostCause::Closed] {
        let lock = client.lock("k").max_hold(LONG);
        let released = lock.run(async { here() }).await.expect("free");
        let (inside, entered) = oneshot::channel();
        let call = tokio::spawn(async move {
            let body = async {
                let ended = lock.run(async { here() }).await.expect("enters");
                inside.send((ended, here())).expect("the test waits");
                pending::<()>().await;
            };
            lock.run(body).await
        });
        let (ended, running) = entered.await.expect("the body runs");
        match cause {
            LostCause::Removed => assert!(simulate_loss(&client, "k").expect("the embedded store")),
            LostCause::MaxHold => tokio::time::sleep(LONG).await,
            _ => client.shutdown().await.expect("released"),
        }
        assert_eq!(cause_of(call.await.expect("no panic")), Some(cause));
        assert_over(&running, cause).await;
        for ended in [released, ended] {
            assert_over(&ended, LostCause::Released).await;
        }
    }
}

/// The hold is invalid from the release request on, because another client may then have the lock.
#[tokio::test]
async fn a_hold_is_not_valid_from_the_moment_its_release_is_sent() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let client = connect(&proxy.url()).await;
    let lock = client.lock("k").lease(LASTING);
    let guard = lock.acquire().await.expect("free");
    let hold = guard.scope(async { here() }).await;
    proxy.hold();
    let releasing = tokio::spawn(guard.release());
    let reported = within(LONG, "the loss is notified before the reply", hold.lost()).await;
    assert_eq!(reported, LostCause::Released);
    assert!(!releasing.is_finished(), "the reply is still missing");
    assert_over(&hold, LostCause::Released).await;
    proxy.pass();
    let _ = releasing.await.expect("no panic");
}

#[tokio::test]
async fn a_check_names_the_lock_that_is_lost_and_why() {
    let client = LockClient::in_memory();
    let locks = client.lock_all(["b", "a"]);
    let body = locks.run(async {
        here().check().expect("held");
        here()
    });
    let hold = body.await.expect("free");
    let cause_of = |result: Result<(), LockError>| match result {
        Err(LockError::Lost { key, cause, .. }) => (key, cause),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        cause_of(hold.check()),
        ("b".to_owned(), LostCause::Released)
    );
    let guard = locks.acquire().await.expect("free");
    guard.check().expect("held");
    assert!(simulate_loss(&client, "a").expect("the embedded store"));
    within(LONG, "the loss is notified", guard.lost()).await;
    assert_eq!(
        cause_of(guard.check()),
        ("a".to_owned(), LostCause::Removed)
    );
}
