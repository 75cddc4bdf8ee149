//! Connections to the members of a quorum: sockets, databases, TLS.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use rlock_core::{LockClient, LockClientBuilder, LockError, LostCause};
use rlock_testkit::{Authority, RedisServer, assert_taken, eventually};

use super::five::{SOON, Servers, give_to_another};
use crate::common::{
    LASTING, LONG, acquiring, assert_lost, hold, its_turn, ms, name, pttl_in, timed, wait_queue,
};

/// Uses a lock: acquire, enter, hand over by the lead, release. Its loss is notified.
async fn assert_works(one: &LockClient, other: &LockClient, servers: &[RedisServer]) {
    let lock = one.lock("k").lease(LASTING);
    let outer = lock.acquire().await.expect("free");
    assert_taken(other, "k").await;
    let inner = outer.scope(lock.acquire()).await.expect("enters");
    inner.release().await.expect("held");
    outer.release().await.expect("held");
    let lost = hold(one, "lost").await;
    give_to_another(&servers[..2], "lost").await;
    assert_lost(&lost, SOON * 2, LostCause::Removed).await;
}

#[tokio::test]
async fn sockets_lead_to_servers_as_addresses_do() {
    let three = Servers::some(3);
    let urls = || three.0.iter().map(RedisServer::unix_url);
    let by_socket = LockClient::quorum(urls())
        .await
        .expect("all servers are up");
    assert_works(&by_socket, &three.client().await, &three.0).await;
    let held = hold(&three.client().await, "turn").await;
    let waiting = acquiring(by_socket.lock("turn").wait(LONG));
    eventually(LONG, "it is queued", async || {
        let lines = three.0.iter().map(|server| wait_queue(server, "turn"));
        join_all(lines).await.iter().any(|line| !line.is_empty())
    })
    .await;
    held.release().await.expect("held");
    let (guard, took) = timed(its_turn(waiting)).await;
    // By its timer the waiter would only retry after five seconds.
    assert!(took < ms(3000), "{took:?}");
    guard.release().await.expect("held");
    // The error names a missing server by its path.
    three.0[0].kill();
    three.0[1].kill();
    let error = LockClient::quorum(urls()).await.expect_err("too few");
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    let path = three.0[0].directory().display().to_string();
    assert!(error.to_string().contains(&path), "{error}");
}

#[tokio::test]
async fn each_server_is_used_by_the_database_that_its_url_names() {
    let three = Servers::some(3);
    let urls = || {
        let of_databases = three.0.iter().zip([3, 1, 0]);
        of_databases.map(|(server, database)| format!("{}{database}", server.url()))
    };
    let client = LockClient::quorum(urls())
        .await
        .expect("all servers are up");
    let guard = hold(&client, "k").await;
    for (server, database) in three.0.iter().zip([3, 1, 0]) {
        for other in [0, 1, 3] {
            let is_there = pttl_in(server, other, "k").await > 0;
            assert_eq!(is_there, other == database, "{other}, not {database}");
        }
    }
    assert_taken(&LockClient::quorum(urls()).await.expect("again"), "k").await;
    guard.release().await.expect("held");
    for (server, database) in three.0.iter().zip([3, 1, 0]) {
        assert_eq!(pttl_in(server, database, "k").await, -2, "{}", name("k"));
    }
}

#[tokio::test]
async fn servers_are_known_by_the_authority_and_shown_the_certificate() {
    let authority = Arc::new(Authority::new());
    let server = || {
        RedisServer::builder()
            .tls_of(&authority)
            .asks_for_certificates()
            .start()
    };
    let three = [server(), server(), server()];
    let urls = || three.iter().map(RedisServer::tls_url);
    let trusting = |authority: &Authority| {
        LockClient::builder()
            .connect_timeout(Duration::from_secs(5))
            .tls_ca(authority.ca_pem())
    };
    let (certificate, key) = authority.client_certificate("billing");
    let shows_it = |builder: LockClientBuilder| {
        builder.tls_client_certificate(certificate.clone(), key.clone())
    };
    let one = shows_it(trusting(&authority)).quorum(urls()).await;
    let other = shows_it(trusting(&authority)).quorum(urls()).await;
    let (one, other) = (one.expect("let in"), other.expect("let in"));
    assert_works(&one, &other, &three).await;
    let none = trusting(&authority).quorum(urls()).await;
    let error = none.expect_err("it shows no certificate");
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    let stranger = shows_it(trusting(&Authority::new())).quorum(urls()).await;
    let error = stranger.expect_err("it trusts another authority");
    assert!(matches!(error, LockError::Store { .. }), "{error:?}");
    assert!(error.to_string().contains("certificate"), "{error}");
}
