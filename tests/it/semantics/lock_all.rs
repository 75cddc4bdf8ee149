//! Several keys, whose number is known at run time.

use std::time::Duration;

use rlock_core::{LockClient, LockError, LockGuard, LostCause, current};
use rlock_testkit::{RedisServer, within};

use crate::common::{LONG, assert_nothing_left, begin, connect_with, hold, ms, name};

async fn both() -> [(LockClient, Option<RedisServer>); 2] {
    let server = RedisServer::start();
    let on_server = connect_with(LONG, &server.url()).await;
    [(LockClient::in_memory(), None), (on_server, Some(server))]
}

#[tokio::test]
async fn all_are_taken_sorted_and_each_once() {
    for (client, server) in both().await {
        let locks = client.lock_all(["c", "a", "b", "a"]);
        assert_eq!(locks.keys().collect::<Vec<_>>(), ["c", "a", "b", "a"]);
        let guard = if let Some(server) = &server {
            let mut watch = server.watch_commands().await;
            let guard = locks.acquire().await;
            assert_eq!(watch.count().await, 1, "by one request");
            guard
        } else {
            locks.acquire().await
        };
        let guard = guard.expect("free");
        let keys: Vec<_> = guard.guards().iter().map(LockGuard::key).collect();
        assert_eq!(keys, ["a", "b", "c"]);
        assert!(guard.is_valid() && !guard.valid_for().is_zero());
        for held in guard.guards() {
            assert_eq!(held.count(), 1);
            assert!(held.fencing_token() > 0);
            let taken = client.lock(held.key()).try_acquire().await;
            assert!(taken.expect("a reply").is_none(), "{}", held.key());
            if let Some(server) = &server {
                assert!(server.exists(&name(held.key())).await);
            }
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
        let held = hold(&client, "b").await;
        let locks = client.lock_all(vec!["a".to_owned(), "b".to_owned(), "c".to_owned()]);
        assert!(locks.try_acquire().await.expect("a reply").is_none());
        let error = locks.clone().wait(ms(200)).acquire().await;
        let error = error.expect_err("taken");
        let LockError::Timeout { key, waited, .. } = &error else {
            panic!("{error:?}")
        };
        assert_eq!(key, "b");
        assert!(*waited >= ms(200), "{waited:?}");
        let locks = locks.wait(LONG);
        let innermost = async { current().map(|held| held.key().to_owned()) };
        let mut waiting = Box::pin(async move { locks.run(innermost).await });
        begin(&mut waiting).await;
        for key in ["a", "c"] {
            let free = client.lock(key).wait(LONG).acquire().await;
            free.expect("no call keeps it")
                .release()
                .await
                .expect("held");
        }
        let waiting = tokio::spawn(waiting);
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
        let most = client.lock_all(most).wait(LONG).acquire().await;
        let most = most.expect("as many different keys as may be");
        assert_eq!(most.guards().len(), 1_000);
        most.release().await.expect("held");
        let bad = client.lock_all(["a", ""]).acquire().await;
        let bad = bad.expect_err("no key");
        assert!(matches!(bad, LockError::InvalidKey { .. }), "{bad:?}");
    }
}
