//! Probes: they find a server that replies and refuses every lock.

use futures_util::future::{join_all, try_join_all};
use rlock_core::ErrorKind;
use rlock_testkit::{RedisServer, eventually};

use crate::common::{LONG, client, connect};

#[tokio::test]
async fn a_probe_finds_a_server_that_replies_and_refuses_every_lock() {
    let rules = "on >secret ~* &* +@all";
    let server = RedisServer::builder().acl_user("locker", rules).start();
    let client = connect(&server.url_as("locker", "secret")).await;
    client.probe().await.expect("granted");
    for (name, refuses, serves) in [("maxmemory", "1", "0"), ("min-replicas-to-write", "1", "0")] {
        server.config_set(name, refuses).await;
        client.ping().await.expect("a reply");
        let error = client.probe().await.expect_err(name);
        assert_eq!(error.kind(), ErrorKind::Outage, "{error:#}");
        server.config_set(name, serves).await;
        client.probe().await.expect(name);
    }
    for (refused, mended) in [("-evalsha", "+evalsha"), ("-hdel", "+hdel")] {
        server.set_user("locker", refused).await;
        client.ping().await.expect("a reply");
        let error = client.probe().await.expect_err(refused);
        assert_eq!(error.kind(), ErrorKind::Misuse, "{error:#}");
        server.set_user("locker", mended).await;
        // A lock that could not be released ends with its lease.
        eventually(LONG, mended, async || client.probe().await.is_ok()).await;
    }
}

#[tokio::test]
async fn any_number_of_probes_at_once_succeed_and_leave_a_fence_for_each_client() {
    const CLIENTS: usize = 3;
    let server = RedisServer::start();
    let clients = join_all((0..CLIENTS).map(|_| client(&server))).await;
    let probes = (0..60).map(|n| clients[n % CLIENTS].probe());
    try_join_all(probes).await.expect("granted");
    let left = server.keys("*").await;
    assert_eq!(left.len(), CLIENTS, "{left:?}");
    assert!(
        left.iter().all(|name| name.ends_with("}:fence")),
        "{left:?}"
    );
}
