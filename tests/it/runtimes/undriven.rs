//! A client whose background runtime is not driven: no renewals, but every wait ends.

use std::{
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use rlock_core::{LockClient, LockError, LockGuard};
use rlock_testkit::{RedisServer, block_on};
use tokio::runtime::{Builder, Runtime};

/// A limit for calls that take a second or two on an idle machine.
const LONG: Duration = Duration::from_secs(20);

fn undriven() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime")
}

/// Runs the call on its own thread, and fails if it does not end.
#[track_caller]
fn ends<T: Send + 'static>(what: &str, call: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, outcome) = mpsc::channel();
    thread::spawn(move || {
        let _ = done.send(call());
    });
    let outcome = outcome.recv_timeout(LONG);
    outcome.unwrap_or_else(|_| panic!("{what} has not ended after {LONG:?}"))
}

fn builder(runtime: &Runtime) -> rlock_core::LockClientBuilder {
    LockClient::builder()
        .runtime(runtime.handle().clone())
        .response_timeout(Duration::from_millis(500))
        .connect_timeout(Duration::from_secs(1))
}

/// Returns a client of each store, connected while the runtime was driven.
fn clients(runtime: &Runtime, server: &RedisServer) -> [(&'static str, LockClient); 3] {
    let memory = builder(runtime).in_memory().expect("a client");
    let redis = runtime.block_on(builder(runtime).connect(&server.url()));
    let quorum = runtime.block_on(builder(runtime).quorum([server.url()]));
    [
        ("in memory", memory),
        ("a server", redis.expect("the server is up")),
        ("a quorum", quorum.expect("the server is up")),
    ]
}

#[test]
fn every_wait_for_a_lock_ends() {
    let (runtime, server) = (undriven(), RedisServer::start());
    let holders = clients(&runtime, &server).map(|(what, client)| {
        let key = what.replace(' ', "-");
        let held = runtime.block_on(client.lock(&key).acquire()).expect("free");
        (what, client, held)
    });
    // The runtime is not driven from here on.
    thread::scope(|scope| {
        for (what, client, held) in holders {
            scope.spawn(move || assert_every_wait_ends(what, client, held));
        }
    });
}

fn assert_every_wait_ends(what: &'static str, client: LockClient, held: LockGuard) {
    let lock = client.lock(held.key()).wait(Duration::from_secs(1));
    for _ in 0..2 {
        let lock = lock.clone();
        let started = Instant::now();
        let blocked = ends(what, move || lock.acquire_blocking().map(drop));
        let error = blocked.expect_err("taken");
        assert!(
            matches!(
                error,
                LockError::Timeout { .. } | LockError::Unavailable { .. }
            ),
            "{what}: {error:?}"
        );
        assert!(started.elapsed() < LONG / 2, "{what}");
    }
    let awaited = lock.clone();
    let elsewhere = ends(what, move || {
        let other = Runtime::new().expect("a runtime");
        other.block_on(async move { awaited.acquire().await.map(drop) })
    });
    elsewhere.expect_err("taken");
    let tried = lock.clone();
    let tried = ends(what, move || {
        tried.try_acquire_blocking().map(|got| got.is_some())
    });
    assert!(!matches!(tried, Ok(true)), "{what}: taken");
    let inspecting = client.clone();
    let _ = ends(what, move || block_on(inspecting.inspect("other")));
    let _ = ends(what, move || block_on(held.release()));
    let shutting = client.clone();
    let _ = ends(what, move || block_on(shutting.shutdown()));
    ends(what, move || drop((client, lock)));
}

#[test]
fn an_attempt_to_connect_ends() {
    let (runtime, server) = (undriven(), RedisServer::start());
    let started = Instant::now();
    let (one, url) = (builder(&runtime), server.url());
    let error = ends("connecting", move || block_on(one.connect(&url)).map(drop));
    let error = error.expect_err("nothing connects");
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().contains("runtime"), "{error}");
    let (several, url) = (builder(&runtime), server.url());
    let error = ends("a quorum", move || {
        block_on(several.quorum([url])).map(drop)
    });
    let error = error.expect_err("nothing connects");
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    assert!(started.elapsed() < LONG / 2);
}

#[test]
fn a_runtime_that_is_driven_again_continues_where_it_was() {
    let (runtime, server) = (undriven(), RedisServer::start());
    for (what, client) in clients(&runtime, &server) {
        let lock = client.lock(format!("again-{}", what.replace(' ', "-")));
        let lock = lock.wait(Duration::from_secs(1));
        let waiting = lock.clone();
        let _ = ends(what, move || waiting.acquire_blocking().map(drop));
        let later = lock.wait(LONG);
        let guard = runtime.block_on(later.acquire());
        let guard = guard.unwrap_or_else(|error| panic!("{what}: {error}"));
        let released = runtime.block_on(guard.release());
        released.unwrap_or_else(|error| panic!("{what}: {error}"));
    }
}
