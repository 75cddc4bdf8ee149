//! Every end of a body or a guard releases the lock, after the body's values are dropped.

use std::{cell::RefCell, future::pending, panic::AssertUnwindSafe, sync::mpsc, thread};

use futures_util::FutureExt;
use pollster::block_on;
use rlock_core::{LockClient, LockError, LockGuard, LostCause, distributed_lock};
use rlock_testkit::{RedisServer, eventually};
use tokio::{runtime::Runtime, sync::oneshot};

use crate::common::{
    LASTING, LONG, assert_soon_counted, assert_soon_free, assert_unavailable, begin, builder,
    cause_of, client, connect_with, hold, ms, polled, running,
};

const KEY: &str = "lock:{order:1}";

async fn is_held(client: &LockClient) -> bool {
    let info = client.inspect("order:1").await;
    info.expect("a reply").is_some()
}

/// A value whose drop records whether the lock is still held.
struct Witness {
    client: LockClient,
    is_held: mpsc::Sender<bool>,
    panics: bool,
}

impl Drop for Witness {
    fn drop(&mut self) {
        let client = self.client.clone();
        let held = thread::spawn(move || block_on(is_held(&client)));
        let held = held.join().expect("no panic");
        self.is_held.send(held).expect("the test waits");
        assert!(!self.panics, "in the body");
    }
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error("refused by the bank")]
    Refused,
}

#[distributed_lock(key = "order:1", lease = "1h", wait = "1m", client = client)]
async fn ends(
    client: LockClient,
    how: &str,
    witness: Witness,
    begins: oneshot::Sender<()>,
) -> Result<u32, Failure> {
    let _witness = witness;
    begins.send(()).expect("the test waits");
    match how {
        "return" => return Ok(1),
        "error" => Err(Failure::Refused)?,
        "panic" => panic!("in the body"),
        "hang" => pending().await,
        _ => {}
    }
    Ok(2)
}

#[tokio::test]
async fn each_end_of_a_body_releases_its_lock_after_the_bodys_values_are_dropped() {
    let client = LockClient::in_memory();
    for how in ["end", "return", "error", "panic", "drop", "hang"] {
        let (sends, was_held) = mpsc::channel();
        let witness = Witness {
            client: client.clone(),
            is_held: sends,
            panics: how == "drop",
        };
        let (begins, begun) = oneshot::channel();
        let call = Box::pin(ends(client.clone(), how, witness, begins));
        let mut call = AssertUnwindSafe(call).catch_unwind();
        if how == "hang" {
            tokio::select! {
                outcome = &mut call => unreachable!("{outcome:?}"),
                begun = begun => begun.expect("it begins"),
            }
            drop(call);
            let is_free = async || !is_held(&client).await;
            eventually(LONG, "the background releases it", is_free).await;
        } else {
            match call.await {
                Ok(outcome) => assert_eq!(outcome.is_err(), how == "error", "{how}: {outcome:?}"),
                Err(panic) => assert_eq!(panic.downcast_ref(), Some(&"in the body"), "{how}"),
            }
            assert!(!is_held(&client).await, "{how}: released before its end");
        }
        assert_eq!(was_held.recv(), Ok(true), "{how}");
    }
}

#[test]
fn a_guard_dropped_while_unwinding_and_in_a_threads_destructor_releases() {
    thread_local! {
        static KEPT: RefCell<Option<LockGuard>> = const { RefCell::new(None) };
    }
    let server = RedisServer::start();
    // The guards are dropped outside any runtime, after the end of the one that made the client.
    let client = Runtime::new().expect("a runtime").block_on(client(&server));
    // The leases outlast the test, so only a release can free the locks.
    let lasting = |key: &str| client.lock(key).lease(LONG * 60);
    let unwound = lasting("order:1").acquire_blocking().expect("free");
    let destroyed = lasting("order:2").acquire_blocking().expect("free");
    let thread = thread::spawn(move || {
        let _unwound = unwound;
        KEPT.with(|kept| *kept.borrow_mut() = Some(destroyed));
        panic!("unwinding");
    });
    thread.join().expect_err("it panics");
    Runtime::new().expect("a runtime").block_on(async {
        assert_soon_free(&server, "order:1").await;
        assert_soon_free(&server, "order:2").await;
        hold(&client, "order:1")
            .await
            .release()
            .await
            .expect("held");
    });
}

