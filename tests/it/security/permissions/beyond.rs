//! The permissions that options need: replicas, other databases, Sentinels. Those of clusters and quorums are with
//! their tests.

use std::collections::BTreeSet;

use rlock_core::LockError;
use rlock_testkit::{RedisServer, SERVICE};

use super::{life_of_a_lock, url, warnings};
use crate::common::{LONG, acl, assert_refused, builder, connect, log::keep_log, ms};

/// Starts a server whose user has the documented permissions and these.
fn server_with(beyond: &str) -> RedisServer {
    keep_log();
    let rules = acl::only(&[&acl::of_a_server(), beyond]);
    RedisServer::builder().acl_user("locker", &rules).start()
}

#[tokio::test]
async fn a_user_who_waits_for_replicas_needs_one_permission_more() {
    for beyond in [acl::beyond("replicas"), String::new()] {
        let (master, replica) = (server_with(&beyond), RedisServer::start());
        replica.follow(&master).await;
        let builder = builder().wait_for_replicas(1, LONG);
        let client = builder.connect(&url(&master)).await.expect("it is up");
        let outcome = life_of_a_lock(&client, "k").await;
        let refused = acl::refused(&master).await;
        let said = warnings(&master);
        if !beyond.is_empty() {
            outcome.expect("allowed");
            assert_eq!(refused, BTreeSet::new());
            assert_eq!(said, Vec::<String>::new());
            continue;
        }
        let is_refused = matches!(outcome, Err(("take", LockError::Refused { .. })));
        assert!(is_refused, "{outcome:?}");
        assert_eq!(refused, ["wait".to_owned()].into());
        if acl::can_be_reported(&master).await {
            assert_eq!(said.len(), 1, "{said:?}");
            assert!(said[0].contains("ERROR") && said[0].contains("wait"));
        }
    }
}

#[tokio::test]
async fn a_database_of_its_own_needs_one_permission_more() {
    let server = server_with(&acl::beyond("database"));
    let of_its_own = format!("{}1", url(&server));
    let client = connect(&of_its_own).await;
    life_of_a_lock(&client, "k").await.expect("allowed");
    assert_eq!(acl::refused(&server).await, BTreeSet::new());
    let server = server_with("");
    let outcome = builder().connect(&format!("{}1", url(&server))).await;
    assert_refused(outcome, "refused");
    assert_eq!(acl::refused(&server).await, ["select".to_owned()].into());
}

#[tokio::test]
async fn sentinels_are_asked_for_the_master_and_nothing_else() {
    for rules in [acl::beyond("Sentinels"), String::new()] {
        let master = server_with("");
        let sentinel = RedisServer::builder()
            .acl_user("finder", &acl::only(&[&rules]))
            .sentinel(SERVICE, &master, 1, ms(10_000))
            .start();
        let url = format!(
            "redis-sentinel://locker:secret@{}/{SERVICE}?sentinel_user=finder&sentinel_password=secret",
            sentinel.address()
        );
        let outcome = builder().connect(&url).await;
        let refused = acl::refused(&sentinel).await;
        if !rules.is_empty() {
            let client = outcome.expect("allowed");
            life_of_a_lock(&client, "k").await.expect("allowed");
            assert_eq!(refused, BTreeSet::new());
            assert_eq!(acl::refused(&master).await, BTreeSet::new());
            continue;
        }
        assert_refused(outcome, "refused");
        let refused: Vec<String> = refused.into_iter().collect();
        // Before Redis 7 the error does not name the subcommand.
        let both = ["sentinel|get-master-addr-by-name", "sentinel|master"];
        let is_known = refused == both || refused == ["sentinel"];
        assert!(is_known, "{refused:?}");
    }
}
