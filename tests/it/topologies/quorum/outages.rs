//! Members that are paused or gone.

use std::time::Duration;

use rlock_core::StoreUrl;
use rlock_testkit::{Proxy, RedisServer, eventually, within};

use super::{ALL, Servers};
use crate::{
    common::{
        LASTING, LONG, acquiring, assert_passed_on, assert_soon_queued, assert_unavailable,
        connect, hold, its_turn, ms, only_tokens_are_left,
    },
    topologies::{RENEWED, assert_soon_extended},
};

/// Uses locks while two of five servers are down. A call that waited for their replies would hang.
async fn no_caller_notices(stop: impl Fn(&RedisServer), again: impl Fn(&RedisServer)) {
    const DOWN: [usize; 2] = [0, 3];
    const UP: [usize; 3] = [1, 2, 4];
    let five = Servers::five();
    let (one, other) = (five.patient().await, five.patient().await);
    let lock = one.lock("k").lease(RENEWED).wait(LONG);
    let outer = five.granted_by(&ALL, &lock).await;
    let waiting = acquiring(other.lock("k").lease(LASTING).wait(LONG * 2));
    assert_soon_queued(&five.0[UP[0]], "k", 1).await;
    for n in DOWN {
        stop(&five.0[n]);
    }
    let use_locks = async {
        let inner = outer.scope(lock.acquire()).await.expect("enters");
        five.assert_soon_count(&outer, &UP, 2).await;
        assert_soon_extended(&outer).await;
        inner.release().await.expect("held");
        assert_passed_on(outer, waiting).await;
        let free = other.lock("free").lease(LASTING);
        free.run(async {}).await.expect("free");
    };
    within(LONG, "no call waits for a server that is down", use_locks).await;
    for n in DOWN {
        again(&five.0[n]);
    }
    five.assert_nothing_left().await;
}

#[tokio::test]
async fn two_of_five_servers_can_be_paused_without_effect() {
    no_caller_notices(RedisServer::pause, RedisServer::resume).await;
}

#[tokio::test]
async fn two_of_five_servers_can_be_killed_without_effect() {
    no_caller_notices(RedisServer::kill, RedisServer::restart).await;
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
    let lock = client.lock("k").lease(LASTING).wait(LONG);
    let guard = five.granted_by(&ALL, &lock).await;
    guard.release().await.expect("held");
    five.assert_nothing_left().await;
}

/// A later reply leaves little of a lease.
#[tokio::test]
async fn a_call_that_does_not_wait_gives_silent_servers_an_eighth_of_the_lease() {
    let five = Servers::five();
    let client = five.patient().await;
    five.pause([1, 2, 4]);
    let lock = client.lock("k").lease(Duration::from_secs(8));
    let outcome = within(LONG, "it gives up", lock.try_acquire()).await;
    assert_unavailable(outcome, "too few");
    five.resume([1, 2, 4]);
    five.assert_nothing_left().await;
}

#[tokio::test]
async fn without_a_majority_the_error_names_every_server_that_is_missing_and_all_recovers() {
    let five = Servers::five();
    let client = five.client().await;
    five.0[1].kill();
    five.0[2].pause();
    five.0[4].kill();
    // On a busy machine others may be silent, too.
    eventually(LONG, "the error names the missing servers", async || {
        let text = assert_unavailable(client.lock("k").wait(ms(700)).acquire().await, "too few");
        let is_named = |n: usize| text.contains(&five.0[n].address());
        text.contains("2 of 5 servers replied, 3 are needed")
            && ALL.iter().all(|n| is_named(*n) == [1, 2, 4].contains(n))
    })
    .await;
    let waiting = acquiring(client.lock("k").lease(LASTING).wait(LONG));
    five.0[1].restart();
    // Three members are enough.
    its_turn(waiting).await.release().await.expect("held");
    five.0[2].resume();
    five.0[4].restart();
    five.assert_nothing_left().await;
}

/// Two servers miss the release, and only one of them comes back.
#[tokio::test]
async fn locks_are_released_by_a_server_whose_connection_ended_in_between() {
    let five = Servers::five();
    let proxies = [1, 2].map(|n| Proxy::in_front_of(&five.0[n]));
    let mut urls = five.urls();
    for (url, proxy) in urls[1..].iter_mut().zip(&proxies) {
        *url = proxy.url();
    }
    let client = connect(StoreUrl::quorum(urls)).await;
    // The lease does not end during the test.
    let lock = client.lock("k").lease(LONG * 3).wait(LONG);
    let guard = five.granted_by(&ALL, &lock).await;
    proxies[0].refuse();
    for proxy in &proxies {
        proxy.drop_requests_to("EVALSHA", 1);
    }
    guard.release().await.expect("held");
    eventually(LONG, "the server that is back releases it", async || {
        only_tokens_are_left(&five.0[2]).await
    })
    .await;
    assert_eq!(proxies[1].requests_lost(), 1);
}
