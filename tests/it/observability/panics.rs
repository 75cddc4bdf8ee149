//! A subscriber that panics once: in each round at a later call. Afterwards every lock is free, and none is counted as held.

use std::{
    panic,
    sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst},
    thread,
};

use rlock_core::{Lock, LockClient, testing::simulate_loss};
use rlock_testkit::{RedisCluster, eventually};
use tokio::task::{JoinHandle, yield_now};
use tracing::span::{Attributes, Id, Record};

use crate::common::{
    LASTING, LONG,
    alone::alone,
    ms,
    recorder::{keep_metrics, metric},
};

const KEYS: [&str; 2] = ["k", "l"];

/// The number of calls until one panics.
static LEFT: AtomicI64 = AtomicI64::new(i64::MAX);

struct OnPurpose;

fn called() {
    // A second panic would abort the process.
    if !thread::panicking() && LEFT.fetch_sub(1, SeqCst) == 0 {
        panic::panic_any(OnPurpose);
    }
}

struct Fragile;

impl tracing::Subscriber for Fragile {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("rlock_core")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        static LAST: AtomicU64 = AtomicU64::new(0);
        called();
        Id::from_u64(LAST.fetch_add(1, SeqCst) + 1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {
        called();
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        called();
    }

    fn enter(&self, _: &Id) {
        called();
    }

    fn exit(&self, _: &Id) {
        called();
    }

    fn try_close(&self, _: Id) -> bool {
        called();
        true
    }
}

/// Runs the call in a task, which may panic.
fn spawn<F: Future<Output: Send> + Send + 'static>(call: F) -> JoinHandle<()> {
    tokio::spawn(async move { drop(call.await) })
}

/// Uses the locks of two clients in many ways. Each task may panic.
async fn use_everything([one, other]: &[LockClient; 2]) {
    let lock = |client: &LockClient| client.lock("k").lease(LASTING).wait(ms(200));
    let (first, mine, theirs) = (lock(one), lock(one), lock(other));
    let first = spawn(async move {
        let nested = async { first.run(tokio::time::sleep(ms(2))).await };
        drop(first.run(nested).await);
    });
    yield_now().await;
    let mine = spawn(async move { mine.acquire().await });
    let theirs = spawn(async move { theirs.acquire().await?.release().await });
    let _ = (first.await, mine.await, theirs.await);

    let (retained, theirs) = (lock(one).retain(LONG), lock(other));
    let _ = spawn(async move { retained.run(async {}).await }).await;
    let _ = spawn(async move { theirs.run(async {}).await }).await;

    let (brief, lost) = (lock(one).max_hold(ms(2)), lock(one));
    let _ = spawn(async move { brief.run(tokio::time::sleep(LONG)).await }).await;
    let lost = spawn(async move { lost.run(tokio::time::sleep(ms(50))).await });
    yield_now().await;
    let deletes = other.clone();
    let _ = spawn(async move { simulate_loss(&deletes, "k") }).await;
    let _ = lost.await;

    let several = one.lock_all(KEYS).lease(LASTING).wait(ms(200));
    let _ = spawn(async move { several.acquire().await }).await;
}

async fn assert_free(lock: Lock, call: i64) {
    let guard = lock.wait(LONG).lease(LASTING).acquire().await;
    let guard = guard.unwrap_or_else(|error| panic!("after a panic in call {call}: {error}"));
    guard.release().await.expect("held");
}

/// Makes the subscriber panic at its call with this number, counted from 0.
fn panic_at(call: i64) {
    LEFT.store(call, SeqCst);
}

/// Installs the subscriber for the whole process.
fn install() {
    let shown = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !info.payload().is::<OnPurpose>() {
            shown(info);
        }
    }));
    tracing::subscriber::set_global_default(Fragile).expect("the only subscriber");
}

/// The client has one connection to the master, because no runtime has made it.
#[test]
fn a_panic_of_a_subscriber_while_a_connection_of_a_cluster_is_lost_does_not_keep_it_lost() {
    alone!(a_panic_of_a_subscriber_while_a_connection_of_a_cluster_is_lost_does_not_keep_it_lost);
    install();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let cluster = runtime.block_on(RedisCluster::start());
    let client = LockClient::builder().connect_blocking(cluster.url());
    let client = client.expect("it is up");
    runtime.block_on(async {
        let key = cluster.key_at(0, "k").await;
        assert_free(client.lock(&key), 0).await;
        panic_at(0);
        for of in ["normal", "pubsub"] {
            let _: i64 = (cluster.node(0))
                .command(&["CLIENT", "KILL", "TYPE", of])
                .await;
        }
        eventually(LONG, "a panic", async || LEFT.load(SeqCst) < 0).await;
        assert_free(client.lock(&key), 0).await;
    });
}

#[test]
fn a_panic_of_a_subscriber_leaves_no_lock_taken() {
    alone!(a_panic_of_a_subscriber_leaves_no_lock_taken);
    install();
    keep_metrics();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    for call in 0.. {
        let connect = || LockClient::builder().connect_blocking(format!("memory:{call}"));
        let clients = [(); 2].map(|()| connect().expect("a client"));
        panic_at(call);
        runtime.block_on(use_everything(&clients));
        let left = LEFT.swap(i64::MAX, SeqCst);
        for key in KEYS {
            for client in &clients {
                runtime.block_on(assert_free(client.lock(key), call));
            }
        }
        let held = metric("rlock_held", &[("lock", "unnamed")]);
        assert_eq!(held, Some(0.0), "after a panic in call {call}");
        if left >= 0 {
            assert!(call > 50, "only {call} calls");
            return;
        }
    }
}
