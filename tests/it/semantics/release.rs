//! Every end of a body or a guard releases the lock, after the body's values are dropped.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::future::join_all;
use rlock_core::{Lock, LockClient, LockError, distributed_lock};
use rlock_testkit::{RedisServer, eventually, within};
use tokio::task::JoinHandle;

use crate::common::{LONG, assert_soon_free, client, connect_with, name};

const KEY: &str = "lock:{order:1}";

/// Records whether the lock was still held during its own drop.
struct Witness {
    server: Arc<RedisServer>,
    held_at_drop: Arc<Mutex<Option<bool>>>,
}

impl Drop for Witness {
    fn drop(&mut self) {
        let server = Arc::clone(&self.server);
        let held = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime
                .expect("a runtime")
                .block_on(async { server.exists(KEY).await })
        });
        *self.held_at_drop.lock().expect("no panic") = Some(held.join().expect("no panic"));
    }
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error("refused by the bank")]
    Refused,
}

#[distributed_lock(key = "order:1")]
async fn ends(how: &str, witness: Option<Witness>) -> Result<u32, Failure> {
    let _witness = witness;
    match how {
        "return" => return Ok(1),
        "error" => Err(Failure::Refused)?,
        "panic" => panic!("in the body"),
        "hang" => std::future::pending().await,
        _ => {}
    }
    Ok(2)
}

