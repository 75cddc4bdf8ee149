//! Members that are paused or gone.

use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use rlock_core::{LockClient, LockError, LostCause};
use rlock_testkit::{Proxy, RedisServer, assert_taken, eventually};

use super::five::{ALL, SOON, Servers, impatient};
use crate::common::{
    LASTING, LONG, acquiring, assert_lost, assert_nothing_left, count, hold, its_turn, ms, timed,
};

const TWO: [[usize; 2]; 3] = [[0, 1], [0, 4], [2, 3]];

fn others(down: [usize; 2]) -> Vec<usize> {
    ALL.into_iter().filter(|n| !down.contains(n)).collect()
}

async fn nobody_notices(stop: impl Fn(&RedisServer), again: impl Fn(&RedisServer)) {
    let without = TWO.map(async |down| {
        let five = Servers::five();
        let (one, other) = (five.client().await, five.client().await);
        let lock = one.lock("k").lease(ms(1500));
        let outer = lock.acquire().await.expect("free");
        five.assert_soon_count(&outer, &ALL, 1).await;
        let waiting = acquiring(other.lock("k").wait(LONG));
        tokio::time::sleep(ms(200)).await;
        for n in down {
            stop(&five.0[n]);
        }
        let (inner, entered) = timed(outer.scope(lock.acquire())).await;
        let inner = inner.expect("enters");
        five.assert_soon_count(&outer, &others(down), 2).await;
        // Longer than a lease, so the hold was renewed.
        tokio::time::sleep(ms(2500)).await;
        assert!(outer.is_valid());
        let (left, gave_back_inner) = timed(inner.release()).await;
        left.expect("held");
        let (left, gave_back) = timed(outer.release()).await;
        left.expect("held");
        let (guard, waited) = timed(its_turn(waiting)).await;
        let steps = [
            ("entering", entered),
            ("leaving", gave_back_inner),
            ("giving back", gave_back),
            ("the waiter's turn", waited),
        ];
        for (step, took) in steps {
            assert!(took < SOON, "{step} took {took:?} without {down:?}");
        }
        let (left, took) = timed(guard.release()).await;
        left.expect("held");
        assert!(took < SOON, "{took:?}");
        for key in ["a", "b", "c"] {
            let (outcome, took) = timed(other.lock(key).run(async {})).await;
            outcome.expect("free");
            assert!(took < SOON, "{took:?}");
        }
        for n in down {
            again(&five.0[n]);
        }
        for server in &five.0 {
            assert_nothing_left(server).await;
        }
    });
    join_all(without).await;
}

#[tokio::test]
async fn two_of_five_servers_can_be_paused_without_effect() {
    nobody_notices(RedisServer::pause, RedisServer::resume).await;
}

#[tokio::test]
async fn two_of_five_servers_can_be_killed_without_effect() {
    nobody_notices(RedisServer::kill, RedisServer::restart).await;
}

#[tokio::test]
async fn a_client_is_made_while_two_of_five_servers_are_down_which_join_later() {
    let five = Servers::five();
    five.0[0].kill();
    five.0[3].pause();
    let client = five.client().await;
    hold(&client, "k").await.release().await.expect("held");
    five.0[0].restart();
    five.0[3].resume();
    eventually(LONG, "all grant the lock", async || {
        let guard = hold(&client, "k").await;
        tokio::time::sleep(ms(100)).await;
        let counts = five.0.iter().map(|server| count(server, &guard));
        let counts = join_all(counts).await;
        guard.release().await.expect("held");
        counts.iter().all(Option::is_some)
    })
    .await;
    five.assert_soon_clean("k", &ALL).await;
}

/// A later reply leaves little of a lease.
#[tokio::test]
async fn a_call_that_does_not_wait_gives_silent_servers_an_eighth_of_the_lease() {
    const LEASE: Duration = Duration::from_secs(4);
    let five = Servers::five();
    let client = LockClient::builder().response_timeout(LONG);
    let client = client
        .quorum(five.urls())
        .await
        .expect("all servers are up");
    let lock = |key| client.lock(key).lease(LEASE);
    let held = lock("held").acquire().await.expect("free");
    five.assert_soon_count(&held, &ALL, 1).await;
    five.pause([1, 2, 4]);
    let (lock, nested) = (lock("k"), lock("held"));
    let asked = [
        timed(lock.try_acquire()).await,
        timed(held.scope(nested.try_acquire())).await,
    ];
    for (outcome, took) in asked {
        let error = outcome.expect_err("too few");
        assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
        assert!(took < LEASE / 8 + SOON, "{took:?}");
    }
    five.resume([1, 2, 4]);
    held.release().await.expect("held");
    for server in &five.0 {
        assert_nothing_left(server).await;
    }
}

