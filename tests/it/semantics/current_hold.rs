//! A `CurrentHold` after the end of its hold: it is invalid, and returns the cause.

use std::time::Duration;

use rlock_core::{
    CurrentHold, InCurrentScope, LockClient, LockError, LostCause, Reentry, current,
    distributed_lock,
};
use rlock_testkit::{Proxy, RedisServer, within};

use crate::common::{LASTING, LONG, cause_of, client, connect, ms, name};

fn here() -> CurrentHold {
    current().expect("inside")
}

/// Asserts that the hold is invalid with this cause, and that its token can still be read.
async fn assert_over(hold: &CurrentHold, cause: LostCause) {
    assert!(!hold.is_valid(), "{hold:?}");
    assert_eq!(hold.valid_for(), Duration::ZERO);
    let reported = within(LONG, "an ended hold reports its cause", hold.lost()).await;
    assert_eq!(reported, cause, "{hold:?}");
    assert!(hold.fencing_token() > 0);
    assert_eq!(hold.key(), "k");
}

fn in_memory(reentry: Reentry) -> LockClient {
    let builder = LockClient::builder().reentry(reentry);
    builder.in_memory().expect("a client")
}

#[tokio::test]
async fn a_hold_that_is_kept_beyond_its_call_is_not_valid_while_another_has_the_lock() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let lock = one.lock("k").lease(LASTING);
    let kept = lock.run(async {
        assert!(here().is_valid());
        here()
    });
    let kept = kept.await.expect("free");
    let next = other.lock("k").acquire().await.expect("free");
    assert_over(&kept, LostCause::Released).await;
    assert!(next.fencing_token() > kept.fencing_token());
    next.release().await.expect("held");

    // The next call of the client gets the retained lock with the same owner.
    let lock = lock.retain(LASTING);
    let kept = lock.run(async { here() }).await.expect("free");
    assert_over(&kept, LostCause::Released).await;
    let next = lock.acquire().await.expect("retained");
    assert_eq!(next.owner(), kept.owner());
    assert!(!kept.is_valid() && next.is_valid());
}

#[tokio::test]
async fn each_way_out_of_a_body_ends_its_hold() {
    let client = LockClient::in_memory();
    let lock = client.lock("k").lease(LASTING);
    let (sender, mut holds) = tokio::sync::mpsc::unbounded_channel();

    let keeps = sender.clone();
    let panics = tokio::spawn({
        let lock = lock.clone();
        async move {
            let body = async {
                let _ = keeps.send(here());
                panic!("on purpose");
            };
            lock.run(body).await
        }
    });
    assert!(panics.await.is_err());
    assert_over(&holds.recv().await.expect("kept"), LostCause::Released).await;

    let body = async {
        let _ = sender.send(here());
        std::future::pending::<()>().await;
    };
    assert!(tokio::time::timeout(ms(50), lock.run(body)).await.is_err());
    assert_over(&holds.recv().await.expect("kept"), LostCause::Released).await;

    let synchronous = tokio::task::spawn_blocking({
        let lock = lock.clone();
        move || lock.run_blocking(here)
    });
    let kept = synchronous.await.expect("no panic").expect("free");
    assert_over(&kept, LostCause::Released).await;

    let guard = lock.acquire().await.expect("free");
    let of_guard = guard.scope(async { here() }).await;
    assert!(of_guard.is_valid(), "the guard still holds it");
    guard.release().await.expect("held");
    assert_over(&of_guard, LostCause::Released).await;

    let guard = lock.acquire().await.expect("free");
    let of_guard = guard.scope(async { here() }).await;
    drop(guard);
    assert_over(&of_guard, LostCause::Released).await;
}

#[tokio::test]
async fn a_hold_in_another_thread_or_task_ends_with_the_call_that_it_is_of() {
    let client = LockClient::in_memory();
    let lock = client.lock("k").lease(LASTING);
    let (go, word) = std::sync::mpsc::channel::<()>();
    let (thread, task) = lock
        .run(async {
            let hold = here();
            let (looks, looked) = tokio::sync::oneshot::channel();
            let thread = tokio::task::spawn_blocking(move || {
                looks.send(hold.is_valid()).expect("the body waits");
                word.recv().expect("the test sends a signal");
                hold
            });
            assert!(looked.await.expect("the thread checks"));
            let (inside, entered) = tokio::sync::oneshot::channel();
            let child = async move {
                assert!(here().is_valid());
                inside.send(()).expect("the body waits");
                // Resolves when the parent ends. Later calls of the child return the same cause.
                (here().lost().await, here())
            };
            let task = tokio::spawn(child.in_current_scope());
            entered.await.expect("the child runs");
            (thread, task)
        })
        .await
        .expect("free");
    go.send(()).expect("the thread waits");
    let hold = thread.await.expect("no panic");
    assert_over(&hold, LostCause::Released).await;
    let task = within(LONG, "the loss is notified to the child", task).await;
    let (cause, hold) = task.expect("no panic");
    assert_eq!(cause, LostCause::Released);
    assert_over(&hold, LostCause::Released).await;
}

