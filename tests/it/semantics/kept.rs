//! Guards of bodies: they keep a hold for work that outlives its body.

use std::{sync::mpsc, thread, time::Duration};

use rlock_core::{
    CurrentHold, Drained, InCurrentScope, Lock, LockClient, LockError, LockGuard, LostCause,
    Reentry, current, distributed_lock,
};
use rlock_testkit::{RedisServer, within};
use tokio::{sync::oneshot, task::spawn_blocking, time::sleep};

use crate::common::{
    LASTING, LONG, acquiring, assert_lost, assert_nothing_left, cause_of, count, its_turn, ms, name,
};

fn here() -> CurrentHold {
    current().expect("inside")
}

fn kept() -> LockGuard {
    here().guard().expect("held")
}

/// Two clients of one store. The first counts entries in this way.
struct Pair {
    one: LockClient,
    other: LockClient,
    server: Option<RedisServer>,
}

async fn pairs() -> Vec<Pair> {
    let mut pairs = Vec::new();
    for (place, reentry) in [("counted", Reentry::Counted), ("local", Reentry::Local)] {
        let server = RedisServer::start();
        let (url, embedded) = (server.url(), format!("memory:kept-{place}"));
        for (url, server) in [(url, Some(server)), (embedded, None)] {
            let connect = async |reentry| {
                let builder = LockClient::builder().reentry(reentry);
                builder.connect(&url).await.expect("the store is up")
            };
            pairs.push(Pair {
                one: connect(reentry).await,
                other: connect(reentry).await,
                server,
            });
        }
    }
    pairs
}

/// Blocking work that a call has begun, before its caller goes away.
struct Work {
    end: mpsc::Sender<()>,
    ended: oneshot::Receiver<()>,
}

/// Starts blocking work in a body, and cancels the call. The work has a guard if it `keeps` the lock.
async fn work_of_a_cancelled_call(lock: Lock, keeps: bool) -> Work {
    let (end, signal) = mpsc::channel();
    let (ends, ended) = oneshot::channel();
    let (begins, begun) = oneshot::channel();
    let body = async move {
        let guard = keeps.then(kept);
        let work = spawn_blocking(move || {
            let _guard = guard;
            begins.send(()).expect("awaited");
            signal.recv().expect("the test sends it");
            let _ = ends.send(());
        });
        work.await.expect("no panic");
    };
    let call = tokio::spawn(lock.run(body));
    begun.await.expect("it begins");
    call.abort();
    assert!(call.await.expect_err("it cannot end yet").is_cancelled());
    Work { end, ended }
}

#[tokio::test]
async fn blocking_work_of_a_cancelled_call_runs_beside_the_next_holder_unless_it_has_a_guard() {
    for Pair { one, other, server } in pairs().await {
        let (lock, next) = (one.lock("k").lease(LASTING), other.lock("k").wait(LONG));

        let mut without = work_of_a_cancelled_call(lock.clone(), false).await;
        let guard = next.acquire().await.expect("released with the call");
        assert!(without.ended.try_recv().is_err(), "the work still runs");
        without.end.send(()).expect("it runs");
        without.ended.await.expect("it ends");
        guard.release().await.expect("held");

        let mut with = work_of_a_cancelled_call(lock, true).await;
        let waiting = acquiring(next);
        sleep(ms(300)).await;
        assert!(!waiting.is_finished(), "the work keeps the lock");
        assert!(with.ended.try_recv().is_err(), "the work still runs");
        with.end.send(()).expect("it runs");
        its_turn(waiting).await.release().await.expect("held");
        with.ended.await.expect("ended before");
        if let Some(server) = server {
            assert_nothing_left(&server).await;
        }
    }
}

