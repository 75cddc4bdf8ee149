//! Retention: an ownership outlives its hold for the next caller of the same client.

use std::time::Duration;

use rlock_core::{DrainOutcome, LockClient, LockError, Token, current, distributed_lock};
use rlock_testkit::{RedisServer, eventually, within};

use crate::{
    common::{LONG, builder, connect, connect_with, name},
    leases::clock::HOUR,
};

async fn keep(client: &LockClient, key: &str) -> Token {
    let lock = client.lock(key).lease(HOUR).retain(HOUR);
    let guard = lock.wait(LONG).acquire().await.expect("free");
    let token = guard.token();
    guard.release().await.expect("held");
    token
}

async fn is_retained(client: &LockClient, key: &str) -> bool {
    let info = client.inspect(key).await.expect("a reply");
    info.is_some_and(|info| info.retained)
}

#[tokio::test]
async fn the_next_call_within_retain_sends_no_request() {
    let server = RedisServer::start();
    let client = connect_with(LONG, &server.url()).await;
    let first = keep(&client, "k").await;
    let info = client.inspect("k").await.expect("a reply").expect("kept");
    assert!(info.retained);
    assert_eq!((info.token(), info.depth), (Some(first), 1));
    let mut watch = server.watch_commands().await;
    let mut last = first;
    for _ in 0..10 {
        let token = keep(&client, "k").await;
        assert!(token > last, "{token} after {last}");
        last = token;
    }
    assert_eq!(watch.count_of("EVALSHA").await, 0);
    client.shutdown().await.expect("released");
    assert!(!server.exists(&name("k")).await);
}

#[tokio::test]
async fn a_drained_a_shut_down_and_a_dropped_client_give_retained_locks_back() {
    let store = "memory:retained";
    let observer = connect(store).await;
    for how in ["drain", "shutdown", "drop"] {
        let client = connect(store).await;
        keep(&client, "k").await;
        assert!(observer.inspect("k").await.expect("a reply").is_some());
        match how {
            "drain" => {
                let drained = within(LONG, "drained", client.drain(HOUR)).await;
                assert_eq!(drained.expect("released"), DrainOutcome::Completed);
            }
            "shutdown" => client.shutdown().await.expect("released"),
            _ => drop(client),
        }
        // The leases are longer, so only the client can have released the lock.
        eventually(LONG, "it is released", async || {
            observer.inspect("k").await.expect("a reply").is_none()
        })
        .await;
    }
}

#[tokio::test]
async fn the_attribute_and_the_builder_retain_too() {
    #[distributed_lock(key = "tenant:<tenant>", retain = "60s", client = client)]
    async fn job(client: &LockClient, tenant: u64) -> Result<Token, LockError> {
        Ok(current().expect("inside").token())
    }
    #[distributed_lock(key = "job", if_taken = Ok(()), client = client)]
    async fn unretained_job(client: &LockClient) -> Result<(), LockError> {
        Ok(())
    }
    let client = builder().default_retain(HOUR).in_memory().expect("made");
    let first = job(&client, 7).await.expect("free");
    assert!(is_retained(&client, "tenant:7").await);
    assert!(job(&client, 7).await.expect("kept") > first);
    client.lock("k").run(async {}).await.expect("free");
    assert!(is_retained(&client, "k").await);
    let lock = client.lock("other").retain(Duration::ZERO);
    lock.run(async {}).await.expect("free");
    unretained_job(&client).await.expect("free");
    for key in ["other", "job"] {
        assert!(client.inspect(key).await.expect("a reply").is_none());
    }
}
