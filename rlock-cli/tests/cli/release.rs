//! `rlock release`.

use std::time::Duration;

use rlock_core::LostCause;
use rlock_testkit::{RedisServer, within};
use rustix::process::Signal;

use crate::{
    common::{LONG, Outcome, hold, run, start},
    holders::{client, objects},
    terminal::Shell,
};

async fn release(server: &RedisServer, words: &[&str]) -> Outcome {
    run(&server.url(), &[&["release", "order:42"], words].concat()).await
}

#[tokio::test]
async fn without_a_terminal_it_requires_yes() {
    let server = RedisServer::start();
    let holder = hold(&server, &["-k", "order:42"]).await;
    for way in [&["--ask"][..], &["--token", "1"], &["--force"]] {
        let outcome = release(&server, way).await;
        assert_eq!(outcome.code, Some(64), "{way:?}: {outcome:?}");
        assert!(outcome.log.contains("--yes"), "{way:?}: {outcome:?}");
    }
    assert!(server.exists("lock:{order:42}").await, "still held");
    assert_eq!(holder.end().await.code, Some(0));
}

#[tokio::test]
async fn one_way_has_to_be_named() {
    for words in [
        &["--yes"][..],
        &["--yes", "--ask", "--force"],
        &["--yes", "--token", "x"],
    ] {
        let outcome = run(
            "redis://localhost/",
            &[&["release", "order:42"], words].concat(),
        )
        .await;
        assert_eq!(outcome.code, Some(64), "{words:?}: {outcome:?}");
    }
}

#[tokio::test]
async fn a_free_lock_is_not_released() {
    let server = RedisServer::start();
    for way in [&["--ask"][..], &["--token", "1"], &["--force"]] {
        let outcome = release(&server, &[way, &["--yes", "--json"]].concat()).await;
        assert_eq!(outcome.code, Some(1), "{way:?}: {outcome:?}");
        assert!(outcome.log.contains("it is free"), "{way:?}: {outcome:?}");
        assert_eq!(objects(&outcome)[0]["released"], false);
    }
}

#[tokio::test]
async fn a_holder_that_is_asked_stops_its_command_and_logs_who_asked() {
    let server = RedisServer::start();
    let holder = hold(&server, &["-k", "order:42"]).await;
    let waiter = start(
        &server.url(),
        &["run", "-k", "order:42", "--", "echo", "next"],
    );
    let outcome = release(&server, &["--ask", "--yes"]).await;
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(
        outcome.output,
        ["lock `order:42`: its holder stops its body, and then releases it"]
    );
    let pid = format!("(pid {})", holder.pid());
    assert!(outcome.log.contains(&pid), "what it does: {outcome:?}");
    let held = holder.end().await;
    assert_eq!(held.code, Some(124), "{held:?}");
    assert!(held.log.contains("by=\"`rlock/"), "who asked: {held:?}");
    assert_eq!(waiter.end().await.output, ["next"]);
}

/// Ignores TERM until its input ends.
const STUBBORN: [&str; 4] = ["--", "sh", "-c", "trap '' TERM; echo held; read -r line"];