#[tokio::test]
async fn a_guard_keeps_the_hold_of_its_call_until_it_is_released() {
    for Pair { one, other, server } in pairs().await {
        let lock = one.lock("k").lease(LASTING);
        let body = async { (here(), kept(), lock.acquire().await.expect("enters")) };
        let (hold, guard, nested) = lock.run(body).await.expect("free");
        assert!(!hold.is_valid(), "its call has ended");
        assert!(guard.is_valid());
        assert_eq!(guard.fencing_token(), hold.fencing_token());
        assert_eq!(guard.count(), 2, "itself and `nested`");
        nested.release().await.expect("held");
        assert_eq!(guard.count(), 1);
        if let Some(server) = &server {
            assert_eq!(count(server, &guard).await, Some(1));
        }
        let taken = other.lock("k").try_acquire().await.expect("a reply");
        assert!(taken.is_none(), "the guard keeps it");

        // The guard's own work enters the hold, which the client can pass on afterwards.
        let again = guard.scope(async { lock.run(async { here().count() }).await });
        assert_eq!(again.await.expect("enters"), 2);
        guard.release().await.expect("held");
        let next = other.lock("k").try_acquire().await.expect("a reply");
        assert!(next.expect("free").fencing_token() > hold.fencing_token());
    }
}

#[tokio::test]
async fn guards_keep_every_lock_of_the_call_and_of_its_callers() {
    let (one, other) = (LockClient::in_memory(), LockClient::in_memory());
    let (outer, several) = (other.lock("tenant"), one.lock_all(["b", "a"]));
    let body = several.run(async {
        let nested = one.lock("b").run(async { here().guards() }).await;
        (nested.expect("enters").expect("held"), here().guards())
    });
    let (nested, guards) = outer.run(body).await.expect("free").expect("free");
    let guards = guards.expect("held");
    for guards in [&nested, &guards] {
        let keys: Vec<_> = guards.guards().iter().map(LockGuard::key).collect();
        assert_eq!(keys, ["a", "b", "tenant"], "each once");
        assert!(guards.is_valid());
    }
    drop(nested);
    assert!(several.try_acquire().await.expect("a reply").is_none());
    assert!(outer.try_acquire().await.expect("a reply").is_none());
    guards.release().await.expect("held");
    drop(several.try_acquire().await.expect("a reply").expect("free"));
    drop(outer.try_acquire().await.expect("a reply").expect("free"));
}

#[tokio::test]
async fn guards_leave_out_a_caller_that_has_ended_and_refuse_one_that_was_lost() {
    let client = LockClient::in_memory();
    let (outer, inner) = (client.lock("outer"), client.lock("inner"));
    for lost in [false, true] {
        let (go, word) = oneshot::channel::<()>();
        let begun = async {
            let inner = inner.clone();
            let task = async move {
                let body = async {
                    word.await.expect("sent");
                    here().guards().map(|guards| guards.guards().len())
                };
                inner.run(body).await.expect("free")
            };
            (tokio::spawn(task.in_current_scope()), kept())
        };
        let (task, keeps) = outer.run(begun).await.expect("free");
        if lost {
            client.revoke("outer").expect("the embedded store");
            assert_lost(&keeps, LONG, LostCause::Removed).await;
        } else {
            keeps.release().await.expect("held");
        }
        go.send(()).expect("awaited");
        let guards = within(LONG, "it ends", task).await.expect("no panic");
        // The call of `outer` had ended before the loss.
        assert_eq!(guards.expect("`inner` is held"), 1);
    }

    let body = outer.run(inner.run(async {
        client.revoke("outer").expect("the embedded store");
        here().guards()
    }));
    let refused = body.await;
    assert_eq!(cause_of(refused), Some(LostCause::Removed));
}

#[tokio::test]
async fn no_guard_of_a_hold_that_has_ended_or_is_lost() {
    for Pair { one, other, .. } in pairs().await {
        let lock = one.lock("k").lease(LASTING);
        let ended = lock.run(async { here() }).await.expect("free");
        for _ in 0..2 {
            let refused = ended.guard().expect_err("the call has ended");
            assert_eq!(refused.key(), Some("k"));
            assert!(
                refused.to_string().contains("its call has ended"),
                "{refused}"
            );
            assert_eq!(cause_of(Err::<(), _>(refused)), Some(LostCause::Released));
            assert_eq!(cause_of(ended.guards()), Some(LostCause::Released));
            // Another hold of the same client changes nothing.
            drop(lock.acquire().await.expect("free"));
        }
        let kept_on = lock.acquire().await.expect("free");
        let lost = kept_on.scope(async { here() }).await;
        assert!(other.force_release("k").await.expect("a reply"));
        assert_lost(&kept_on, LONG, LostCause::Revoked).await;
        assert_eq!(cause_of(lost.guard()), Some(LostCause::Revoked));
        drop(kept_on);
    }
}

