//! Lost, late and cut requests and replies: nothing counts twice, and nothing is left behind.
//!
//! `topologies/faults` has the tests that are the same on every topology.

use rlock_core::{Lock, LockClient, LockError, LostCause};
use rlock_testkit::{Proxy, RedisServer, Request, eventually};

use crate::common::{
    LONG, acquiring, assert_lost, assert_soon_free, client, connect_with, count, hold, its_turn,
    ms, name, resp2,
};
use crate::leases::clock::HOUR;

/// A server with two clients, one of them behind a proxy.
struct Place {
    server: RedisServer,
    proxy: Proxy,
    client: LockClient,
    other: LockClient,
}

impl Place {
    async fn new() -> Self {
        let server = RedisServer::start();
        let proxy = Proxy::in_front_of(&server);
        let client = connect_with(LONG, &proxy.url()).await;
        let other = connect_with(LONG, &server.url()).await;
        Self {
            server,
            proxy,
            client,
            other,
        }
    }

    /// Returns the client's lock, with a lease that does not end within a test.
    fn lock(&self) -> Lock {
        self.client.lock("k").lease(HOUR).wait(LONG)
    }
}

#[tokio::test]
async fn an_acquire_without_waiting_and_without_a_reply_leaves_nothing_behind() {
    let place = Place::new().await;
    place.proxy.drop_replies_if(1, |request| {
        request.is("EVALSHA") && request.mentions("lock:{k}")
    });
    let error = place.lock().try_acquire().await.expect_err("no reply");
    assert_eq!(place.proxy.replies_lost(), 1, "the fault has struck");
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    assert_soon_free(&place.server, "k").await;
}

#[tokio::test]
async fn an_acquire_whose_request_is_lost_is_sent_again() {
    let place = Place::new().await;
    place.proxy.drop_requests_to("EVALSHA", 3);
    let guard = place.lock().acquire().await.expect("granted after all");
    assert_eq!(place.proxy.requests_lost(), 3);
    assert_eq!(count(&place.server, &guard).await, Some(1));
    guard.release().await.expect("held");
}

#[tokio::test]
async fn an_acquire_at_a_paused_server_fails_and_a_late_grant_is_released() {
    let server = RedisServer::start();
    let client = client(&server).await;
    for (key, wait) in [("soon", ms(500)), ("after a time-out", ms(3000))] {
        server.pause();
        let outcome = client.lock(key).lease(HOUR).wait(wait).acquire().await;
        let error = outcome.expect_err("no reply");
        assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
        server.resume();
        // The request runs now, long after its call has ended.
        let fence = format!("{}:fence", name(key));
        let ran = async || server.exists(&fence).await;
        eventually(LONG, "it was granted, late", ran).await;
        assert_soon_free(&server, key).await;
    }
}

/// Returns the last acquire or release that went through the proxy. Unlike a renewal, it names a channel.
fn last_script(proxy: &Proxy) -> Request {
    let mut requests = proxy.requests().into_iter();
    let last = requests.rfind(|request| request.is("EVALSHA") && request.mentions("lock:client:"));
    last.expect("a script was sent")
}

/// Runs a copy of a request, like a network that duplicates or delays it.
async fn run_late(server: &RedisServer, request: &Request) -> redis::Value {
    let mut command = redis::Cmd::new();
    for word in &request.words {
        command.arg(word);
    }
    let mut connection = server.connection().await;
    command
        .query_async(&mut connection)
        .await
        .expect("the server runs it")
}

#[tokio::test]
async fn an_acquire_that_runs_late_blocks_others_for_a_lease_at_most() {
    let place = Place::new().await;
    let guard = place.lock().lease(ms(2000)).acquire().await.expect("free");
    let mut scripts = place.proxy.requests().into_iter();
    let acquire = scripts.find(|request| request.is("EVALSHA") && request.mentions(&name("k")));
    let acquire = acquire.expect("the acquire");
    drop(guard);
    assert_soon_free(&place.server, "k").await;

    let redis::Value::Array(granted) = run_late(&place.server, &acquire).await else {
        panic!("a reply");
    };
    assert_eq!(granted[0], redis::Value::Int(1), "an orphan");
    // No client relies on the copy, and none renews it.
    let next = its_turn(acquiring(place.lock())).await;
    assert_eq!(count(&place.server, &next).await, Some(1));
    // And once more while the next owner has the lock.
    run_late(&place.server, &acquire).await;
    assert_eq!(place.server.hgetall(&name("k")).await.len(), 1);
    next.release().await.expect("held");
}

