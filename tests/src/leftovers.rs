//! What is still on a server when nobody wants anything any more.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::RedisServer;

/// Longer than the leases in use: what was left to its lease is gone by then.
const LOCKS: Duration = Duration::from_secs(5);
/// Longer than a queue that nobody renews stays.
const QUEUES: Duration = Duration::from_secs(30);
/// Longer than the leases in use: a hold that is still renewed shows.
const SILENCE: Duration = Duration::from_secs(3);

/// While so many clients are there, but want nothing.
pub(crate) async fn of_idle_clients(server: &RedisServer, clients: usize) -> Vec<String> {
    let mut left = Vec::new();
    let locks = |key: &String| !key.ends_with(":fence") && !key.ends_with(":queue");
    let keys = still_there(server, LOCKS, locks).await;
    if !keys.is_empty() {
        left.push(format!("locks that nobody wants: {keys:?}"));
    }
    let mut watch = server.watch_commands().await;
    sleep(SILENCE).await;
    let scripts = watch.count_of("EVALSHA").await + watch.count_of("EVAL").await;
    if scripts > 0 {
        left.push(format!("{scripts} scripts are sent by idle clients"));
    }
    let channels = channels(server).await;
    if channels != clients {
        left.push(format!(
            "{clients} idle clients listen to {channels} channels"
        ));
    }
    left
}

/// When the clients are gone.
pub(crate) async fn of_nobody(server: &RedisServer) -> Vec<String> {
    let mut left = Vec::new();
    let end = Instant::now() + LOCKS;
    while server.client_count().await > 0 && Instant::now() < end {
        sleep(Duration::from_millis(50)).await;
    }
    let (connections, channels) = (server.client_count().await, channels(server).await);
    if connections + channels > 0 {
        left.push(format!(
            "{connections} connections and {channels} subscriptions of clients that are gone"
        ));
    }
    // Fences stay for a day on purpose.
    let keys = still_there(server, QUEUES, |key| !key.ends_with(":fence")).await;
    if !keys.is_empty() {
        left.push(format!("keys that nobody wants: {keys:?}"));
    }
    left
}

/// The channels that clients listen to.
pub(crate) async fn channels(server: &RedisServer) -> usize {
    let channels: Vec<String> = server
        .command(&["PUBSUB", "CHANNELS", "lock:client:*"])
        .await;
    channels.len()
}

/// The keys of this sort that do not go by themselves.
async fn still_there(
    server: &RedisServer,
    within: Duration,
    sort: impl Fn(&String) -> bool,
) -> Vec<String> {
    let end = Instant::now() + within;
    loop {
        let mut keys = server.keys("lock:*").await;
        keys.retain(&sort);
        if keys.is_empty() || Instant::now() > end {
            return keys;
        }
        sleep(Duration::from_millis(50)).await;
    }
}
