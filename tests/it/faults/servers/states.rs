//! One Redis server in every state that it can be in, and all URLs that reach it.

use std::time::SystemTime;

use rlock_core::{LockClient, LostCause, fencing::token_at};
use rlock_testkit::{Proxy, RedisServer, assert_taken, eventually, within};

use crate::common::{
    LASTING, LONG, acquiring, assert_lost, assert_soon_counted, assert_unavailable, cause_of,
    client, connect, its_turn, ms, name, resp2,
};
use crate::leases::clock::HOUR;

/// Acquires, enters, inspects, waits, hands over and releases. Panics if one of these fails.
async fn assert_all_works(url: &str) {
    let (one, other) = (connect(url).await, connect(url).await);
    let lock = one.lock("k").lease(LASTING);
    let guard = lock.acquire().await.expect("free");
    let nested = guard.scope(lock.acquire()).await.expect("enters");
    eventually(LONG, "the store counts the entries", async || {
        let info = other.inspect("k").await.expect("a reply").expect("held");
        (info.owner, info.depth) == (guard.owner(), 2)
    })
    .await;
    nested.release().await.expect("held");
    assert_taken(&other, "k").await;
    let waiting = acquiring(other.lock("k").lease(LASTING).wait(LONG));
    let queued = async || {
        let info = one.inspect("k").await.expect("a reply");
        info.expect("held").queued_owners.len() == 1
    };
    eventually(LONG, "it is queued", queued).await;
    guard.release().await.expect("held");
    its_turn(waiting).await.release().await.expect("held");
    assert!(one.inspect("k").await.expect("a reply").is_none());
}

#[tokio::test]
async fn a_flush_of_all_scripts_between_any_two_calls_changes_nothing() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = client.lock("k").lease(HOUR);
    server.script_flush().await;
    let outer = lock.acquire().await.expect("free");
    server.script_flush().await;
    let inner = outer.scope(lock.acquire()).await.expect("enters");
    assert_soon_counted(&server, &outer, 2).await;
    server.script_flush().await;
    let info = client.inspect("k").await.expect("a reply");
    assert_eq!(info.expect("held").depth, 2);
    server.script_flush().await;
    inner.release().await.expect("held");
    assert_soon_counted(&server, &outer, 1).await;
    server.script_flush().await;
    outer.release().await.expect("held");
    assert!(!server.exists(&name("k")).await);
}

#[tokio::test]
async fn a_restart_without_data_is_noticed_and_tokens_keep_growing() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = client.lock("k").lease(HOUR);
    let (mut last, began) = (0, SystemTime::now());
    for round in 0..2 {
        let guard = lock.acquire().await.expect("free");
        let token = guard.token().as_u64();
        assert!(token > last, "round {round}: {token} after {last}");
        last = token;
        if round == 0 {
            server.restart();
        } else {
            server.flush_all().await;
        }
        // The next renewal is twenty minutes away.
        assert_lost(&guard, LONG, LostCause::Removed).await;
        let outcome = guard.release().await;
        assert_eq!(cause_of(outcome), Some(LostCause::Removed));
    }
    // Unlike `client`, a client that has seen no token tells the server none.
    let fresh = connect(&server.url()).await.lock("k").acquire().await;
    let token = fresh.expect("free").token();
    assert!(token.as_u64() > last && token > token_at(began), "{token}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable_within_the_connect_timeout() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    proxy.black_hole();
    let stopped = RedisServer::start();
    stopped.kill();
    let socket = format!("unix://{}/absent.sock", server.directory().display());
    for url in [stopped.url(), proxy.url(), socket, resp2(&proxy.url())] {
        let builder = LockClient::builder().connect_timeout(ms(500));
        let outcome = within(LONG, &url, builder.connect(&url)).await;
        let shown = assert_unavailable(outcome, "no server replies");
        let place = url
            .trim_start_matches("redis://")
            .trim_start_matches("unix://");
        let place = place.split(['?']).next().expect("a first part");
        assert!(shown.contains(place.trim_end_matches('/')), "{shown}");
    }
}

#[tokio::test]
async fn everything_works_by_socket_and_by_either_protocol() {
    let server = RedisServer::start();
    for url in [
        server.unix_url(),
        resp2(&server.unix_url()),
        format!("{}?db=2", server.unix_url()),
        format!("{}2?protocol=resp3", server.url()),
    ] {
        assert_all_works(&url).await;
    }
}
