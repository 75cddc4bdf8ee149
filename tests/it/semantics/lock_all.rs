//! Several keys, whose number is known at run time.

use std::time::Duration;

use rlock_core::{LockClient, LockError, LostCause, current};
use rlock_testkit::{RedisCluster, RedisServer, within};

use crate::common::{LONG, assert_nothing_left, client, ms, name, timed};

async fn both() -> [(LockClient, Option<RedisServer>); 2] {
    let server = RedisServer::start();
    let on_server = client(&server).await;
    [(LockClient::in_memory(), None), (on_server, Some(server))]
}

#[tokio::test]
async fn all_are_taken_sorted_and_each_once() {
    for (client, server) in both().await {
        let locks = client.lock_all(["c", "a", "b", "a"]);
        assert_eq!(locks.keys().collect::<Vec<_>>(), ["c", "a", "b", "a"]);
        let guard = locks.acquire().await.expect("free");
        let keys: Vec<_> = guard
            .guards()
            .iter()
            .map(rlock_core::LockGuard::key)
            .collect();
        assert_eq!(keys, ["a", "b", "c"]);
        assert!(guard.guards().iter().all(|guard| guard.count() == 1));
        assert!(guard.is_valid() && guard.valid_for() > Duration::from_secs(20));
        for key in ["a", "b", "c"] {
            let taken = client.lock(key).try_acquire().await.expect("a reply");
            assert!(taken.is_none(), "{key}");
        }
        guard.release().await.expect("held");
        // A dropped guard releases all of them, too.
        drop(locks.try_acquire().await.expect("a reply").expect("free"));
        let again = locks.wait(LONG).acquire().await.expect("released");
        again.release().await.expect("held");
        if let Some(server) = server {
            assert_nothing_left(&server).await;
        }
    }
}

#[tokio::test]
async fn none_is_taken_while_one_is_not_free() {
    for (client, _server) in both().await {
        let held = client.lock("b").acquire().await.expect("free");
        let locks = client.lock_all(vec!["a".to_owned(), "b".to_owned(), "c".to_owned()]);
        assert!(locks.try_acquire().await.expect("a reply").is_none());
        let brief = locks.clone().wait(ms(200));
        let (error, took) = timed(brief.acquire()).await;
        let error = error.expect_err("taken");
        let LockError::Timeout { key, .. } = &error else {
            panic!("{error:?}")
        };
        assert_eq!(key, "b");
        assert!(took >= ms(200) && took < LONG, "{took:?}");
        for key in ["a", "c"] {
            let free = client.lock(key).try_acquire().await.expect("a reply");
            free.unwrap_or_else(|| panic!("{key} is kept"))
                .release()
                .await
                .expect("held");
        }
        let waiting = {
            let locks = locks.wait(LONG);
            tokio::spawn(async move {
                locks
                    .run(async { current().map(|held| held.key().to_owned()) })
                    .await
            })
        };
        tokio::time::sleep(ms(100)).await;
        held.release().await.expect("held");
        let innermost = within(LONG, "their turn", waiting).await.expect("no panic");
        assert_eq!(innermost.expect("free").as_deref(), Some("c"));
    }
}

#[tokio::test]
async fn those_that_the_call_is_inside_of_are_entered_again() {
    for (client, _server) in both().await {
        let guard = client.lock_all(["b", "d"]).acquire().await.expect("free");
        let inner = guard.scope(async { client.lock_all(["a", "b", "c"]).acquire().await });
        let inner = inner.await.expect("enters b, takes the others");
        let counts: Vec<_> = inner
            .guards()
            .iter()
            .map(|guard| (guard.key(), guard.count()))
            .collect();
        assert_eq!(counts, [("a", 1), ("b", 2), ("c", 1)]);
        inner.release().await.expect("held");
        guard.release().await.expect("held");
    }
}

#[tokio::test]
async fn the_loss_of_one_is_reported_and_stops_a_body() {
    let client = LockClient::in_memory();
    let locks = client.lock_all((0..5).map(|n| format!("item:{n}")));
    let guard = locks.acquire().await.expect("free");
    assert!(client.revoke("item:3").expect("the embedded store"));
    let (key, cause) = within(LONG, "the loss is notified", guard.lost()).await;
    assert_eq!((key, cause), ("item:3", LostCause::Removed));
    assert!(!guard.is_valid());
    assert_eq!(guard.valid_for(), Duration::ZERO);
    let error = guard.release().await.expect_err("one was lost");
    assert!(
        matches!(&error, LockError::Lost { key, .. } if key == "item:3"),
        "{error:?}"
    );
    let body = locks.run(async {
        client.revoke("item:0").expect("the embedded store");
        std::future::pending::<()>().await;
    });
    let error = within(LONG, "it stops", body).await.expect_err("lost");
    assert!(
        matches!(&error, LockError::Lost { key, .. } if key == "item:0"),
        "{error:?}"
    );
    let again = locks.try_acquire().await.expect("a reply");
    drop(again.expect("all were released"));
}

#[test]
fn synchronous_code_takes_them_too() {
    let client = LockClient::in_memory();
    let locks = client.lock_all(["a", "b"]);
    let guard = locks.acquire_blocking().expect("free");
    assert!(locks.try_acquire_blocking().expect("a reply").is_none());
    drop(guard);
    let sum = locks.wait(LONG).run_blocking(|| 1 + 1).expect("free again");
    assert_eq!(sum, 2);
}

#[tokio::test]
async fn an_empty_list_and_one_that_is_too_long_are_refused() {
    for (client, _server) in both().await {
        let none = client.lock_all(Vec::<String>::new());
        let error = none.acquire().await.expect_err("nothing to lock");
        assert!(matches!(error, LockError::InvalidKey { .. }), "{error:?}");
        assert!(error.to_string().contains("empty"), "{error}");
        none.run(async {}).await.expect_err("nothing to lock");
        none.try_acquire().await.expect_err("nothing to lock");
        let numbered = |most: u32| client.lock_all((0..most).map(|n| format!("k:{n}")));
        let error = numbered(1_001).acquire().await.expect_err("too many");
        assert!(
            matches!(error, LockError::InvalidOption { .. }),
            "{error:?}"
        );
        assert!(error.to_string().contains("1001"), "{error}");
        let most = (0..2_000).map(|n| format!("k:{}", n % 1_000));
        let most = client.lock_all(most).acquire().await;
        let most = most.expect("as many different keys as may be");
        assert_eq!(most.guards().len(), 1_000);
        most.release().await.expect("held");
        let bad = client
            .lock_all(["a", ""])
            .acquire()
            .await
            .expect_err("no key");
        assert!(matches!(bad, LockError::InvalidKey { .. }), "{bad:?}");
    }
}

#[tokio::test]
async fn they_may_lie_anywhere_in_a_cluster() {
    let cluster = RedisCluster::start().await;
    let client = crate::common::connect(&cluster.url()).await;
    let locks = client.lock_all((0..20).map(|n| format!("item:{n}")));
    let guard = locks.acquire().await.expect("free");
    assert_eq!(guard.guards().len(), 20);
    assert!(locks.try_acquire().await.expect("a reply").is_none());
    guard.release().await.expect("held");
    drop(locks.try_acquire().await.expect("a reply").expect("free"));
}

#[tokio::test]
async fn each_has_a_token_of_its_own_on_the_server() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let guard = client.lock_all(["a", "b"]).acquire().await.expect("free");
    for held in guard.guards() {
        assert!(server.exists(&name(held.key())).await);
        assert!(held.fencing_token() > 0);
    }
    guard.release().await.expect("held");
}
