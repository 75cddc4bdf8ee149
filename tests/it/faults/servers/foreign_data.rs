//! Foreign data in place of the library's: invalid fencing tokens, and other keys under the name of a lock.

use std::collections::HashMap;

use redis::Value;
use rlock_core::{LockError, LostCause};
use rlock_testkit::{RedisServer, eventually, within};

use crate::common::{
    LONG, acl, assert_lost, client, connect, enqueued, fence, its_turn, ms, name, queue,
    resp2_client,
};
use crate::leases::clock::HOUR;

/// Fences that no server sets: the clock decides instead.
const INVALID: [&str; 11] = [
    "70368744177664",
    "9007199254740993",
    "12345678901234567890",
    "1e300",
    "inf",
    "nan",
    "0x10",
    "-1",
    "+5",
    " 7",
    "text",
];

async fn invalidate(server: &RedisServer, key: &str, fence_is: &str) {
    let () = server
        .command(&["SET", &fence(key), fence_is, "PX", "100000000"])
        .await;
}

#[tokio::test]
async fn an_invalid_fence_counts_as_lost() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = client.lock("k").wait(LONG);
    let mut last = 0;
    for invalid in INVALID {
        invalidate(&server, "k", invalid).await;
        let guard = lock.acquire().await.expect(invalid);
        assert!(guard.token().as_u64() > last, "{invalid}");
        last = guard.token().as_u64();
        assert!(last < 1 << 53, "{invalid}");
        guard.release().await.expect("held");
    }
}

/// A fence that was overwritten while the lock is held.
#[tokio::test]
async fn a_lock_whose_fence_became_invalid_is_entered_handed_off_and_released() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    for invalid in INVALID {
        let guard = one.lock("k").lease(HOUR).wait(LONG).acquire().await;
        let guard = guard.expect("free");
        let waiting = enqueued(&server, other.lock("k").wait(LONG)).await;
        invalidate(&server, "k", invalid).await;
        let nested = one.lock("k").wait(ms(0));
        guard.scope(nested.run(async {})).await.expect(invalid);
        let before = guard.token().as_u64();
        guard.release().await.expect("held");
        let next = its_turn(waiting).await;
        assert!(next.token().as_u64() > before, "{invalid}");
        next.release().await.expect("held");
    }
}

fn refusal(error: &LockError) -> String {
    assert!(matches!(error, LockError::Refused { .. }), "{error:?}");
    let shown = format!("{error:#}");
    assert!(shown.contains("`k`"), "{shown}");
    shown
}

/// Even calls with a wait of an hour are refused at once, because waiting would not help.
#[tokio::test]
async fn a_foreign_key_in_the_lock_s_place_is_reported_and_left_alone() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = client.lock("k").lease(HOUR).wait(HOUR);
    let key = name("k");
    for (command, kind) in [
        (["SET", &key, "text"], "string"),
        (["RPUSH", &key, "item"], "list"),
    ] {
        let _: redis::Value = server.command(&command).await;
        let dump: redis::Value = server.command(&["DUMP", &key]).await;
        let outcome = within(LONG, "it is refused", lock.acquire()).await;
        let shown = refusal(&outcome.expect_err("it is not a lock"));
        let address = server.address();
        let said = format!("the key `{key}` on {address} holds a {kind} of other software");
        assert!(
            shown.contains(&said) && !shown.contains("script"),
            "{shown}"
        );
        refusal(&lock.try_acquire().await.expect_err("it is not a lock"));
        refusal(&client.inspect("k").await.expect_err("it is not a lock"));
        let now: redis::Value = server.command(&["DUMP", &key]).await;
        assert_eq!(now, dump, "it is as it was");
        assert_eq!(server.pttl(&key).await, -1);
        assert!(server.del(&key).await);
    }
    // The next renewal is twenty minutes away.
    let guard = lock.acquire().await.expect("out of the way");
    let () = server.command(&["SET", &key, "text"]).await;
    assert_lost(&guard, LONG, LostCause::Removed).await;
    drop(guard);
    client.shutdown().await.expect("nothing is held");
    let text: String = server.command(&["GET", &key]).await;
    assert_eq!((text.as_str(), server.pttl(&key).await), ("text", -1));
}

/// Each refusal has a line in the server's `ACL LOG`, and a candidate asks every few seconds.
#[tokio::test]
async fn a_user_without_the_permission_to_ask_for_types_is_refused_once_by_each_connection() {
    let rules = acl::only(&[&acl::of_a_server().replace("+type", "")]);
    let server = RedisServer::builder().acl_user("locker", &rules).start();
    let client = connect(&server.url_as("locker", "secret")).await;
    for key in ["k", "l"] {
        let () = server.command(&["SET", &name(key), "text"]).await;
    }
    for round in 1..=2 {
        for key in ["k", "l", "k"] {
            let error = client.lock(key).wait(LONG).acquire().await;
            let shown = format!("{:#}", error.expect_err("it is not a lock"));
            assert!(shown.contains("WRONGTYPE"), "{shown}");
        }
        let log: Vec<HashMap<String, Value>> = server.command(&["ACL", "LOG"]).await;
        let of_types = |entry: &&HashMap<String, Value>| entry["object"] == text("type");
        let refused = log.iter().filter(of_types).map(|entry| &entry["count"]);
        assert_eq!(refused.collect::<Vec<_>>(), [&Value::Int(round)]);
        server.kill_all_clients().await;
    }
    server.set_user("locker", "+type").await;
    let error = client.lock("k").wait(LONG).acquire().await;
    assert!(refusal(&error.expect_err("it is not a lock")).contains("a string of other software"));
}

fn text(text: &str) -> Value {
    Value::BulkString(text.as_bytes().to_vec())
}

#[tokio::test]
async fn a_foreign_key_in_the_token_s_place_is_reported_and_left_alone() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = client.lock("k").wait(HOUR);
    let fence = fence("k");
    for command in [["RPUSH", &fence, "item"], ["SADD", &fence, "member"]] {
        let _: redis::Value = server.command(&command).await;
        let dump: redis::Value = server.command(&["DUMP", &fence]).await;
        let outcome = within(LONG, "it is refused", lock.acquire()).await;
        let shown = refusal(&outcome.expect_err("no token"));
        assert!(shown.contains(&fence), "{shown}");
        assert!(shown.contains("delete it"), "{shown}");
        assert!(!server.exists(&name("k")).await, "nothing was taken");
        let now: redis::Value = server.command(&["DUMP", &fence]).await;
        assert_eq!(now, dump, "it is as it was");
        assert!(server.del(&fence).await);
    }
    drop(lock.acquire().await.expect("out of the way"));
}

#[tokio::test]
async fn a_waiter_whose_lock_became_another_key_leaves_the_queue() {
    let server = RedisServer::start();
    for waiter in [client(&server).await, resp2_client(&server).await] {
        let holder = client(&server).await;
        let guard = holder.lock("k").lease(HOUR).acquire().await;
        let guard = guard.expect("free");
        let waiting = enqueued(&server, waiter.lock("k").wait(LONG)).await;
        let () = server.command(&["SET", &name("k"), "text"]).await;
        // The queue no longer expires, so only the waiter itself can remove its place.
        let _: bool = server.command(&["PERSIST", &queue("k")]).await;
        let outcome = within(LONG, "it is refused", waiting).await;
        refusal(&outcome.expect("no panic").expect_err("it is not a lock"));
        let gone = async || !server.exists(&queue("k")).await;
        eventually(LONG, "the waiter leaves the queue", gone).await;
        drop(guard);
        assert!(server.del(&name("k")).await);
    }
}
