//! Permissions at the members of a quorum. `docs/security.md` lists them.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use rlock_core::{LockClient, LockError};
use rlock_testkit::{RedisServer, eventually, within};

use super::five::give_to_another;
use crate::common::{
    LONG, acl, count,
    log::{keep_log, logged_of},
    ms, name,
};

fn three(rules: &str) -> [RedisServer; 3] {
    keep_log();
    [0; 3].map(|_| RedisServer::builder().acl_user("locker", rules).start())
}

async fn locker(servers: &[RedisServer]) -> LockClient {
    let urls = servers
        .iter()
        .map(|server| server.url_as("locker", "secret"));
    LockClient::quorum(urls).await.expect("all servers are up")
}

async fn refused(servers: &[RedisServer]) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for server in servers {
        all.extend(acl::refused(server).await);
    }
    all
}

/// Uses locks while one server is paused: acquire, enter, renew, hand over, release. Another lock
/// is lost.
async fn use_locks(servers: &[RedisServer]) {
    let (one, other) = (locker(servers).await, locker(servers).await);
    for paused in servers {
        let lock = one.lock("k").lease(ms(2000)).wait(LONG);
        // The server that was paused may still be connecting.
        let guard = loop {
            let guard = lock.acquire().await.expect("free");
            tokio::time::sleep(ms(100)).await;
            let counts = servers.iter().map(|server| count(server, &guard));
            if join_all(counts).await.iter().all(Option::is_some) {
                break guard;
            }
            guard.release().await.expect("held");
        };
        paused.pause();
        let nested = guard.scope(lock.acquire()).await.expect("enters");
        nested.release().await.expect("held");
        let next = other.lock("k").wait(LONG);
        let next = tokio::spawn(async move { next.acquire().await });
        tokio::time::sleep(ms(3000)).await;
        assert!(guard.is_valid(), "renewed");
        let info = other.inspect("k").await.expect("allowed");
        assert_eq!(info.expect("held").count, 1);
        paused.resume();
        guard.release().await.expect("held");
        let next = within(LONG, "its turn", next).await.expect("no panic");
        next.expect("its turn").release().await.expect("held");
    }
    let guard = one.lock("lost").acquire().await.expect("free");
    give_to_another(servers, "lost").await;
    within(LONG, "the loss is noticed", guard.lost()).await;
}

#[tokio::test]
async fn the_permissions_of_a_server_are_enough_at_a_quorum() {
    let rules = acl::only(&[&acl::of_a_server()]);
    let servers = three(&rules);
    use_locks(&servers).await;
    assert_eq!(refused(&servers).await, BTreeSet::new());
    for server in &servers {
        let mut said = logged_of(&server.address());
        said.retain(|line| line.contains("lacks permissions"));
        assert_eq!(said, Vec::<String>::new());
    }
}

/// A server that hides its role is not mistaken for another.
#[tokio::test]
async fn a_user_who_may_not_read_a_servers_role_can_lock() {
    let rules = acl::of_a_server().replace(" +info", "");
    let server = || {
        let rules = acl::only(&[&rules]);
        RedisServer::builder().acl_user("locker", &rules).start()
    };
    let servers = [server(), server()];
    let client = locker(&servers).await;
    let refused = refused(&servers).await;
    assert_eq!(refused, ["info".to_owned()].into());
    let guard = client.lock("k").acquire().await.expect("free");
    eventually(LONG, "it is there", async || {
        servers[0].exists(&name("k")).await && servers[1].exists(&name("k")).await
    })
    .await;
    let given_back: Result<(), LockError> = guard.release().await;
    given_back.expect("held");
}
