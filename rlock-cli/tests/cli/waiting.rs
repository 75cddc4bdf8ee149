//! What `rlock run` does while it waits, and which locks it does not wait for.

use std::time::{Duration, Instant};

use rlock_testkit::RedisServer;

use crate::common::{Running, hold, rlock, run, run_until, start};

#[tokio::test]
async fn a_server_that_is_down_at_the_start_is_waited_for() {
    let server = RedisServer::start();
    server.kill();
    let forever = start(&server, &["run", "-k", "a", "--", "echo", "ran"]);
    let limited = ["run", "-w", "1h", "-k", "b", "--", "echo", "ran"];
    let limited = start(&server, &limited);
    for waiting in [&forever, &limited] {
        waiting.logs("cannot be reached yet").await;
    }
    server.restart();
    for waiting in [forever, limited] {
        let outcome = waiting.end().await.exits(0);
        assert_eq!(outcome.output, ["ran"]);
    }
}

#[tokio::test]
async fn the_wait_for_a_server_that_stays_down_ends() {
    let server = RedisServer::start();
    server.kill();
    let began = Instant::now();
    let words = ["run", "-w", "700ms", "-k", "a", "--", "echo", "ran"];
    let outcome = run(&server, &words).await.exits(69);
    assert!(outcome.output.is_empty(), "{outcome:?}");
    assert!(began.elapsed() >= Duration::from_millis(700), "{outcome:?}");
}

#[tokio::test]
async fn a_store_that_refuses_the_client_is_not_waited_for() {
    let server = RedisServer::builder().password("secret").tls().start();
    let address = server.address();
    for (url, expected) in [
        (format!("redis://:wrong@{address}/"), 69),
        (format!("redis-cluster://:secret@{address}"), 69),
        // Its authority is unknown.
        (server.tls_url(), 69),
        (format!("http://{address}/"), 64),
        (format!("redis://{address}/x"), 64),
    ] {
        let outcome = run(&url, &["run", "-k", "a", "--", "echo", "ran"])
            .await
            .exits(expected);
        assert!(outcome.output.is_empty(), "{url}: {outcome:?}");
        assert!(!outcome.log.contains("wrong@"), "no password: {outcome:?}");
    }
}

#[tokio::test]
async fn a_run_that_waits_for_seconds_names_the_holder_once() {
    let server = RedisServer::start();
    let holder = hold(&server, &["-k", "b"]).await;
    let waiting = |options: &[&str]| {
        let words = [&["run", "-k", "a", "-k", "b"], options, &["--", "true"]].concat();
        start(&server, &words)
    };
    let pid = format!("(pid {})", holder.pid());
    // A run remarks on its wait only once, even if the holder is too busy to reply, so another run may be needed.
    let remarking = async |options: &[&str]| loop {
        let running = waiting(options);
        running.logs("waiting for ").await;
        if running.log().contains(&pid) {
            break running;
        }
    };
    let quiet = waiting(&["-q"]);
    let (text, json) = (remarking(&[]).await, remarking(&["--json"]).await);
    holder.end().await.exits(0);
    let text = text.end().await;
    let remark = "waiting for lock `b`; it is held by `rlock/";
    assert_eq!(text.log.matches(remark).count(), 1, "{text:?}");
    assert_eq!(quiet.end().await.log, "");
    assert_eq!(json.end().await.objects()[0]["level"], "warn");
}

#[tokio::test]
async fn a_run_that_does_not_wait_names_the_holder() {
    let server = RedisServer::start();
    let holder = hold(&server, &["-k", "b"]).await;
    let words = ["run", "-n", "-k", "a", "-k", "b", "--", "true"];
    let pid = format!("(pid {})", holder.pid());
    let outcome = run_until(&server, &words, &pid).await.exits(75);
    let named = "rlock: lock `b` is taken; it is held by `rlock/";
    assert!(outcome.log.starts_with(named), "{outcome:?}");
    let kept = ["run", "-k", "c", "--min-hold", "1h", "--", "true"];
    run(&server, &kept).await.exits(0);
    let outcome = run(&server, &["run", "-n", "-k", "c", "--", "true"]).await;
    assert!(
        outcome.log.contains("kept taken by min_hold"),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn an_inner_run_does_not_wait_for_the_lock_of_an_outer_one() {
    const RLOCK: &str = env!("CARGO_BIN_EXE_rlock");
    let server = RedisServer::start();
    let elsewhere = RedisServer::start();
    let other = elsewhere.url();
    let ran = ["--", "echo", "ran"];
    // A run between the two replaces the variables of the outer one.
    let between = [RLOCK, "run", "-k", "between", "--"];
    for (between, inner, expected) in [
        (&[][..], &["-k", "b"][..], 64),
        (&between, &["-k", "free", "-k", "a"], 64),
        (&[], &["-k", "a", "--wait", "1h"], 64),
        (&[], &["-k", "a", "-n", "-E", "9"], 9),
        (&[], &["-k", "a", "--prefix", "jobs:"], 0),
        (&[], &["-k", "a", "--url", &other], 0),
        (&between, &["-k", "c"], 0),
    ] {
        let outer = ["run", "-k", "a", "-k", "b", "--"];
        let words = [&outer[..], between, &[RLOCK, "run"], inner, &ran].concat();
        let outcome = run(&server, &words).await.exits(expected);
        let reason = outcome.log.contains("would deadlock with itself");
        assert_eq!(reason, expected == 64, "{inner:?}: {outcome:?}");
        assert_eq!(outcome.output.len(), usize::from(expected == 0));
    }
}

#[tokio::test]
async fn the_lock_of_a_run_that_has_ended_is_waited_for() {
    let server = RedisServer::start();
    let holder = hold(&server, &["-k", "a"]).await;
    let mut command = rlock(&server, &["run", "-v", "-k", "a", "--", "echo", "ran"]);
    command.env("RLOCK_HELD", "00000000-0000-4000-8000-000000000000:1");
    let waiting = Running::start(command);
    waiting.logs("waiting").await;
    holder.end().await.exits(0);
    assert_eq!(waiting.end().await.output, ["ran"]);
}
