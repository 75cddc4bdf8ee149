//! Measures the memory that locks take on the server and in a client.

use std::time::Duration;

use anyhow::Result;
use futures_util::future::try_join_all;
use rlock_core::{LockClient, LockGuard};
use rlock_testkit::RedisServer;
use tokio::task::JoinSet;

use super::cost::{memory, version};

/// The number of clients that wait for the same lock.
const WAITERS: u32 = 5;
/// No lease ends or is renewed during the measurement.
const LEASE: Duration = Duration::from_secs(3600);
/// The number of locks that are acquired at once.
const TAKEN_AT_ONCE: u32 = 500;
/// The server frees buffers and shrinks its tables gradually.
const SETTLED: Duration = Duration::from_secs(2);

pub(crate) async fn measure(locks: u32, lines: u32) -> Result<()> {
    let server = RedisServer::start();
    let holder = client(&server).await?;
    let before = memory(&server).await?;
    let guards = take(&holder, locks).await?;
    let held = settled(&server).await? - before;
    let of_lock = usage(&server, "lock:{order:7}").await;
    let of_fence = usage(&server, "lock:{order:7}:fence").await;
    for guard in guards {
        guard.release().await?;
    }
    let left = settled(&server).await? - before;

    println!(
        "redis-server {}: bytes on the server, {locks} locks, keys like `order:12345`",
        version(&server).await?
    );
    println!(
        "{:<40} {:>6.0}  (MEMORY USAGE: lock {of_lock}, fence {of_fence})",
        "a held lock, all included",
        held / f64::from(locks)
    );
    println!(
        "{:<40} {:>6.0}",
        "what it leaves: its fence",
        left / f64::from(locks)
    );

    let guards = take(&holder, lines).await?;
    let mut waiting = JoinSet::new();
    let mut steps = Vec::new();
    for n in 1..=WAITERS {
        let waiter = client(&server).await?;
        let before = settled(&server).await?;
        for lock in 0..lines {
            let lock = waiter
                .lock(format!("order:{lock}"))
                .lease(LEASE)
                .wait_forever();
            waiting.spawn(async move { lock.acquire().await });
        }
        until_queued(&server, lines, n).await?;
        steps.push((settled(&server).await? - before) / f64::from(lines));
    }
    let of_queue = usage(&server, "lock:{order:7}:queue").await;
    println!(
        "{:<40} {:>6.0}  then {:.0} (the mean of {}; MEMORY USAGE of all {WAITERS}: {of_queue})",
        "the first process in line for a lock",
        steps[0],
        steps[1..].iter().sum::<f64>() / f64::from(WAITERS - 1),
        WAITERS - 1
    );
    waiting.shutdown().await;
    drop(guards);
    Ok(())
}

async fn client(server: &RedisServer) -> Result<LockClient> {
    let client = LockClient::connect(&server.url()).await?;
    // The memory of connections and scripts does not count.
    client.lock("warm-up").acquire().await?.release().await?;
    Ok(client)
}

async fn take(client: &LockClient, locks: u32) -> Result<Vec<LockGuard>> {
    let mut guards = Vec::new();
    for from in (0..locks).step_by(TAKEN_AT_ONCE as usize) {
        let taking = (from..locks.min(from + TAKEN_AT_ONCE)).map(|n| async move {
            let lock = client.lock(format!("order:{n}")).lease(LEASE);
            lock.acquire().await
        });
        guards.extend(try_join_all(taking).await?);
    }
    Ok(guards)
}

async fn settled(server: &RedisServer) -> Result<f64> {
    tokio::time::sleep(SETTLED).await;
    memory(server).await
}

async fn usage(server: &RedisServer, key: &str) -> u64 {
    server.command(&["MEMORY", "USAGE", key]).await
}

/// Waits until each queue has this many waiters.
async fn until_queued(server: &RedisServer, lines: u32, waiters: u32) -> Result<()> {
    let mut connection = server.connection().await;
    let mut full = 0;
    while full < lines {
        let mut standing = redis::cmd("ZCARD");
        standing.arg(format!("lock:{{order:{full}}}:queue"));
        if standing.query_async::<u32>(&mut connection).await? >= waiters {
            full += 1;
        } else {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    Ok(())
}
