//! Tests that simultaneous calls reach the server, and leave nothing behind.

use rlock_core::LockClient;
use rlock_testkit::{RedisServer, eventually, simultaneous};

use crate::LONG;

fn keys() -> Vec<String> {
    (0..16).map(|n| format!("k{n}")).collect()
}

async fn locks(server: &RedisServer) -> usize {
    let keys = server.keys("lock:*").await;
    keys.iter().filter(|key| !key.ends_with(":fence")).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquired_locks_are_on_the_server_and_cancelled_calls_reach_it() {
    let server = RedisServer::start();
    let client = LockClient::connect(&server.url()).await.expect("up");
    let guards = simultaneous::acquire_all(&client, &keys()).await;
    assert_eq!((guards.len(), locks(&server).await), (16, 16));
    simultaneous::release_all(guards).await;
    assert_eq!(locks(&server).await, 0);

    let mut watch = server.watch_commands().await;
    let names: Vec<String> = keys().iter().map(|key| format!("lock:{{{key}}}")).collect();
    eventually(LONG, "a cancelled call reaches the server", async || {
        simultaneous::cancel_while_sending(&client, &keys(), 50).await;
        let mut words = watch.seen().await.iter().flat_map(|command| &command.words);
        words.any(|word| names.contains(word))
    })
    .await;
    eventually(LONG, "all locks are released", async || {
        locks(&server).await == 0
    })
    .await;
}
