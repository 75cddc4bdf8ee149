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
    let outcome = run(&server.url(), &["wait", "a"]).await;
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!((outcome.output.len(), &*outcome.log), (0, ""));
    assert!(server.keys("lock:*").await.is_empty(), "nothing is taken");
}

#[tokio::test]
async fn wait_returns_when_the_lock_is_free() {
    let server = RedisServer::start();
    let holder = hold(&server, &["-k", "a"]).await;
    let waiting = start(&server.url(), &["wait", "a", "--json"]);
    let brief = run(&server.url(), &["wait", "a", "--wait", "300ms"]).await;
    assert_eq!(brief.code, Some(75), "{brief:?}");
    assert!(brief.log.contains("`a` is still taken"), "{brief:?}");
    assert_eq!(holder.end().await.code, Some(0));
    let outcome = waiting.end().await;
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
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
    let outcome = run(&server.url(), &["wait", "a", "--wait", "60s"]).await;
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(server.exists("lock:{a}").await, "it is retained");
}

#[tokio::test]
async fn a_server_that_dies_ends_the_wait() {
    let server = RedisServer::start();
    let _holder = hold(&server, &["-k", "a"]).await;
    let waiting = start(&server.url(), &["wait", "a", "--json"]);
    server.kill();
    let outcome = waiting.end().await;
    assert_eq!(outcome.code, Some(69), "{outcome:?}");
    assert_eq!(outcome.objects()[0]["level"], "error");
}
