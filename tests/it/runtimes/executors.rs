//! Clients work on any executor.

use std::{thread, time::Duration};

use rlock_core::{LockClient, LockError};
use rlock_testkit::{Exclusion, RedisServer, block_on};

#[test]
fn everything_works_on_an_executor_that_knows_nothing_of_tokio() {
    let server = RedisServer::start();
    block_on(async {
        let client = LockClient::connect(&server.url())
            .await
            .expect("the server is up");
        let lock = client.lock("order:1").wait(Duration::from_millis(200));
        let body = async {
            let inner = lock.acquire().await.expect("enters");
            assert_eq!(inner.count(), 2);
            inner.release().await.expect("held");
        };
        lock.run(body).await.expect("free");

        let guard = lock.acquire().await.expect("free");
        let error = lock.acquire().await.expect_err("taken");
        assert!(matches!(error, LockError::Timeout { .. }), "{error:?}");
        assert!(client.inspect("order:1").await.expect("a reply").is_some());
        let brief = client
            .lock("order:2")
            .lease(Duration::from_millis(100))
            .watchdog(false);
        brief.acquire().await.expect("free").lost().await;
        let capped = client.lock("order:3").max_hold(Duration::from_millis(100));
        capped.acquire().await.expect("free").lost().await;
        guard.release().await.expect("held");
        client.shutdown().await.expect("everything is released");
    });
}

#[test]
fn one_client_serves_many_executors_at_once() {
    let server = RedisServer::start();
    let client = block_on(LockClient::connect(&server.url())).expect("the server is up");
    let inside = Exclusion::new();
    thread::scope(|threads| {
        for thread in 0..6 {
            let (lock, inside) = (client.lock("hot").wait_forever(), inside.clone());
            threads.spawn(move || {
                let work = async {
                    for _ in 0..20 {
                        let body = async { drop(inside.enter(thread.to_string())) };
                        lock.run(body).await.expect("granted");
                    }
                };
                if thread % 2 == 0 {
                    block_on(work);
                } else {
                    let runtime = tokio::runtime::Builder::new_current_thread().build();
                    runtime.expect("a runtime").block_on(work);
                }
            });
        }
    });
    assert_eq!(inside.entries(), 120);
    inside.assert_held();
}
