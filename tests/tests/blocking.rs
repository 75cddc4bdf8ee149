//! Locks in synchronous code.

use std::time::Duration;

use rlock_core::{LockClient, LockError, current};

fn both() -> Vec<(LockClient, Option<rlock_tests::RedisServer>)> {
    let server = rlock_tests::RedisServer::start();
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
        assert!(lock.try_acquire_blocking().expect("an answer").is_none());
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
        let inside = rlock_tests::Exclusion::new();
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
fn a_panic_in_a_closure_releases_before_it_goes_on() {
    for (client, _server) in both() {
        let lock = client.lock("ledger");
        let body = std::panic::AssertUnwindSafe(|| lock.run_blocking(|| panic!("in the closure")));
        std::panic::catch_unwind(body).expect_err("it panics");
        assert!(lock.try_acquire_blocking().expect("an answer").is_some());
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

#[test]
fn a_task_keeps_its_cooperation_budget_after_a_refusal() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let client = LockClient::in_memory();
        assert_refused(&client);
        assert!(tokio::task::coop::has_budget_remaining());
    });
}

#[test]
fn where_tokio_cannot_tell_the_call_blocks_and_does_not_panic() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    let client = LockClient::in_memory();
    let call = async { client.lock("ledger").acquire_blocking() };
    let guard = runtime.block_on(tokio::task::unconstrained(call));
    drop(guard.expect("free"));
}
