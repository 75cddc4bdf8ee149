//! Calls for many locks reach the server, and leave nothing behind.

use std::time::Duration;

use rlock_core::LockClient;
use rlock_testkit::{RedisServer, eventually, simultaneous};

const SOON: Duration = Duration::from_secs(30);

fn keys() -> Vec<String> {
    (0..16).map(|n| format!("k{n}")).collect()
}

async fn locks(server: &RedisServer) -> usize {
    let keys = server.keys("lock:*").await;
    keys.iter().filter(|key| !key.ends_with(":fence")).count()
}

#[tokio::test]
async fn all_keys_are_acquired_and_released() {
    let server = RedisServer::start();
    let client = LockClient::connect(&server.url()).await.expect("up");
    let guards = simultaneous::acquire_all(&client, &keys()).await;
    assert_eq!((guards.len(), locks(&server).await), (16, 16));
    simultaneous::release_all(guards).await;
    assert_eq!(locks(&server).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_calls_reach_the_server_and_are_undone() {
    let server = RedisServer::start();
    let client = LockClient::connect(&server.url()).await.expect("up");
    let mut watch = server.watch_commands().await;
    simultaneous::cancel_while_sending(&client, &keys(), 50).await;
    let sent = watch.seen().await;
    let cancelled = |command: &rlock_testkit::ClientCommand| {
        keys()
            .iter()
            .any(|key| command.words.contains(&format!("lock:{{{key}}}")))
    };
    assert!(sent.iter().any(cancelled), "{sent:?}");
    eventually(SOON, "all locks are released", async || {
        locks(&server).await == 0
    })
    .await;
}