#[tokio::test]
async fn with_a_wait_it_returns_when_the_holder_has_released_the_lock() {
    let server = RedisServer::start();
    let words = ["run", "-k", "order:42", "--kill-after", "1h"];
    let mut holder = start(&server.url(), &[&words[..], &STUBBORN].concat());
    holder.expect("held").await;
    let asked = ["release", "order:42", "--ask", "--yes", "--json", "--wait"];
    let words = [&asked[..], &["300ms"]].concat();
    let outcome = run(&server.url(), &words).await;
    assert_eq!(outcome.code, Some(75), "{outcome:?}");
    assert!(
        outcome.log.contains("has not stopped in time"),
        "{outcome:?}"
    );
    assert_eq!(objects(&outcome)[0]["released"], false);
    assert!(server.exists("lock:{order:42}").await, "still held");
    let waiting = start(&server.url(), &[&asked[..], &["forever"]].concat());
    waiting.logs("asking it").await;
    let next = start(
        &server.url(),
        &[
            "run",
            "-v",
            "-k",
            "order:42",
            "--",
            "sh",
            "-c",
            "echo next; read -r line",
        ],
    );
    next.logs("waiting").await;
    holder.send("");
    assert_eq!(holder.end().await.code, Some(124));
    let outcome = waiting.end().await;
    assert_eq!(
        outcome.code,
        Some(0),
        "though the next one has it: {outcome:?}"
    );
    assert_eq!(outcome.output, [r#"{"key":"order:42","released":true}"#]);
    assert_eq!(next.end().await.output, ["next"]);
}

#[tokio::test]
async fn only_a_holder_that_is_asked_is_waited_for() {
    for way in [&["--force"][..], &["--token", "1"]] {
        let words = [&["release", "order:42", "--wait", "1s", "--yes"], way].concat();
        let outcome = run("redis://localhost/", &words).await;
        assert_eq!(outcome.code, Some(64), "{way:?}: {outcome:?}");
    }
}

#[tokio::test]
async fn a_holder_whose_lock_is_taken_by_force_learns_that() {
    let server = RedisServer::start();
    let holder = hold(&server, &["-k", "order:42"]).await;
    assert_eq!(release(&server, &["--force", "--yes"]).await.code, Some(0));
    let held = holder.end().await;
    assert_eq!(held.code, Some(124), "{held:?}");
    let lost = "cause=\"another client took it by force\"";
    assert!(held.log.contains(lost), "{held:?}");
}

#[tokio::test]
async fn a_silent_holder_keeps_its_lock_until_it_is_forced() {
    let server = RedisServer::start();
    let holder = hold(&server, &["-k", "order:42"]).await;
    holder.signal(Signal::STOP);
    let outcome = release(&server, &["--ask", "--yes"]).await;
    assert_eq!(outcome.code, Some(1), "{outcome:?} {}", holder.log());
    assert!(
        outcome
            .log
            .contains("does not reply; take it with `--force`"),
        "{outcome:?}"
    );
    assert!(server.exists("lock:{order:42}").await, "still held");
    let outcome = release(&server, &["--force", "--yes"]).await;
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(!server.exists("lock:{order:42}").await, "taken");
    holder.signal(Signal::CONT);
    holder.logs("a lock was lost").await;
    assert_eq!(holder.end().await.code, Some(124));
}

#[tokio::test]
async fn the_token_of_an_older_hold_takes_nothing() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let old = client.lock("order:42").acquire().await.expect("free");
    let token = old.fencing_token().to_string();
    old.release().await.expect("held");
    let guard = client.lock("order:42").acquire().await.expect("free");
    let outcome = release(&server, &["--token", &token, "--yes"]).await;
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.log.contains("another token"), "{outcome:?}");
    assert!(guard.is_valid());
    let token = guard.fencing_token().to_string();
    let outcome = release(&server, &["--token", &token, "--yes"]).await;
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let lost = within(LONG, "it is lost", guard.lost()).await;
    assert_eq!(lost, LostCause::Revoked);
}

#[tokio::test]
async fn force_hands_the_lock_off_to_the_waiter() {
    let server = RedisServer::start();
    let (holder, next) = (client(&server).await, client(&server).await);
    let guard = holder.lock("order:42").acquire().await.expect("free");
    let waiter = tokio::spawn(async move { next.lock("order:42").wait(LONG).acquire().await });
    while !server.exists("lock:{order:42}:queue").await {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let outcome = release(&server, &["--force", "--yes", "--json"]).await;
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(outcome.output, [r#"{"key":"order:42","released":true}"#]);
    let next = within(LONG, "it is served", waiter).await;
    let next = next.expect("no panic").expect("granted");
    assert!(next.fencing_token() > guard.fencing_token());
    assert_eq!(guard.lost().await, LostCause::Revoked);
}

#[tokio::test]
async fn what_at_least_keeps_is_released_by_force_only() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = client.lock("order:42").at_least(Duration::from_secs(60));
    lock.run(async {}).await.expect("free");
    let outcome = release(&server, &["--ask", "--yes"]).await;
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(
        outcome.log.contains("at_least keeps it taken"),
        "{outcome:?}"
    );
    assert_eq!(release(&server, &["--force", "--yes"]).await.code, Some(0));
    assert!(!server.exists("lock:{order:42}").await);
}

#[tokio::test]
async fn a_retained_lock_is_released() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = client.lock("order:42").retain(Duration::from_secs(60));
    lock.run(async {}).await.expect("free");
    let outcome = release(&server, &["--ask", "--yes"]).await;
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(
        outcome.output[0].ends_with("its holder releases it"),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn on_a_terminal_it_asks_first() {
    let server = RedisServer::start();
    let holder = hold(&server, &["-k", "order:42"]).await;
    let mut shell = Shell::start(&server);
    for no in ["n", "", "maybe"] {
        shell.type_line("rlock release order:42 --ask");
        shell.shows(&format!("(pid {})", holder.pid())).await;
        shell.shows("Continue? [y/N] ").await;
        shell.type_line(no);
        shell.shows("the question was not confirmed").await;
        shell.is_back_after(1).await;
    }
    assert!(server.exists("lock:{order:42}").await, "still held");
    shell.type_line("rlock release order:42 --ask");
    shell.shows("Continue? [y/N] ").await;
    shell.type_line("y");
    shell.shows("its holder stops its body").await;
    shell.is_back_after(0).await;
    assert_eq!(holder.end().await.code, Some(124));
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
