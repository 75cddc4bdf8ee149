//! Connections to the members of a quorum: sockets and TLS.

use std::{sync::Arc, time::Duration};

use rlock_core::{LockClient, LockClientBuilder, LockError, LostCause, StoreUrl};
use rlock_testkit::{Authority, RedisServer, assert_taken};

use super::{Servers, give_to_another};
use crate::common::{
    LASTING, LONG, assert_lost, hold,
    log::{keep_log, logged_of},
};

/// Acquires, enters and releases a lock, and loses another one.
async fn assert_works(one: &LockClient, other: &LockClient, servers: &[RedisServer]) {
    let lock = one.lock("k").lease(LASTING);
    let outer = lock.acquire().await.expect("free");
    assert_taken(other, "k").await;
    let inner = outer.scope(lock.acquire()).await.expect("enters");
    inner.release().await.expect("held");
    outer.release().await.expect("held");
    let lost = hold(one, "lost").await;
    give_to_another(servers, "lost").await;
    assert_lost(&lost, LONG, LostCause::Removed).await;
}

#[tokio::test]
async fn members_of_a_quorum_may_be_unix_sockets() {
    let three = Servers::some(3);
    let urls = || three.0.iter().map(RedisServer::unix_url);
    let by_socket = LockClient::connect(StoreUrl::quorum(urls()))
        .await
        .expect("all servers are up");
    assert_works(&by_socket, &three.client().await, &three.0).await;
    // The error names a missing server by its path.
    three.0[0].kill();
    three.0[1].kill();
    let error = LockClient::connect(StoreUrl::quorum(urls()))
        .await
        .expect_err("too few");
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    let path = three.0[0].directory().display().to_string();
    assert!(format!("{error:#}").contains(&path), "{error:#}");
}

#[tokio::test]
async fn an_even_number_of_servers_logs_how_many_losses_it_tolerates() {
    keep_log();
    for (many, tolerated) in [(2, Some(0)), (3, None), (4, Some(1))] {
        let servers = Servers::some(many);
        drop(servers.client().await);
        let mut said = logged_of("an even number of servers");
        said.retain(|line| line.contains(&format!("servers={many} ")));
        let is_right =
            |line: &String| line.contains(&format!("tolerated={}", tolerated.unwrap_or(9)));
        assert_eq!(said.is_empty(), tolerated.is_none(), "{many}: {said:?}");
        assert!(said.iter().all(is_right), "{said:?}");
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
            .connect_timeout(LONG)
            .tls_ca(authority.ca_pem())
    };
    let (certificate, key) = authority.client_certificate("billing");
    let shows_it = |builder: LockClientBuilder| {
        builder.tls_client_certificate(certificate.clone(), key.clone())
    };
    let one = shows_it(trusting(&authority))
        .connect(StoreUrl::quorum(urls()))
        .await;
    let other = shows_it(trusting(&authority))
        .connect(StoreUrl::quorum(urls()))
        .await;
    let (one, other) = (one.expect("let in"), other.expect("let in"));
    assert_works(&one, &other, &three).await;
    let none = trusting(&authority).connect_timeout(Duration::from_secs(3));
    let none = none.connect(StoreUrl::quorum(urls())).await;
    let error = none.expect_err("it shows no certificate");
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    let stranger = shows_it(trusting(&Authority::new()))
        .connect(StoreUrl::quorum(urls()))
        .await;
    let error = stranger.expect_err("it trusts another authority");
    assert!(matches!(error, LockError::Refused { .. }), "{error:?}");
    assert!(format!("{error:#}").contains("certificate"), "{error:#}");
}
