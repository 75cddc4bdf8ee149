//! Foreign data in place of the library's: invalid fencing tokens, and other keys under the name of a lock.

use futures_util::future::join_all;
use rlock_core::{Lock, LockClient, LockError, LockGuard, distributed_lock};
use rlock_testkit::{RedisServer, eventually, within};

use crate::common::{
    LASTING, LONG, acquiring, assert_soon_free, assert_soon_queued, begin, client, hold, ms, name,
    queue, resp2_client, wait_queue,
};

/// The first invalid token: Lua counts in doubles, which are exact below it.
const LIMIT: u64 = 1 << 53;

/// Invalid tokens, and tokens too large for the next grant.
const INVALID: [&str; 16] = [
    "9007199254740990",
    "9007199254740991",
    "9007199254740992",
    "9007199254740993",
    "9223372036854775805",
    "9223372036854775807",
    "12345678901234567890",
    "1e300",
    "1e3",
    "inf",
    "nan",
    "0x10",
    "-1",
    "-5",
    "+5",
    " 7",
];

fn fence(key: &str) -> String {
    format!("{}:fence", name(key))
}

async fn invalidate(server: &RedisServer, key: &str, fence_is: &str) {
    let () = server
        .command(&["SET", &fence(key), fence_is, "PX", "100000000"])
        .await;
}

async fn fence_of(server: &RedisServer, key: &str) -> String {
    server.command(&["GET", &fence(key)]).await
}

#[track_caller]
fn assert_names_the_fence(error: &LockError, key: &str) {
    assert!(matches!(error, LockError::Store { .. }), "{error:?}");
    let shown = error.to_string();
    assert!(shown.contains(&fence(key)), "{shown}");
    assert!(shown.contains("2^53"), "{shown}");
    assert!(shown.contains("delete it"), "{shown}");
}

#[distributed_lock(key = ["k", "other"], wait = "0s", client = client)]
async fn with_both(client: &LockClient) -> Result<(), LockError> {
    Ok(())
}

#[tokio::test]
async fn a_fence_that_cannot_be_counted_on_is_refused_and_left_alone() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = client.lock("k").wait(LONG);
    for invalid in INVALID {
        invalidate(&server, "k", invalid).await;
        let error = within(ms(5000), invalid, lock.acquire()).await;
        assert_names_the_fence(&error.expect_err(invalid), "k");
        let error = lock.try_acquire().await.expect_err(invalid);
        assert_names_the_fence(&error, "k");
        let error = with_both(&client).await.expect_err(invalid);
        assert_names_the_fence(&error, "k");
        for key in ["k", "other"] {
            assert!(!server.exists(&name(key)).await, "{invalid}: {key}");
        }
        assert_eq!(fence_of(&server, "k").await, invalid, "it is as it was");
        assert!(server.pttl(&fence("k")).await > 99_000_000, "{invalid}");
        // The remedy that the error names.
        assert!(server.del(&fence("k")).await);
        let guard = lock.acquire().await.expect("out of the way");
        assert!(guard.fencing_token() > 1_000_000_000_000_000);
        guard.release().await.expect("held");
    }
}

/// Simultaneous requests share a script.
#[tokio::test]
async fn a_fence_that_cannot_be_counted_on_fails_no_lock_that_is_asked_for_together_with_its_own() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let keys: Vec<String> = (0..INVALID.len() * 2).map(|n| format!("k{n}")).collect();
    for (key, invalid) in keys.iter().zip(INVALID) {
        invalidate(&server, key, invalid).await;
    }
    let locks: Vec<Lock> = keys.iter().map(|key| client.lock(key).wait(LONG)).collect();
    for _ in 0..5 {
        let taken = join_all(locks.iter().map(Lock::acquire)).await;
        for (n, (key, taken)) in keys.iter().zip(taken).enumerate() {
            match (INVALID.get(n), taken) {
                (Some(invalid), taken) => {
                    assert_names_the_fence(&taken.expect_err(invalid), key);
                    assert!(!server.exists(&name(key)).await, "{invalid}");
                    assert_eq!(fence_of(&server, key).await, *invalid, "it is as it was");
                }
                (None, taken) => drop(taken.expect("its own fence is sound")),
            }
        }
    }
}

