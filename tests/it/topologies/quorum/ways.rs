//! Connections to the members of a quorum: sockets, and how many members there are.

use rlock_core::{LockClient, LostCause, StoreUrl};
use rlock_testkit::{RedisServer, assert_taken};

use super::{Servers, give_to_another};
use crate::common::{
    LASTING, LONG, assert_lost, assert_unavailable, connect, hold,
    log::{keep_log, logged_with},
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
    let by_socket = connect(StoreUrl::quorum(urls())).await;
    assert_works(&by_socket, &three.client().await, &three.0).await;
    // The error names a missing server by its path.
    three.0[0].kill();
    three.0[1].kill();
    let outcome = LockClient::connect(StoreUrl::quorum(urls())).await;
    let said = assert_unavailable(outcome, "too few");
    let path = three.0[0].directory().display().to_string();
    assert!(said.contains(&path), "{said}");
}

#[tokio::test]
async fn an_even_number_of_servers_logs_how_many_losses_it_tolerates() {
    keep_log();
    for (many, tolerated) in [(2, Some(0)), (3, None), (4, Some(1))] {
        let servers = Servers::some(many);
        drop(servers.client().await);
        let said = logged_with(&["an even number of servers", &format!("servers={many} ")]);
        let is_right =
            |line: &String| line.contains(&format!("tolerated={}", tolerated.unwrap_or(9)));
        assert_eq!(said.is_empty(), tolerated.is_none(), "{many}: {said:?}");
        assert!(said.iter().all(is_right), "{said:?}");
    }
}
