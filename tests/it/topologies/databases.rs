//! Clients show and take the locks of their own database of a server. Channels know no databases, so clients of all
//! of them share their messages.

use rlock_core::{LockClient, LostCause, StoreUrl};
use rlock_testkit::{RedisServer, eventually};

use crate::common::{LONG, assert_lost, connect, hold, next_leader, observed};

/// Returns the keys and the owners of all locks that the client lists. Asks again if a holder was silent.
async fn listed(client: &LockClient) -> Vec<(String, String)> {
    let mut found = Vec::new();
    eventually(LONG, "all holders reply", async || {
        let (mut list, mut all_reply) = (client.list("*"), true);
        found.clear();
        while let Some(info) = list.try_next().await.expect("a reply") {
            all_reply &= info.holder.is_some();
            found.push((info.key, info.owner));
        }
        all_reply && list.missed() == 0
    })
    .await;
    found.sort();
    found
}

/// Lists, inspects and takes locks of one database of a store while clients of the other hold the same keys.
async fn assert_apart(one: LockClient, other: LockClient) {
    let (mut held, mut others) = (Vec::new(), Vec::new());
    for key in ["asked", "forced", "kept"] {
        held.push(hold(&one, key).await);
        others.push(hold(&other, key).await);
    }
    others.push(hold(&other, "only here").await);
    for (client, guards) in [(&one, &held), (&other, &others)] {
        let mut expected: Vec<_> = guards
            .iter()
            .map(|guard| (guard.key().to_owned(), guard.owner()))
            .collect();
        expected.sort();
        assert_eq!(listed(client).await, expected);
        let info = client.inspect("kept").await.expect("a reply");
        let info = info.expect("held");
        assert_eq!(info.owner, guards[2].owner());
    }
    assert!(one.inspect("only here").await.expect("a reply").is_none());
    assert!(!one.revoke("only here").await.expect("a reply"));
    assert!(!one.force_release("only here").await.expect("a reply"));
    // On a busy machine, the holder may answer too late.
    eventually(LONG, "the holder answers", async || {
        one.revoke("asked").await.expect("a reply")
    })
    .await;
    assert!(one.force_release("forced").await.expect("a reply"));
    for guard in &held[..2] {
        assert_lost(guard, LONG, LostCause::Revoked).await;
    }
    for guard in others.iter().chain([&held[2]]) {
        assert!(guard.is_valid(), "{}", guard.key());
    }
}

#[tokio::test]
async fn clients_show_and_take_the_locks_of_their_own_database() {
    let server = RedisServer::start();
    for options in ["", "?protocol=resp2"] {
        let url = |database: u8| format!("{}{database}{options}", server.url());
        assert_apart(connect(&url(0)).await, connect(&url(3)).await).await;
    }
}

#[tokio::test]
async fn observers_learn_of_the_leaders_of_their_own_database() {
    let server = RedisServer::start();
    let connected = async |database: u8| connect(&format!("{}{database}", server.url())).await;
    let (leader, near, far) = (connected(3).await, connected(3).await, connected(0).await);
    let mut near = observed(&near.election("scheduler"));
    let mut seen = observed(&far.election("scheduler"));
    let own = far.election("scheduler").campaign().await.expect("free");
    let first = next_leader(&mut seen).await;
    assert_eq!(first.term, Some(own.term().token()));
    // Its token is larger.
    let leadership = leader.election("scheduler").campaign().await.expect("free");
    // When the second value arrives, the first announcement has been sent to all clients.
    for value in ["10.0.3.7:8080", "10.0.3.8:8080"] {
        leadership.term().announce(value).expect("it leads");
        while next_leader(&mut near).await.value.as_deref() != Some(value) {}
    }
    own.term().announce("10.0.3.9:8080").expect("it leads");
    let next = next_leader(&mut seen).await;
    let value = next.value.as_deref();
    assert_eq!(
        (next.term, value),
        (Some(own.term().token()), Some("10.0.3.9:8080"))
    );
}

#[tokio::test]
async fn clients_of_a_quorum_show_and_take_the_locks_of_its_databases() {
    let servers = [(); 3].map(|()| RedisServer::start());
    let quorum = async |databases: [u8; 3]| {
        let urls = servers.iter().zip(databases);
        let urls = urls.map(|(server, database)| format!("{}{database}", server.url()));
        connect(StoreUrl::quorum(urls)).await
    };
    assert_apart(quorum([0, 0, 0]).await, quorum([1, 2, 1]).await).await;
}
