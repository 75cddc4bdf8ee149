//! Holds that share a renewal script: a fault of one does not affect the others.

use std::time::Duration;

use futures_util::future::join_all;
use rlock_core::{LockClient, LockGuard, LostCause};
use rlock_testkit::{RedisServer, eventually};

use crate::common::{LONG, assert_lost, assert_soon_free, client, count, ms, name, resp2_client};

const LEASE: Duration = Duration::from_millis(1200);

fn keys(count: u32) -> Vec<String> {
    (0..count).map(|n| format!("k:{n}")).collect()
}

/// Acquires these locks at once, so that they are due together, and waits for a few renewals.
async fn renewed(server: &RedisServer, client: &LockClient, keys: Vec<String>) -> Vec<LockGuard> {
    let requests = u64::try_from(keys.len().div_ceil(16)).expect("few") * 3;
    let locks = keys.iter().map(|key| client.lock(key).lease(LEASE));
    let taking = locks.map(|lock| async move { lock.acquire().await.expect("free") });
    let guards = join_all(taking).await;
    let mut watch = server.watch_commands().await;
    eventually(LONG, "they are renewed", async || {
        watch.count_of("EVALSHA").await >= requests
    })
    .await;
    guards
}

async fn assert_held_for(server: &RedisServer, guards: &[LockGuard], time: Duration) {
    tokio::time::sleep(time).await;
    for guard in guards {
        assert!(guard.is_valid(), "{}", guard.key());
        assert_eq!(count(server, guard).await, Some(1), "{}", guard.key());
    }
}

#[tokio::test]
async fn a_release_ends_the_renewals_of_its_own_lock_alone() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let mut guards = renewed(&server, &client, keys(20)).await;
    let (released, dropped) = (guards.swap_remove(7), guards.swap_remove(0));
    let owners = [released.owner().to_string(), dropped.owner().to_string()];
    released.release().await.expect("held");
    drop(dropped);
    assert_soon_free(&server, "k:0").await;
    let mut watch = server.watch_commands().await;
    assert_held_for(&server, &guards, LEASE * 2).await;
    let renewals = watch.seen().await;
    assert!(!renewals.is_empty());
    let renewed = |owner| renewals.iter().any(|call| call.words.contains(owner));
    assert!(!owners.iter().any(renewed), "{renewals:?}");
}

#[tokio::test]
async fn a_loss_concerns_its_own_lock_alone() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let mut guards = renewed(&server, &client, keys(20)).await;
    let lost = guards.swap_remove(5);
    server.del(&name("k:5")).await;
    assert_lost(&lost, LONG, LostCause::Removed).await;
    assert_held_for(&server, &guards, LEASE * 2).await;
}

/// A script renews up to 16 locks.
#[tokio::test]
async fn a_script_that_is_refused_is_no_concern_of_those_that_went_with_it() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let mut keys = keys(60);
    keys.push("forbidden".to_owned());
    let mut guards = renewed(&server, &client, keys).await;
    let forbidden = guards.pop().expect("the last");
    let mut watch = server.watch_commands().await;
    tokio::time::sleep(LEASE).await;
    let calls = watch.seen().await.to_vec();
    let shares_a_script = |guard: &LockGuard| {
        let both = [name("forbidden"), name(guard.key())];
        let mut calls = calls.iter();
        calls.any(|call| both.iter().all(|name| call.words.contains(name)))
    };
    let (with, others): (Vec<_>, Vec<_>) = guards.into_iter().partition(shares_a_script);
    assert!(with.len() < 16 && others.len() > 16, "{calls:?}");
    let keys = "~lock:{k:*";
    let () = server
        .command(&["ACL", "SETUSER", "default", "resetkeys", keys])
        .await;
    assert_lost(&forbidden, LONG, LostCause::Expired).await;
    let () = server
        .command(&["ACL", "SETUSER", "default", "allkeys"])
        .await;
    for guard in &others {
        assert!(guard.is_valid(), "{}", guard.key());
    }
    assert_held_for(&server, &others, LEASE * 2).await;
}

#[tokio::test]
async fn scripts_that_are_forgotten_again_and_again_cost_no_lock() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let guards = renewed(&server, &client, keys(400)).await;
    let flushes = async {
        loop {
            server.script_flush().await;
            tokio::time::sleep(ms(20)).await;
        }
    };
    tokio::select! {
        () = flushes => unreachable!("it goes on"),
        () = assert_held_for(&server, &guards, LEASE * 3) => {}
    }
    let errors: String = server.command(&["INFO", "errorstats"]).await;
    assert!(errors.contains("NOSCRIPT"), "{errors}");
}

/// No notification of the loss arrives, so the next renewal finds it.
#[tokio::test]
async fn a_loss_that_is_not_reported_is_found_by_the_renewal() {
    let server = RedisServer::start();
    let client = resp2_client(&server).await;
    let mut guards = renewed(&server, &client, keys(20)).await;
    let lost = guards.swap_remove(5);
    server.del(&name("k:5")).await;
    assert_lost(&lost, LEASE, LostCause::Removed).await;
    assert_held_for(&server, &guards, LEASE * 2).await;
}

#[tokio::test]
async fn a_hold_whose_last_entry_has_no_watchdog_is_no_longer_renewed() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let mut guards = renewed(&server, &client, keys(20)).await;
    let unwatched = guards.swap_remove(3);

    let lock = client.lock("k:3").lease(LEASE).watchdog(false);
    let last = unwatched.scope(lock.acquire()).await.expect("entered");
    unwatched.release().await.expect("held");
    assert_lost(&last, LONG, LostCause::Expired).await;

    assert_held_for(&server, &guards, LEASE).await;
}

#[tokio::test]
async fn no_hold_is_renewed_after_the_server_is_gone_and_all_losses_are_reported() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let guards = renewed(&server, &client, keys(20)).await;
    server.pause();
    for guard in &guards {
        assert_lost(guard, LONG, LostCause::Expired).await;
    }
    server.resume();
}

#[tokio::test]
async fn a_pause_of_the_server_shorter_than_the_lease_costs_no_lock() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let guards = renewed(&server, &client, keys(20)).await;
    for _ in 0..3 {
        server.pause();
        tokio::time::sleep(ms(500)).await;
        server.resume();
        assert_held_for(&server, &guards, LEASE).await;
    }
}