#[tokio::test]
async fn copies_of_requests_that_run_late_change_nothing() {
    let place = Place::new().await;
    let lock = place.lock();
    let copies = async |request: &Request| {
        for _ in 0..3 {
            run_late(&place.server, request).await;
        }
    };
    let outer = lock.acquire().await.expect("free");
    let first = last_script(&place.proxy);
    copies(&first).await;
    assert_eq!(count(&place.server, &outer).await, Some(1));

    let inner = outer.scope(lock.acquire()).await.expect("enters");
    let second = last_script(&place.proxy);
    copies(&second).await;
    assert_eq!(count(&place.server, &outer).await, Some(2));

    inner.release().await.expect("held");
    let leave = last_script(&place.proxy);
    copies(&leave).await;
    assert_eq!(count(&place.server, &outer).await, Some(1));
    assert!(outer.is_valid());

    outer.release().await.expect("held");
    let release = last_script(&place.proxy);
    let again = run_late(&place.server, &release).await;
    assert_eq!(again, redis::Value::Int(0), "it is not held any more");

    let next = hold(&place.other, "k").await;
    let before = place.server.hgetall(&name("k")).await;
    for request in [&first, &second, &leave, &release] {
        copies(request).await;
    }
    assert_eq!(place.server.hgetall(&name("k")).await, before);
    next.release().await.expect("held");
    assert!(!place.server.exists(&name("k")).await);
}

#[tokio::test]
async fn a_lease_counts_from_before_its_request_was_sent() {
    let place = Place::new().await;
    place.proxy.hold_replies();
    let asking = acquiring(place.lock());
    let granted = async || place.server.exists(&name("k")).await;
    eventually(LONG, "it is granted", granted).await;
    tokio::time::sleep(ms(1000)).await;
    place.proxy.pass();
    let guard = its_turn(asking).await;
    let kept = u64::try_from(place.server.pttl(&name("k")).await).unwrap_or(0);
    let left = guard.valid_for();
    assert!(left <= ms(kept), "{left:?}, and {kept} ms at the server");
}

#[tokio::test]
async fn a_connection_that_is_cut_is_replaced_and_reports_losses_again() {
    for (cut, watchdog) in [
        (Proxy::reset as fn(&Proxy), true),
        (Proxy::reset, false),
        (Proxy::half_close, true),
    ] {
        let place = Place::new().await;
        let guard = place.lock().watchdog(watchdog).acquire().await;
        let guard = guard.expect("free");
        let before = place.proxy.requests_of("EVALSHA");
        let tracked = place.proxy.requests_of("CLIENT TRACKING");
        cut(&place.proxy);
        // A client checks its locks at once on a new connection.
        eventually(LONG, "the client checks its lock", async || {
            place.proxy.requests_of("EVALSHA") > before
        })
        .await;
        assert!(place.proxy.requests_of("CLIENT TRACKING") > tracked);
        assert!(guard.is_valid(), "a lost connection is no lost lock");
        assert!(place.server.del(&name("k")).await);
        // The next renewal is twenty minutes away, if there is one.
        assert_lost(&guard, LONG, LostCause::Removed).await;
    }
}

#[tokio::test]
async fn a_connection_cut_within_a_reply_is_replaced() {
    let place = Place::new().await;
    let older = connect_with(LONG, &resp2(&place.proxy.url())).await;
    for client in [&place.client, &older] {
        let lock = client.lock("k").lease(HOUR).wait(LONG);
        for bytes in (1..40).step_by(3) {
            place.proxy.cut_after_bytes(bytes);
            let guard = lock.acquire().await.expect("granted after all");
            assert_eq!(count(&place.server, &guard).await, Some(1), "{bytes}");
            place.proxy.cut_after_bytes(bytes);
            guard.release().await.expect("released");
            assert_soon_free(&place.server, "k").await;
        }
    }
}
