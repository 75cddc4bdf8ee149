//! Failures that only several conditions at once can cause. Each test catches a mutant in `tests/mutants`.

use std::{sync::mpsc, thread};

use rlock_core::{LockClient, LockError, testing::use_tokio_clock};
use rlock_testkit::RedisServer;

use crate::common::{LONG, connect, ms, name};
use crate::leases::clock::HOUR;

/// Reports its drop, and then waits for a message.
struct Slow {
    dropping: mpsc::Sender<()>,
    go: mpsc::Receiver<()>,
}

impl Drop for Slow {
    fn drop(&mut self) {
        let _ = self.dropping.send(());
        let _ = self.go.recv_timeout(LONG);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_body_is_dropped_before_its_lock_is_released() {
    let server = RedisServer::start();
    let (said, dropping) = mpsc::channel();
    let (go, word) = mpsc::channel();
    let stopped = Slow {
        dropping: said,
        go: word,
    };
    let url = server.url();
    let call = thread::spawn(move || {
        pollster::block_on(async {
            let client = connect(&url).await;
            let lock = client.lock("k").lease(HOUR).max_hold(ms(200));
            let body = async move {
                let _stopped = stopped;
                std::future::pending::<()>().await;
            };
            lock.run(body).await
        })
    });
    tokio::task::block_in_place(|| dropping.recv_timeout(LONG)).expect("the body is stopped");
    tokio::time::sleep(ms(200)).await;
    assert!(
        server.exists(&name("k")).await,
        "values of the body are left, and the lock is free"
    );
    go.send(()).expect("it waits for the word");
    let outcome = tokio::task::block_in_place(|| call.join());
    let outcome = outcome.expect("no panic");
    let error = outcome.expect_err("the body hangs");
    assert!(matches!(error, LockError::Lost { .. }), "{error:?}");
    assert!(error.to_string().contains("`max_hold`"), "{error}");
    assert!(!server.exists(&name("k")).await);
}

/// Only the guard's own clock shows the end of the lease.
#[tokio::test]
async fn a_hold_whose_watchdog_is_paused_is_not_valid_after_its_lease() {
    let background = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let background = background.expect("a runtime");
    let client = {
        let _entered = background.enter();
        use_tokio_clock(LockClient::builder()).in_memory()
    };
    let client = client.expect("a client");
    let lock = client.lock("k").lease(ms(500));
    let guard = lock.acquire().await.expect("free");
    tokio::time::sleep(ms(600)).await;
    assert!(!guard.is_valid());
    background.shutdown_background();
}
