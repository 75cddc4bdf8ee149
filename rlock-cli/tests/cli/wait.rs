//! `rlock wait` ends when no call holds the lock, and takes nothing.

use rlock_testkit::RedisServer;
use serde_json::Value;

use crate::{
    common::{LONG, hold, run, start},
    holders::client,
};

#[tokio::test]
async fn a_free_lock_is_not_waited_for_and_nothing_is_taken() {
    let server = RedisServer::start();
    let outcome = run(&server, &["wait", "a"]).await.exits(0);
    assert_eq!((outcome.output.len(), &*outcome.log), (0, ""));
    assert!(server.keys("lock:*").await.is_empty(), "nothing is taken");
}

#[tokio::test]
async fn wait_returns_when_the_lock_is_free() {
    let server = RedisServer::start();
    let holder = hold(&server, &["-k", "a"]).await;
    let waiting = start(&server, &["wait", "a", "--json"]);
    let brief = run(&server, &["wait", "a", "--wait", "300ms"])
        .await
        .exits(75);
    assert!(brief.log.contains("`a` is still taken"), "{brief:?}");
    holder.end().await.exits(0);
    let outcome = waiting.end().await.exits(0);
    let object: Value = serde_json::from_str(&outcome.output[0]).expect("an object");
    assert_eq!(
        (&object["key"], &object["free"]),
        (&"a".into(), &true.into())
    );
    assert!(object["waited_ms"].is_u64(), "{object}");
    assert!(!server.exists("lock:{a}").await, "nothing is taken");
}

#[tokio::test]
async fn a_retained_lock_is_not_waited_for() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = client.lock("a").retain(LONG * 60);
    lock.run(async {}).await.expect("free");
    run(&server, &["wait", "a", "--wait", "60s"]).await.exits(0);
    assert!(server.exists("lock:{a}").await, "it is retained");
}

#[tokio::test]
async fn a_server_that_dies_ends_the_wait() {
    let server = RedisServer::start();
    let _holder = hold(&server, &["-k", "a"]).await;
    let waiting = start(&server, &["wait", "a", "--json"]);
    server.kill();
    let outcome = waiting.end().await.exits(69);
    assert_eq!(outcome.objects()[0]["level"], "error");
}
