//! URLs that lead to a cluster, and URLs that do not.

use rlock_core::LockClient;
use rlock_testkit::RedisServer;

use super::{keys, shared};
use crate::common::{assert_refused, assert_unavailable, builder, connect};

/// No server listens there.
const UNUSED: &str = "127.0.0.1:1";

#[tokio::test]
async fn one_node_that_replies_leads_to_all() {
    let cluster = shared().await;
    let seeds = [
        format!("redis-cluster://{UNUSED},{}", cluster.node(0).address()),
        format!(
            "redis-cluster://{},{UNUSED}",
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
    let url = format!("redis-cluster://app:s3cret@{UNUSED},127.0.0.1:2");
    let outcome = LockClient::connect(&url).await;
    assert!(!format!("{outcome:?}").contains("s3cret"), "{outcome:?}");
    let shown = assert_unavailable(outcome, "no server is there");
    assert!(shown.contains("127.0.0.1:1, 127.0.0.1:2"), "{shown}");
    assert!(!shown.contains("s3cret"), "{shown}");
}

#[tokio::test]
async fn the_error_for_a_wrong_scheme_says_how_to_connect() {
    let server = RedisServer::start();
    let url = format!("redis-cluster://{}", server.address());
    let said = assert_refused(builder().connect(&url).await, "no cluster");
    let hint = format!("`redis://{}`", server.address());
    assert!(said.contains(&hint), "{said}");
    // The client takes a node for a single server.
    let cluster = shared().await;
    let client = connect(&cluster.node(0).url()).await;
    let here = cluster.key_at(0, "here").await;
    let guard = client.lock(&here).acquire().await.expect("it is here");
    guard.release().await.expect("held");
    let elsewhere = cluster.key_at(1, "elsewhere").await;
    let shown = assert_refused(client.lock(&elsewhere).acquire().await, "it is not here");
    assert!(shown.contains("`redis-cluster://"), "{shown}");
}
