//! Several keys, whose number is known at run time.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rlock_core::{
    InCurrentScope, LockClient, LockError, LostCause, current, fencing::Fence,
    testing::simulate_loss,
};
use rlock_testkit::{RedisServer, eventually, within};

use crate::common::{
    LONG, assert_invalid, assert_nothing_left, cause_of, connect_with, connections::both_in_use,
    name,
};

async fn both() -> [(LockClient, Option<RedisServer>); 2] {
    let server = RedisServer::start();
    let on_server = connect_with(LONG, &server.url()).await;
    [(LockClient::in_memory(), None), (on_server, Some(server))]
}

#[tokio::test]
async fn several_locks_are_taken_each_once_in_the_given_order() {
    for (client, server) in both().await {
        let locks = client.lock_all(["c", "a", "b", "a"]);
        assert_eq!(locks.key(), "c");
        assert!(locks.keys().eq(["c", "a", "b"]));
        let guard = if let Some(server) = &server {
            // Otherwise the watch would also count the commands that set up the second connection.
            both_in_use(server, &client).await;
            let mut watch = server.watch_commands().await;
            let guard = locks.acquire().await;
            assert_eq!(watch.count().await, 1, "by one request");
            guard
        } else {
            locks.acquire().await
        };
        let guard = guard.expect("free");
        assert_eq!(guard.key(), locks.key());
        assert!(guard.keys().eq(locks.keys()));
        let inside = guard.scope(async { current().expect("inside") }).await;
        assert!(inside.keys().eq(locks.keys()));
        // Transactions that check them in one order do not deadlock.
        let fences = guard.fences();
        assert!(fences.iter().map(Fence::key).eq(["a", "b", "c"]));
        assert!(guard.is_valid() && !guard.valid_for().is_zero());
        assert_eq!(guard.depth(), 1);
        for key in guard.keys() {
            let info = client.inspect(key).await.expect("a reply").expect("held");
            assert_eq!(Some(&info.owner), guard.owner_of(key).as_ref());
            assert_eq!((info.depth, info.token()), (1, guard.token_of(key)));
            let taken = client.lock(key).try_acquire().await;
            assert!(taken.expect("a reply").is_none(), "{key}");
            if let Some(server) = &server {
                assert!(server.exists(&name(key)).await);
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

/// Returns the message of the panic of this call.
fn panic_of<T: std::fmt::Debug>(call: impl FnOnce() -> T) -> String {
    let panic = catch_unwind(AssertUnwindSafe(call)).expect_err("it panics");
    *panic.downcast().expect("a message")
}

#[tokio::test]
async fn each_key_has_its_own_token_and_without_a_key_there_is_none() {
    let client = LockClient::in_memory();
    // The next grants of the two keys have different fences.
    drop(client.lock("a").acquire().await);
    let guard = client.lock_all(["a", "b"]).acquire().await.expect("free");
    for key in ["a", "b"] {
        let info = client.inspect(key).await.expect("a reply").expect("held");
        assert!(info.token().is_some());
        assert_eq!(guard.token_of(key), info.token());
    }
    assert_ne!(guard.token_of("a"), guard.token_of("b"));
    assert_eq!(guard.token_of("c"), None);
    let said = panic_of(|| guard.token());
    assert!(
        said.contains("2 keys") && said.contains("token_of(key)"),
        "{said}"
    );

    let one = client.lock_all(["c", "c"]).acquire().await.expect("free");
    assert_eq!(Some(one.token()), one.token_of("c"), "it is one key");
    assert_eq!(one.keys().len(), 1);
}

#[tokio::test]
async fn a_hold_of_several_keys_stays_whole_in_another_task() {
    let client = LockClient::in_memory();
    let (tenant, both) = (client.lock("tenant"), client.lock_all(["b", "a"]));
    let child = || {
        let hold = current().expect("inside");
        assert!(hold.keys().eq(["b", "a"]) && hold.is_valid());
        let (tenant, both) = (tenant.clone(), both.clone().and_shared(["tenant"]));
        async move {
            assert!(current().expect("inside").keys().eq(hold.keys()));
            // Both calls of the chain are entered again.
            let counts = async {
                let [inner, outer] = [current(), Some(hold)].map(|hold| hold.expect("inside"));
                assert!(inner.keys().eq(["b", "a", "tenant"]));
                (inner.depth(), outer.depth())
            };
            assert_eq!(both.run(counts).await.expect("enters"), (2, 2));
            assert!(tenant.try_acquire().await.expect("a reply").is_some());
        }
        .in_current_scope()
    };
    let body = async { both.run(async { child().await }).await };
    let outcome = tenant.run(body).await.expect("free");
    outcome.expect("free");
}

#[tokio::test]
async fn several_locks_are_downgraded_together_or_not_at_all() {
    let client = LockClient::in_memory();
    let locks = client.lock_all(["a", "b"]);
    let guard = locks.acquire().await.expect("free");
    let reader = |key| client.lock(key).shared();
    let nested = guard.scope(async { client.lock("b").acquire().await });
    let nested = nested.await.expect("enters");
    let refused = assert_invalid(guard.downgrade(), "a nested call is inside `b`");
    assert!(refused.contains("`b`"), "{refused}");
    for key in ["a", "b"] {
        let reader = reader(key).try_acquire().await.expect("a reply");
        assert!(reader.is_none(), "{key} is still exclusive");
    }
    nested.release().await.expect("held");
    guard
        .downgrade()
        .expect("nothing relies on the exclusive locks");
    for key in ["a", "b"] {
        let reader = reader(key).try_acquire().await.expect("a reply");
        assert!(reader.is_some(), "{key} is shared");
    }
    guard.release().await.expect("held");

    let guard = locks.wait(LONG).acquire().await.expect("released");
    assert!(simulate_loss(&client, "b").expect("the embedded store"));
    within(LONG, "the loss is notified", guard.lost()).await;
    assert_eq!(cause_of(guard.downgrade()), Some(LostCause::Removed));
    let reader = reader("a").try_acquire().await.expect("a reply");
    assert!(reader.is_none(), "the other lock is still exclusive");
}

#[tokio::test]
async fn locks_of_the_callers_are_entered_again() {
    for (client, _server) in both().await {
        let guard = client.lock_all(["b", "d"]).acquire().await.expect("free");
        let inner = guard.scope(async { client.lock_all(["a", "b", "c"]).acquire().await });
        let inner = inner.await.expect("enters b, takes the others");
        for (key, depth) in [("a", 1), ("b", 2), ("c", 1)] {
            let of_key = async || client.inspect(key).await.expect("a reply").expect("held");
            eventually(LONG, key, async || of_key().await.depth == depth).await;
            assert_eq!(of_key().await.token(), inner.token_of(key));
        }
        inner.release().await.expect("held");
        guard.release().await.expect("held");
    }
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
        let said = assert_invalid(numbered(1_001).acquire().await, "too many");
        assert!(said.contains("1001"), "{said}");
        let most = (0..2_000).map(|n| format!("k:{}", n % 1_000));
        let most = client.lock_all(most).wait(LONG).acquire().await;
        let most = most.expect("as many different keys as may be");
        assert_eq!(most.keys().len(), 1_000);
        most.release().await.expect("held");
        let bad = client.lock_all(["a", ""]).acquire().await;
        let bad = bad.expect_err("no key");
        assert!(matches!(bad, LockError::InvalidKey { .. }), "{bad:?}");
    }
}