#[tokio::test]
async fn a_nested_hold_ends_with_its_own_call_and_the_outer_one_continues() {
    for reentry in [Reentry::Local, Reentry::Counted] {
        let client = in_memory(reentry);
        let lock = client.lock("k").lease(LASTING);
        let both = lock.run(async {
            let outer = here();
            let loss = tokio::spawn({
                let outer = outer.clone();
                async move { outer.lost().await }
            });
            let inner = lock.run(async { here() }).await.expect("enters");
            assert_over(&inner, LostCause::Released).await;
            assert!(outer.is_valid() && here().is_valid(), "{reentry:?}");
            assert!(!loss.is_finished());
            (inner, outer, loss)
        });
        let (inner, outer, loss) = both.await.expect("free");
        assert_over(&inner, LostCause::Released).await;
        assert_over(&outer, LostCause::Released).await;
        assert_eq!(loss.await.expect("no panic"), LostCause::Released);
    }
}

#[tokio::test]
async fn a_hold_that_outlives_the_outer_one_is_valid_until_its_own_call_ends() {
    for reentry in [Reentry::Local, Reentry::Counted] {
        let client = in_memory(reentry);
        let lock = client.lock("k").lease(LASTING);
        let (inside, entered) = tokio::sync::oneshot::channel();
        let (go, word) = tokio::sync::oneshot::channel::<()>();
        let nested = lock.clone();
        let parent = lock.run(async move {
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
            (here(), child)
        });
        let (outer, child) = parent.await.expect("free");
        assert_over(&outer, LostCause::Released).await;
        go.send(()).expect("the child waits");
        let inner = child.await.expect("no panic");
        assert_over(&inner, LostCause::Released).await;
    }
}

#[tokio::test]
async fn the_hold_of_a_call_with_several_keys_ends_with_it() {
    #[distributed_lock(key = ["one", "other"], lease = "30s")]
    async fn both() -> Result<CurrentHold, LockError> {
        assert!(here().is_valid());
        Ok(here())
    }
    let client = LockClient::in_memory();
    let kept = client.scope(both()).await.expect("free");
    assert!(!kept.is_valid());
    assert_eq!(kept.lost().await, LostCause::Released);
}

#[tokio::test]
async fn after_a_shutdown_a_hold_says_whether_it_ended_before() {
    let client = LockClient::in_memory();
    let lock = client.lock("k").lease(LASTING);
    let released = lock.run(async { here() }).await.expect("free");
    let (inside, entered) = tokio::sync::oneshot::channel();
    let body = tokio::spawn(async move {
        let body = async {
            inside.send(here()).expect("the test waits");
            std::future::pending::<()>().await;
        };
        lock.run(body).await
    });
    let running = entered.await.expect("the body runs");
    let guarded = client.lock("g").acquire().await.expect("free");
    let of_guard = guarded.scope(async { here() }).await;
    client.shutdown().await.expect("released");
    assert_eq!(
        cause_of(body.await.expect("no panic")),
        Some(LostCause::Closed)
    );
    assert_over(&released, LostCause::Released).await;
    assert_over(&running, LostCause::Closed).await;
    assert!(!of_guard.is_valid() && !guarded.is_valid());
    assert_eq!(of_guard.lost().await, LostCause::Closed);
    assert_eq!(guarded.lost().await, LostCause::Closed);
}

#[tokio::test]
async fn a_hold_that_was_lost_before_its_call_ended_keeps_its_cause() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = client.lock("k").lease(LASTING);
    let (sender, mut holds) = tokio::sync::mpsc::unbounded_channel();
    let body = async {
        let ended = lock.run(async { here() }).await.expect("enters");
        let _ = sender.send(ended);
        let _ = sender.send(here());
        assert!(server.del(&name("k")).await);
        std::future::pending::<()>().await;
    };
    assert_eq!(cause_of(lock.run(body).await), Some(LostCause::Removed));
    let ended = holds.recv().await.expect("kept");
    let lost = holds.recv().await.expect("kept");
    assert_over(&ended, LostCause::Released).await;
    assert_over(&lost, LostCause::Removed).await;

    let lock = lock.max_hold(ms(50));
    let body = async {
        let _ = sender.send(here());
        std::future::pending::<()>().await;
    };
    assert_eq!(cause_of(lock.run(body).await), Some(LostCause::MaxHold));
    let over = holds.recv().await.expect("kept");
    assert_over(&over, LostCause::MaxHold).await;
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
    assert!(!hold.is_valid());
    assert!(!releasing.is_finished(), "the reply is still missing");
    proxy.pass();
    let _ = releasing.await.expect("no panic");
    assert_over(&hold, LostCause::Released).await;
}
