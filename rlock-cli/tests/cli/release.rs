//! `rlock release` takes a lock from its holder, after a question.

use rlock_testkit::{RedisServer, eventually, within};

use crate::{
    common::{
        LONG, Outcome, Running, hold, hold_stubbornly, is_running, run, run_until, start,
        until_queued,
    },
    holders::{client, objects},
    terminal::Shell,
};

/// The ways to release a lock.
const WAYS: [&[&str]; 4] = [&["--ask"], &["--revoke"], &["--token", "1"], &["--force"]];

async fn release(server: &RedisServer, words: &[&str]) -> Outcome {
    run(&server, &[&["release", "order:42"], words].concat()).await
}

/// Starts a release, and returns once it waits for the holder. Starts another one if a busy holder did not reply in time.
async fn waiting(server: &RedisServer, words: &[&str]) -> Running {
    let waits = async {
        loop {
            let before = server.command_calls("publish").await;
            let waiting = start(&server, words);
            // The plan, the request and the first look take six messages with their replies, so a seventh shows that it waits.
            eventually(LONG, "it waits or ends", async || {
                let calls = server.command_calls("publish").await - before;
                calls > 6 || !is_running(waiting.pid())
            })
            .await;
            if is_running(waiting.pid()) {
                return waiting;
            }
        }
    };
    within(LONG, "it waits", waits).await
}

#[tokio::test]
async fn release_without_a_terminal_requires_yes() {
    let server = RedisServer::start();
    let holder = hold(&server, &["-k", "order:42"]).await;
    for way in WAYS {
        let outcome = release(&server, way).await.exits(64);
        let yes = if way == ["--ask"] {
            "`--yes` sends the request"
        } else {
            "`--yes` releases the lock"
        };
        assert!(outcome.log.contains(yes), "{way:?}: {outcome:?}");
    }
    assert!(server.exists("lock:{order:42}").await, "still held");
    holder.end().await.exits(0);
}

#[tokio::test]
async fn a_free_lock_is_not_released() {
    let server = RedisServer::start();
    for way in WAYS {
        let outcome = release(&server, &[way, &["--yes", "--json"]].concat())
            .await
            .exits(1);
        assert!(outcome.log.contains("it is free"), "{way:?}: {outcome:?}");
        assert_eq!(objects(&outcome)[0]["released"], false);
    }
}

