//! A subscriber that panics once: in each round at a later call. Afterwards every lock is free.

use std::{
    panic,
    sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst},
    thread,
};

use rlock_core::{Lock, LockClient};
use tracing::span::{Attributes, Id, Record};

use crate::common::{LASTING, LONG, alone::alone, ms};

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

/// Uses the locks of two clients in many ways. Each task may panic.
async fn use_everything(clients: &[LockClient; 2]) {
    let [one, other] = clients;
    let wait = ms(200);
    let lock = |client: &LockClient| client.lock("k").lease(LASTING).wait(wait);
    let (first, mine, theirs) = (lock(one), lock(one), lock(other));
    let first = tokio::spawn(async move {
        let nested = async { first.run(tokio::time::sleep(ms(2))).await };
        drop(first.run(nested).await);
    });
    tokio::task::yield_now().await;
    let mine = tokio::spawn(async move { drop(mine.acquire().await) });
    let theirs = tokio::spawn(async move {
        if let Ok(guard) = theirs.acquire().await {
            drop(guard.release().await);
        }
    });
    let _ = (first.await, mine.await, theirs.await);

    let (retained, theirs) = (lock(one).retain(LONG), lock(other));
    let retained = async move {
        let _ = retained.run(async {}).await;
        drop(retained.run(async {}).await);
    };
    let _ = tokio::spawn(retained).await;
    let _ = tokio::spawn(async move { drop(theirs.run(async {}).await) }).await;

    let (brief, revoked) = (lock(one).max_hold(ms(2)), lock(one));
    let _ = tokio::spawn(async move { drop(brief.run(tokio::time::sleep(LONG)).await) }).await;
    let revoked = tokio::spawn(async move { drop(revoked.run(tokio::time::sleep(ms(50))).await) });
    tokio::task::yield_now().await;
    let asks = other.clone();
    let _ = tokio::spawn(async move { drop(asks.ask_release("k").await) }).await;
    let _ = revoked.await;

    let lost = lock(one);
    let lost = tokio::spawn(async move { drop(lost.run(tokio::time::sleep(ms(50))).await) });
    tokio::task::yield_now().await;
    let deletes = other.clone();
    let _ = tokio::spawn(async move { drop(deletes.revoke("k")) }).await;
    let _ = lost.await;

    let several = one.lock_all(KEYS).lease(LASTING).wait(wait);
    let taken = other.lock_all(KEYS).lease(LASTING).wait(ms(2));
    let several = tokio::spawn(async move {
        let guard = several.acquire().await;
        let _ = taken.acquire().await;
        drop(guard);
    });
    let _ = several.await;
    let synchronous = lock(one);
    let _ = tokio::task::spawn_blocking(move || drop(synchronous.run_blocking(|| ()))).await;
}

async fn assert_free(lock: Lock, call: i64) {
    let guard = lock.wait(LONG).lease(LASTING).acquire().await;
    let guard = guard.unwrap_or_else(|error| panic!("after a panic in call {call}: {error}"));
    guard.release().await.expect("held");
}

#[test]
fn a_panic_of_a_subscriber_leaves_no_lock_taken() {
    alone!(a_panic_of_a_subscriber_leaves_no_lock_taken);
    let shown = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !info.payload().is::<OnPurpose>() {
            shown(info);
        }
    }));
    tracing::subscriber::set_global_default(Fragile).expect("the only subscriber");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    for call in 0.. {
        let connect = || LockClient::builder().connect_blocking(&format!("memory:{call}"));
        let clients = [(); 2].map(|()| connect().expect("a client"));
        LEFT.store(call, SeqCst);
        runtime.block_on(use_everything(&clients));
        let left = LEFT.swap(i64::MAX, SeqCst);
        for key in KEYS {
            for client in &clients {
                runtime.block_on(assert_free(client.lock(key), call));
            }
        }
        if left >= 0 {
            assert!(call > 50, "only {call} calls");
            return;
        }
    }
}
