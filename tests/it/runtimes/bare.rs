//! Tokio runtimes without timers, without I/O, or without both.
//!
//! Nothing panics there, not even a background task. The only exception is the probe with which a
//! new client detects missing drivers.

use std::{
    cell::Cell,
    panic,
    sync::{
        Mutex, Once,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rlock_core::{LockClient, LockError, distributed_lock};
use rlock_testkit::{RedisCluster, RedisServer};
use tokio::runtime::{Builder, Runtime};

use crate::common::alone::alone;

static PANICS: AtomicUsize = AtomicUsize::new(0);
thread_local! {
    /// Whether this thread is creating a client.
    static MAKES_A_CLIENT: Cell<bool> = const { Cell::new(false) };
}
static MESSAGES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Creates a client on this thread, which may probe the runtime once.
fn made<T>(runtime: &Runtime, client: impl Future<Output = T>) -> T {
    MAKES_A_CLIENT.set(true);
    let client = runtime.block_on(client);
    MAKES_A_CLIENT.set(false);
    client
}

/// Counts all other panics of this process from now on.
fn count_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let shown = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if MAKES_A_CLIENT.get() {
                return;
            }
            PANICS.fetch_add(1, Ordering::SeqCst);
            if let Ok(mut messages) = MESSAGES.lock() {
                messages.push(info.to_string());
            }
            shown(info);
        }));
    });
}

/// Returns runtimes that lack a driver, with one thread and with several.
fn bare() -> Vec<(String, Runtime)> {
    let mut runtimes = Vec::new();
    for (name, io, time) in [
        ("neither", false, false),
        ("only I/O", true, false),
        ("only timers", false, true),
    ] {
        for threads in [0, 2] {
            let mut builder = match threads {
                0 => Builder::new_current_thread(),
                _ => Builder::new_multi_thread(),
            };
            if threads > 0 {
                builder.worker_threads(threads);
            }
            if io {
                builder.enable_io();
            }
            if time {
                builder.enable_time();
            }
            let runtime = builder.build().expect("a runtime");
            runtimes.push((format!("{name}, {threads} workers"), runtime));
        }
    }
    runtimes
}

/// Runs this on all runtimes in parallel.
fn on_each_of(runtimes: &[(String, Runtime)], use_it: impl Fn(&str, &Runtime) + Sync) {
    thread::scope(|scope| {
        for (what, runtime) in runtimes {
            let use_it = &use_it;
            scope.spawn(move || use_it(what, runtime));
        }
    });
}

#[distributed_lock(key = "annotated:<n>", wait = "5s")]
async fn annotated(n: u32) -> Result<u32, LockError> {
    Ok(n)
}

/// Calls all of a service's operations on a runtime that lacks a driver.
fn use_everything(what: &str, runtime: &Runtime, client: &LockClient) {
    let brief = Duration::from_millis(200);
    let task = {
        let client = client.clone();
        runtime.spawn(async move {
            let lock = client.lock("k").lease(Duration::from_millis(600));
            let guard = lock.acquire().await?;
            let started = Instant::now();
            let taken = client.lock("k").wait(brief).acquire().await;
            assert!(matches!(taken, Err(LockError::Timeout { .. })), "{taken:?}");
            assert!(started.elapsed() >= brief);
            // The lock is renewed meanwhile, and then handed to a waiter.
            thread::sleep(Duration::from_millis(900));
            assert!(guard.is_valid(), "renewed");
            let waiter = client.lock("k").wait(Duration::from_secs(10));
            let waiter = tokio::spawn(async move { waiter.run(async { 7 }).await });
            tokio::task::yield_now().await;
            guard.release().await?;
            assert_eq!(waiter.await.expect("no panic")?, 7);
            client.scope(annotated(1)).await?;
            client.inspect("k").await?;
            drop(client.lock("dropped").acquire().await?);
            Ok::<_, LockError>(())
        })
    };
    let outcome = runtime.block_on(task);
    outcome
        .unwrap_or_else(|error| panic!("{what}: {error}"))
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    let blocking = client.clone();
    let blocking = runtime.spawn_blocking(move || blocking.lock("k").run_blocking(|| ()));
    let blocking = runtime.block_on(blocking).expect("no panic");
    blocking.unwrap_or_else(|error| panic!("{what}: {error}"));
    let shut = runtime.block_on(client.shutdown());
    shut.unwrap_or_else(|error| panic!("{what}: {error}"));
}

fn assert_no_panic(what: &str) {
    // Time for all background tasks to run.
    thread::sleep(Duration::from_millis(300));
    let messages = MESSAGES.lock().expect("not poisoned").join("\n");
    assert_eq!(PANICS.load(Ordering::SeqCst), 0, "{what}: {messages}");
}

#[test]
fn a_server_is_connected_to_and_locked_on_without_a_panic() {
    alone!(a_server_is_connected_to_and_locked_on_without_a_panic);
    count_panics();
    on_each_of(&bare(), |what, runtime| {
        let server = RedisServer::start();
        for url in [server.url(), format!("{}?protocol=resp2", server.url())] {
            let client = made(runtime, LockClient::connect(&url));
            let client = client.unwrap_or_else(|error| panic!("{what}: {error}"));
            use_everything(what, runtime, &client);
        }
    });
    assert_no_panic("a server");
}

#[test]
fn the_embedded_store_is_locked_on_without_a_panic() {
    alone!(the_embedded_store_is_locked_on_without_a_panic);
    count_panics();
    on_each_of(&bare(), |what, runtime| {
        let client = runtime.block_on(async { LockClient::in_memory() });
        use_everything(what, runtime, &client);
    });
    assert_no_panic("in memory");
}

#[test]
fn a_cluster_and_a_quorum_are_connected_to_and_locked_on_without_a_panic() {
    alone!(a_cluster_and_a_quorum_are_connected_to_and_locked_on_without_a_panic);
    count_panics();
    let full = Runtime::new().expect("a runtime");
    let cluster = full.block_on(RedisCluster::start());
    let three = [(); 3].map(|()| RedisServer::start());
    on_each_of(&bare(), |what, runtime| {
        // A prefix of its own for each runtime.
        let builder = || LockClient::builder().prefix(what.replace([' ', ','], "-"));
        let clustered = made(runtime, builder().connect(&cluster.url()));
        let clustered = clustered.unwrap_or_else(|error| panic!("{what}: {error}"));
        use_everything(what, runtime, &clustered);
        let urls = three.each_ref().map(RedisServer::url);
        let quorum = made(runtime, builder().quorum(urls));
        let quorum = quorum.unwrap_or_else(|error| panic!("{what}: {error}"));
        use_everything(what, runtime, &quorum);
    });
    assert_no_panic("several servers");
}