#[tokio::test]
async fn tokens_grow_up_to_the_last_that_can_be_told_apart_and_not_beyond() {
    let server = RedisServer::start();
    let client = client(&server).await;
    for below in 1..12 {
        invalidate(&server, "k", &(LIMIT - below).to_string()).await;
        let mut last = LIMIT - below;
        let error = loop {
            // Every second acquire is a request, the others are local hand-overs.
            let lock = client.lock("k").wait(LONG).lease(LASTING);
            let guard = match lock.acquire().await {
                Ok(guard) => guard,
                Err(error) => break error,
            };
            assert!(guard.fencing_token() > last, "{last}");
            last = guard.fencing_token();
            let mut next = Box::pin(lock.acquire());
            begin(&mut next).await;
            guard.release().await.expect("held");
            let guard = match next.await {
                Ok(guard) => guard,
                Err(error) => break error,
            };
            assert!(guard.fencing_token() > last, "{last}");
            last = guard.fencing_token();
            guard.release().await.expect("held");
        };
        assert!(last < LIMIT, "{last}");
        assert_names_the_fence(&error, "k");
        assert!(!server.exists(&name("k")).await, "nothing is taken");
    }
}

#[tokio::test]
async fn a_lock_whose_fence_became_invalid_is_renewed_and_released() {
    let server = RedisServer::start();
    let each = INVALID.iter().enumerate().map(async |(n, invalid)| {
        let key = &format!("k-{n}");
        let (one, other) = (client(&server).await, client(&server).await);
        let guard = one.lock(key).lease(ms(1500)).acquire().await.expect("free");
        let waits = other.lock(key).wait(LONG);
        let waiting = acquiring(waits.clone());
        assert_soon_queued(&server, key, 1).await;
        invalidate(&server, key, invalid).await;
        if invalid.ends_with('3') {
            tokio::time::sleep(ms(2000)).await;
        }
        assert!(guard.is_valid(), "{invalid}");
        let nested = one.lock(key).wait(ms(0));
        let outcome = guard.scope(nested.run(async {})).await;
        if !INVALID[..2].contains(invalid) {
            assert_names_the_fence(&outcome.expect_err("it would have no token"), key);
            // The background corrects its count.
            tokio::time::sleep(ms(100)).await;
        }
        guard.release().await.expect("held");
        assert!(!server.exists(&name(key)).await, "{invalid}");
        // The waiter is notified, or asks by its timer.
        let error = within(LONG, invalid, waiting).await.expect("no panic");
        assert_names_the_fence(&error.expect_err("no token"), key);
        assert!(server.del(&fence(key)).await);
        let guard = waits.acquire().await.expect("out of the way");
        guard.release().await.expect("held");
    });
    join_all(each).await;
}

/// The token distinguishes a late message from an earlier one, but an invalid fence has no token.
#[tokio::test]
async fn a_waiter_that_saw_an_invalid_fence_is_granted_the_lock_when_it_is_repaired() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let guard = hold(&one, "k").await;
    let sound = fence_of(&server, "k").await;
    invalidate(&server, "k", "9007199254740993").await;
    let waiting = acquiring(other.lock("k").wait(LONG).lease(LASTING));
    assert_soon_queued(&server, "k", 1).await;
    invalidate(&server, "k", &sound).await;
    let before = guard.fencing_token();
    guard.release().await.expect("held");
    let next = within(ms(3000), "the waiter is notified", waiting).await;
    let next = next.expect("no panic").expect("its turn");
    assert!(next.fencing_token() > before);
}

/// Waits until the wait queue is empty, for less time than a queue takes to expire.
async fn assert_soon_none_queued(server: &RedisServer, key: &str, after: &str) {
    let gone = async || !server.exists(&queue(key)).await;
    eventually(ms(5000), after, gone).await;
}

