//! Servers that are replicas, or become replicas under a hold.

use std::time::Instant;

use redis::InfoDict;
use rlock_core::{LockClient, StoreUrl};
use rlock_testkit::{RedisServer, eventually};
use tokio::net::{TcpListener, TcpStream};

use crate::common::{
    LASTING, LONG, assert_unavailable, builder, connect, connect_with, hold,
    log::{keep_log, logged_of},
    ms, resp2,
};

/// Returns how many connections the server has accepted so far.
async fn accepted(server: &RedisServer) -> u64 {
    let info: InfoDict = server.command(&["INFO", "stats"]).await;
    info.get("total_connections_received").expect("a number")
}

async fn demote(server: &RedisServer) {
    let () = server.command(&["REPLICAOF", "127.0.0.1", "1"]).await;
}

/// Returns the lines that operators see of this server.
fn shown(server: &RedisServer) -> Vec<String> {
    let mut lines = logged_of(&server.address());
    lines.retain(|line| line.contains(" INFO ") || line.contains(" WARN "));
    lines
}

/// Demotes this server while the client holds a lock. Asserts that the client does not storm the server, and finds it again
/// when it is a master.
async fn assert_no_storm(server: &RedisServer, client: &LockClient) {
    let held = client.lock("held").lease(LASTING).acquire().await;
    let held = held.expect("free");
    let before = shown(server);
    let (former, began) = (accepted(server).await, Instant::now());
    demote(server).await;
    for _ in 0..4 {
        // A quorum grants it without this server.
        let other = client.lock("other").lease(LASTING).wait(ms(500));
        drop(other.acquire().await);
    }
    let connections = accepted(server).await - former;
    // Two links, which try four times a second at most, after a few tries in a row.
    let most = 30 + 8 * began.elapsed().as_secs();
    assert!(connections < most, "{connections} in {:?}", began.elapsed());
    let lines = shown(server);
    let (_, lines) = lines.split_at(before.len());
    assert_eq!(lines.len(), 1, "{lines:#?}");
    assert!(lines[0].contains("WARN"), "{lines:#?}");
    assert!(lines[0].contains("the server is a replica"), "{lines:#?}");
    server.promote().await;
    eventually(LONG, "its end is logged", async || {
        shown(server).len() > before.len() + 1
    })
    .await;
    let again = client.lock("again").lease(LASTING).wait(LONG);
    let again = again.acquire().await.expect("a master again");
    again.release().await.expect("held");
    assert!(held.is_valid());
    let lines = shown(server);
    assert_eq!(lines.len(), before.len() + 2, "{lines:#?}");
}

#[tokio::test]
async fn a_server_that_becomes_a_replica_under_a_hold_is_not_stormed_and_logged_once() {
    keep_log();
    for is_resp2 in [false, true] {
        let server = RedisServer::start();
        let url = server.url();
        let url = if is_resp2 { resp2(&url) } else { url };
        assert_no_storm(&server, &connect_with(ms(2000), &url).await).await;
    }
}

#[tokio::test]
async fn a_member_of_a_quorum_that_becomes_a_replica_is_not_stormed() {
    keep_log();
    let servers = [(); 3].map(|()| RedisServer::start());
    let urls = servers.each_ref().map(RedisServer::url);
    let client = builder()
        .connect(StoreUrl::quorum(urls))
        .await
        .expect("they are up");
    assert_no_storm(&servers[1], &client).await;
}

#[tokio::test]
async fn a_client_does_not_connect_to_a_replica() {
    let server = RedisServer::start();
    demote(&server).await;
    for url in [server.url(), resp2(&server.url())] {
        let connecting = LockClient::builder().connect_timeout(ms(500));
        let text = assert_unavailable(connecting.clone().connect(&url).await, "a replica");
        assert!(text.contains("the server is a replica"), "{text}");
        let lazy = connecting.connect_lazy(&url).expect("a URL");
        let error = lazy.lock("k").try_acquire().await;
        let text = format!("{:#}", error.expect_err("a replica"));
        assert!(text.contains("the server is a replica"), "{text}");
    }
}

/// Starts a balancer that leads each connection to the next of these servers. Returns its URL.
async fn balancer(servers: &[&RedisServer]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("redis://{}/", listener.local_addr().expect("bound"));
    let addresses: Vec<_> = servers.iter().map(|server| server.address()).collect();
    tokio::spawn(async move {
        for address in addresses.iter().cycle() {
            let (mut client, _) = listener.accept().await.expect("a client");
            let mut server = TcpStream::connect(address).await.expect("it listens");
            tokio::spawn(async move {
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    url
}

#[tokio::test]
async fn a_call_that_does_not_wait_finds_the_master_behind_a_balancer() {
    let (master, replica) = (RedisServer::start(), RedisServer::start());
    demote(&replica).await;
    let url = balancer(&[&replica, &master]).await;
    for url in [url.clone(), resp2(&url)] {
        for n in 0..3 {
            let client = connect(&url).await;
            let guard = client.lock(format!("{n}")).try_acquire().await;
            let guard = guard.expect("a reply").expect("free");
            guard.release().await.expect("held");
        }
    }
}

#[tokio::test]
async fn a_call_that_does_not_wait_is_repeated_when_its_server_has_become_a_replica() {
    let (former, master) = (RedisServer::start(), RedisServer::start());
    // Both connections of the client lead to the first server, and the next ones to the other.
    let url = balancer(&[&former, &former, &master, &master, &master]).await;
    let client = connect(&url).await;
    hold(&client, "k").await.release().await.expect("held");
    demote(&former).await;
    let guard = client.lock("k").try_acquire().await;
    let guard = guard.expect("a reply").expect("free");
    assert!(master.exists("lock:{k}").await);
    guard.release().await.expect("held");
}
