//! Simultaneous requests for different locks share a script.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use rlock_core::{LockClient, LockGuard, LostCause};
use rlock_testkit::{
    RedisServer,
    batch::{self, release_all},
    within,
};

use crate::common::{
    LASTING, LONG, acquiring, assert_nothing_left, assert_soon_queued, client, connect, its_turn,
    name,
};

const TASKS: usize = 64;
/// Less than the time until a lasting lock is renewed.
const AT_ONCE: Duration = Duration::from_secs(3);

fn keys() -> Vec<String> {
    (0..TASKS).map(|n| format!("k{n}")).collect()
}

/// Tries to acquire each key by a call of its own, all at once.
async fn try_acquire_all(client: &LockClient, keys: &[String]) -> Vec<Option<LockGuard>> {
    let takes = keys.iter().map(|key| {
        let lock = client.lock(key).lease(LASTING);
        async move { lock.try_acquire().await.expect("a reply") }
    });
    join_all(takes).await
}

#[tokio::test]
async fn many_locks_cost_far_less_than_a_script_each() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let mut watch = server.watch_commands().await;
    let alone = batch::acquire_and_release_in_tasks(&client, &keys(), 10).await;
    let scripts = watch.count_of("EVALSHA").await;
    // Acquires share scripts, and each release is one.
    assert!(
        scripts < alone * 6 / 10,
        "{scripts} scripts for {alone} changes"
    );
    assert_nothing_left(&server).await;
}

#[tokio::test]
async fn those_that_are_taken_do_not_keep_the_others_from_theirs() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let keys = keys();
    release_all(try_acquire_all(&one, &keys).await.into_iter().flatten()).await;
    let taken = try_acquire_all(&other, &keys[10..20]).await;
    let mine = try_acquire_all(&one, &keys).await;
    for (n, guard) in mine.iter().enumerate() {
        assert_eq!(guard.is_some(), !(10..20).contains(&n), "{}", keys[n]);
    }
    for (key, guard) in keys.iter().zip(&mine) {
        let entries = server.hgetall(&name(key)).await;
        assert_eq!(entries.len(), 1, "one holder of {key}");
        if let Some(guard) = guard {
            assert!(entries.contains_key(&guard.owner().to_string()));
            let ttl = server.pttl(&name(key)).await;
            assert!(ttl > 0 && ttl <= 30_000, "{ttl}");
        }
    }
    release_all(mine.into_iter().chain(taken).flatten()).await;
    assert_nothing_left(&server).await;
}

#[tokio::test]
async fn of_many_released_locks_those_with_waiters_are_handed_off() {
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let keys = keys();
    let mine = try_acquire_all(&one, &keys).await;
    let waiting: Vec<_> = keys[5..8]
        .iter()
        .map(|key| acquiring(other.lock(key).wait(LONG)))
        .collect();
    for key in &keys[5..8] {
        assert_soon_queued(&server, key, 1).await;
    }
    let tokens: Vec<_> = mine
        .iter()
        .flatten()
        .map(LockGuard::fencing_token)
        .collect();
    release_all(mine.into_iter().flatten()).await;
    for (waiting, before) in waiting.into_iter().zip(&tokens[5..8]) {
        let guard = its_turn(waiting).await;
        assert!(guard.fencing_token() > *before);
        guard.release().await.expect("held");
    }
    assert_nothing_left(&server).await;
}

#[tokio::test]
async fn scripts_that_the_server_forgot_are_loaded_again() {
    let server = RedisServer::start();
    let client = client(&server).await;
    for _ in 0..3 {
        let guards = try_acquire_all(&client, &keys()).await;
        assert!(guards.iter().all(Option::is_some));
        server.script_flush().await;
        release_all(guards.into_iter().flatten()).await;
        server.script_flush().await;
    }
    let acquire_and_release = async || {
        let guards = try_acquire_all(&client, &keys()).await;
        release_all(guards.into_iter().flatten()).await;
    };
    acquire_and_release().await;
    let mut watch = server.watch_commands().await;
    acquire_and_release().await;
    let scripts = watch.count_of("EVALSHA").await;
    assert!(scripts < 64 + 32, "together again: {scripts} scripts");
    assert_nothing_left(&server).await;
}