#[tokio::test]
async fn a_holder_that_is_asked_to_release_its_lock_runs_on_and_may_be_waited_for() {
    let server = RedisServer::start();
    let url = server.url();
    let mut holder = hold(&server, &["-v", "-k", "order:42"]).await;
    let ask = ["release", "order:42", "--ask", "--yes"];
    let text = "lock `order:42`: its holder was asked to release it, and does so when it is ready";
    let outcome = run_until(&url, &ask, text).await.exits(0);
    let plan = "; asking the holder to release it; it does so when it is ready";
    assert!(outcome.log.contains(plan), "{outcome:?}");
    holder.logs("the command runs on").await;
    holder
        .logs("another client requests the release of the lock by=\"`rlock/")
        .await;
    let json = [&ask[..], &["--json"]].concat();
    let outcome = run_until(&url, &json, r#""asked":true"#).await;
    let object = &objects(&outcome)[0];
    assert_eq!(
        (&object["released"], &object["revoked"]),
        (&false.into(), &false.into())
    );
    let brief = [&json[..], &["--wait", "300ms"]].concat();
    run_until(&url, &brief, "its holder has not released it in time")
        .await
        .exits(75);
    holder.send("done");
    holder.end().await.exits(0);
}

#[tokio::test]
async fn a_command_gets_the_signal_of_its_choice_when_its_lock_is_asked_for() {
    let server = RedisServer::start();
    let script = "trap 'trap \"\" USR1; echo asked; read -r line; exit 0' USR1
        echo held; while :; do sleep 0.05; done";
    let words = [
        "run",
        "-k",
        "order:42",
        "--on-request",
        "usr1",
        "--",
        "sh",
        "-c",
        script,
    ];
    let mut holder = start(&server, &words);
    holder.expect("held").await;
    let wait = ["release", "order:42", "--ask", "--yes", "--wait", "forever"];
    let waiting = waiting(&server, &wait).await;
    holder.expect("asked").await;
    holder.send("");
    let outcome = waiting.end().await.exits(0);
    assert!(outcome.output[0].contains("its holder has released it"));
    holder.end().await.exits(0);
    assert!(!server.exists("lock:{order:42}").await);
}

#[tokio::test]
async fn a_holder_that_is_asked_stops_its_command_and_may_be_waited_for() {
    let server = RedisServer::start();
    let url = server.url();
    let mut holder = hold_stubbornly(&server, &["-k", "order:42"]).await;
    let script = ["sh", "-c", "echo next; read -r line; echo $line"];
    let mut next = start(
        &url,
        &[&["run", "-k", "order:42", "--"], &script[..]].concat(),
    );
    until_queued(&server, "order:42").await;

    let ask = ["release", "order:42", "--revoke", "--yes"];
    run_until(&url, &ask, &format!("(pid {})", holder.pid())).await;
    let text = "lock `order:42`: its holder stops its body, and then releases it";
    run_until(&url, &ask, text).await.exits(0);
    let json = [&ask[..], &["--json"]].concat();
    let outcome = run_until(&url, &json, r#""revoked":true"#).await;
    assert_eq!(objects(&outcome)[0]["released"], false, "{outcome:?}");
    let wait = [&json[..], &["--wait"]].concat();
    let brief = [&wait[..], &["300ms"]].concat();
    let outcome = run_until(&url, &brief, "has not stopped in time")
        .await
        .exits(75);
    assert_eq!(objects(&outcome)[0]["released"], false);

    let waiting = waiting(&server, &[&wait[..], &["forever"]].concat()).await;
    holder.send("");
    let held = holder.end().await.exits(124);
    assert!(held.log.contains("by=\"`rlock/"), "who asked: {held:?}");
    next.expect("next").await;
    let outcome = waiting.end().await.exits(0);
    assert_eq!(objects(&outcome)[0]["released"], true);
}

#[tokio::test]
async fn a_silent_holder_keeps_its_lock_until_it_is_forced() {
    let server = RedisServer::start();
    let mut holder = hold(&server, &["-k", "order:42", "--lease", "1h"]).await;
    holder.stop();
    let outcome = release(&server, &["--revoke", "--yes"]).await.exits(1);
    assert!(
        outcome
            .log
            .contains("does not reply; take it with `--force`"),
        "{outcome:?}"
    );
    assert!(server.exists("lock:{order:42}").await, "still held");
    release(&server, &["--force", "--yes"]).await.exits(0);
    assert!(!server.exists("lock:{order:42}").await, "taken");
    holder.resume();
    holder.logs("a lock was lost").await;
    holder.end().await.exits(124);
}

#[tokio::test]
async fn the_token_of_an_older_hold_takes_nothing() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let old = client.lock("order:42").acquire().await.expect("free");
    let token = old.token().to_string();
    old.release().await.expect("held");
    let guard = client.lock("order:42").acquire().await.expect("free");
    let outcome = release(&server, &["--token", &token, "--yes"])
        .await
        .exits(1);
    assert!(outcome.log.contains("another token"), "{outcome:?}");
    assert!(guard.is_valid());
    let token = guard.token().to_string();
    release(&server, &["--token", &token, "--yes"])
        .await
        .exits(0);
    within(LONG, "it is lost", guard.lost()).await;
}

#[tokio::test]
async fn a_lock_that_min_hold_keeps_is_released_by_force_only() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = client.lock("order:42").min_hold(LONG * 60);
    lock.run(async {}).await.expect("free");
    let outcome = release(&server, &["--revoke", "--yes"]).await.exits(1);
    assert!(
        outcome.log.contains("min_hold keeps it taken"),
        "{outcome:?}"
    );
    release(&server, &["--force", "--yes"]).await.exits(0);
    assert!(!server.exists("lock:{order:42}").await);
}

#[tokio::test]
async fn release_on_a_terminal_asks_first() {
    let server = RedisServer::start();
    let holder = hold_stubbornly(&server, &["-k", "order:42"]).await;
    let mut shell = Shell::start(&server);
    for no in ["n", "", "maybe"] {
        shell.type_line("rlock release order:42 --revoke");
        shell.shows("lock `order:42` is held by ").await;
        shell.shows("Continue? [y/N] ").await;
        shell.type_line(no);
        shell.shows("the question was not confirmed").await;
        shell.is_back_after(1).await;
    }
    assert!(server.exists("lock:{order:42}").await, "still held");
    shell.type_line("rlock release order:42 --force");
    shell.shows("Continue? [y/N] ").await;
    shell.type_line("y");
    shell.shows("taken from its holder").await;
    shell.is_back_after(0).await;
    holder.end().await.exits(124);
}

#[tokio::test]
async fn a_lock_that_changes_hands_before_the_reply_is_not_revoked() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let guard = client.lock("order:42").acquire().await.expect("free");
    let mut shell = Shell::start(&server);
    shell.type_line("rlock release order:42 --force");
    shell.shows("Continue? [y/N] ").await;
    guard.release().await.expect("held");
    let guard = client.lock("order:42").acquire().await.expect("free");
    shell.type_line("y");
    shell.shows("changed hands").await;
    shell.is_back_after(1).await;
    assert!(guard.is_valid());
    guard.release().await.expect("it was not taken");
}