#[tokio::test]
async fn without_a_majority_the_error_says_why_servers_are_missing() {
    let five = Servers::five();
    let client = five.impatient().await;
    for n in [1, 2, 4] {
        five.0[n].kill();
    }
    eventually(LONG, "all three refuse connections", async || {
        let outcome = client.lock("k").wait(ms(300)).acquire().await;
        let text = outcome.expect_err("too few").to_string();
        text.matches("refused").count() == 3
    })
    .await;
}

#[tokio::test]
async fn without_a_majority_the_error_names_every_server_that_is_missing_and_all_recovers() {
    let five = Servers::five();
    let client = five.impatient().await;
    five.0[1].kill();
    five.0[2].pause();
    five.0[4].kill();
    for wait in [ms(0), ms(700)] {
        let (error, took) = timed(client.lock("k").wait(wait).acquire()).await;
        let error = error.expect_err("too few");
        assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
        let text = error.to_string();
        assert!(
            text.contains("2 of 5 servers replied, 3 are needed"),
            "{text}"
        );
        for n in ALL {
            let named = text.contains(&five.0[n].address());
            assert_eq!(named, [1, 2, 4].contains(&n), "{text}");
        }
        assert!(took < LONG / 2, "{took:?}");
    }
    let waiting = acquiring(client.lock("k").wait(LONG));
    tokio::time::sleep(ms(300)).await;
    five.0[1].restart();
    // Three members are enough.
    let guard = its_turn(waiting).await;
    guard.release().await.expect("held");
    five.0[2].resume();
    five.0[4].restart();
    five.assert_soon_clean("k", &ALL).await;
}

#[tokio::test]
async fn no_client_is_made_without_a_majority() {
    let five = Servers::five();
    for server in &five.0[..3] {
        server.kill();
    }
    let error = impatient().quorum(five.urls()).await.expect_err("too few");
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains("3 are needed") && text.contains(&five.0[0].address()),
        "{text}"
    );
}

#[tokio::test]
async fn a_hold_whose_majority_is_gone_ends_within_its_validity() {
    let five = Servers::five();
    let client = five.client().await;
    let guard = client.lock("k").lease(ms(1500)).acquire().await;
    let guard = guard.expect("free");
    five.pause(2..5);
    let valid = guard.valid_for();
    let ((), took) = timed(assert_lost(&guard, LONG, LostCause::Expired)).await;
    assert!(took <= valid + SOON, "{took:?} of {valid:?}");
}

#[tokio::test]
async fn a_release_reaches_servers_that_were_paused_during_the_acquire() {
    let five = Servers::five();
    let client = five.client().await;
    five.pause([1, 4]);
    let guard = hold(&client, "k").await;
    guard.release().await.expect("held");
    five.resume([1, 4]);
    five.assert_soon_clean("k", &ALL).await;
}

/// Requests without a reply count the same, whether they ran or not.
#[tokio::test]
async fn replies_of_a_minority_that_get_lost_are_not_missed() {
    let five = Servers::five();
    let proxies: Vec<Proxy> = five.0.iter().map(Proxy::in_front_of).collect();
    let urls = || proxies.iter().map(Proxy::url);
    let client = impatient()
        .quorum(urls())
        .await
        .expect("all servers are up");
    for round in 0..10 {
        let lossy = [&proxies[round % 5], &proxies[(round + 1) % 5]];
        for proxy in lossy {
            proxy.drop_replies_to("EVALSHA", 1);
        }
        let (guard, took) = timed(client.lock("k").lease(LASTING).acquire()).await;
        let guard = guard.expect("free");
        assert!(took < SOON, "{took:?}");
        for proxy in lossy {
            proxy.drop_replies_to("EVALSHA", 1);
        }
        guard.release().await.expect("held");
        for proxy in lossy {
            proxy.pass();
        }
        five.assert_soon_clean("k", &ALL).await;
    }
}

#[tokio::test]
async fn a_refused_call_that_does_not_wait_leaves_nothing_at_a_paused_server() {
    let three = Servers::some(3);
    let (one, other) = (three.client().await, three.client().await);
    let paused = &three.0[2];
    paused.pause();
    let guard = one.lock("k").acquire().await.expect("two are enough");
    assert_taken(&other, "k").await;
    guard.release().await.expect("held");
    paused.resume();
    three.assert_soon_clean("k", &[0, 1, 2]).await;
}

/// The releases that the dead server misses do not delay releases at the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_releases_while_a_server_is_dead_leave_nothing_at_the_others() {
    let five = Servers::five();
    five.0[4].kill();
    let client = five.client().await;
    // More releases than the client follows or queues for a member that does not reply.
    let tasks = (0..48).map(|n| {
        let lock = client.lock(format!("k{n}")).lease(LASTING);
        tokio::spawn(async move {
            for _ in 0..200 {
                lock.run(tokio::task::yield_now()).await.expect("free");
            }
        })
    });
    try_join_all(tasks).await.expect("no panic");
    for server in &five.0[..4] {
        assert_nothing_left(server).await;
    }
}
