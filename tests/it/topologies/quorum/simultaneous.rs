//! Simultaneous requests for different locks.

use futures_util::future::{join_all, try_join_all};
use rlock_core::{LockClient, LockGuard, LostCause};
use rlock_testkit::{
    Proxy, RedisServer, Request, assert_taken, eventually,
    simultaneous::{self, acquire_all, release_all},
    within,
};

use super::five::{SOON, Servers, give_to_another};
use crate::common::{
    LASTING, LONG, assert_nothing_left, count, dropped_when_woken_after, ms, name, rounds, timed,
};

pub(crate) fn keys() -> Vec<String> {
    (0..32).map(|n| format!("k{n}")).collect()
}

/// Acquires and releases each key once. It then has a fence at each server.
async fn acquire_each_once(client: &LockClient, keys: &[String]) {
    release_all(acquire_all(client, keys).await).await;
}

async fn assert_nothing_left_anywhere(servers: &Servers) {
    for server in &servers.0 {
        assert_nothing_left(server).await;
    }
}

/// Returns three servers, their proxies, and a client that connects through the proxies.
pub(crate) async fn behind_proxies() -> (Servers, [Proxy; 3], LockClient) {
    let three = Servers::some(3);
    let proxies = [0, 1, 2].map(|n| Proxy::in_front_of(&three.0[n]));
    let urls = proxies.iter().map(Proxy::url);
    let client = LockClient::quorum(urls).await.expect("all servers are up");
    (three, proxies, client)
}

fn is_script(request: &Request) -> bool {
    request.is("EVALSHA")
}

#[tokio::test]
async fn those_that_are_taken_do_not_keep_the_others_from_theirs() {
    let three = Servers::some(3);
    let (one, other) = (three.client().await, three.client().await);
    let keys = keys();
    acquire_each_once(&one, &keys).await;
    let taken = acquire_all(&other, &keys[10..20]).await;
    let tries = keys.iter().map(|key| {
        let lock = one.lock(key).lease(LASTING);
        async move { lock.try_acquire().await.expect("a reply") }
    });
    let mine = join_all(tries).await;
    for (n, guard) in mine.iter().enumerate() {
        assert_eq!(guard.is_some(), !(10..20).contains(&n), "{}", keys[n]);
    }
    for server in &three.0 {
        for guard in mine.iter().flatten().chain(&taken) {
            assert_eq!(server.hgetall(&name(guard.key())).await.len(), 1);
            assert_eq!(count(server, guard).await, Some(1));
        }
    }
    // The releases notify the waiters.
    let waiting: Vec<_> = keys[10..20]
        .iter()
        .map(|key| {
            let lock = one.lock(key).wait(LONG);
            tokio::spawn(async move { lock.acquire().await })
        })
        .collect();
    tokio::time::sleep(ms(200)).await;
    release_all(taken).await;
    for guard in join_all(waiting).await {
        let guard = guard.expect("no panic").expect("its turn");
        guard.release().await.expect("held");
    }
    release_all(mine.into_iter().flatten()).await;
    assert_nothing_left_anywhere(&three).await;
}

#[tokio::test]
async fn releases_of_locks_that_others_wait_for_are_no_losses() {
    let five = Servers::five();
    let mut tasks = Vec::new();
    for _ in 0..2 {
        let client = five.client().await;
        for key in ["a", "b", "c", "d", "e", "f"] {
            let lock = client.lock(key).wait(LONG * 3);
            tasks.push(tokio::spawn(async move {
                for _ in 0..30 {
                    lock.run(tokio::task::yield_now()).await.expect("its turn");
                }
            }));
        }
    }
    try_join_all(tasks).await.expect("no losses");
    assert_nothing_left_anywhere(&five).await;
}

/// The slow server refuses the requests after their calls were decided.
#[tokio::test]
async fn a_slow_server_keeps_its_connection_when_it_refuses_locks() {
    let three = Servers::some(3);
    let slow = Proxy::in_front_of(&three.0[2]);
    let urls = [three.0[0].url(), three.0[1].url(), slow.url()];
    let client = LockClient::quorum(urls).await.expect("all servers are up");
    let keys = keys();
    let taken = acquire_all(&three.client().await, &keys).await;
    eventually(LONG, "the slow server has the locks", async || {
        three.0[2].keys("lock:*}").await.len() == keys.len()
    })
    .await;
    slow.delay_replies(ms(400));
    for _ in 0..3 {
        let tries = keys.iter().map(|key| {
            let lock = client.lock(key).lease(LASTING);
            async move { lock.try_acquire().await.expect("a reply") }
        });
        assert!(join_all(tries).await.iter().all(Option::is_none), "taken");
        tokio::time::sleep(ms(600)).await;
    }
    assert_eq!(slow.requests_of("SUBSCRIBE"), 1, "one connection");
    release_all(taken).await;
    assert_nothing_left_anywhere(&three).await;
}

