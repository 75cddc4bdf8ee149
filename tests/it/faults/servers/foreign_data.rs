//! Foreign data in place of the library's: invalid fencing tokens, and other keys under the name of a lock.

use futures_util::future::join_all;
use rlock_core::{Lock, LockClient, LockError, LockGuard, distributed_lock};
use rlock_testkit::{RedisServer, eventually, within};

use crate::common::{
    LONG, acquiring, assert_soon_free, assert_soon_queued, client, hold, ms, name, queue,
    resp2_client, wait_queue,
};

/// Fences that no server sets: the clock decides instead.
const INVALID: [&str; 14] = [
    "70368744177664",
    "9007199254740993",
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
    "text",
];

fn fence(key: &str) -> String {
    format!("{}:fence", name(key))
}

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
        assert!(guard.fencing_token() > last, "{invalid}");
        last = guard.fencing_token();
        assert!(last < 1 << 53, "{invalid}");
        guard.release().await.expect("held");
    }
}

#[tokio::test]
async fn a_foreign_key_in_the_fence_s_place_fails_no_lock_that_is_acquired_at_the_same_time() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let keys: Vec<String> = (0..16).map(|n| format!("k{n}")).collect();
    for key in &keys[..8] {
        let _: u64 = server.command(&["RPUSH", &fence(key), "item"]).await;
    }
    let locks: Vec<Lock> = keys.iter().map(|key| client.lock(key).wait(LONG)).collect();
    for _ in 0..5 {
        let taken = join_all(locks.iter().map(Lock::acquire)).await;
        for (n, (key, taken)) in keys.iter().zip(taken).enumerate() {
            if n < 8 {
                let error = taken.expect_err("no fence").to_string();
                assert!(error.contains(&fence(key)), "{error}");
                assert!(error.contains("delete it"), "{error}");
                assert!(!server.exists(&name(key)).await, "{key}");
            } else {
                drop(taken.expect("its own fence is sound"));
            }
        }
    }
}

/// A fence that was overwritten while the lock is held.
#[tokio::test]
async fn a_lock_whose_fence_became_invalid_is_renewed_entered_handed_off_and_released() {
    let server = RedisServer::start();
    let each = INVALID.iter().enumerate().map(async |(n, invalid)| {
        let key = &format!("k-{n}");
        let (one, other) = (client(&server).await, client(&server).await);
        let guard = one.lock(key).lease(ms(1500)).acquire().await.expect("free");
        let waiting = acquiring(other.lock(key).wait(LONG));
        assert_soon_queued(&server, key, 1).await;
        invalidate(&server, key, invalid).await;
        tokio::time::sleep(ms(2000)).await;
        assert!(guard.is_valid(), "{invalid}");
        let nested = one.lock(key).wait(ms(0));
        guard.scope(nested.run(async {})).await.expect(invalid);
        let before = guard.fencing_token();
        guard.release().await.expect("held");
        let next = within(LONG, invalid, waiting).await.expect("no panic");
        let next = next.expect("its turn");
        assert!(next.fencing_token() > before, "{invalid}");
        next.release().await.expect("held");
    });
    join_all(each).await;
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
        "hget", "pttl", "set", "hset", "pexpire", "hdel", "time", "get",
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
