//! What is still on the server when nobody wants anything any more.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{collect::Recorder, record::Record};
use crate::RedisServer;

/// Longer than a lease: what was left to its lease is gone by then.
const LOCKS: Duration = Duration::from_secs(5);
/// Longer than a queue that nobody renews stays.
const QUEUES: Duration = Duration::from_secs(30);
/// Longer than a lease: a hold that is still renewed would show.
const SILENCE: Duration = Duration::from_secs(3);

/// While the clients are there, but want nothing.
pub(super) async fn of_idle_clients(server: &RedisServer, clients: usize, recorder: &Recorder) {
    let leftover = |what: String| recorder.note(Record::Leftover { what });
    let locks = |key: &String| !key.ends_with(":fence") && !key.ends_with(":queue");
    if let Some(keys) = still_there(server, LOCKS, locks).await {
        leftover(format!("locks that nobody wants: {keys:?}"));
    }
    let mut watch = server.watch_commands().await;
    sleep(SILENCE).await;
    let scripts = watch.count_of("EVALSHA").await + watch.count_of("EVAL").await;
    if scripts > 0 {
        leftover(format!("{scripts} scripts are sent by idle clients"));
    }
    let channels = channels(server).await;
    if channels != clients {
        leftover(format!(
            "{clients} idle clients listen to {channels} channels"
        ));
    }
}

/// When the clients are gone.
pub(super) async fn of_nobody(server: &RedisServer, recorder: &Recorder) {
    let leftover = |what: String| recorder.note(Record::Leftover { what });
    let end = Instant::now() + LOCKS;
    while server.client_count().await > 0 && Instant::now() < end {
        sleep(Duration::from_millis(50)).await;
    }
    let (connections, channels) = (server.client_count().await, channels(server).await);
    if connections + channels > 0 {
        leftover(format!(
            "{connections} connections and {channels} subscriptions of clients that are gone"
        ));
    }
    // Fences stay for a day on purpose.
    let all = |key: &String| !key.ends_with(":fence");
    if let Some(keys) = still_there(server, QUEUES, all).await {
        leftover(format!("keys that nobody wants: {keys:?}"));
    }
}

async fn channels(server: &RedisServer) -> usize {
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
) -> Option<Vec<String>> {
    let end = Instant::now() + within;
    loop {
        let mut keys = server.keys("lock:*").await;
        keys.retain(&sort);
        if keys.is_empty() {
            return None;
        }
        if Instant::now() > end {
            return Some(keys);
        }
        sleep(Duration::from_millis(50)).await;
    }
}
