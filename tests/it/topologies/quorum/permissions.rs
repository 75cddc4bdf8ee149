//! Permissions at the members of a quorum. `docs/security.md` lists them.

use std::collections::BTreeSet;

use rlock_core::{LockClient, LostCause, StoreUrl};
use rlock_testkit::{RedisServer, eventually};

use super::{Servers, give_to_another};
use crate::{
    common::{
        LASTING, LONG, acl, acquiring, assert_lost, assert_passed_on, assert_soon_queued, connect,
        hold,
        log::{keep_log, logged_with},
        name,
    },
    topologies::{RENEWED, assert_soon_extended},
};

async fn locker(servers: &[RedisServer]) -> LockClient {
    let urls = servers
        .iter()
        .map(|server| server.url_as("locker", "secret"));
    connect(StoreUrl::quorum(urls)).await
}

/// Uses locks while one server is paused: acquire, enter, renew, hand over, release. Another lock
/// is lost.
async fn use_locks(servers: &Servers) {
    let (one, other) = (locker(&servers.0).await, locker(&servers.0).await);
    let lock = one.lock("k").lease(RENEWED).wait(LONG);
    let guard = servers.granted_by(&[0, 1, 2], &lock).await;
    servers.pause([0]);
    let nested = guard.scope(lock.acquire()).await.expect("enters");
    nested.release().await.expect("held");
    let next = acquiring(other.lock("k").lease(LASTING).wait(LONG));
    assert_soon_queued(&servers.0[1], "k", 1).await;
    assert_soon_extended(&guard).await;
    let info = other.inspect("k").await.expect("allowed");
    assert_eq!(info.expect("held").depth, 1);
    servers.resume([0]);
    assert_passed_on(guard, next).await;
    let guard = hold(&one, "lost").await;
    give_to_another(&servers.0, "lost").await;
    assert_lost(&guard, LONG, LostCause::Removed).await;
}

#[tokio::test]
async fn the_permissions_of_a_server_are_enough_at_a_quorum() {
    let rules = acl::only(&[&acl::of_a_server()]);
    keep_log();
    let server = RedisServer::builder().acl_user("locker", &rules);
    let servers = Servers((0..3).map(|_| server.clone().start()).collect());
    use_locks(&servers).await;
    assert_eq!(acl::refused_by(&servers.0).await, BTreeSet::new());
    for server in &servers.0 {
        let said = logged_with(&[&server.address(), "lacks permissions"]);
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
    let refused = acl::refused_by(&servers).await;
    assert_eq!(refused, ["info".to_owned()].into());
    let guard = client.lock("k").acquire().await.expect("free");
    eventually(LONG, "it is there", async || {
        servers[0].exists(&name("k")).await && servers[1].exists(&name("k")).await
    })
    .await;
    guard.release().await.expect("held");
}