/// One server has fewer free locks than the others. It refuses, and the majority grants.
#[tokio::test]
async fn a_lock_that_one_server_alone_refuses_is_granted_by_the_others() {
    let three = Servers::some(3);
    let client = three.client().await;
    let keys = keys();
    acquire_each_once(&client, &keys).await;
    give_to_another(&three.0[2..], &keys[7]).await;
    let guards = acquire_all(&client, &keys).await;
    assert_taken(&three.client().await, &keys[7]).await;
    assert_eq!(count(&three.0[2], &guards[7]).await, None);
    release_all(guards).await;
    let () = three.0[2].command(&["DEL", &name(&keys[7])]).await;
    assert_nothing_left_anywhere(&three).await;
}

#[tokio::test]
async fn a_loss_at_a_majority_is_noticed_before_a_renewal() {
    let servers = Servers::some(3);
    let client = servers.client().await;
    acquire_each_once(&client, &keys()).await;
    let guards = acquire_all(&client, &keys()).await;
    for key in keys() {
        give_to_another(&servers.0[..2], &key).await;
    }
    let lost = join_all(guards.iter().map(LockGuard::lost));
    for cause in within(ms(3000), "all losses are noticed", lost).await {
        assert_eq!(cause, LostCause::Removed);
    }
}

/// Raises the fences of all keys on one server.
async fn put_ahead(server: &RedisServer, keys: &[String]) {
    for key in keys {
        let fence = format!("{}:fence", name(key));
        let () = server.command(&["INCRBY", &fence, "1000000"]).await;
    }
}

/// Acquires all locks, and asserts that each token is larger than the last one of its key.
async fn acquire_all_with_larger_tokens(
    client: &LockClient,
    keys: &[String],
    last: &[u64],
) -> Vec<LockGuard> {
    let guards = acquire_all(client, keys).await;
    for (guard, last) in guards.iter().zip(last) {
        assert!(guard.fencing_token() > *last, "tokens grow");
    }
    guards
}

/// A majority does not yet know the fence of a single server. The release carries it to the others.
#[tokio::test]
async fn tokens_grow_although_the_server_that_was_ahead_is_away_after_the_release() {
    let three = Servers::some(3);
    let client = three.client().await;
    let keys = keys();
    acquire_each_once(&client, &keys).await;
    for ahead in [1, 2, 1, 2] {
        put_ahead(&three.0[ahead], &keys).await;
        let guards = acquire_all(&client, &keys).await;
        let last: Vec<u64> = guards.iter().map(LockGuard::fencing_token).collect();
        three.pause([ahead]);
        release_all(guards).await;
        let guards = acquire_all_with_larger_tokens(&client, &keys, &last).await;
        three.resume([ahead]);
        release_all(guards).await;
        assert_nothing_left_anywhere(&three).await;
    }
}

/// The servers that did not grant the lock do not know its fence.
#[tokio::test]
async fn tokens_grow_after_a_forced_release_although_the_server_that_was_ahead_is_away() {
    let three = Servers::some(3);
    let (client, other) = (three.client().await, three.client().await);
    let keys = keys();
    acquire_each_once(&client, &keys).await;
    for ahead in [1, 2] {
        put_ahead(&three.0[ahead], &keys).await;
        let guards = acquire_all(&client, &keys).await;
        for guard in &guards {
            let forced = other.force_release(guard.key()).await;
            assert!(forced.expect("a majority replies"), "it was held");
        }
        let last: Vec<u64> = guards.iter().map(LockGuard::fencing_token).collect();
        drop(guards);
        three.pause([ahead]);
        let guards = acquire_all_with_larger_tokens(&client, &keys, &last).await;
        three.resume([ahead]);
        release_all(guards).await;
        assert_nothing_left_anywhere(&three).await;
    }
}

#[tokio::test]
async fn no_call_waits_for_one_server_that_falls_silent_among_many_requests() {
    for silent in [0, 2] {
        let three = Servers::some(3);
        let client = three.client().await;
        let keys = keys();
        acquire_each_once(&client, &keys).await;
        three.pause([silent]);
        let (guards, took) = timed(acquire_all(&client, &keys)).await;
        assert!(took < SOON, "{took:?} without {silent}");
        let ((), took) = timed(release_all(guards)).await;
        assert!(took < SOON, "{took:?} without {silent}");
        // The server executes the acquires, and then the releases.
        three.resume([silent]);
        assert_nothing_left_anywhere(&three).await;
    }
}

