//! Waits for a lock on a quorum: a release notifies all waiters.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use futures_util::future::{join_all, select_all};
use rlock_core::LockGuard;
use rlock_testkit::{CommandWatch, RedisServer, within};

use super::five::{ALL, SOON, Servers, give_to_another};
use crate::common::{
    Acquiring, LASTING, LONG, acquiring, assert_soon_queued, hold, its_turn, ms, name, timed,
};

/// Asserts that a waiter sends no scripts for a while. Returns the watches.
async fn assert_no_polling(servers: &[RedisServer]) -> Vec<CommandWatch> {
    let mut watches = Vec::new();
    for server in servers {
        watches.push(server.watch_commands().await);
    }
    tokio::time::sleep(ms(1500)).await;
    for watch in &mut watches {
        assert_eq!(watch.count_of("EVALSHA").await, 0, "no waiter polls");
    }
    watches
}

/// Releases the lock until each waiter has had it. Asserts that none of them has it for long after the one before.
async fn assert_soon_served(mut held: LockGuard, mut waiting: Vec<Acquiring>) {
    while !waiting.is_empty() {
        held.release().await.expect("held");
        let next = within(LONG, "the next has its turn", select_all(&mut waiting));
        let ((next, ahead, _), took) = timed(next).await;
        assert!(took < SOON, "{took:?}");
        drop(waiting.remove(ahead));
        held = next.expect("no panic").expect("its turn");
    }
    held.release().await.expect("held");
}

#[tokio::test]
async fn waiters_send_no_scripts_while_the_lock_is_held_and_are_all_served() {
    let five = Servers::five();
    let holder = five.client().await;
    let guard = hold(&holder, "k").await;
    let mut waiting = Vec::new();
    for _ in 0..4 {
        let client = five.client().await;
        waiting.push(acquiring(client.lock("k").lease(LASTING).wait(LONG)));
        tokio::time::sleep(ms(200)).await;
    }
    let mut watches = assert_no_polling(&five.0).await;
    assert_soon_served(guard, waiting).await;
    for watch in &mut watches {
        // Each release makes all waiters ask. Some of them split the servers, roll back and ask again.
        let scripts = watch.count_of("EVALSHA").await;
        assert!(scripts < 200, "{scripts}");
    }
    five.assert_soon_clean("k", &ALL).await;
}

#[tokio::test]
async fn waiters_continue_when_a_server_is_gone_or_paused() {
    for killed in [true, false] {
        let five = Servers::five();
        let holder = five.client().await;
        let guard = hold(&holder, "k").await;
        let mut waiting = Vec::new();
        for _ in 0..3 {
            let client = five.client().await;
            waiting.push(tokio::spawn(async move {
                let guard = client.lock("k").lease(LASTING).wait(LONG).acquire().await;
                let guard = guard.expect("its turn");
                guard.release().await.expect("held");
            }));
        }
        tokio::time::sleep(ms(300)).await;
        if killed {
            five.0[0].kill();
        } else {
            five.0[0].pause();
        }
        guard.release().await.expect("held");
        for waiter in waiting {
            let (served, took) = timed(within(LONG, "it is served", waiter)).await;
            served.expect("no panic");
            assert!(took < SOON * 2, "killed {killed}: {took:?}");
        }
        if !killed {
            five.0[0].resume();
        }
        five.assert_soon_clean("k", if killed { &[1, 2, 3, 4] } else { &ALL })
            .await;
    }
}

#[tokio::test]
async fn waiters_that_went_elsewhere_are_served_when_the_first_server_is_back() {
    let five = Servers::five();
    let (holder, other) = (five.client().await, five.client().await);
    let guard = hold(&holder, "k").await;
    five.0[0].kill();
    let waiting = acquiring(other.lock("k").lease(LASTING).wait(LONG));
    tokio::time::sleep(ms(300)).await;
    five.0[0].restart();
    let late = acquiring(five.client().await.lock("k").lease(LASTING).wait(LONG));
    tokio::time::sleep(ms(700)).await;
    guard.release().await.expect("held");
    let (_, took) = timed(within(LONG, "both are served", async {
        tokio::join!(pass_on(waiting), pass_on(late))
    }))
    .await;
    assert!(took < SOON * 2, "{took:?}");
    five.assert_soon_clean("k", &ALL).await;
}

async fn pass_on(waiting: Acquiring) {
    let guard = its_turn(waiting).await;
    guard.release().await.expect("held");
}

/// The lock is deleted directly on the servers, so no release follows.
#[tokio::test]
async fn a_lock_that_goes_without_a_release_has_its_next_holder_soon() {
    let three = Servers::some(3);
    let (holder, waiter) = (three.client().await, three.client().await);
    for after in [50, 1500] {
        let guard = hold(&holder, "k").await;
        let waiting = acquiring(waiter.lock("k").lease(LASTING).wait(LONG));
        tokio::time::sleep(ms(300 + after)).await;
        assert!(!waiting.is_finished(), "it is held");
        let mut deleted = 0;
        for server in &three.0 {
            deleted += usize::from(server.del(&name("k")).await);
        }
        // A server that the release before reached late does not have it.
        assert!(deleted >= 2, "a majority has it");
        let (next, took) = timed(its_turn(waiting)).await;
        assert!(took < ms(3500), "{took:?}");
        drop(guard);
        next.release().await.expect("held");
    }
}

/// The first server keeps the lock of a client that died.
#[tokio::test]
async fn waiters_are_served_although_a_server_has_the_lock_of_another_owner() {
    let three = Servers::some(3);
    give_to_another(&three.0[..1], "k").await;
    let held = hold(&three.client().await, "k").await;
    let mut waiting = Vec::new();
    for queued in 1..5 {
        let client = three.client().await;
        waiting.push(acquiring(client.lock("k").lease(LASTING).wait(LONG)));
        assert_soon_queued(&three.0[1], "k", queued).await;
    }
    assert_soon_served(held, waiting).await;
    three.assert_soon_clean("k", &[1, 2]).await;
}

/// The first client comes back at once after each release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_clients_that_wait_for_one_key_all_get_it_soon() {
    const CLIENTS: usize = 8;
    let five = Servers::five();
    let is_over = Arc::new(AtomicBool::new(false));
    let hot = five.client().await.lock("k").wait(LONG * 3);
    let comes_back = {
        let is_over = Arc::clone(&is_over);
        tokio::spawn(async move {
            while !is_over.load(Ordering::Acquire) {
                hot.run(tokio::time::sleep(ms(5))).await.expect("its turn");
            }
        })
    };
    let waiting = (0..CLIENTS).map(async |_| {
        let lock = five.client().await.lock("k").wait(LONG);
        for _ in 0..3 {
            let ((), took) = timed(async {
                lock.run(tokio::time::sleep(ms(5))).await.expect("its turn");
            })
            .await;
            assert!(took < ms(8000), "{took:?}");
        }
    });
    join_all(waiting).await;
    is_over.store(true, Ordering::Release);
    within(LONG, "it ends", comes_back).await.expect("no panic");
    five.assert_soon_clean("k", &ALL).await;
}
