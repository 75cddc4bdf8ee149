//! Lists of URLs that make no quorum.

use rlock_core::{LockClient, LockError};
use rlock_testkit::{RedisServer, assert_taken};

use super::five::Servers;
use crate::common::LASTING;

#[tokio::test]
async fn lists_that_make_no_quorum_are_refused_with_the_way_out() {
    let many: Vec<String> = (1..=33)
        .map(|port| format!("redis://127.0.0.1:{port}/"))
        .collect();
    let cases: Vec<(Vec<String>, &str)> = vec![
        (vec![], "three, or five"),
        (many, "32 servers at most"),
        (
            vec!["redis://u:s3cret@h:1/".into(), "redis://h:1/2".into()],
            "`h:1`, twice",
        ),
        (vec!["memory:".into()], "single servers"),
        (vec!["redis-cluster://u:s3cret@h/".into()], "single servers"),
        (
            vec![
                "redis://u:s3cret@h:1/".into(),
                "redis://u:s3cret@h:99999999/".into(),
            ],
            "`redis:…`",
        ),
    ];
    for (urls, hint) in cases {
        let error = LockClient::quorum(urls).await.expect_err(hint);
        assert!(
            matches!(error, LockError::InvalidOption { .. }),
            "{error:?}"
        );
        let text = format!("{error} {error:?}");
        assert!(text.contains(hint), "{text}");
        assert!(!text.contains("s3cret"), "{text}");
    }
}

#[tokio::test]
async fn certificates_that_no_url_has_a_use_for_are_refused() {
    let builder = LockClient::builder().tls_ca("no certificate");
    let error = builder.quorum(["redis://127.0.0.1:1/"]).await;
    let error = error.expect_err("no certificate").to_string();
    assert!(
        error.contains("`tls_ca`") && error.contains("PEM"),
        "{error}"
    );
    let server = RedisServer::builder().tls().start();
    let builder = LockClient::builder().tls_ca(server.ca_pem());
    let error = builder.quorum([server.url()]).await;
    let error = error.expect_err("no TLS").to_string();
    assert!(error.contains("does not use TLS"), "{error}");
    let builder = LockClient::builder().tls_ca(server.ca_pem());
    let client = builder.quorum([server.tls_url()]).await;
    let guard = client.expect("it speaks TLS").lock("k").acquire().await;
    guard.expect("free").release().await.expect("held");
}

#[tokio::test]
async fn options_out_of_bounds_are_refused_before_anything_is_sent() {
    let day = LASTING * 3000;
    let builder = LockClient::builder().default_lease(day);
    let error = builder
        .quorum(["redis://127.0.0.1:1/"])
        .await
        .expect_err("too long");
    assert!(error.to_string().contains("`default_lease`"), "{error}");
}

#[tokio::test]
async fn replicas_are_not_to_be_waited_for() {
    let servers = Servers::some(1);
    let builder = LockClient::builder().replicas(1, LASTING);
    let error = builder.clone().quorum(servers.urls()).await;
    let error = error.expect_err("a quorum has none");
    assert!(
        matches!(error, LockError::InvalidOption { option, .. } if option == "replicas"),
        "{error:?}"
    );
    assert!(error.to_string().contains("quorum"), "{error}");
    // The error is not about the number of servers.
    builder.connect(&servers.urls()[0]).await.expect("it is up");
}

#[tokio::test]
async fn servers_that_refuse_the_client_are_named_without_its_password() {
    let server = || RedisServer::builder().password("s3cret").start();
    let three = [server(), server(), server()];
    let urls = three
        .iter()
        .map(|server| format!("redis://:wr0ng@{}/", server.address()));
    let error = LockClient::quorum(urls).await.expect_err("refused");
    assert!(matches!(error, LockError::Store { .. }), "{error:?}");
    let text = format!("{error} {error:?}");
    // Two refusals are enough.
    let named = three
        .iter()
        .filter(|server| text.contains(&server.address()));
    assert!(named.count() >= 2, "{text}");
    assert!(
        !text.contains("wr0ng") && !text.contains("s3cret"),
        "{text}"
    );
    let good = LockClient::quorum(three.iter().map(RedisServer::url)).await;
    let guard = good.expect("all servers are up").lock("k").acquire().await;
    guard.expect("free").release().await.expect("held");
}

#[tokio::test]
async fn one_server_is_a_quorum_and_so_are_two_that_are_both_up() {
    for many in 1..=3 {
        let servers = Servers::some(many);
        let (one, other) = (servers.client().await, servers.client().await);
        let guard = one.lock("k").acquire().await.expect("free");
        assert_taken(&other, "k").await;
        guard.release().await.expect("held");
    }
}
