//! Locks in synchronous code, and where blocking is refused.

use std::{panic::AssertUnwindSafe, pin::Pin, thread, time::Duration};

use rlock_core::{DrainOutcome, LockClient, LockError, current, distributed_lock};
use rlock_testkit::RedisServer;
use tokio::{
    runtime::{Builder, Handle, Runtime},
    task::{LocalSet, block_in_place, spawn_blocking, unconstrained},
};

use crate::common::{LONG, builder, ms};

#[test]
fn a_thread_without_a_runtime_can_lock() {
    let server = RedisServer::start();
    let on_server = builder().connect_blocking(server.url());
    let on_server = on_server.expect("the server is up");
    for client in [LockClient::in_memory(), on_server] {
        let lock = client.lock("ledger").wait(ms(100));
        let guard = lock.acquire_blocking().expect("free");
        guard.extend_blocking(LONG * 4).expect("held");
        assert!(guard.valid_for() > LONG);
        assert!(lock.try_acquire_blocking().expect("a reply").is_none());
        let error = lock.acquire_blocking().expect_err("taken");
        assert!(matches!(error, LockError::Taken { .. }), "{error:?}");
        let next = lock.clone().wait(LONG);
        let next = thread::spawn(move || next.run_blocking(|| 1 + 1));
        drop(guard);
        let sum = next.join().expect("no panic");
        assert_eq!(sum.expect("its turn"), 2);

        let lock = lock.wait(LONG);
        let body = AssertUnwindSafe(|| lock.run_blocking(|| panic!("in the closure")));
        std::panic::catch_unwind(body).expect_err("it panics");
        assert!(lock.try_acquire_blocking().expect("a reply").is_some());

        let all = client.lock_all(["a", "b"]).wait(LONG);
        let guard = all.acquire_blocking().expect("free");
        assert!(all.try_acquire_blocking().expect("a reply").is_none());
        guard.release_blocking().expect("held");
        let released = all.clone().wait(Duration::ZERO);
        assert_eq!(released.run_blocking(|| 3).expect("free again"), 3);
        let drained = client.drain_blocking(LONG).expect("nothing is held");
        assert_eq!(drained, DrainOutcome::Completed);
        let error = all.acquire_blocking().expect_err("the client has ended");
        assert!(matches!(error, LockError::Closed { .. }), "{error:?}");
    }
}

/// Calls itself until it is so many entries deep.
#[distributed_lock(key = "ledger", client = client)]
fn annotated(client: &LockClient, entries: u32) -> Result<(), LockError> {
    let entered = current().expect("inside").depth();
    if entered < entries {
        annotated(client, entries)?;
    }
    assert_eq!(current().expect("inside").depth(), entered);
    Ok(())
}

#[test]
fn nested_synchronous_calls_enter_and_tasks_of_a_runtime_in_them_do_not() {
    let client = LockClient::in_memory();
    let lock = client.lock("ledger");
    let depths = lock.run_blocking(|| {
        let inner = lock
            .run_blocking(|| current().expect("inside").depth())
            .expect("enters");
        (inner, current().expect("inside").depth())
    });
    assert_eq!(depths.expect("free"), (2, 1));
    annotated(&client, 3).expect("free, and enters");
    assert!(current().is_none());

    let nested = lock.clone().wait(ms(100));
    let task = async move { (current().is_some(), nested.acquire().await.map(drop)) };
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let outcome = lock.run_blocking(|| runtime.block_on(async { tokio::spawn(task).await }));
    let outcome = outcome.expect("free").expect("no panic");
    assert!(
        matches!(outcome, (false, Err(LockError::Taken { .. }))),
        "{outcome:?}"
    );
}

fn is_refused(client: &LockClient) -> bool {
    let lock = client.lock("ledger");
    let Err(error) = lock.try_acquire_blocking() else {
        return false;
    };
    let errors = [
        (error, "`ledger`"),
        (lock.run_blocking(|| ()).expect_err("it blocks"), "`ledger`"),
        (annotated(client, 1).expect_err("it blocks"), "`ledger`"),
        (client.drain_blocking(LONG).expect_err("it blocks"), "drain"),
        (client.shutdown_blocking().expect_err("it blocks"), "shut"),
    ];
    for (error, what) in errors {
        let blocks = matches!(error, LockError::BlockingInAsync { .. });
        let text = error.to_string();
        assert!(blocks && text.contains(what), "{error:?}");
        assert!(text.contains("spawn_blocking"), "{text}");
    }
    true
}

/// Returns the refused calls: in a task, in the body of `block_on` and in a `LocalSet`, each with and without
/// `unconstrained`.
fn refused_in(runtime: &Runtime, client: &LockClient) -> Vec<(&'static str, bool)> {
    let call = || {
        let client = client.clone();
        async move { is_refused(&client) }
    };
    let hidden = || unconstrained(call());
    let local = |body: Pin<Box<dyn Future<Output = bool>>>| {
        let set = LocalSet::new();
        let task = set.run_until(async { tokio::task::spawn_local(body).await });
        runtime.block_on(task).expect("no panic")
    };
    let spawned = |body: Pin<Box<dyn Future<Output = bool> + Send>>| {
        runtime.block_on(runtime.spawn(body)).expect("no panic")
    };
    vec![
        ("task", spawned(Box::pin(call()))),
        ("task, unconstrained", spawned(Box::pin(hidden()))),
        ("block_on", runtime.block_on(call())),
        ("block_on, unconstrained", runtime.block_on(hidden())),
        ("local task", local(Box::pin(call()))),
        ("local task, unconstrained", local(Box::pin(hidden()))),
    ]
}

#[test]
fn a_thread_that_runs_tasks_refuses_the_call_however_they_are_polled() {
    let client = LockClient::in_memory();
    let single = Builder::new_current_thread().build().expect("a runtime");
    for (what, refused) in refused_in(&single, &client) {
        assert!(refused, "on a single thread, {what}");
    }
    let several = Builder::new_multi_thread().worker_threads(2).build();
    for (what, refused) in refused_in(&several.expect("a runtime"), &client) {
        // The thread of `block_on` is not a worker there.
        let is_worker = what.starts_with("task");
        assert_eq!(refused, is_worker, "on several threads, {what}");
    }
}

/// Sections that may block, in a task with or without `unconstrained`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_code_may_block_the_call_is_served_however_the_task_is_polled() {
    let client = LockClient::in_memory();
    let lock = client.lock("ledger").wait(LONG);
    let body = || {
        let (lock, other) = (lock.clone(), lock.clone());
        async move {
            let in_place = block_in_place(|| lock.run_blocking(|| 1));
            // A thread with a runtime handle may block, too.
            let handle = Handle::current();
            let spawned = spawn_blocking(move || {
                let thread = thread::spawn(move || {
                    let _entered = handle.enter();
                    lock.run_blocking(|| 2)
                });
                [other.run_blocking(|| 2), thread.join().expect("no panic")]
            });
            (in_place, spawned.await.expect("no panic"))
        }
    };
    for task in [tokio::spawn(body()), tokio::spawn(unconstrained(body()))] {
        let (in_place, spawned) = task.await.expect("no panic");
        assert_eq!(in_place.expect("may block"), 1);
        for outcome in spawned {
            assert_eq!(outcome.expect("may block"), 2);
        }
    }
}
