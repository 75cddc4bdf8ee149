//! Processes and runtimes that end while locks are held.

use std::time::Duration;

use rlock_core::LockError;
use rlock_testkit::{RedisServer, eventually, within};
use tokio::runtime::Runtime;

use crate::common::{
    LASTING, LONG, assert_soon_free, assert_the_lease_ends_what_a_process_left, client,
    connect_with, ms, name, timed,
};

/// An aborted process releases nothing. A panic in `main` may drop the guard without time for its
/// release. In both cases the lease ends.
#[tokio::test]
async fn the_lock_of_a_process_that_is_aborted_or_panics_ends_with_its_lease() {
    assert_the_lease_ends_what_a_process_left(&["by-abort", "by-panic"], false).await;
}

#[test]
fn a_runtime_that_is_dropped_with_its_bodies_releases_their_locks() {
    let server = RedisServer::start();
    let (watching, serving) = (Runtime::new().expect("a runtime"), Runtime::new());
    let serving = serving.expect("a runtime");
    let client = serving.block_on(client(&server));
    for n in 0..20 {
        let lock = client.lock(format!("body:{n}")).lease(LASTING).wait(LONG);
        // One body waits for another.
        let same = client.lock("body:0").lease(LASTING).wait(LONG);
        serving.spawn(async move { lock.run(std::future::pending::<()>()).await });
        serving.spawn(async move { same.run(std::future::pending::<()>()).await });
    }
    watching.block_on(eventually(LONG, "all are inside", async || {
        let keys = server.keys("lock:{body:*}").await;
        keys.len() == 20
    }));
    serving.shutdown_timeout(LONG);
    watching.block_on(eventually(LONG, "all are released", async || {
        server.keys("lock:{body:*}").await.is_empty()
    }));
    // The client's own runtime goes on.
    let guard = client.lock("k").acquire_blocking().expect("free");
    watching.block_on(guard.release()).expect("held");
}

#[test]
fn a_blocking_body_that_outlives_its_runtime_keeps_its_lock_until_it_ends() {
    const LEASE: Duration = Duration::from_millis(900);
    let server = RedisServer::start();
    let (watching, serving) = (Runtime::new().expect("a runtime"), Runtime::new());
    let serving = serving.expect("a runtime");
    let client = serving.block_on(client(&server));
    let (inside, entered) = std::sync::mpsc::channel();
    let (go, word) = std::sync::mpsc::channel::<()>();
    let lock = client.lock("k").lease(LEASE);
    let (done, outcome) = std::sync::mpsc::channel();
    serving.spawn_blocking(move || {
        let body = lock.run_blocking(|| {
            inside.send(()).expect("the test waits");
            word.recv().expect("the test sends a signal");
        });
        done.send(body).expect("the test waits");
    });
    entered.recv().expect("it is inside");
    serving.shutdown_background();
    std::thread::sleep(LEASE * 2);
    let held = watching.block_on(server.exists(&name("k")));
    assert!(held, "renewed by the client's own thread");
    go.send(()).expect("the body waits");
    let outcome = outcome.recv_timeout(LONG).expect("the body ends");
    outcome.expect("held to the end");
    watching.block_on(assert_soon_free(&server, "k"));
}

#[tokio::test]
async fn a_client_that_is_shut_down_at_a_silent_server_leaves_its_locks_to_the_lease() {
    let server = RedisServer::start();
    let client = connect_with(ms(300), &server.url()).await;
    let guard = client.lock("k").lease(ms(1500)).acquire().await;
    let guard = guard.expect("free");
    server.pause();
    let (outcome, took) = timed(within(LONG, "it ends", client.shutdown())).await;
    let error = outcome.expect_err("no server replies");
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    assert!(took < LONG / 2, "{took:?}");
    assert!(!guard.is_valid(), "no watchdog renews it any more");
    server.resume();
    assert_soon_free(&server, "k").await;
}
