//! Lost, late and cut requests and replies: nothing counts twice, and nothing is left behind.
//!
//! `topologies/faults` has the tests that are the same on every topology.

use rlock_core::{Lock, LockClient};
use rlock_testkit::{Proxy, RedisServer, Request, eventually};

use crate::common::{
    LONG, acquiring, assert_soon_counted, assert_soon_free, assert_unavailable, builder,
    connect_with, count, fence, hold, its_turn, ms, name,
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
async fn an_acquire_at_a_paused_server_fails_and_a_late_grant_is_released() {
    let server = RedisServer::start();
    let client = connect_with(ms(2000), &server.url()).await;
    for (key, wait) in [("soon", ms(500)), ("after a time-out", ms(3000))] {
        server.pause();
        let outcome = client.lock(key).lease(HOUR).wait(wait).acquire().await;
        assert_unavailable(outcome, "no reply");
        server.resume();
        // The request runs now, long after its call has ended.
        let fence = fence(key);
        let ran = async || server.exists(&fence).await;
        eventually(LONG, "it was granted, late", ran).await;
        assert_soon_free(&server, key).await;
    }
}

/// Returns the last acquire or release that went through the proxy. Unlike a renewal, it names a channel.
fn last_script(proxy: &Proxy) -> Request {
    let mut requests = proxy.requests().into_iter();
    let last = requests.rfind(|request| request.is("EVALSHA") && request.mentions(&name("k")));
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

    let granted = match run_late(&place.server, &acquire).await {
        redis::Value::Array(reply) => reply[0] == redis::Value::Int(1),
        reply => matches!(reply, redis::Value::BulkString(_)),
    };
    assert!(granted, "an orphan");
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
    assert_soon_counted(&place.server, &outer, 2).await;
    let second = last_script(&place.proxy);
    copies(&second).await;
    assert_eq!(count(&place.server, &outer).await, Some(2));

    inner.release().await.expect("held");
    assert_soon_counted(&place.server, &outer, 1).await;
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

/// After the checks, an idle client sends nothing that would fail.
#[tokio::test]
async fn a_connection_that_ends_while_a_new_client_checks_it_is_replaced() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    proxy.drop_replies_if(1, |request| request.is("EVALSHA"));
    let builder = builder();
    let client = builder.second_connection(false).connect(&proxy.url()).await;
    let client = client.expect("the server is up");
    eventually(LONG, "the client listens", async || {
        proxy.connections() > 1 && server.listening_clients().await == 1
    })
    .await;
    drop(client);
}
