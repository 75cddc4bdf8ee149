//! What is cancelled, lost or refused while requests for different locks leave together.

mod common;

use std::{
    future::poll_fn,
    pin::pin,
    task::Poll,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use rlock_tests::{RedisServer, eventually};

use common::{LASTING, LONG, client, dropped_when_woken_after, name};

/// A token as the server counts it.
const COUNTED: &str = "1762345678900100";

async fn with_known_tokens(server: &RedisServer, keys: &[String]) {
    for key in keys {
        let fence = format!("{}:fence", name(key));
        let () = server.command(&["SET", &fence, COUNTED]).await;
    }
}

async fn assert_only_fences(server: &RedisServer) {
    eventually(LONG, "nothing is left but fences", async || {
        let keys = server.keys("*").await;
        keys.iter().all(|key| key.ends_with(":fence"))
    })
    .await;
}

fn spin(time: Duration) {
    let started = Instant::now();
    while started.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Polls once, and drops the future a moment later unless it was done.
async fn dropped_after<F: Future>(time: Duration, future: F) {
    let mut future = pin!(future);
    poll_fn(|cx| {
        let _ = future.as_mut().poll(cx);
        spin(time);
        Poll::Ready(())
    })
    .await;
}

/// A request that was cancelled may have left for the connection just so, and what sets it right comes
/// from another thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_cancelled_on_its_way_out_is_not_overtaken_by_its_release() {
    const ROUNDS: u64 = 10_000;
    let server = RedisServer::start();
    let client = client(&server).await;
    let keys: Vec<_> = (0..64).map(|n| format!("k{n}")).collect();
    with_known_tokens(&server, &keys).await;
    for (round, key) in (0..ROUNDS).zip(keys.iter().cycle()) {
        // So that the other one does not leave by itself.
        let busy = {
            let client = client.clone();
            tokio::spawn(async move { client.lock("busy").try_acquire().await.map(drop) })
        };
        tokio::task::yield_now().await;
        let lock = client.lock(key).lease(LASTING);
        dropped_after(Duration::from_micros(round % 97), lock.try_acquire()).await;
        busy.await.expect("no panic").expect("an answer");
    }
    assert_only_fences(&server).await;
}

/// Keys without number, each used once: what stays of each for ever fills the server.
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
    assert_only_fences(&server).await;
    for fence in server.keys("*:fence").await {
        assert!(server.pttl(&fence).await > 0, "{fence} has an end");
    }
}
