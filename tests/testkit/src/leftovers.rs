//! Checks that idle or closed clients leave nothing on a server.

use std::time::Duration;

use redis::{ServerErrorKind, cmd};
use tokio::time::{Instant, sleep};

use crate::{RedisServer, server::client_of};

/// Longer than the leases in use, so that a lock without an owner has expired.
const LOCKS: Duration = Duration::from_secs(5);
/// Longer than a wait queue lives without a renewal.
const QUEUES: Duration = Duration::from_secs(30);
/// Longer than the leases in use, so that a hold that is still renewed shows.
const SILENCE: Duration = Duration::from_secs(3);

/// Returns what is left while this many clients are connected, but idle.
pub async fn of_idle_clients(server: &RedisServer, clients: usize) -> Vec<String> {
    let mut left = of_idleness(server).await;
    let listening = server.listening_clients().await;
    if listening != clients {
        left.push(format!("of {clients} idle clients {listening} listen"));
    }
    left
}

/// Returns what is left while clients are connected, but idle. Subscriptions do not count.
pub async fn of_idleness(server: &RedisServer) -> Vec<String> {
    let mut left = Vec::new();
    let is_lock = |key: &String| !key.ends_with(":queue") && !stays(key);
    let locks = still_present(LOCKS, async || keys(server, is_lock).await).await;
    if !locks.is_empty() {
        left.push(format!("locks of idle clients: {locks:?}"));
    }
    let places = still_present(LOCKS, async || places(server).await).await;
    if !places.is_empty() {
        left.push(format!("queued owners of idle clients: {places:?}"));
    }
    let mut watch = server.watch_commands().await;
    sleep(SILENCE).await;
    let scripts = watch.count_of("EVALSHA").await + watch.count_of("EVAL").await;
    if scripts > 0 {
        left.push(format!("{scripts} scripts are sent by idle clients"));
    }
    left
}

/// Returns whether a key stays on purpose: a fence, or the note of a release.
#[must_use]
pub fn stays(key: &str) -> bool {
    key.ends_with(":fence") || key.ends_with(":released")
}

/// Returns what is left after all clients have closed.
pub async fn without_holder(server: &RedisServer) -> Vec<String> {
    let mut left = Vec::new();
    let end = Instant::now() + LOCKS;
    while server.client_count().await > 0 && Instant::now() < end {
        sleep(Duration::from_millis(50)).await;
    }
    let (connections, channels) = (server.client_count().await, channels(server).await.len());
    if connections + channels > 0 {
        left.push(format!(
            "{connections} connections and {channels} subscriptions of clients that are gone"
        ));
    }
    let is_left = |key: &String| !stays(key);
    let all = still_present(QUEUES, async || keys(server, is_left).await).await;
    if !all.is_empty() {
        left.push(format!("leftover keys: {all:?}"));
    }
    let mut endless = Vec::new();
    let mut connection = server.connection().await;
    for fence in server.keys("*:fence").await {
        let ttl = cmd("PTTL")
            .arg(&fence)
            .query_async::<i64>(&mut connection)
            .await;
        match ttl {
            Ok(-1) => endless.push(fence),
            Ok(_) => {}
            // Keys of a slot that the node no longer serves.
            Err(error) if error.kind() == ServerErrorKind::Moved.into() => {}
            Err(error) => panic!("the server refuses the TTL of {fence}: {error}"),
        }
    }
    if !endless.is_empty() {
        left.push(format!("tokens that never expire: {endless:?}"));
    }
    left
}

/// Lists the channels to which clients subscribe.
pub async fn channels(server: &RedisServer) -> Vec<String> {
    server
        .command(&["PUBSUB", "CHANNELS", "lock:client:*"])
        .await
}

async fn keys(server: &RedisServer, sort: impl Fn(&String) -> bool) -> Vec<String> {
    let mut keys = server.keys("lock:*").await;
    keys.retain(sort);
    keys
}

/// The queued owners of clients that are connected. The queue expires with the owners of dead
/// clients.
async fn places(server: &RedisServer) -> Vec<String> {
    let mut places = Vec::new();
    let clients = server.listening().await;
    for queue in server.keys("lock:*:queue").await {
        let owners: Vec<String> = server.command(&["ZRANGE", &queue, "0", "-1"]).await;
        let there = |owner: &String| {
            let client = owner.split(':').next().and_then(client_of);
            client.is_some_and(|client| clients.contains(&client))
        };
        places.extend(owners.into_iter().filter(there));
    }
    places
}

/// Returns what is still there after this time.
async fn still_present(within: Duration, look: impl AsyncFn() -> Vec<String>) -> Vec<String> {
    let end = Instant::now() + within;
    loop {
        let there = look().await;
        if there.is_empty() || Instant::now() > end {
            return there;
        }
        sleep(Duration::from_millis(50)).await;
    }
}
