//! A lock with a thousand nested entries, and every way out of them.

use std::{future::Future, panic::AssertUnwindSafe};

use futures_util::FutureExt;
use rlock_core::{LockClient, LockError, distributed_lock};
use rlock_testkit::{RedisServer, eventually};

use crate::common::{LONG, assert_soon_free, client, ms, name};

const DEPTH: u32 = 1000;

/// The event in the innermost entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bottom {
    Returns,
    Fails,
    Panics,
    Stays,
}

/// The lease is longer than any test, so that no lock ends by it.
#[distributed_lock(key = "deep", lease = "5m")]
async fn descend(left: u32, bottom: Bottom) -> Result<u32, LockError> {
    if left > 1 {
        return Box::pin(descend(left - 1, bottom)).await;
    }
    match bottom {
        Bottom::Returns => Ok(rlock_core::current().map_or(0, |hold| hold.count())),
        Bottom::Fails => {
            let invalid = LockClient::in_memory().lock("");
            Err(invalid.acquire().await.expect_err("an empty key"))
        }
        Bottom::Panics => panic!("at the bottom"),
        Bottom::Stays => std::future::pending().await,
    }
}

/// Debug builds need far more stack for each call than release builds do.
fn with_room<F: Future<Output = ()>>(test: impl FnOnce() -> F + Send + 'static) {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(test());
    };
    let thread = std::thread::Builder::new().stack_size(64 << 20).spawn(run);
    thread.expect("a thread").join().expect("no panic");
}

async fn count(server: &RedisServer) -> u32 {
    let counts = server.hgetall(&name("deep")).await;
    counts
        .values()
        .next()
        .map_or(0, |count| count.parse().expect("a number"))
}

/// Checks that nothing is held, and that the next caller is served.
async fn assert_nothing_left(server: &RedisServer, client: &LockClient) {
    assert_soon_free(server, "deep").await;
    let mut watch = server.watch_commands().await;
    tokio::time::sleep(ms(500)).await;
    watch.clear().await;
    tokio::time::sleep(ms(300)).await;
    assert_eq!(watch.seen().await, [], "no script is pending");
    let depth = client.scope(descend(1, Bottom::Returns)).await;
    assert_eq!(depth.expect("free"), 1);
}

#[test]
#[ignore = "scripts/test-all"]
fn a_return_and_an_error_pass_through_a_thousand_entries_that_are_each_released() {
    with_room(|| async {
        let server = RedisServer::start();
        let client = client(&server).await;
        let depth = client.scope(descend(DEPTH, Bottom::Returns)).await;
        assert_eq!(depth.expect("enters"), DEPTH);
        assert_eq!(count(&server).await, 0, "released before the call returns");

        let error = client.scope(descend(DEPTH, Bottom::Fails)).await;
        let error = error.expect_err("the body's own");
        assert!(error.to_string().contains("invalid lock key"), "{error}");
        assert_eq!(count(&server).await, 0, "released before the call returns");
        assert_nothing_left(&server, &client).await;
    });
}

#[test]
#[ignore = "scripts/test-all"]
fn a_panic_unwinds_through_a_thousand_entries_that_are_each_released() {
    with_room(|| async {
        let server = RedisServer::start();
        let client = client(&server).await;
        let call = client.scope(descend(DEPTH, Bottom::Panics));
        let panic = AssertUnwindSafe(call).catch_unwind().await;
        let panic = panic.expect_err("it goes on unwinding");
        assert_eq!(panic.downcast_ref(), Some(&"at the bottom"));
        assert_eq!(count(&server).await, 0, "released before the panic goes on");
        assert_nothing_left(&server, &client).await;
    });
}

#[test]
#[ignore = "scripts/test-all"]
fn a_call_that_is_cancelled_a_thousand_entries_deep_releases_the_lock() {
    with_room(|| async {
        let server = RedisServer::start();
        let client = client(&server).await;
        let call = Box::pin(client.scope(descend(DEPTH, Bottom::Stays)));
        let at_the_bottom = eventually(LONG * 2, "it is at the bottom", async || {
            count(&server).await == DEPTH
        });
        tokio::select! {
            outcome = call => unreachable!("{outcome:?}"),
            () = at_the_bottom => {}
        }
        assert_nothing_left(&server, &client).await;
    });
}

#[test]
#[ignore = "scripts/test-all"]
fn a_loss_stops_a_thousand_entries_at_once() {
    with_room(|| async {
        let server = RedisServer::start();
        let client = client(&server).await;
        let strike = async {
            eventually(LONG * 2, "it is at the bottom", async || {
                count(&server).await == DEPTH
            })
            .await;
            assert!(server.del(&name("deep")).await);
            // The next renewal is more than a minute away.
            tokio::time::sleep(LONG).await;
        };
        let outcome = tokio::select! {
            outcome = Box::pin(client.scope(descend(DEPTH, Bottom::Stays))) => outcome,
            () = strike => panic!("no loss is notified"),
        };
        let error = outcome.expect_err("it is lost");
        assert!(matches!(error, LockError::Lost { .. }), "{error:?}");
        assert!(!server.exists(&name("deep")).await);
        assert_nothing_left(&server, &client).await;
    });
}
