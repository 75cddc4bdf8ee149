//! One holder at a time, whatever the members' votes.

use std::sync::atomic::{AtomicU32, Ordering};

use rlock_core::{LockClient, LockError};
use rlock_testkit::{Exclusion, Proxy, Request, assert_taken, eventually, within};

use super::five::{ALL, Servers, give_to_another};
use crate::common::{LASTING, LONG, acquiring, count, hold, ms, name, timed};

#[tokio::test]
async fn every_server_counts_every_entry_and_keeps_nothing_but_tokens() {
    let five = Servers::five();
    let (client, other) = (five.client().await, five.client().await);
    let lock = client.lock("k").lease(LASTING);
    let outer = lock.acquire().await.expect("free");
    assert_taken(&other, "k").await;
    five.assert_soon_count(&outer, &ALL, 1).await;
    let inner = outer.scope(lock.acquire()).await.expect("enters");
    five.assert_soon_count(&outer, &ALL, 2).await;
    inner.release().await.expect("held");
    five.assert_soon_count(&outer, &ALL, 1).await;
    outer.release().await.expect("held");
    five.assert_soon_clean("k", &ALL).await;
    let free = other.lock("k").try_acquire().await;
    assert!(free.expect("a reply").is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_of_three_clients_hold_one_at_a_time_while_servers_are_paused_in_turns() {
    let five = Servers::five();
    let inside = Exclusion::new();
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let client = five.client().await;
        for _ in 0..4 {
            let lock = client.lock("hot").lease(LASTING).wait(LONG * 3);
            let inside = inside.clone();
            tasks.push(tokio::spawn(async move {
                for _ in 0..15 {
                    let guard = lock.acquire().await.expect("its turn");
                    let entered = inside.enter("somebody");
                    tokio::task::yield_now().await;
                    drop(entered);
                    guard.release().await.expect("held");
                }
            }));
        }
    }
    for round in 0..5 {
        let stopped = [round, (round + 2) % 5];
        five.pause(stopped);
        tokio::time::sleep(ms(150)).await;
        five.resume(stopped);
        tokio::time::sleep(ms(50)).await;
    }
    for task in tasks {
        within(LONG * 3, "everybody has its turns", task)
            .await
            .expect("no panic");
    }
    inside.assert_held();
    assert_eq!(inside.entries(), 3 * 4 * 15);
    five.assert_soon_clean("hot", &ALL).await;
}

/// Four members can split in halves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_split_the_members_give_way_to_one_of_them() {
    let four = Servers::some(4);
    let inside = Exclusion::new();
    for round in 0..20 {
        let mut tasks = Vec::new();
        for _ in 0..4 {
            let client = four.client().await;
            let (key, inside) = (format!("k{round}"), inside.clone());
            tasks.push(tokio::spawn(async move {
                let guard = client.lock(key).lease(LASTING).wait(LONG).acquire().await;
                let guard = guard.expect("its turn");
                let entered = inside.enter("somebody");
                tokio::task::yield_now().await;
                drop(entered);
                guard.release().await.expect("held");
            }));
        }
        for task in tasks {
            within(LONG, "all are served", task)
                .await
                .expect("no panic");
        }
    }
    inside.assert_held();
}

#[tokio::test]
async fn locks_left_on_a_minority_block_no_call() {
    for left_on in [[0, 1], [0, 3], [2, 4]] {
        let five = Servers::five();
        let client = five.client().await;
        for server in left_on {
            let server = &five.0[server];
            let owner = "00000000-0000-0000-0000-000000000000:1";
            let () = server.command(&["HSET", &name("k"), owner, "1"]).await;
            let () = server.command(&["PEXPIRE", &name("k"), "30000"]).await;
        }
        let (guard, took) = timed(client.lock("k").try_acquire()).await;
        let guard = guard.expect("a reply").expect("a majority is free");
        assert!(took < LONG / 4, "{took:?}");
        let held = five.0.iter().map(|server| count(server, &guard));
        let held = futures_util::future::join_all(held).await;
        assert_eq!(held.iter().flatten().count(), 3);
        guard.release().await.expect("held");
    }
}

#[tokio::test]
async fn a_call_refused_by_a_majority_keeps_no_grant_of_the_others() {
    for votes_for_it in 0..3 {
        let three = Servers::some(3);
        let client = three.client().await;
        for server in (0..3).filter(|server| *server != votes_for_it) {
            give_to_another(&three.0[server..=server], "k").await;
        }
        assert_taken(&client, "k").await;
        let member = &three.0[votes_for_it];
        let fence = format!("{}:fence", name("k"));
        eventually(LONG, "it granted", async || member.exists(&fence).await).await;
        eventually(LONG, "the grant is rolled back", async || {
            !member.exists(&name("k")).await
        })
        .await;
    }
}

#[tokio::test]
async fn a_call_that_finds_a_majority_taken_learns_that_another_has_the_lock() {
    let five = Servers::five();
    let client = five.impatient().await;
    let holder = five.client().await;
    let guard = hold(&holder, "k").await;
    let lock = client.lock("k").wait(ms(300));
    let error = lock.acquire().await.expect_err("taken");
    assert!(
        matches!(
            error,
            LockError::Timeout {
                remaining: Some(_),
                ..
            }
        ),
        "{error:?}"
    );
    // The same, if two members do not reply.
    five.pause([0, 1]);
    assert_taken(&client, "k").await;
    let error = lock.acquire().await.expect_err("taken");
    assert!(matches!(error, LockError::Timeout { .. }), "{error:?}");
    // Without three members there is no majority.
    five.0[2].pause();
    let error = client.lock("k").try_acquire().await.expect_err("too few");
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    five.resume(0..3);
    guard.release().await.expect("held");
    five.assert_soon_clean("k", &ALL).await;
}

/// A vote that was rolled back, repeated or late, does not count for a later call.
#[tokio::test]
async fn the_call_after_one_cancelled_during_a_roll_back_uses_another_owner() {
    let three = Servers::some(3);
    for server in &three.0[1..] {
        let () = server.command(&["HSET", &name("k"), "other:1", "1"]).await;
        let _: u64 = server.command(&["PEXPIRE", &name("k"), "30000"]).await;
    }
    let proxy = Proxy::in_front_of(&three.0[0]);
    let urls = [proxy.url(), three.0[1].url(), three.0[2].url()];
    let client = LockClient::quorum(urls).await.expect("all servers are up");
    let asks = || acquiring(client.lock("k").lease(LASTING).wait(LONG));
    let is_of_lock = |request: &Request| request.is("EVALSHA") && request.mentions(&name("k"));
    // The first server votes for the call, and then receives the roll-back.
    let seen = AtomicU32::new(0);
    proxy.drop_replies_if(u64::MAX, move |request| {
        is_of_lock(request) && seen.fetch_add(1, Ordering::Relaxed) > 0
    });
    let first = asks();
    let next = asks();
    eventually(LONG, "the vote is rolled back", async || {
        proxy.replies_lost() > 0
    })
    .await;
    first.abort();
    proxy.pass();
    let owner = |request: &Request| {
        let mut words = request.words.iter();
        let owner = words.find(|word| word.get(36) == Some(&b':'));
        owner.cloned()
    };
    eventually(LONG, "the next call sends a request", async || {
        let requests = proxy.requests();
        let asked = requests
            .iter()
            .filter(|request| is_of_lock(request) && request.mentions("30000"));
        let owners: Vec<_> = asked.map(owner).collect();
        assert!(owners.len() < 2 || owners[0] != owners[1], "the same owner");
        owners.len() > 1
    })
    .await;
    next.abort();
}
