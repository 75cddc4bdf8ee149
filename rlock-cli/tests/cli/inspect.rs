//! `rlock inspect` shows one lock with its holder and its queue.

use rlock_testkit::{RedisServer, eventually};
use serde_json::Value;

use crate::{
    common::{LONG, Running, hold, run, run_until, start, until_queued},
    holders::{client, objects},
    terminal::{CTRL_C, Shell},
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
async fn a_free_lock_exits_with_1() {
    let server = RedisServer::start();
    let outcome = run(&server, &["inspect", "order:42"]).await;
    assert_eq!((outcome.code, &*outcome.log), (Some(1), ""), "{outcome:?}");
    assert_eq!(outcome.output, ["lock `order:42` is free"]);
    let outcome = run(&server, &["inspect", "order:42", "--json"])
        .await
        .exits(1);
    assert_eq!(outcome.output, [r#"{"free":true,"key":"order:42"}"#]);
    assert!(server.keys("*").await.is_empty(), "nothing is taken");
    run(&server, &["inspect", ""]).await.exits(64);
}

#[tokio::test]
async fn a_lock_is_shown_with_its_holder_and_its_queue() {
    let server = RedisServer::start();
    let holder = hold(&server, &["-k", "order:42"]).await;
    let waiter = start(&server, &["run", "-k", "order:42", "--", "true"]);
    until_queued(&server, "order:42").await;
    let pid = format!("(pid {})", holder.pid());
    // Both have replied in time.
    let mut output = Vec::new();
    eventually(LONG, "the holder and the waiter are named", async || {
        output = run(&server, &["inspect", "order:42"]).await.output;
        let shown = output.join("\n");
        shown.contains(&pid) && shown.contains(&format!("(pid {}), owner ", waiter.pid()))
    })
    .await;
    assert_eq!(fact(&output, "key"), "order:42");
    let who = fact(&output, "holder");
    assert!(who.starts_with("rlock/") && who.ends_with(&pid), "{who}");
    assert!(who.contains(env!("CARGO_PKG_VERSION")), "{who}");
    assert!(fact(&output, "held for").ends_with('s'), "{output:?}");
    assert!(fact(&output, "lease").contains("s left, "), "{output:?}");
    assert!(fact(&output, "token").parse::<u64>().is_ok(), "{output:?}");
    assert_eq!(fact(&output, "depth"), "1");
    assert_eq!(fact(&output, "waiters"), "1 other process");
    let queue = fact(&output, "queue");
    assert!(queue.starts_with("1. rlock/"), "{queue}");
    let pid = format!("\"pid\":{}", waiter.pid());
    let outcome = run_until(&server, &["inspect", "order:42", "--json"], &pid).await;
    let object = &objects(&outcome)[0];
    assert_eq!(
        (&object["free"], &object["waiter_count"]),
        (&false.into(), &1.into())
    );
    let queued = &object["waiters"][0];
    assert_eq!(queued["pid"], waiter.pid(), "{object}");
    assert_eq!(queued["owner"], object["queued_owners"][0], "{object}");
    assert!(
        queue.ends_with(queued["owner"].as_str().expect("text")),
        "{queue}"
    );
    assert_eq!(object["owner"].as_str(), Some(fact(&output, "owner")));
}

#[tokio::test]
async fn silence_is_a_diagnosis() {
    let server = RedisServer::start();
    let mut holder = hold(&server, &["-k", "order:42", "--lease", "10h"]).await;
    holder.stop();
    let silent = async || {
        let outcome = run(&server, &["inspect", "order:42"]).await.exits(0);
        let shown = outcome.output.join("\n");
        let is_seen = shown.contains("address   127.0.0.1:") && shown.contains(", still connected");
        (fact(&outcome.output, "holder").to_owned(), is_seen)
    };
    let (stopped, is_seen) = silent().await;
    assert!(is_seen, "a stopped process keeps its connection");
    holder.kill();
    let mut killed = String::new();
    eventually(LONG, "a process that has ended has none", async || {
        let (holder, is_seen) = silent().await;
        killed = holder;
        !is_seen
    })
    .await;
    for text in [stopped, killed] {
        let why =
            "does not reply: its process has ended, is stuck or cut off; the lock is free in 9h5";
        assert!(
            text.starts_with(why) && text.ends_with("m unless renewed"),
            "{text}"
        );
    }
    let outcome = run(&server, &["inspect", "order:42", "--json"]).await;
    assert!(objects(&outcome)[0]["holder"].is_null(), "{outcome:?}");
    assert!(objects(&outcome)[0]["address"].is_null(), "{outcome:?}");
}

#[tokio::test]
async fn a_free_lock_is_told_apart_from_one_of_a_silent_holder() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let kept = client.lock("kept").min_hold(LONG * 600);
    kept.run(async {}).await.expect("free");
    let retained = client.lock("retained").retain(LONG * 600);
    retained.run(async {}).await.expect("free");
    let _: u64 = server
        .command(&["HSET", "lock:{foreign}", "other", "1"])
        .await;
    let _: u64 = server.command(&["RPUSH", "lock:{list}", "item"]).await;
    for (key, expected) in [
        (
            "kept",
            "none: min_hold keeps the lock taken; the lock is free in 9h5",
        ),
        ("retained", "which retains the lock for its next call"),
        (
            "foreign",
            "other software wrote this lock; the lock has no lease",
        ),
    ] {
        let outcome = run_until(&server, &["inspect", key], expected).await;
        let holder = fact(&outcome.output, "holder");
        assert!(holder.contains(expected), "{key}: {holder}");
    }
    let outcome = run(&server, &["inspect", "list"]).await;
    let expected = "other software wrote its key, which is not a hash (WRONGTYPE)";
    assert!(outcome.log.contains(expected), "{outcome:?}");
}

#[tokio::test]
async fn a_holder_that_was_asked_and_has_not_stopped_is_shown_as_such() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let guard = client.lock("order:42").acquire().await.expect("free");
    let json = ["inspect", "order:42", "--json"];
    run_until(&server, &json, "\"revoked_for_ms\":null").await;
    let asked = ["release", "order:42", "--revoke", "--yes"];
    run_until(&server, &asked, "its holder stops its body").await;
    let why = "has not stopped yet";
    let outcome = run_until(&server, &["inspect", "order:42"], why).await;
    let fact = fact(&outcome.output, "revoked");
    assert!(
        fact.ends_with(" ago, and its body has not stopped yet"),
        "{outcome:?}"
    );
    drop(guard);
}

/// Reads changes until one ends with this text. Each differs from the one before.
async fn until_shown(watching: &mut Running, last: &mut String, text: &str) {
    while !last.ends_with(text) {
        let line = watching.line().await;
        let (_time, change) = line.split_once(' ').expect("a time comes first");
        assert_ne!(change, last, "one line for each change");
        change.clone_into(last);
    }
}

#[tokio::test]
async fn a_lock_is_watched_with_one_line_for_each_change() {
    let server = RedisServer::start();
    let short = ["--interval", "100ms", "--response-timeout", "2s"];
    let watch = [&["inspect", "order:42", "--watch"], &short[..]].concat();
    let (mut text, mut last) = (start(&server, &watch), String::new());
    let mut json = start(&server, &[&watch[..], &["--json"]].concat());
    let client = client(&server).await;
    let lock = client.lock("order:42").wait(LONG);
    for _ in 0..2 {
        until_shown(&mut text, &mut last, "lock `order:42` is free").await;
        let guard = lock.acquire().await.expect("free");
        let token = guard.token();
        let held = format!(", token {token}, 0 waiting");
        until_shown(&mut text, &mut last, &held).await;
        let is_it = |object: &Value| object["token"] == token.as_u64();
        let object = loop {
            let object: Value = json.line().await.parse().expect("an object");
            assert!(object["time"].is_string(), "{object}");
            if is_it(&object) {
                break object;
            }
        };
        assert_eq!(
            (&object["free"], &object["depth"]),
            (&false.into(), &1.into())
        );
        guard.release().await.expect("held");
    }
    until_shown(&mut text, &mut last, " is free").await;

    // An outage is logged, and the changes go on.
    server.kill();
    text.logs("could not inspect lock `order:42`").await;
    server.restart();
    let guard = lock.acquire().await.expect("free");
    let held = format!(", token {}, 0 waiting", guard.token());
    until_shown(&mut text, &mut last, &held).await;
    guard.release().await.expect("held");

    let mut shell = Shell::start(&server);
    shell.type_line("rlock inspect order:42 --watch -i 100ms");
    for _ in 0..2 {
        shell
            .shows("\u{1b}[H\u{1b}[2Jlock `order:42` is free")
            .await;
    }
    shell.press(CTRL_C);
    shell.is_back_after(130).await;
}
