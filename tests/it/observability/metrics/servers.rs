//! Requests, renewals and connections.

use std::time::Duration;

use rlock_core::{LostCause, StoreUrl};
use rlock_testkit::{Proxy, RedisServer, eventually};

use super::is;
use crate::common::{
    LASTING, LONG,
    alone::alone,
    assert_lost, connect, connect_with, ms, name,
    recorder::{keep_metrics, metric, values},
    resp2_client,
};

fn renewals(result: &str) -> f64 {
    metric("rlock_renewals_total", &[("result", result)]).unwrap_or(0.0)
}

fn requests(operation: &str, result: &str) -> Vec<f64> {
    let labels = [("operation", operation), ("result", result)];
    values("rlock_request_duration_seconds", &labels)
}

fn of_server(name: &str, server: usize) -> Option<f64> {
    metric(name, &[("server", &server.to_string())])
}

async fn until_up(server: usize, expected: u32) {
    eventually(LONG, "the connection changes", async || {
        of_server("rlock_connection_up", server).is_some_and(|up| is(up, expected))
    })
    .await;
}

#[tokio::test]
async fn each_request_is_recorded_by_operation_and_result() {
    alone!(each_request_is_recorded_by_operation_and_result);
    keep_metrics();
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let client = connect(&proxy.url()).await;
    let guard = client.lock("k").acquire().await.expect("free");
    client.inspect("k").await.expect("a reply");
    client.ping().await.expect("up");
    guard.release().await.expect("held");
    for operation in ["acquire", "inspect", "ping", "release"] {
        let durations = requests(operation, "ok");
        assert_eq!(durations.len(), 1, "{operation}");
        assert!(durations[0] > 0.0, "{durations:?}");
    }
    let () = server.command(&["SET", &name("foreign"), "text"]).await;
    client.lock("foreign").acquire().await.expect_err("no lock");
    assert_eq!(requests("acquire", "error").len(), 1);

    let impatient = connect_with(ms(300), &proxy.url()).await;
    proxy.hold_replies();
    let lock = impatient.lock("k").wait(ms(100));
    lock.acquire().await.expect_err("no reply");
    eventually(LONG, "it times out", async || {
        !requests("acquire", "timeout").is_empty()
    })
    .await;
    let before = proxy.requests_of("EVALSHA");
    let lock = client.lock("k").wait(LONG);
    let acquire = tokio::spawn(async move { lock.acquire().await });
    eventually(LONG, "it is sent", async || {
        proxy.requests_of("EVALSHA") > before
    })
    .await;
    acquire.abort();
    assert!(acquire.await.expect_err("aborted").is_cancelled());
    assert!(!requests("acquire", "cancelled").is_empty());
}

#[tokio::test]
async fn renewals_are_counted_with_what_was_left_of_the_lease() {
    const LEASE: Duration = Duration::from_secs(9);
    alone!(renewals_are_counted_with_what_was_left_of_the_lease);
    keep_metrics();
    let server = RedisServer::start();
    let client = resp2_client(&server).await;
    let guard = client.lock("k").lease(LEASE).acquire().await;
    let guard = guard.expect("free");
    eventually(LONG, "it is renewed", async || renewals("ok") >= 1.0).await;
    let margins = values("rlock_lease_margin_seconds", &[]);
    assert!(!margins.is_empty());
    for left in margins {
        assert!((0.0..LEASE.as_secs_f64() * 0.8).contains(&left), "{left}");
    }
    assert!(!requests("renew", "ok").is_empty());
    assert!(server.del(&name("k")).await);
    assert_lost(&guard, LONG, LostCause::Removed).await;
    assert!(is(renewals("gone"), 1), "{}", renewals("gone"));
}

#[tokio::test]
async fn servers_are_counted_by_their_index_as_up_or_down_and_reconnected() {
    alone!(servers_are_counted_by_their_index_as_up_or_down_and_reconnected);
    keep_metrics();
    let servers = [(); 3].map(|()| RedisServer::start());
    let urls = servers.each_ref().map(RedisServer::url);
    let one = connect(StoreUrl::quorum(urls.clone())).await;
    for server in 0..3 {
        until_up(server, 1).await;
    }
    let reconnects = || of_server("rlock_reconnects_total", 1).expect("a counter");
    assert!(is(reconnects(), 0));
    let other = connect(StoreUrl::quorum(urls)).await;
    servers[1].kill();
    until_up(1, 0).await;
    until_up(0, 1).await;
    until_up(2, 1).await;
    one.lock("k").run(async {}).await.expect("a majority");
    servers[1].restart();
    until_up(1, 1).await;
    eventually(LONG, "both are back", async || is(reconnects(), 2)).await;
    // The exporter does not count a client after its end.
    drop(other);
    tokio::time::sleep(ms(300)).await;
    until_up(0, 1).await;
}

#[tokio::test]
async fn releases_that_are_not_done_are_pending() {
    alone!(releases_that_are_not_done_are_pending);
    keep_metrics();
    let pending = || metric("rlock_pending_releases", &[]).unwrap_or(0.0);
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let client = connect(&proxy.url()).await;
    let lock = |key: &str| client.lock(key).lease(LASTING);
    let one = lock("one").acquire().await.expect("free");
    let other = lock("other").acquire().await.expect("free");
    proxy.hold_replies();
    drop((one, other));
    assert!(is(pending(), 2), "{}", pending());
    tokio::time::sleep(ms(100)).await;
    assert!(is(pending(), 2), "{}", pending());
    proxy.pass();
    eventually(LONG, "they are done", async || is(pending(), 0)).await;
    // A client that ends leaves nothing pending.
    let last = lock("last").acquire().await.expect("free");
    proxy.hold_replies();
    drop(last);
    assert!(is(pending(), 1), "{}", pending());
    drop(client);
    eventually(LONG, "the client ends", async || is(pending(), 0)).await;
}