fn witness(server: &Arc<RedisServer>) -> (Witness, Arc<Mutex<Option<bool>>>) {
    let held_at_drop = Arc::default();
    (
        Witness {
            server: Arc::clone(server),
            held_at_drop: Arc::clone(&held_at_drop),
        },
        held_at_drop,
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_return_releases_after_the_bodys_values_are_dropped() {
    let server = Arc::new(RedisServer::start());
    let client = client(&server).await;
    for how in ["end", "return", "error"] {
        let (witness, held) = witness(&server);
        let outcome = client.scope(ends(how, Some(witness))).await;
        assert_eq!(outcome.is_err(), how == "error", "{how}: {outcome:?}");
        assert_eq!(*held.lock().expect("no panic"), Some(true), "{how}");
        assert!(
            !server.exists(KEY).await,
            "{how}: released before the function returned"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_releases_before_it_continues() {
    use futures_util::FutureExt;

    let server = Arc::new(RedisServer::start());
    let client = client(&server).await;
    let (witness, held) = witness(&server);
    let call = AssertUnwindSafe(client.scope(ends("panic", Some(witness))));
    let panic = call.catch_unwind().await.expect_err("the body panics");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"in the body"));
    assert_eq!(*held.lock().expect("no panic"), Some(true));
    assert!(!server.exists(KEY).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_call_drops_its_body_first_and_releases_in_the_background() {
    let server = Arc::new(RedisServer::start());
    let client = client(&server).await;
    let (witness, held) = witness(&server);
    let call = client.scope(ends("hang", Some(witness)));
    // Long enough for the body to start on a busy machine.
    tokio::time::timeout(Duration::from_secs(2), call)
        .await
        .expect_err("it hangs");
    assert_eq!(*held.lock().expect("no panic"), Some(true));
    assert_soon_free(&server, "order:1").await;
    // The same task can acquire the lock again, with a new owner.
    client.scope(ends("end", None)).await.expect("free again");
}

#[tokio::test]
async fn a_dropped_guard_releases_in_the_background() {
    let server = RedisServer::start();
    let client = client(&server).await;
    drop(client.lock("order:1").acquire().await.expect("free"));
    assert_soon_free(&server, "order:1").await;
}

#[test]
fn a_guard_dropped_outside_any_runtime_releases() {
    let server = RedisServer::start();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (client, guard) = runtime.block_on(async {
        let client = client(&server).await;
        let guard = client.lock("order:1").acquire().await.expect("free");
        (client, guard)
    });
    // In another thread, after the end of the runtime that acquired the lock.
    drop(runtime);
    assert!(guard.is_valid());
    std::thread::spawn(move || drop(guard))
        .join()
        .expect("no panic");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(assert_soon_free(&server, "order:1"));
    let again = client.lock("order:1");
    let again = runtime.block_on(again.acquire());
    drop(again.expect("the client outlives its first runtime"));
}

#[test]
fn a_guard_that_outlives_its_runtime_is_renewed() {
    let server = RedisServer::start();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let guard = runtime.block_on(async {
        let lock = client(&server)
            .await
            .lock("order:1")
            .lease(Duration::from_millis(600));
        lock.acquire().await.expect("free")
    });
    drop(runtime);
    std::thread::sleep(Duration::from_millis(1500));
    assert!(guard.is_valid());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    assert!(runtime.block_on(server.exists(KEY)));
    runtime.block_on(guard.release()).expect("still held");
}

#[test]
fn a_guard_dropped_while_unwinding_and_in_a_threads_destructor_releases() {
    thread_local! {
        static KEPT: std::cell::RefCell<Option<rlock_core::LockGuard>> =
            const { std::cell::RefCell::new(None) };
    }
    let server = RedisServer::start();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let client = runtime.block_on(client(&server));
    let unwound = client.lock("order:1").acquire_blocking().expect("free");
    let destroyed = client.lock("order:2").acquire_blocking().expect("free");
    let thread = std::thread::spawn(move || {
        let _unwound = unwound;
        KEPT.with(|kept| *kept.borrow_mut() = Some(destroyed));
        panic!("unwinding");
    });
    thread.join().expect_err("it panics");
    runtime.block_on(assert_soon_free(&server, "order:1"));
    runtime.block_on(assert_soon_free(&server, "order:2"));
}

#[tokio::test]
async fn five_thousand_guards_dropped_at_once_leave_no_key() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let mut guards = Vec::new();
    for hundred in 0..50 {
        let hundred = (0..100).map(async |n| {
            let lock = client.lock(format!("many:{hundred}:{n}"));
            lock.acquire().await.expect("free")
        });
        guards.extend(join_all(hundred).await);
    }
    assert_eq!(server.keys("lock:{many:*}").await.len(), 5000);
    drop(guards);
    eventually(LONG, "all are released", async || {
        server.keys("lock:{many:*}").await.is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_guard_dropped_before_the_last_client_is_still_released() {
    let server = RedisServer::start();
    let guard = client(&server)
        .await
        .lock("order:1")
        .acquire()
        .await
        .expect("free");
    // The guard had the last handle of the client.
    drop(guard);
    assert_soon_free(&server, "order:1").await;
    eventually(LONG, "the connection is closed", async || {
        server.client_count().await <= 1
    })
    .await;
}

#[tokio::test]
async fn a_body_that_panics_while_it_is_dropped_releases_the_lock() {
    use futures_util::FutureExt;

    struct PanicsOnDrop;
    impl Drop for PanicsOnDrop {
        fn drop(&mut self) {
            assert!(std::thread::panicking(), "in a destructor");
        }
    }
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = client.lock("order:1");
    let body = async {
        let _value = PanicsOnDrop;
    };
    let call = AssertUnwindSafe(lock.run(body)).catch_unwind();
    within(LONG, "the call ends", call)
        .await
        .expect_err("it panics");
    assert!(!server.exists(KEY).await);
}

#[tokio::test]
async fn at_least_keeps_the_lock_taken_without_delaying_its_caller() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = client.lock("order:1").at_least(Duration::from_secs(4));
    let started = std::time::Instant::now();
    lock.run(async {}).await.expect("free");
    assert!(
        started.elapsed() < Duration::from_millis(3500),
        "the caller does not wait"
    );
    let ttl = server.pttl(KEY).await;
    assert!((1..=4000).contains(&ttl), "{ttl}");
    assert!(lock.try_acquire().await.expect("a reply").is_none());
    let next = lock.wait(LONG).acquire().await.expect("free in the end");
    assert!(started.elapsed() >= Duration::from_secs(4));
    drop(next);
}

/// Returns once the body is inside its lock.
async fn a_body_that_does_not_end(
    server: &RedisServer,
    lock: Lock,
) -> JoinHandle<Result<(), LockError>> {
    let name = name(lock.key());
    let running = tokio::spawn(async move { lock.run(std::future::pending::<()>()).await });
    eventually(LONG, "the body runs", async || server.exists(&name).await).await;
    running
}

#[tokio::test]
async fn shutdown_releases_everything_and_stops_bodies() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let guard = client.lock("order:1").acquire().await.expect("free");
    let running = a_body_that_does_not_end(&server, client.lock("order:2")).await;
    let waiting = tokio::spawn({
        let lock = client.lock("order:1").wait_forever();
        async move { lock.acquire().await.map(drop) }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    client.shutdown().await.expect("everything is released");
    assert!(server.keys("lock:{order:?}").await.is_empty());
    assert!(!guard.is_valid());
    let lost = guard.release().await.expect_err("lost");
    assert!(
        matches!(
            lost,
            LockError::Lost {
                cause: rlock_core::LostCause::Closed,
                ..
            }
        ),
        "{lost:?}"
    );
    let stopped = running.await.expect("no panic").expect_err("stopped");
    assert!(matches!(stopped, LockError::Lost { .. }), "{stopped:?}");
    let refused = waiting.await.expect("no panic").expect_err("refused");
    assert!(matches!(refused, LockError::Closed { .. }), "{refused:?}");
    let refused = client.lock("order:3").acquire().await.expect_err("closed");
    assert!(refused.to_string().contains("order:3"), "{refused}");
    client.inspect("order:3").await.expect_err("closed");
    client
        .shutdown()
        .await
        .expect("a second time is as good as the first");
}

#[tokio::test]
async fn shutdown_does_not_give_away_the_lock_of_a_body_that_does_not_stop() {
    let server = RedisServer::start();
    let client = connect_with(Duration::from_millis(200), &server.url()).await;
    let (inside, entered) = std::sync::mpsc::channel();
    let stubborn = std::thread::spawn({
        let lock = client.lock("order:1");
        move || {
            lock.run_blocking(|| {
                inside.send(()).expect("the test waits");
                std::thread::sleep(Duration::from_secs(2));
            })
        }
    });
    entered.recv().expect("it runs");
    client
        .shutdown()
        .await
        .expect_err("one body has not stopped");
    assert!(server.exists(KEY).await, "its lock is left to its lease");
    stubborn
        .join()
        .expect("no panic")
        .expect_err("the loss is reported at the end");
}

#[tokio::test]
async fn two_shutdowns_at_once_and_one_after_a_cancelled_one_wait_for_the_same_locks() {
    for cancelled in [false, true] {
        let server = RedisServer::start();
        let client = client(&server).await;
        let guard = client.lock("order:1").acquire().await.expect("free");
        let running = a_body_that_does_not_end(&server, client.lock("order:2")).await;
        if cancelled {
            let mut first = Box::pin(client.shutdown());
            let poll = |cx: &mut std::task::Context<'_>| first.as_mut().poll(cx).is_pending();
            let mut poll = poll;
            std::future::poll_fn(|cx| std::task::Poll::Ready(poll(cx))).await;
            drop(first);
            client.shutdown().await.expect("everything is released");
        } else {
            let (one, other) = tokio::join!(client.shutdown(), client.shutdown());
            one.expect("everything is released");
            other.expect("everything is released");
        }
        assert!(server.keys("lock:{order:?}").await.is_empty());
        running.await.expect("no panic").expect_err("stopped");
        drop(guard);
    }
}

#[tokio::test]
async fn a_release_after_max_hold_releases_the_lock_and_returns_the_loss() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = client.lock("order:1").max_hold(Duration::from_millis(100));
    let guard = lock.acquire().await.expect("free");
    assert_eq!(guard.lost().await, rlock_core::LostCause::MaxHold);
    let error = guard.release().await.expect_err("held too long");
    assert!(
        matches!(
            error,
            LockError::Lost {
                cause: rlock_core::LostCause::MaxHold,
                ..
            }
        ),
        "{error:?}"
    );
    assert!(!server.exists(KEY).await);
}

#[tokio::test]
async fn a_kept_lock_has_no_holder() {
    let server = RedisServer::start();
    for client in [LockClient::in_memory(), client(&server).await] {
        let lock = client.lock("order:1").at_least(Duration::from_secs(20));
        lock.run(async {}).await.expect("free");
        let info = client
            .inspect("order:1")
            .await
            .expect("a reply")
            .expect("still taken");
        assert_eq!(info.owner_id(), None, "{info:?}");
    }
    assert_eq!(
        server.hgetall(KEY).await.keys().collect::<Vec<_>>(),
        ["kept"]
    );
}

#[tokio::test]
async fn at_least_also_holds_after_an_error_a_panic_and_a_cancellation() {
    use futures_util::FutureExt;

    let client = LockClient::in_memory();
    let lock = |key: &str| client.lock(key).at_least(LONG);
    let failed = lock("error").run(async { Err::<(), _>("no") }).await;
    assert_eq!(failed.expect("free"), Err("no"));
    let panicking = async { lock("panic").run(async { panic!("on purpose") }).await };
    let panicked: Result<Result<(), _>, _> = AssertUnwindSafe(panicking).catch_unwind().await;
    panicked.expect_err("it goes on");
    let endless = async { lock("cancelled").run(std::future::pending::<()>()).await };
    let cancelled = tokio::time::timeout(Duration::from_millis(50), endless).await;
    cancelled.expect_err("it is dropped");
    for key in ["error", "panic", "cancelled"] {
        eventually(LONG, "it has no holder, and it is taken", async || {
            let info = client.inspect(key).await.expect("a reply");
            info.expect("still taken").owner_id().is_none()
        })
        .await;
    }
}

#[tokio::test]
async fn a_full_server_takes_nested_and_outer_entries_back() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = client.lock("order:1");
    let outer = lock.acquire().await.expect("free");
    let inner = outer.scope(lock.acquire()).await.expect("enters");
    server.config_set("maxmemory-policy", "noeviction").await;
    server.config_set("maxmemory", "1").await;
    let refused = client
        .lock("order:2")
        .wait(Duration::from_millis(200))
        .acquire()
        .await;
    let refused = refused.expect_err("no room");
    assert!(
        matches!(refused, LockError::Unavailable { .. }),
        "{refused:?}"
    );
    inner.release().await.expect("held");
    assert_eq!(
        server.hgetall(KEY).await.values().collect::<Vec<_>>(),
        ["1"]
    );
    outer.release().await.expect("held");
    assert!(!server.exists(KEY).await);
}

#[test]
fn a_client_whose_runtime_is_gone_is_closed() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (client, guard) = runtime.block_on(async {
        let client = LockClient::builder().tokio_time().in_memory();
        let client = client.expect("a client");
        let guard = client.lock("order:1").acquire().await.expect("free");
        (client, guard)
    });
    runtime.shutdown_timeout(Duration::from_secs(10));
    let another = tokio::runtime::Runtime::new().expect("a runtime");
    another.block_on(async {
        let refused = client.lock("order:2").acquire().await.expect_err("closed");
        assert!(matches!(refused, LockError::Closed { .. }), "{refused:?}");
        assert!(!guard.is_valid());
        let lost = guard.release().await.expect_err("lost");
        assert!(matches!(lost, LockError::Lost { .. }), "{lost:?}");
        let shutdown = client.shutdown();
        let _ = within(LONG, "shutdown ends", shutdown).await;
    });
}
