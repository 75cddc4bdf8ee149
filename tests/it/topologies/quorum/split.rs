//! Servers of a quorum that are divided between several callers, none of which has a majority.

use rlock_core::{LockClient, StoreUrl};
use rlock_testkit::RedisServer;

use crate::common::{LASTING, LONG, assert_unavailable, builder, ms};

pub(crate) const OWNERS: [&str; 2] = [
    "00000000-0000-4000-8000-000000000001:1",
    "00000000-0000-4000-8000-000000000002:1",
];

/// Returns three servers, of which each owner has the lock `k` on one, for this time.
async fn divided(millis: u64) -> ([RedisServer; 3], LockClient) {
    let servers = [(); 3].map(|()| RedisServer::start());
    let url = StoreUrl::quorum(servers.iter().map(RedisServer::url));
    // An attempt sends its last request a tenth of this before its end, less a pause. A busy server is slow to reply.
    let client = builder().response_timeout(LONG / 3).connect(url).await;
    for (server, owner) in servers.iter().zip(OWNERS) {
        give(server, owner, millis).await;
    }
    (servers, client.expect("they are up"))
}

pub(crate) async fn give(server: &RedisServer, owner: &str, millis: u64) {
    let () = server.command(&["HSET", "lock:{k}", owner, "1"]).await;
    let () = server
        .command(&["PEXPIRE", "lock:{k}", &millis.to_string()])
        .await;
}

#[tokio::test]
async fn an_attempt_gets_a_lock_without_a_majority_when_the_others_have_given_up() {
    let (_servers, client) = divided(300).await;
    let guard = client.lock("k").try_acquire().await.expect("no outage");
    guard.expect("it is free").release().await.expect("held");
}

#[tokio::test]
async fn a_lock_without_a_majority_is_not_contention() {
    let (servers, client) = divided(600_000).await;
    let lock = client.lock("k").lease(LASTING);
    let said = assert_unavailable(lock.try_acquire().await, "it stays divided");
    assert!(said.contains("none on a majority"), "{said}");
    // The second server gives its vote to the owner that the first one names.
    give(&servers[2], OWNERS[0], 600_000).await;
    let taken = lock.try_acquire().await.expect("no outage");
    assert!(taken.is_none());
    let taken = client.lock("k").wait(ms(50)).acquire().await;
    assert!(taken.expect_err("taken").is_contention());
}
