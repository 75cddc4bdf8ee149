//! Locks in synchronous code.

use std::{pin::Pin, time::Duration};

use rlock_core::{LockClient, LockError, current};
use tokio::{
    runtime::{Builder, Runtime},
    task::LocalSet,
};

fn both() -> Vec<(LockClient, Option<rlock_testkit::RedisServer>)> {
    let server = rlock_testkit::RedisServer::start();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let client = runtime
        .block_on(LockClient::connect(&server.url()))
        .expect("the server is up");
    vec![(LockClient::in_memory(), None), (client, Some(server))]
}

#[test]
fn a_thread_without_a_runtime_can_lock() {
    for (client, _server) in both() {
        let lock = client.lock("ledger").wait(Duration::from_millis(100));
        let guard = lock.acquire_blocking().expect("free");
        assert!(lock.try_acquire_blocking().expect("a reply").is_none());
        let error = lock.acquire_blocking().expect_err("taken");
        assert!(matches!(error, LockError::Timeout { .. }), "{error:?}");
        drop(guard);
        let sum = lock
            .wait(Duration::from_secs(20))
            .run_blocking(|| 1 + 1)
            .expect("free again");
        assert_eq!(sum, 2);
    }
}

#[test]
fn nested_synchronous_calls_enter() {
    for (client, _server) in both() {
        let lock = client.lock("ledger");
        let depths = lock.run_blocking(|| {
            let inner = lock
                .run_blocking(|| current().expect("inside").count())
                .expect("enters");
            (inner, current().expect("inside").count())
        });
        assert_eq!(depths.expect("free"), (2, 1));
        assert!(current().is_none());
    }
}

#[test]
fn threads_exclude_each_other() {
    for (client, _server) in both() {
        let inside = rlock_testkit::Exclusion::new();
        std::thread::scope(|threads| {
            for thread in 0..4 {
                let (lock, inside) = (client.lock("ledger").wait_forever(), inside.clone());
                threads.spawn(move || {
                    for _ in 0..25 {
                        lock.run_blocking(|| drop(inside.enter(thread.to_string())))
                            .expect("granted");
                    }
                });
            }
        });
        assert_eq!(inside.entries(), 100);
        inside.assert_held();
    }
}

#[test]
fn a_panic_in_a_closure_releases_before_it_continues() {
    for (client, _server) in both() {
        let lock = client.lock("ledger");
        let body = std::panic::AssertUnwindSafe(|| lock.run_blocking(|| panic!("in the closure")));
        std::panic::catch_unwind(body).expect_err("it panics");
        assert!(lock.try_acquire_blocking().expect("a reply").is_some());
    }
}

fn assert_refused(client: &LockClient) {
    let error = client
        .lock("ledger")
        .acquire_blocking()
        .expect_err("it would block the executor");
    assert!(matches!(error, LockError::WouldBlock { .. }), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains("ledger") && text.contains("spawn_blocking"),
        "{text}"
    );
    let error = client
        .lock("ledger")
        .run_blocking(|| ())
        .expect_err("it would block the executor");
    assert!(matches!(error, LockError::WouldBlock { .. }), "{error:?}");
}

#[tokio::test]
async fn inside_an_async_task_the_call_is_refused() {
    let client = LockClient::in_memory();
    assert_refused(&client);
    tokio::spawn(async move { assert_refused(&client) })
        .await
        .expect("no panic");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_a_runtime_lets_code_block_the_call_is_served() {
    let client = LockClient::in_memory();
    {
        let client = client.clone();
        tokio::spawn(async move { assert_refused(&client) })
            .await
            .expect("no panic");
    }
    let lock = client.lock("ledger");
    let in_place = tokio::task::block_in_place(|| lock.run_blocking(|| 1));
    assert_eq!(in_place.expect("free"), 1);
    let lock = client.lock("ledger");
    let spawned = tokio::task::spawn_blocking(move || lock.run_blocking(|| 2)).await;
    assert_eq!(spawned.expect("no panic").expect("free"), 2);
}

/// Returns the refused calls: in a task, in the body of `block_on` and in a `LocalSet`, each with and without
/// `unconstrained`.
fn refused_in(runtime: &Runtime, client: &LockClient) -> Vec<(&'static str, bool)> {
    let refused = {
        let client = client.clone();
        move || {
            let call = client.lock("ledger").try_acquire_blocking();
            matches!(call, Err(LockError::WouldBlock { .. }))
        }
    };
    let call = || {
        let refused = refused.clone();
        async move { refused() }
    };
    let hidden = || tokio::task::unconstrained(call());
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
    let lock = client.lock("ledger");
    let body = || {
        let lock = lock.clone();
        async move {
            let in_place = tokio::task::block_in_place(|| lock.run_blocking(|| 1));
            let other = lock.clone();
            let spawned = tokio::task::spawn_blocking(move || other.run_blocking(|| 2));
            let thread = std::thread::spawn(move || lock.run_blocking(|| 3));
            let thread = tokio::task::spawn_blocking(|| thread.join().expect("no panic"));
            (in_place, spawned.await, thread.await)
        }
    };
    for hides in [false, true] {
        let task = if hides {
            tokio::spawn(tokio::task::unconstrained(body()))
        } else {
            tokio::spawn(body())
        };
        let (in_place, spawned, thread) = task.await.expect("no panic");
        assert_eq!(in_place.expect("may block"), 1);
        assert_eq!(spawned.expect("no panic").expect("may block"), 2);
        assert_eq!(thread.expect("no panic").expect("may block"), 3);
    }
    // A thread with a runtime handle may block, too.
    let handle = tokio::runtime::Handle::current();
    let known = std::thread::spawn(move || {
        let _entered = handle.enter();
        lock.run_blocking(|| 4)
    });
    let known = tokio::task::spawn_blocking(|| known.join().expect("no panic"));
    assert_eq!(known.await.expect("no panic").expect("may block"), 4);
}

#[test]
fn a_task_of_a_runtime_that_the_closure_runs_is_not_inside() {
    for (client, _server) in both() {
        let nested = client.lock("ledger").wait(Duration::from_millis(100));
        let task = async move { (current().is_some(), nested.acquire().await.map(drop)) };
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let outcome = client
            .lock("ledger")
            .run_blocking(|| runtime.block_on(async { tokio::spawn(task).await }));
        let outcome = outcome.expect("free").expect("no panic");
        assert!(
            matches!(outcome, (false, Err(LockError::Timeout { .. }))),
            "{outcome:?}"
        );
    }
}