async fn refused(waiting: crate::common::Acquiring, what: &str) {
    let outcome = within(LONG, what, waiting).await.expect("no panic");
    let error = outcome.map(|_: LockGuard| ()).expect_err(what);
    assert!(
        matches!(error, LockError::Store { .. }),
        "{what}: {error:?}"
    );
}

#[tokio::test]
async fn a_waiter_whose_lock_became_another_key_leaves_the_queue() {
    let server = RedisServer::start();
    for command in [["SET", "text"], ["RPUSH", "item"]] {
        for waiter in [client(&server).await, resp2_client(&server).await] {
            let holder = client(&server).await;
            let guard = hold(&holder, "k").await;
            let waiting = acquiring(waiter.lock("k").wait(LONG));
            assert_soon_queued(&server, "k", 1).await;
            assert!(server.del(&name("k")).await);
            let _: redis::Value = server.command(&[command[0], &name("k"), command[1]]).await;
            refused(waiting, "it is no lock").await;
            assert_soon_none_queued(&server, "k", "the place is given up").await;
            drop(guard);
            assert!(server.del(&name("k")).await);
        }
    }
}

/// Checks every end of a call except a grant. The server refuses one of the commands from then on.
#[tokio::test]
async fn a_waiter_that_is_refused_for_good_leaves_the_queue() {
    const RULES: &str = "on >s3cret ~* &* +@all";
    let server = RedisServer::builder().acl_user("app", RULES).start();
    for command in [
        "hget", "pttl", "incrby", "hset", "pexpire", "hdel", "time", "get",
    ] {
        let holder = client(&server).await;
        let guard = hold(&holder, "k").await;
        let url = server.url_as("app", "s3cret");
        let waiter = LockClient::connect(&url).await.expect("it is up");
        let waiting = acquiring(waiter.lock("k").wait(ms(9000)));
        assert_soon_queued(&server, "k", 1).await;
        server.set_user("app", &format!("-{command}")).await;
        assert!(server.del(&name("k")).await);
        let outcome = within(LONG, command, waiting).await.expect("no panic");
        let refused = outcome.map(drop).err();
        assert!(
            !matches!(refused, Some(LockError::Timeout { .. })),
            "{command}: {refused:?}"
        );
        assert_soon_none_queued(&server, "k", command).await;
        server.set_user("app", &format!("+{command}")).await;
        drop(guard);
        let _: redis::Value = server.command(&["DEL", &name("k")]).await;
    }
}

#[tokio::test]
async fn a_waiter_of_several_keys_of_which_one_became_another_key_leaves_the_queue() {
    let server = RedisServer::start();
    let (holder, waiter) = (client(&server).await, client(&server).await);
    let guard = hold(&holder, "other").await;
    let call = tokio::spawn(async move { with_both_waiting(&waiter).await });
    assert_soon_queued(&server, "other", 1).await;
    let () = server.command(&["SET", &name("k"), "text"]).await;
    guard.release().await.expect("held");
    let outcome = within(LONG, "it is refused", call).await.expect("no panic");
    let error = outcome.expect_err("one is no lock");
    assert!(matches!(error, LockError::Store { .. }), "{error:?}");
    assert_soon_none_queued(&server, "other", "the place is given up").await;
    assert_soon_free(&server, "other").await;
}

#[distributed_lock(key = ["k", "other"], wait = "20s", client = client)]
async fn with_both_waiting(client: &LockClient) -> Result<(), LockError> {
    Ok(())
}

#[tokio::test]
async fn a_waiter_whose_client_is_shut_down_leaves_the_queue() {
    let server = RedisServer::start();
    let (holder, waiter) = (client(&server).await, client(&server).await);
    let _guard = hold(&holder, "k").await;
    let waiting = acquiring(waiter.lock("k").wait(LONG));
    assert_soon_queued(&server, "k", 1).await;
    waiter.shutdown().await.expect("nothing is held");
    let outcome = waiting.await.expect("no panic");
    assert!(
        matches!(outcome, Err(LockError::Closed { .. })),
        "{outcome:?}"
    );
    assert_eq!(wait_queue(&server, "k").await, Vec::<String>::new());
}
