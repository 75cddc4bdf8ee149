//! `rlock inspect`.

use std::time::Duration;

use rlock_testkit::{RedisServer, eventually};
use rustix::process::Signal;

use crate::{
    common::{LONG, hold, run, start},
    holders::{client, objects},
};

/// Returns the value of a fact, the only one of this name.
fn fact<'a>(output: &'a [String], name: &str) -> &'a str {
    let mut values = output
        .iter()
        .filter_map(|line| line.strip_prefix(&format!("{name} ")));
    let value = values
        .next()
        .unwrap_or_else(|| panic!("no {name}: {output:?}"));
    assert!(values.next().is_none(), "{name}: {output:?}");
    value.trim_start()
}

#[tokio::test]
async fn a_free_lock_is_1() {
    let server = RedisServer::start();
    let outcome = run(&server.url(), &["inspect", "order:42"]).await;
    assert_eq!((outcome.code, &*outcome.log), (Some(1), ""), "{outcome:?}");
    assert_eq!(outcome.output, ["lock `order:42` is free"]);
    let outcome = run(&server.url(), &["inspect", "order:42", "--json"]).await;
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert_eq!(outcome.output, [r#"{"free":true,"key":"order:42"}"#]);
    assert!(server.keys("*").await.is_empty(), "nothing is taken");
    assert_eq!(run(&server.url(), &["inspect", ""]).await.code, Some(64));
}

#[tokio::test]
async fn a_lock_is_shown_with_its_holder_and_its_queue() {
    let server = RedisServer::start();
    let options = ["-k", "order:42", "--lease", "300ms"];
    let holder = hold(&server, &options).await;
    let waiter = start(
        &server.url(),
        &["run", "-v", "-k", "order:42", "--", "true"],
    );
    waiter.logs("waiting").await;
    let mut output = Vec::new();
    eventually(
        LONG,
        "it was renewed, and the waiter is in the queue",
        async || {
            output = run(&server.url(), &["inspect", "order:42"]).await.output;
            fact(&output, "lease").ends_with(" times")
                && fact(&output, "waiters") == "1 other process"
        },
    )
    .await;
    assert_eq!(fact(&output, "key"), "order:42");
    let who = fact(&output, "holder");
    assert!(
        who.starts_with("rlock/") && who.ends_with(&format!("(pid {})", holder.pid())),
        "{who}"
    );
    assert!(who.contains(env!("CARGO_PKG_VERSION")), "{who}");
    assert!(fact(&output, "held for").ends_with('s'), "{output:?}");
    assert!(fact(&output, "token").parse::<u64>().is_ok(), "{output:?}");
    assert_eq!(fact(&output, "entries"), "1");
    assert!(fact(&output, "queue").starts_with("1. "), "{output:?}");
    let outcome = run(&server.url(), &["inspect", "order:42", "--json"]).await;
    let object = &objects(&outcome)[0];
    assert_eq!(
        (&object["free"], &object["waiters"]),
        (&false.into(), &1.into())
    );
    assert_eq!(
        object["queue"].as_array().map(Vec::len),
        Some(1),
        "{object}"
    );
    assert_eq!(object["owner"].as_str(), Some(fact(&output, "owner")));
    assert_eq!(object["holder"]["pid"], holder.pid());
}

#[tokio::test]
async fn silence_is_a_diagnosis() {
    let server = RedisServer::start();
    let mut holder = hold(&server, &["-k", "order:42", "--lease", "20s"]).await;
    holder.signal(Signal::STOP);
    let silent = async || {
        let outcome = run(&server.url(), &["inspect", "order:42"]).await;
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        let shown = outcome.output.join("\n");
        let is_seen = shown.contains("address   127.0.0.1:") && shown.contains(", still connected");
        (fact(&outcome.output, "holder").to_owned(), is_seen)
    };
    let (stopped, is_seen) = silent().await;
    assert!(is_seen, "a stopped process keeps its connection");
    holder.signal(Signal::CONT);
    holder.kill();
    let (killed, is_seen) = silent().await;
    assert!(!is_seen, "a process that has ended has none");
    for text in [stopped, killed] {
        let why =
            "does not reply: its process has ended, is stuck or cut off; the lock is free in 1";
        assert!(
            text.starts_with(why) && text.ends_with("s unless renewed"),
            "{text}"
        );
    }
    let outcome = run(&server.url(), &["inspect", "order:42", "--json"]).await;
    assert!(objects(&outcome)[0]["holder"].is_null(), "{outcome:?}");
    assert!(objects(&outcome)[0]["address"].is_null(), "{outcome:?}");
}

#[tokio::test]
async fn a_free_lock_is_told_apart_from_one_of_a_silent_holder() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let kept = client.lock("kept").at_least(Duration::from_secs(60));
    kept.run(async {}).await.expect("free");
    let retained = client.lock("retained").retain(Duration::from_secs(60));
    retained.run(async {}).await.expect("free");
    let _: u64 = server
        .command(&["HSET", "lock:{foreign}", "somebody", "1"])
        .await;
    let _: u64 = server.command(&["RPUSH", "lock:{list}", "item"]).await;
    for (key, expected) in [
        (
            "kept",
            "none: at_least keeps the lock taken; the lock is free in 59.",
        ),
        ("retained", "which retains the lock for its next call"),
        (
            "foreign",
            "other software wrote this lock; the lock has no lease",
        ),
    ] {
        let outcome = run(&server.url(), &["inspect", key]).await;
        let holder = fact(&outcome.output, "holder");
        assert!(holder.contains(expected), "{key}: {holder}");
    }
    let outcome = run(&server.url(), &["inspect", "list"]).await;
    let expected = "other software wrote its key, which is not a hash (WRONGTYPE)";
    assert!(outcome.log.contains(expected), "{outcome:?}");
}

#[tokio::test]
async fn a_holder_that_was_asked_and_has_not_stopped_is_shown_as_such() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let guard = client.lock("order:42").acquire().await.expect("free");
    let before = run(&server.url(), &["inspect", "order:42", "--json"]).await;
    assert!(
        objects(&before)[0]["holder"]["revoked_for_ms"].is_null(),
        "{before:?}"
    );
    let asked = ["release", "order:42", "--ask", "--yes"];
    assert_eq!(run(&server.url(), &asked).await.code, Some(0));
    let outcome = run(&server.url(), &["inspect", "order:42"]).await;
    let fact = fact(&outcome.output, "asked");
    assert!(
        fact.starts_with("to stop ") && fact.ends_with(" ago, and has not stopped yet"),
        "{outcome:?}"
    );
    let after = run(&server.url(), &["inspect", "order:42", "--json"]).await;
    assert!(
        objects(&after)[0]["holder"]["revoked_for_ms"].is_u64(),
        "{after:?}"
    );
    drop(guard);
}