#[tokio::test]
async fn locks_are_released_by_a_server_whose_connection_ended_meanwhile() {
    let three = Servers::some(3);
    let proxy = Proxy::in_front_of(&three.0[2]);
    let urls = [three.0[0].url(), three.0[1].url(), proxy.url()];
    let client = LockClient::quorum(urls).await.expect("all servers are up");
    let keys = keys();
    acquire_each_once(&client, &keys).await;
    eventually(LONG, "it struck three times", async || {
        let guards = acquire_all(&client, &keys).await;
        proxy.drop_requests_if(1, is_script);
        release_all(guards).await;
        assert_nothing_left_anywhere(&three).await;
        proxy.requests_lost() >= 3
    })
    .await;
}

#[tokio::test]
async fn a_lost_reply_to_several_counts_nothing_twice_and_loses_nothing() {
    let (three, proxies, client) = behind_proxies().await;
    let keys = keys();
    acquire_each_once(&client, &keys).await;
    for struck in [0..1, 0..2, 1..3, 0..3] {
        for proxy in &proxies[struck.clone()] {
            proxy.drop_replies_if(1, is_script);
        }
        let guards = acquire_all(&client, &keys).await;
        for guard in &guards {
            assert!(guard.is_valid());
            let counts = join_all(three.0.iter().map(|server| count(server, guard))).await;
            let granted = counts.iter().filter(|count| **count == Some(1)).count();
            assert!(granted >= 2, "{counts:?}");
        }
        for proxy in &proxies[struck] {
            proxy.drop_replies_if(1, is_script);
        }
        release_all(guards).await;
        assert_nothing_left_anywhere(&three).await;
    }
}

#[tokio::test]
async fn a_release_of_several_that_was_done_unheard_is_no_loss_when_others_have_the_locks_since() {
    let (three, proxies, client) = behind_proxies().await;
    let other = three.client().await;
    let keys = keys();
    acquire_each_once(&client, &keys).await;
    for lost in 1..4 {
        let guards = acquire_all(&client, &keys).await;
        for proxy in &proxies {
            proxy.hold_replies();
        }
        let released = tokio::spawn(release_all(guards));
        // The locks are free as soon as the releases ran, and are acquired again before a reply
        // arrives.
        let taken = acquire_all(&other, &keys).await;
        for proxy in &proxies {
            proxy.drop_replies_if(1, is_script);
            proxy.pass();
            proxy.reset();
        }
        released
            .await
            .unwrap_or_else(|error| panic!("loss {lost}: {error}"));
        release_all(taken).await;
        assert_nothing_left_anywhere(&three).await;
    }
}

#[tokio::test]
async fn several_that_are_executed_after_they_were_given_up_leave_nothing() {
    let (three, proxies, client) = behind_proxies().await;
    let keys = keys();
    acquire_each_once(&client, &keys).await;
    for polls in 1..4 {
        proxies.iter().for_each(Proxy::hold_requests);
        simultaneous::cancel_after_polls(&client, &keys, polls).await;
        proxies.iter().for_each(Proxy::pass);
        assert_nothing_left_anywhere(&three).await;
    }
}

#[tokio::test]
async fn requests_that_are_cancelled_at_any_step_leave_nothing() {
    let three = Servers::some(3);
    let client = three.client().await;
    acquire_each_once(&client, &keys()).await;
    for polls in (1..8).cycle().take(60) {
        let keys = keys();
        let asked = keys.iter().map(|key| {
            let lock = client.lock(key).lease(LASTING);
            async move { lock.try_acquire().await.map(drop) }
        });
        dropped_when_woken_after(polls, join_all(asked)).await;
    }
    assert_nothing_left_anywhere(&three).await;
}

/// A cancelled request may just be leaving, and its release comes from another thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_cancelled_on_its_way_out_is_not_overtaken_by_its_release() {
    let three = Servers::some(3);
    let builder = LockClient::builder().response_timeout(LONG);
    let client = builder
        .quorum(three.urls())
        .await
        .expect("all servers are up");
    let keys = keys();
    acquire_each_once(&client, &keys).await;
    simultaneous::cancel_while_sending(&client, &keys, rounds(300)).await;
    assert_nothing_left_anywhere(&three).await;
}

#[tokio::test]
async fn scripts_forgotten_at_any_time_lose_nothing() {
    let three = Servers::some(3);
    let client = three.client().await;
    let keys = keys();
    let flushes = async {
        loop {
            for server in &three.0 {
                server.script_flush().await;
                tokio::time::sleep(ms(1)).await;
            }
        }
    };
    tokio::select! {
        () = flushes => unreachable!("the flushes do not end"),
        () = simultaneous::acquire_and_release_all(&client, &keys, 20) => {}
    }
    assert_nothing_left_anywhere(&three).await;
}
