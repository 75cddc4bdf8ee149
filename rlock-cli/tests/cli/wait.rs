//! `rlock wait`.

use rlock_testkit::{RedisServer, port};
use rustix::process::Signal;

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
async fn it_returns_when_the_lock_is_free() {
    let server = RedisServer::start();
    let holder = hold(&server, &["-k", "a"]).await;
    let waiting = start(&server.url(), &["wait", "a", "--json"]);
    let brief = run(&server.url(), &["wait", "a", "--wait", "300ms"]).await;
    assert_eq!(brief.code, Some(75), "{brief:?}");
    assert!(brief.log.contains("`a` is still taken"), "{brief:?}");
    assert_eq!(holder.end().await.code, Some(0));
    let outcome = waiting.end().await;
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let object: serde_json::Value = serde_json::from_str(&outcome.output[0]).expect("an object");
    assert_eq!(
        (&object["key"], &object["free"]),
        (&"a".into(), &true.into())
    );
    assert!(
        object["waited_ms"].as_u64().expect("a number") >= 300,
        "{object}"
    );
    assert!(!server.exists("lock:{a}").await, "nothing is taken");
}

#[tokio::test]
async fn a_retained_lock_is_not_waited_for() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = client.lock("a").retain(LONG);
    lock.run(async {}).await.expect("free");
    let outcome = run(&server.url(), &["wait", "a", "--wait", "0s"]).await;
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(server.exists("lock:{a}").await, "it is retained");
}

#[tokio::test]
async fn it_does_not_get_in_the_way_of_the_next_holder() {
    let server = RedisServer::start();
    let holder = hold(&server, &["-k", "a"]).await;
    let _waiting = start(&server.url(), &["wait", "a"]);
    let next = start(
        &server.url(),
        &["run", "-v", "-k", "a", "--", "echo", "ran"],
    );
    next.logs("waiting").await;
    assert_eq!(holder.end().await.code, Some(0));
    assert_eq!(next.end().await.output, ["ran"]);
}

#[tokio::test]
async fn its_failures_have_the_statuses_of_run() {
    let nobody = format!("redis://127.0.0.1:{}/", port::number(&port::listen()));
    assert_eq!(run(&nobody, &["wait", "a"]).await.code, Some(69));
    let server = RedisServer::start();
    assert_eq!(run(&server.url(), &["wait", ""]).await.code, Some(64));
    let holder = hold(&server, &["-k", "a"]).await;
    let waiting = start(&server.url(), &["wait", "a", "--json"]);
    drop(holder);
    server.kill();
    let outcome = waiting.end().await;
    assert_eq!(outcome.code, Some(69), "{outcome:?}");
    assert_eq!(outcome.objects()[0]["level"], "error");
}

#[tokio::test]
async fn a_signal_ends_it() {
    let server = RedisServer::start();
    let _holder = hold(&server, &["-k", "a"]).await;
    let waiting = start(&server.url(), &["wait", "a"]);
    waiting.signal(Signal::TERM);
    assert_eq!(waiting.end().await.code, None, "the signal itself");
}