#[tokio::test]
async fn without_a_permission_that_only_they_need_everything_goes_one_by_one() {
    let rules = "on >secret ~lock:* &lock:* +@all -exists";
    let server = RedisServer::builder().acl_user("locker", rules).start();
    let client = connect(&server.url_as("locker", "secret")).await;
    for _ in 0..3 {
        let guards = try_acquire_all(&client, &keys()).await;
        assert!(guards.iter().all(Option::is_some));
        release_all(guards.into_iter().flatten()).await;
    }
    assert_nothing_left(&server).await;
}

/// Acquires all keys by few scripts. Repeats it if the client was too slow to send batches.
async fn acquire_in_batches(server: &RedisServer, client: &LockClient) -> Vec<LockGuard> {
    let mut watch = server.watch_commands().await;
    let started = Instant::now();
    loop {
        let guards = try_acquire_all(client, &keys()).await;
        let guards: Vec<LockGuard> = guards.into_iter().flatten().collect();
        assert_eq!(guards.len(), TASKS, "all were free");
        let scripts = watch.count_of("EVALSHA").await;
        if scripts < 16 {
            return guards;
        }
        assert!(started.elapsed() < LONG, "no batches: {scripts} scripts");
        release_all(guards).await;
        watch.clear().await;
    }
}

#[tokio::test]
async fn a_loss_of_locks_that_were_taken_together_is_noticed_before_a_renewal() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let guards = acquire_in_batches(&server, &client).await;
    for key in keys() {
        assert!(server.del(&name(&key)).await);
    }
    let lost = join_all(guards.iter().map(LockGuard::lost));
    for cause in within(AT_ONCE, "all losses are noticed", lost).await {
        assert_eq!(cause, LostCause::Removed);
    }
}

/// Calls the scripts directly.
mod scripts {
    use super::*;

    const ACQUIRE: &str = concat!(
        include_str!("../../../rlock-core/src/store/redis/scripts/library.lua"),
        include_str!("../../../rlock-core/src/store/redis/scripts/acquire_batch.lua")
    );
    const DAY: &str = "86400000";

    #[tokio::test]
    async fn a_lock_that_is_asked_for_twice_is_given_once() {
        let server = RedisServer::start();
        for key in ["a", "b"] {
            let () = server
                .command(&["SET", &format!("{}:fence", name(key)), "70000000000000"])
                .await;
        }
        let (a, b) = (name("a"), name("b"));
        let asked = [
            "EVAL", ACQUIRE, "3", &a, &a, &b, DAY, "one", "5000", "other", "5000", "one", "5000",
        ];
        let answers: Vec<i64> = server.command(&asked).await;
        assert_eq!(answers, [70_000_000_000_001, 0, 70_000_000_000_001]);
        assert_eq!(
            server.hgetall(&a).await.into_keys().collect::<Vec<_>>(),
            ["one"]
        );
        let again: Vec<i64> = server.command(&asked).await;
        assert_eq!(again, [0, 0, 0], "a held lock is not requested in a batch");
    }

    #[tokio::test]
    async fn what_is_not_simple_is_left_alone() {
        let server = RedisServer::start();
        let (text, held, waited) = (name("text"), name("held"), name("waited"));
        let queue = format!("{waited}:queue");
        let () = server.command(&["SET", &text, "no lock"]).await;
        let _: u64 = server.command(&["HSET", &held, "other", "2"]).await;
        let _: u64 = server.command(&["ZADD", &queue, "1", "waiter"]).await;
        for key in [&text, &held, &waited] {
            let () = server
                .command(&["SET", &format!("{key}:fence"), "70000000000000"])
                .await;
        }
        let before = server.keys("*").await;
        let keys = ["EVAL", ACQUIRE, "3", &text, &held, &waited, DAY];
        let asked = [&keys[..], &["me", "5000"].repeat(3)].concat();
        let answers: Vec<i64> = server.command(&asked).await;
        assert_eq!(answers, [0; 3]);
        let after = server.keys("*").await;
        assert_eq!(after, before);
        assert_eq!(server.hgetall(&held).await["other"], "2");
    }
}

#[tokio::test]
async fn two_at_once_load_a_script_that_the_server_has_lost() {
    let server = RedisServer::start();
    let client = client(&server).await;
    for round in 0..10 {
        let keys = [format!("one-{round}"), format!("other-{round}")];
        let () = server.command(&["SCRIPT", "FLUSH"]).await;
        let guards = try_acquire_all(&client, &keys).await;
        let () = server.command(&["SCRIPT", "FLUSH"]).await;
        release_all(guards.into_iter().flatten()).await;
    }
    assert_nothing_left(&server).await;
}