#[tokio::test]
async fn a_guard_dropped_after_the_last_client_is_still_released() {
    let server = RedisServer::start();
    let lock = client(&server).await.lock("order:1").lease(LONG * 60);
    let guard = lock.acquire().await.expect("free");
    // The guard has the last handle of the client.
    drop((lock, guard));
    assert_soon_free(&server, "order:1").await;
    eventually(LONG, "the connection is closed", async || {
        server.client_count().await <= 1
    })
    .await;
}

#[tokio::test]
async fn shutdown_releases_everything_and_stops_bodies() {
    let server = RedisServer::start();
    for polls in [0, 1, 2] {
        let client = connect_with(LONG, &server.url()).await;
        let guard = hold(&client, "order:1").await;
        let (body, ()) = running(&client.lock("order:2").lease(LASTING), || ()).await;
        let waiting = client.lock("order:1").wait_forever();
        let mut waiting = Box::pin(async move { waiting.acquire().await });
        begin(&mut waiting).await;
        let waiting = tokio::spawn(waiting);

        // A shutdown may follow one that was cancelled, and two may run at once.
        let _ = polled(polls, client.shutdown()).await;
        let (one, other) = tokio::join!(client.shutdown(), client.shutdown());
        one.and(other).expect("everything is released");
        assert!(server.keys("lock:{order:?}").await.is_empty());
        assert!(!guard.is_valid());
        assert_eq!(cause_of(guard.release().await), Some(LostCause::Closed));
        let stopped = body.await.expect("no panic");
        assert_eq!(cause_of(stopped), Some(LostCause::Closed));
        let refused = waiting.await.expect("no panic").expect_err("refused");
        assert!(matches!(refused, LockError::Closed { .. }), "{refused:?}");
        let refused = client.lock("order:3").acquire().await.expect_err("closed");
        assert!(refused.to_string().contains("order:3"), "{refused}");
        client.inspect("order:3").await.expect_err("closed");
    }
}

/// Shuts a client down that has a body which does not stop. Its error has to name the lock in this way.
async fn shut_down_with_a_body(client: &LockClient, observer: &LockClient, shown: &str) {
    let (inside, entered) = mpsc::channel();
    let (go, word) = mpsc::channel::<()>();
    let stubborn = thread::spawn({
        let lock = client.lock("order:1").label("order").lease(LONG);
        move || {
            lock.run_blocking(|| {
                inside.send(()).expect("the test waits");
                word.recv().expect("sent");
            })
        }
    });
    entered.recv().expect("it runs");
    let error = client.shutdown().await.expect_err("a body has not stopped");
    assert!(
        matches!(&error, LockError::StillHeld { keys, .. } if *keys == [shown]),
        "{error:?}"
    );
    assert!(!error.is_outage(), "the store has replied");
    let text = error.to_string();
    assert!(text.contains(&format!("lock `{shown}`")), "{text}");
    assert!(is_held(observer).await, "its lock is left to its lease");
    go.send(()).expect("it runs");
    let ended = stubborn.join().expect("no panic");
    ended.expect_err("the loss is reported at the end");
}

#[tokio::test]
async fn shutdown_does_not_give_away_the_lock_of_a_body_that_does_not_stop() {
    for (store, redacts, shown) in [
        ("memory:stubborn", false, "order:1"),
        ("memory:stubborn-and-redacted", true, "order"),
    ] {
        let observer = builder().connect(store).await.expect("a store");
        let builder = builder().response_timeout(ms(200)).redact_keys(redacts);
        let client = builder.connect(store).await.expect("a store");
        shut_down_with_a_body(&client, &observer, shown).await;
    }
}

#[tokio::test]
async fn a_full_server_takes_nested_and_outer_entries_back() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = client.lock("order:1");
    let outer = lock.acquire().await.expect("free");
    let inner = outer.scope(lock.acquire()).await.expect("enters");
    assert_soon_counted(&server, &outer, 2).await;
    server.config_set("maxmemory-policy", "noeviction").await;
    server.config_set("maxmemory", "1").await;
    let refused = client.lock("order:2").wait(ms(500)).acquire().await;
    assert_unavailable(refused, "no room");
    inner.release().await.expect("held");
    assert_soon_counted(&server, &outer, 1).await;
    outer.release().await.expect("held");
    assert!(!server.exists(KEY).await);
}
