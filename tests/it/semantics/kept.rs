//! Guards of bodies (`CurrentHold::guard`): they keep a hold for work that outlives its body.

use std::sync::mpsc;

use rlock_core::{Lock, LockClient, LockGuard, LostCause, Reentry, testing::simulate_loss};
use tokio::{sync::oneshot, task::spawn_blocking};

use crate::common::{
    LASTING, LONG, acquiring, assert_lost, assert_soon_waits, builder, cause_of, here, its_turn,
    ms, on_tokio_clock, running,
};

fn kept() -> LockGuard {
    here().guard().expect("held")
}

/// Returns pairs of clients. Each pair has a store of its own, and another way to count entries.
async fn pairs(test: &str) -> [[LockClient; 2]; 2] {
    let pair = async |reentry| {
        let url = format!("memory:{test}-{reentry:?}");
        let new = builder().reentry(reentry);
        let one = new.clone().connect(&url).await.expect("a store");
        [one, new.connect(&url).await.expect("a store")]
    };
    [pair(Reentry::Counted).await, pair(Reentry::Local).await]
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
async fn blocking_work_of_a_cancelled_call_overlaps_the_next_holder_unless_it_has_a_guard() {
    for [one, other] in pairs("kept-work").await {
        let (lock, next) = (one.lock("k").lease(LASTING), other.lock("k").wait(LONG));

        let mut without = work_of_a_cancelled_call(lock.clone(), false).await;
        let guard = next.acquire().await.expect("released with the call");
        assert!(without.ended.try_recv().is_err(), "the work still runs");
        without.end.send(()).expect("it runs");
        without.ended.await.expect("it ends");
        guard.release().await.expect("held");

        let mut with = work_of_a_cancelled_call(lock, true).await;
        let waiting = acquiring(next);
        assert_soon_waits(&other, "k", 1).await;
        assert!(with.ended.try_recv().is_err(), "the work still runs");
        with.end.send(()).expect("it runs");
        its_turn(waiting).await.release().await.expect("held");
        with.ended.await.expect("ended before");
    }
}

#[tokio::test]
async fn a_guard_keeps_the_hold_of_its_call_until_it_is_released() {
    for [one, other] in pairs("kept-guards").await {
        let lock = one.lock("k").lease(LASTING);
        let body = async { (here(), kept(), lock.acquire().await.expect("enters")) };
        let (hold, guard, nested) = lock.run(body).await.expect("free");
        assert!(!hold.is_valid(), "its call has ended");
        assert!(guard.is_valid());
        assert_eq!(guard.token(), hold.token());
        assert_eq!(guard.depth(), 2, "itself and `nested`");
        nested.release().await.expect("held");
        assert_eq!(guard.depth(), 1);
        let taken = other.lock("k").try_acquire().await.expect("a reply");
        assert!(taken.is_none(), "the guard keeps it");

        // The guard's own work enters the hold, which the client can pass on afterwards.
        let again = guard.scope(async { lock.run(async { here().depth() }).await });
        assert_eq!(again.await.expect("enters"), 2);
        guard.release().await.expect("held");
        let next = other.lock("k").try_acquire().await.expect("a reply");
        assert!(next.expect("free").token() > hold.token());
    }
}

#[tokio::test]
async fn guards_keep_every_lock_of_the_call_and_of_its_callers() {
    let (one, other) = (LockClient::in_memory(), LockClient::in_memory());
    let (outer, several) = (other.lock("tenant"), one.lock_all(["b", "a"]));
    let body = several.run(async {
        let nested = one.lock("b").run(async { here().guard_all() }).await;
        let nested = nested.expect("enters").expect("held");
        (nested, kept(), here().guard_all())
    });
    let (nested, own, guards) = outer.run(body).await.expect("free").expect("free");
    let guards = guards.expect("held");
    for guards in [&nested, &guards] {
        assert!(guards.keys().eq(["b", "a", "tenant"]), "{guards:?}");
        assert!(guards.is_valid());
    }
    assert!(own.keys().eq(["b", "a"]) && own.is_valid());
    drop((nested, own));
    assert!(several.try_acquire().await.expect("a reply").is_none());
    assert!(outer.try_acquire().await.expect("a reply").is_none());
    guards.release().await.expect("held");
    drop(several.try_acquire().await.expect("a reply").expect("free"));
    drop(outer.try_acquire().await.expect("a reply").expect("free"));
}

#[tokio::test]
async fn a_hold_that_has_ended_gives_no_guard() {
    let client = LockClient::in_memory();
    let lock = client.lock("k").lease(LASTING).wait(LONG);
    let ended = lock.run(async { here() }).await.expect("free");
    for _ in 0..2 {
        let refused = ended.guard().expect_err("the call has ended");
        assert_eq!(refused.key(), Some("k"));
        let text = refused.to_string();
        assert!(text.contains("its call has ended"), "{text}");
        assert_eq!(cause_of(Err::<(), _>(refused)), Some(LostCause::Released));
        assert_eq!(cause_of(ended.guard_all()), Some(LostCause::Released));
        // Another hold of the same client changes nothing.
        drop(lock.acquire().await.expect("free"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_guard_is_lost_with_the_lock_of_its_call() {
    let client = on_tokio_clock("memory:").await;
    let lock = client.lock("k").lease(LONG);
    for (lock, cause) in [
        (lock.clone(), LostCause::Removed),
        (lock.clone().max_hold(ms(300)), LostCause::MaxHold),
        (lock.watchdog(false), LostCause::Expired),
    ] {
        let (call, (guard, hold)) = running(&lock, || (kept(), here())).await;
        if cause == LostCause::Removed {
            simulate_loss(&client, "k").expect("the embedded store");
        }
        let stopped = call.await.expect("no panic");
        assert_eq!(cause_of(stopped), Some(cause));
        assert_lost(&guard, LONG, cause).await;
        assert_eq!(cause_of(hold.guard()), Some(cause));
        assert_eq!(cause_of(guard.release().await), Some(cause));
        drop(lock.wait(LONG).acquire().await.expect("free"));
    }
}