#[tokio::test]
async fn a_loss_reaches_the_guard_of_a_body_that_it_stops() {
    let client = LockClient::in_memory();
    let lock = client.lock("k").lease(LASTING);
    let (sends, guard) = oneshot::channel();
    let body = async move {
        sends.send(kept()).expect("awaited");
        std::future::pending::<()>().await;
    };
    let call = tokio::spawn(lock.run(body));
    let guard = guard.await.expect("sent");
    client.revoke("k").expect("the embedded store");
    let stopped = within(LONG, "it stops", call).await.expect("no panic");
    assert_eq!(cause_of(stopped), Some(LostCause::Removed));
    assert_lost(&guard, LONG, LostCause::Removed).await;
    // The lock is not held for the guard any more.
    drop(its_turn(acquiring(lock.wait(LONG))).await);
    assert_eq!(cause_of(guard.release().await), Some(LostCause::Removed));
}

#[tokio::test]
async fn a_guard_ends_with_the_max_hold_and_the_lease_of_its_call() {
    let client = LockClient::in_memory();
    let lock = client.lock("k").lease(LASTING);
    for (lock, cause) in [
        (lock.clone().max_hold(ms(300)), LostCause::MaxHold),
        (lock.lease(ms(300)).watchdog(false), LostCause::Expired),
    ] {
        let guard = lock.run(async { kept() }).await.expect("free");
        assert!(guard.valid_for() <= ms(300));
        assert_lost(&guard, LONG, cause).await;
        assert_eq!(cause_of(guard.release().await), Some(cause));
        drop(lock.wait(LONG).acquire().await.expect("free"));
    }
}

#[distributed_lock(key = "report", client = locks)]
fn report(locks: LockClient, end: mpsc::Receiver<()>) -> Result<thread::JoinHandle<()>, LockError> {
    let guard = here().guard()?;
    Ok(thread::spawn(move || {
        let _guard = guard;
        end.recv().expect("the test sends a signal");
    }))
}

#[test]
fn a_thread_of_a_synchronous_body_keeps_its_lock() {
    let client = LockClient::in_memory();
    let lock = client.lock("report");
    let (end, word) = mpsc::channel();
    let thread = report(client.clone(), word).expect("free");
    assert!(lock.try_acquire_blocking().expect("a reply").is_none());
    end.send(()).expect("it runs");
    thread.join().expect("no panic");
    drop(lock.wait(LONG).acquire_blocking().expect("released"));
}

#[tokio::test]
async fn drain_waits_for_guards_and_shutdown_leaves_a_lock_in_use_to_its_lease() {
    let server = RedisServer::start();
    for drains in [true, false] {
        let builder = LockClient::builder().response_timeout(ms(200));
        let client = builder.connect(&server.url()).await.expect("it is up");
        let lock = client.lock("k").lease(Duration::from_secs(3)).wait(LONG);
        let guard = lock.run(async { kept() }).await.expect("free");
        if drains {
            let draining = tokio::spawn({
                let client = client.clone();
                async move { client.drain(LONG).await }
            });
            sleep(ms(200)).await;
            assert!(!draining.is_finished() && guard.is_valid());
            drop(guard);
            let drained = within(LONG, "it ends", draining).await.expect("no panic");
            assert_eq!(drained.expect("released"), Drained::Completed);
            assert_nothing_left(&server).await;
        } else {
            let error = client.shutdown().await.expect_err("the guard is in use");
            assert!(error.is_outage(), "{error:?}");
            assert_lost(&guard, LONG, LostCause::Closed).await;
            assert!(server.exists(&name("k")).await, "until its lease ends");
            drop(guard);
        }
    }
}
