//! Cancelled and lost requests among others at the same time.

use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use rlock_core::LockClient;
use rlock_testkit::{
    Proxy, RedisServer,
    simultaneous::{self, acquire_all},
};

use crate::common::{
    LONG, assert_nothing_left, client, connect_with, count, dropped_when_woken_after, ms, name,
    resp2, rounds,
};

/// A token as the server generates it.
const COUNTED: &str = "1762345678900100";

async fn with_known_tokens(server: &RedisServer, keys: &[String]) {
    for key in keys {
        let fence = format!("{}:fence", name(key));
        let () = server.command(&["SET", &fence, COUNTED]).await;
    }
}

/// A cancelled request may just be leaving, and its release comes from another thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_cancelled_on_its_way_out_is_not_overtaken_by_its_release() {
    let server = RedisServer::start();
    let client = connect_with(LONG, &server.url()).await;
    let keys: Vec<_> = (0..64).map(|n| format!("k{n}")).collect();
    with_known_tokens(&server, &keys).await;
    simultaneous::cancel_while_sending(&client, &keys, rounds(1_000)).await;
    assert_nothing_left(&server).await;
}

/// Each key is used once, so fences without an expiry would fill the server.
#[tokio::test]
async fn a_request_that_is_cancelled_leaves_no_token_for_ever() {
    let server = RedisServer::start();
    let client = client(&server).await;
    for round in 0..50 {
        for polls in 1..6 {
            let locks = (0..8).map(|n| client.lock(format!("order:{round}:{polls}:{n}")));
            let asked =
                join_all(locks.map(|lock| async move { lock.try_acquire().await.map(drop) }));
            dropped_when_woken_after(polls, asked).await;
        }
    }
    assert_nothing_left(&server).await;
    for fence in server.keys("*:fence").await {
        assert!(server.pttl(&fence).await > 0, "{fence} has an end");
    }
}

/// Returns a client with either protocol behind a proxy.
async fn behind_a_proxy(
    response_timeout: Duration,
    newer: bool,
) -> (RedisServer, Proxy, LockClient) {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let url = if newer {
        proxy.url()
    } else {
        resp2(&proxy.url())
    };
    let client = connect_with(response_timeout, &url).await;
    (server, proxy, client)
}

fn keys() -> Vec<String> {
    (0..16).map(|n| format!("k{n}")).collect()
}

#[tokio::test]
async fn a_lost_reply_to_several_counts_nothing_twice_and_loses_nothing() {
    for newer in [true, false] {
        let (server, proxy, client) = behind_a_proxy(ms(400), newer).await;
        let keys = keys();
        with_known_tokens(&server, &keys).await;
        for lost in 1..4 {
            proxy.drop_replies_if(1, |request| request.is("EVALSHA"));
            let guards = acquire_all(&client, &keys).await;
            assert_eq!(proxy.replies_lost(), 2 * lost - 1, "the fault has struck");
            for guard in &guards {
                assert!(guard.is_valid());
                assert_eq!(count(&server, guard).await, Some(1));
                let fence: u64 = server
                    .command(&["GET", &format!("{}:fence", name(guard.key()))])
                    .await;
                assert_eq!(
                    guard.fencing_token(),
                    fence * 128,
                    "its own grant is the last"
                );
            }
            proxy.drop_replies_if(1, |request| request.is("EVALSHA"));
            simultaneous::release_all(guards).await;
            assert_eq!(proxy.replies_lost(), 2 * lost, "the fault has struck");
            assert_nothing_left(&server).await;
        }
    }
}

#[tokio::test]
async fn several_that_are_executed_after_they_were_given_up_leave_nothing() {
    for newer in [true, false] {
        let (server, proxy, client) = behind_a_proxy(LONG, newer).await;
        let keys = keys();
        with_known_tokens(&server, &keys).await;
        for polls in 1..4 {
            proxy.hold_requests();
            simultaneous::cancel_after_polls(&client, &keys, polls).await;
            proxy.pass();
            assert_nothing_left(&server).await;
        }
    }
}

#[tokio::test]
async fn scripts_forgotten_at_any_time_lose_nothing_of_several() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let keys = keys();
    let flushes = async {
        loop {
            server.script_flush().await;
            tokio::time::sleep(ms(1)).await;
        }
    };
    tokio::select! {
        () = flushes => unreachable!("the flushes do not end"),
        () = simultaneous::acquire_and_release_all(&client, &keys, 60) => {}
    }
    assert_nothing_left(&server).await;
}

#[tokio::test]
async fn two_at_once_load_a_script_that_the_server_has_lost() {
    let server = RedisServer::start();
    let client = client(&server).await;
    for round in 0..10 {
        let keys = [format!("one-{round}"), format!("other-{round}")];
        server.script_flush().await;
        let guards = acquire_all(&client, &keys).await;
        server.script_flush().await;
        simultaneous::release_all(guards).await;
    }
    assert_nothing_left(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_tasks_with_a_key_each_have_growing_tokens_and_leave_nothing() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let tasks = (0..64).map(|n| {
        let (client, key) = (client.clone(), format!("k{n}"));
        tokio::spawn(async move {
            simultaneous::acquire_and_release_all(&client, &[key], 10).await;
        })
    });
    try_join_all(tasks).await.expect("no panic");
    assert_nothing_left(&server).await;
}
