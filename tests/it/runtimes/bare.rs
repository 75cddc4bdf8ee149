//! Other executors, and Tokio runtimes without timers, without I/O, or without both.
//!
//! Nothing panics there, not even a background task. The only exception is the probe with which a
//! new client detects missing drivers.

use std::{
    cell::Cell,
    panic,
    sync::{Mutex, PoisonError},
    thread,
};

use rlock_core::{LockClient, LockError, StoreUrl, distributed_lock};
use rlock_testkit::{RedisCluster, RedisServer};
use tokio::runtime::{Builder, Runtime};

use crate::common::{LONG, alone::alone, builder, ms, resp2};

thread_local! {
    /// Whether this thread is creating a client.
    static MAKES_A_CLIENT: Cell<bool> = const { Cell::new(false) };
}
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Creates a client on this thread, which may probe the runtime once.
fn made(
    runtime: &Runtime,
    client: impl Future<Output = Result<LockClient, LockError>>,
) -> LockClient {
    MAKES_A_CLIENT.set(true);
    let client = runtime.block_on(client);
    MAKES_A_CLIENT.set(false);
    client.expect("the servers are up")
}

/// Records the panics of this process from now on, except those of the probes.
fn record_panics() {
    let shown = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if !MAKES_A_CLIENT.get() {
            let mut panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
            panics.push(info.to_string());
            shown(info);
        }
    }));
}

/// Runs this on runtimes that lack a driver, in parallel, and asserts that nothing panics.
fn on_bare_runtimes(use_it: impl Fn(&str, &Runtime) + Sync) {
    record_panics();
    thread::scope(|scope| {
        for (name, io, time) in [
            ("neither", false, false),
            ("only-io", true, false),
            ("only-timers", false, true),
        ] {
            let mut builder = Builder::new_current_thread();
            if io {
                builder.enable_io();
            }
            if time {
                builder.enable_time();
            }
            let (runtime, use_it) = (builder.build().expect("a runtime"), &use_it);
            scope.spawn(move || use_it(name, &runtime));
        }
    });
    // Gives all background tasks time to run.
    thread::sleep(ms(300));
    let panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(panics.is_empty(), "{panics:?}");
}

#[distributed_lock(key = "annotated:<n>", wait = "60s")]
async fn annotated(n: u32) -> Result<u32, LockError> {
    Ok(n)
}

/// Calls all of a service's operations on a runtime that lacks a driver.
fn use_everything(what: &str, runtime: &Runtime, client: &LockClient) {
    let of_task = client.clone();
    let task = runtime.spawn(async move {
        let client = of_task;
        let lock = client.lock("k").wait(LONG);
        let guard = lock.acquire().await?;
        let taken = client.lock("k").wait(ms(200)).acquire().await;
        assert!(matches!(taken, Err(LockError::Taken { .. })), "{taken:?}");
        let waiter = tokio::spawn(async move { lock.run(async { 7 }).await });
        tokio::task::yield_now().await;
        guard.release().await?;
        assert_eq!(waiter.await.expect("no panic")?, 7);
        client.scope(annotated(1)).await?;
        client.inspect("k").await?;
        drop(client.lock("dropped").wait(LONG).acquire().await?);
        Ok::<_, LockError>(())
    });
    runtime.block_on(task).expect("no panic").expect(what);
    let lock = client.lock("k").wait(LONG);
    let blocking = runtime.spawn_blocking(move || lock.run_blocking(|| ()));
    runtime.block_on(blocking).expect("no panic").expect(what);
    runtime.block_on(client.shutdown()).expect(what);
}

#[test]
fn servers_and_the_embedded_store_are_connected_to_and_locked_on_without_a_panic() {
    alone!(servers_and_the_embedded_store_are_connected_to_and_locked_on_without_a_panic);
    let full = Runtime::new().expect("a runtime");
    let cluster = full.block_on(RedisCluster::start());
    let three = [(); 3].map(|()| RedisServer::start());
    on_bare_runtimes(|what, runtime| {
        // Each runtime has its own prefix, because they run in parallel.
        let builder = || builder().prefix(what);
        let url = three[0].url();
        for url in [&url, &resp2(&url), &cluster.url()] {
            use_everything(what, runtime, &made(runtime, builder().connect(url)));
        }
        let urls = three.each_ref().map(RedisServer::url);
        use_everything(
            what,
            runtime,
            &made(runtime, builder().connect(StoreUrl::quorum(urls))),
        );
        let in_memory = runtime.block_on(async { LockClient::in_memory() });
        use_everything(what, runtime, &in_memory);
    });
}
