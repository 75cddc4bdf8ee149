//! Requests, renewals and connections.

use std::{thread, time::Duration};

use futures_util::future::join_all;
use rlock_core::{LockClient, LostCause};
use rlock_testkit::{Proxy, RedisServer, eventually};

use super::is;
use crate::common::{
    LASTING, LONG,
    alone::alone,
    assert_lost, builder, client, connect, ms, name,
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
    let client = builder().response_timeout(ms(300));
    let client = client.connect(&proxy.url()).await.expect("up");
    let guard = client.lock("k").acquire().await.expect("free");
    client.inspect("k").await.expect("a reply");
    client.ping().await.expect("up");
    guard.release().await.expect("held");
    for operation in ["acquire", "inspect", "ping", "release"] {
        let durations = requests(operation, "ok");
        assert_eq!(durations.len(), 1, "{operation}");
        assert!((0.000_001..1.0).contains(&durations[0]), "{durations:?}");
    }
    let () = server.command(&["SET", &name("foreign"), "text"]).await;
    client.lock("foreign").acquire().await.expect_err("no lock");
    assert_eq!(requests("acquire", "error").len(), 1);

    proxy.hold_replies();
    let lock = client.lock("k").wait(ms(100));
    lock.acquire().await.expect_err("no reply");
    assert!(!requests("acquire", "timeout").is_empty());
    let acquire = tokio::spawn(async move { lock.wait(LONG).acquire().await });
    tokio::time::sleep(ms(50)).await;
    acquire.abort();
    assert!(acquire.await.expect_err("aborted").is_cancelled());
    assert!(!requests("acquire", "cancelled").is_empty());
    proxy.pass();
}

#[tokio::test]
async fn renewals_are_counted_with_what_was_left_of_the_lease() {
    const LEASE: f64 = 0.6;
    alone!(renewals_are_counted_with_what_was_left_of_the_lease);
    keep_metrics();
    let server = RedisServer::start();
    let client = resp2_client(&server).await;
    let guard = client.lock("k").lease(ms(600)).acquire().await;
    let guard = guard.expect("free");
    eventually(LONG, "it is renewed", async || renewals("ok") >= 3.0).await;
    let margins = values("rlock_lease_margin_seconds", &[]);
    assert!(margins.len() >= 3, "{margins:?}");
    for left in margins {
        assert!((0.0..LEASE * 0.8).contains(&left), "{left}");
    }
    assert!(requests("renew", "ok").len() >= 3);
    assert!(server.del(&name("k")).await);
    assert_lost(&guard, LONG, LostCause::Removed).await;
    assert!(is(renewals("gone"), 1), "{}", renewals("gone"));
}

/// A release may overtake a renewal, because each has its own connection.
#[tokio::test]
async fn a_renewal_that_a_release_overtakes_is_not_counted_as_a_loss() {
    alone!(a_renewal_that_a_release_overtakes_is_not_counted_as_a_loss);
    keep_metrics();
    let server = RedisServer::start();
    let client = client(&server).await;
    let holds = (0..200_u64).map(async |n| {
        let lock = client.lock(format!("k{n}")).lease(ms(900));
        for round in 0..10 {
            let guard = lock.acquire().await.expect("free");
            // The first renewal is due after 300 ms, on a grid of 75 ms.
            tokio::time::sleep(ms(250 + (n * 7 + round) % 55)).await;
            guard.release().await.expect("held");
        }
    });
    join_all(holds).await;
    assert!(renewals("ok") > 0.0, "some are renewed in time");
    assert!(is(renewals("gone"), 0), "{}", renewals("gone"));
}

#[tokio::test]
async fn a_renewal_is_late_after_the_next_was_due_and_has_failed_without_a_reply() {
    alone!(a_renewal_is_late_after_the_next_was_due_and_has_failed_without_a_reply);
    keep_metrics();
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let client = connect(&proxy.url()).await;
    let lock = client.lock("k").lease(ms(3000));
    let guard = lock.acquire().await.expect("free");
    eventually(LONG, "it is renewed", async || renewals("ok") >= 1.0).await;
    proxy.hold_replies();
    // The first attempt starts after a second, the next one after half a second more.
    tokio::time::sleep(ms(1800)).await;
    proxy.pass();
    eventually(LONG, "the reply arrives", async || renewals("late") >= 1.0).await;
    assert!(guard.is_valid());
    server.kill();
    eventually(LONG, "the renewal fails", async || {
        renewals("failed") >= 1.0
    })
    .await;
    assert_lost(&guard, LONG, LostCause::Expired).await;
}

#[tokio::test]
async fn a_connection_is_up_or_down_and_each_new_one_is_counted() {
    alone!(a_connection_is_up_or_down_and_each_new_one_is_counted);
    keep_metrics();
    let server = RedisServer::start();
    let one = client(&server).await;
    until_up(0, 1).await;
    let reconnects = || of_server("rlock_reconnects_total", 0).expect("a counter");
    assert!(is(reconnects(), 0));
    let other = client(&server).await;
    server.kill();
    until_up(0, 0).await;
    server.restart();
    until_up(0, 1).await;
    eventually(LONG, "both are back", async || is(reconnects(), 2)).await;
    // The exporter does not count a client after its end.
    drop(other);
    tokio::time::sleep(ms(300)).await;
    until_up(0, 1).await;
    drop(one);
}

#[tokio::test]
async fn servers_of_a_quorum_are_counted_by_their_index() {
    alone!(servers_of_a_quorum_are_counted_by_their_index);
    keep_metrics();
    let servers = [(); 3].map(|()| RedisServer::start());
    let urls = servers.each_ref().map(RedisServer::url);
    let client = LockClient::quorum(urls).await.expect("all are up");
    for server in 0..3 {
        until_up(server, 1).await;
    }
    servers[1].kill();
    until_up(1, 0).await;
    until_up(0, 1).await;
    until_up(2, 1).await;
    client.lock("k").run(async {}).await.expect("a majority");
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

#[tokio::test]
async fn a_pause_of_the_process_is_recorded() {
    const PAUSE: Duration = Duration::from_millis(1500);
    alone!(a_pause_of_the_process_is_recorded);
    keep_metrics();
    let longest = || {
        let pauses = values("rlock_process_pause_seconds", &[]);
        pauses.into_iter().fold(0.0, f64::max)
    };
    // The watchdog is blocked together with this thread.
    let client = LockClient::builder().tokio_time();
    let client = client.in_memory().expect("a client");
    let guard = client.lock("k").lease(ms(900)).acquire().await;
    let guard = guard.expect("free");
    eventually(LONG, "the watchdog sleeps", async || {
        !values("rlock_process_pause_seconds", &[]).is_empty()
    })
    .await;
    thread::sleep(PAUSE);
    eventually(LONG, "the watchdog wakes up", async || longest() > 0.5).await;
    assert!(longest() < 10.0, "{}", longest());
    drop(guard);
}
