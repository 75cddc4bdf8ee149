//! URLs that lead to a cluster, and URLs that do not.

use std::time::Duration;

use rlock_core::{LockClient, LockError};
use rlock_testkit::{RedisCluster, RedisServer};

use super::{keys, shared};
use crate::common::{LASTING, connect};

/// No server listens there.
const NOBODY: &str = "127.0.0.1:1";

#[tokio::test]
async fn one_node_that_replies_leads_to_all() {
    let cluster = shared().await;
    let seeds = [
        format!("redis-cluster://{NOBODY},{}", cluster.node(0).address()),
        format!(
            "redis-cluster://{},{NOBODY}",
            cluster.replica_of(1).address()
        ),
    ];
    for url in seeds {
        let client = connect(&url).await;
        for key in keys(cluster, "seed").await {
            let guard = client.lock(&key).acquire().await.expect("free");
            guard.release().await.expect("held");
        }
    }
}

#[tokio::test]
async fn the_error_for_an_unreachable_cluster_names_addresses_without_passwords() {
    let url = format!("redis-cluster://app:s3cret@{NOBODY},127.0.0.1:2");
    let error = LockClient::builder()
        .connect_timeout(Duration::from_secs(2))
        .connect(&url)
        .await
        .expect_err("no server is there");
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    let shown = format!("{error} {error:?}");
    assert!(shown.contains("127.0.0.1:1, 127.0.0.1:2"), "{shown}");
    assert!(!shown.contains("s3cret"), "{shown}");
}

#[tokio::test]
async fn a_server_that_is_no_node_says_how_it_is_connected_to() {
    let server = RedisServer::start();
    let url = format!("redis-cluster://{}", server.address());
    let error = LockClient::connect(&url).await.expect_err("no cluster");
    assert!(matches!(error, LockError::Store { .. }), "{error:?}");
    let hint = format!("`redis://{}`", server.address());
    assert!(error.to_string().contains(&hint), "{error}");
}

#[tokio::test]
async fn a_node_that_is_taken_for_a_server_says_how_the_cluster_is_connected_to() {
    let cluster = shared().await;
    let client = connect(&cluster.node(0).url()).await;
    let here = cluster.key_at(0, "here").await;
    let guard = client.lock(&here).acquire().await.expect("it is here");
    guard.release().await.expect("held");
    let elsewhere = cluster.key_at(1, "elsewhere").await;
    let error = client
        .lock(&elsewhere)
        .acquire()
        .await
        .expect_err("it is not here");
    assert!(matches!(error, LockError::Store { .. }), "{error:?}");
    let shown = error.to_string();
    assert!(shown.contains("`redis-cluster://"), "{shown}");
}

#[tokio::test]
async fn a_cluster_may_want_a_password() {
    let builder = RedisServer::builder()
        .password("s3cret")
        .config("masterauth", "s3cret");
    let cluster = RedisCluster::of(&builder).await;
    let error = LockClient::connect(&cluster.url())
        .await
        .expect_err("refused");
    assert!(matches!(error, LockError::Store { .. }), "{error:?}");
    let url = cluster.url().replace("://", "://:s3cret@");
    let client = connect(&url).await;
    for key in keys(&cluster, "k").await {
        let guard = client.lock(&key).lease(LASTING).acquire().await;
        guard.expect("free").release().await.expect("held");
    }
}
