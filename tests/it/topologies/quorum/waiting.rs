//! A release notifies all waiters of a lock on a quorum.

use rlock_testkit::{RedisServer, script_text};

use crate::common::{name, queue};

/// Returns whether the lock is still taken right after a release, which makes all waiters ask.
async fn stays_taken(server: &RedisServer) -> bool {
    let () = server.command(&["HSET", &name("k"), "owner:1", "1"]).await;
    // A script sees the time of its start until it ends.
    let release = script_text("release");
    let script = format!(
        "local released = (function() {release}
         end)()
         return {{released, redis.call('EXISTS', KEYS[1])}}"
    );
    let words = [
        "EVAL",
        &script,
        "1",
        &name("k"),
        "owner:1",
        "0",
        "0",
        "86400000",
        "lock:client:",
        "all",
        "0",
    ];
    let [released, exists]: [u64; 2] = server.command(&words).await;
    assert_eq!(released, 1);
    exists == 1
}

/// Otherwise the releasing client would overtake all others whenever it comes back at once.
#[tokio::test]
async fn a_lock_that_others_wait_for_stays_taken_until_the_notifications_have_arrived() {
    let server = RedisServer::start();
    assert!(!stays_taken(&server).await, "no client waits for it");
    let waiter = "00000000-0000-0000-0000-000000000000:1";
    let _: u64 = server.command(&["ZADD", &queue("k"), "1", waiter]).await;
    assert!(stays_taken(&server).await);
}
