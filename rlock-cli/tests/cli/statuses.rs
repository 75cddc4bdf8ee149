//! Exit statuses: each row of the table.

use std::process::Command;

use rlock_testkit::{RedisServer, port};
use rustix::process::Signal;

use crate::common::{Running, hold, rlock, run, run_until, start};

#[tokio::test]
async fn the_status_of_the_command_is_passed_on() {
    let server = RedisServer::start();
    for (script, expected) in [
        ("exit 0", 0),
        ("exit 3", 3),
        ("exit 255", 255),
        ("kill -TERM $$", 128 + Signal::TERM.as_raw()),
        ("kill -KILL $$", 128 + Signal::KILL.as_raw()),
    ] {
        let words = ["run", "-n", "-k", "a", "--", "sh", "-c", script];
        let outcome = run(&server, &words).await.exits(expected);
        assert_eq!(outcome.log, "", "{script}");
        assert!(!server.exists("lock:{a}").await, "{script}: released");
    }
}

#[tokio::test]
async fn a_taken_lock_exits_with_75_or_the_given_status() {
    let server = RedisServer::start();
    let holder = hold(&server, &["-k", "a"]).await;
    for (wait, options, expected) in [
        ("0s", &[][..], 75),
        ("1h", &["-n"], 75),
        ("1h", &["--no-wait", "-E", "9"], 9),
        ("1h", &["-w", "3s"], 75),
        ("1h", &["--wait", "0s", "--conflict-exit-code", "0"], 0),
    ] {
        let words = [&["run", "-k", "a"], options, &["--", "echo", "ran"]].concat();
        let mut command = rlock(&server, &words);
        command.env("RLOCK_WAIT", wait);
        let outcome = Running::start(command).end().await.exits(expected);
        assert!(outcome.output.is_empty(), "{options:?}: {outcome:?}");
        assert!(outcome.log.contains("lock `a`"), "{options:?}: {outcome:?}");
    }
    let quiet = run(&server, &["run", "-qn", "-k", "a", "--", "true"]).await;
    assert_eq!((quiet.code, &*quiet.log), (Some(75), ""), "{quiet:?}");
    assert!(server.exists("lock:{a}").await, "still held");
    assert!(!server.exists("lock:{a}:queue").await, "all waits end");
    holder.end().await.exits(0);
}

#[tokio::test]
async fn wrong_usage_is_64() {
    // It is found before anything is connected.
    let unused = format!("redis://127.0.0.1:{}/", port::number(&port::listen()));
    for words in [
        &[][..],
        &["nosuch"],
        &["run", "-k", "a"],
        &["run", "--", "true"],
        &["run", "-k", "a", "true"],
        &["run", "-k", "a", "--lease", "5ms", "--", "true"],
        &["run", "-k", "a", "--lease", "30", "--", "true"],
        &["run", "-k", "a", "--max-hold", "0s", "--", "true"],
        &["run", "-k", "a", "--signal", "NOSUCH", "--", "true"],
        &["run", "-k", "a", "--on-lost", "ignore", "--", "true"],
        &["run", "-k", "a", "-E", "256", "--", "true"],
        &["run", "-k", "a", "-q", "-v", "--", "true"],
        &["run", "-k", "a", "--prefix", "{", "--", "true"],
        &["run", "-k", "a", "--url", "http://localhost/", "--", "true"],
        &["run", "-k", "a", "--permits", "0", "--", "true"],
        &["run", "-k", "a", "--permits", "many", "--", "true"],
        &["run", "-k", "a", "--shared", "--permits", "2", "--", "true"],
        &["run", "-k", "a", "--take", "2", "--", "true"],
        &[
            "run",
            "-k",
            "a",
            "--permits",
            "2",
            "--take",
            "0",
            "--",
            "true",
        ],
        &["wait"],
        &["ls", "--watch", "order:*"],
        &["ls", "--watch", "1ms"],
        &["ls", "--watch", "25h"],
        &["top", "--interval", "1ms"],
        &["inspect", "a", "--interval", "1s"],
        &["release", "a", "--yes"],
        &["release", "a", "--yes", "--revoke", "--force"],
        &["release", "a", "--yes", "--ask", "--revoke"],
        &["release", "a", "--yes", "--token", "x"],
        &["release", "a", "--yes", "--wait", "1s", "--force"],
        &["release", "a", "--yes", "--wait", "1s", "--token", "1"],
        &["elect", "a", "--value", &"x".repeat(1025), "--", "true"],
        &["extend", "a", "--token", "1"],
        &["extend", "a", "--lease", "1m"],
        &["extend", "a", "--token", "1", "--lease", "25h"],
        &["extend", "a", "--token", "1", "--lease", "0s"],
        &["postgres", "schema", "--schema", "a\"b"],
        &["postgres", "schema", "--durability", "ram"],
        &["man", "nosuch"],
        &["completions", "nosuch"],
    ] {
        let outcome = run(&unused, words).await.exits(64);
        assert!(outcome.output.is_empty(), "{words:?}: {outcome:?}");
        assert!(!outcome.log.is_empty(), "{words:?}");
    }
    let mut nowhere = rlock("", &["run", "-k", "a", "--", "true"]);
    nowhere.env_remove("RLOCK_URL");
    let outcome = Running::start(nowhere).end().await.exits(64);
    assert!(outcome.log.contains("--url"), "{outcome:?}");
    assert!(outcome.log.contains("RLOCK_URL"), "{outcome:?}");
}

#[tokio::test]
async fn the_store_may_be_named_before_the_subcommand() {
    let server = RedisServer::start();
    let url = server.url();
    let script = ["sh", "-c", "echo held; cat"];
    let words = ["--prefix", "jobs:", "--url", &url, "run", "-k", "a", "--"];
    let mut holder = start("redis://nowhere.invalid/", &[&words[..], &script].concat());
    holder.expect("held").await;
    assert!(server.exists("jobs:{a}").await);
    // The later one counts.
    let words = ["--prefix", "other:", "ls", "--prefix", "jobs:"];
    run_until(&url, &words, "a ").await;
    holder.end().await.exits(0);
}

#[tokio::test]
async fn a_mistake_is_reported_with_the_way_out_before_anything_is_connected() {
    let unused = format!("redis://127.0.0.1:{}/", port::number(&port::listen()));
    let times = ["--max-hold", "5s", "--min-hold", "1m 30s"];
    let run_for = [&["run", "-k", "a"], &times[..], &["--", "echo", "ran"]].concat();
    let too_short = "`--max-hold 5s` is shorter than `--min-hold 1m 30s`: raise `--max-hold` or lower `--min-hold`";
    for (url, words, way_out) in [
        (&*unused, &["wait", "a", "--timeout", "5s"][..], "'--wait'"),
        (
            &*unused,
            &["run", "-k", "a", "--at-least", "5s", "--", "true"],
            "now called '--min-hold'",
        ),
        ("http://h/", &["wait", "a"], "expected one of"),
        (&unused, &run_for, too_short),
    ] {
        let outcome = run(url, words).await.exits(64);
        assert!(outcome.output.is_empty(), "{words:?}: {outcome:?}");
        assert!(outcome.log.contains(way_out), "{words:?}: {outcome:?}");
    }
    let server = RedisServer::start();
    // The client finds others.
    let two = ["run", "-k", "a", "--permits", "2"];
    for (words, way_out) in [
        (&["wait", "order:{a"][..], "`%7B`"),
        (&["run", "-k", "order:{a", "--", "true"], "`%7B`"),
        (&["run", "-k", "", "--", "true"], "empty"),
        (&[&two[..], &["--take", "3", "--", "true"]].concat(), "take"),
    ] {
        let outcome = run(&server, words).await.exits(64);
        assert!(outcome.log.contains(way_out), "{words:?}: {outcome:?}");
    }
}

#[tokio::test]
async fn a_forgotten_separator_is_shown_in_the_corrected_command_line() {
    for (words, corrected) in [
        (
            &["run", "night", "./job.sh", "--fast", "a b"][..],
            "rlock run --key night -- ./job.sh --fast 'a b'",
        ),
        (
            &["run", "-w", "5s", "night", "--", "true"],
            "rlock run -w 5s --key night -- true",
        ),
        (
            &["run", "-k", "night", "true"],
            "rlock run -k night -- true",
        ),
        (
            &["run", "-v", "--key=night", "tar", "-x"],
            "rlock run -v --key=night -- tar -x",
        ),
        (
            &[
                "run",
                "--url",
                "redis://:secret@h/",
                "-k",
                "it's",
                "echo",
                "",
            ],
            r"rlock run --url URL -k 'it'\''s' -- echo ''",
        ),
        (&["elect", "a", "echo", "x"], "rlock elect a -- echo x"),
    ] {
        let outcome = run("redis://h/", words).await.exits(64);
        let tip = format!("tip: '--' precedes the command: {corrected}\n");
        assert!(outcome.log.contains(&tip), "{words:?}: {outcome:?}");
        assert!(!outcome.log.contains("secret"), "{words:?}: {outcome:?}");
    }
    let unset = run("", &["run", "night", "true"]).await;
    assert!(
        unset.log.contains("rlock run --key night -- true"),
        "{unset:?}"
    );
    for words in [
        &["run", "night"][..],
        &["run", "--", "true"],
        &["run", "-k", "a", "--wiat", "5s", "--", "true"],
    ] {
        let outcome = run("redis://h/", words).await.exits(64);
        assert!(!outcome.log.contains("precedes"), "{words:?}: {outcome:?}");
    }
}

#[tokio::test]
async fn a_missing_command_exits_with_127_and_one_that_cannot_run_with_126() {
    let server = RedisServer::start();
    for (command, expected) in [
        ("rlock-no-such-command", 127),
        ("/no/such/command", 127),
        ("/etc/passwd", 126),
        ("/", 126),
    ] {
        let outcome = run(&server, &["run", "-k", "a", "--", command])
            .await
            .exits(expected);
        assert!(outcome.log.contains(command), "{outcome:?}");
        assert!(!server.exists("lock:{a}").await, "{command}: released");
    }
}

#[tokio::test]
async fn a_failure_of_rlock_itself_exits_with_125() {
    let server = RedisServer::start();
    let mut command = Command::new("sh");
    // Enough open files to load the program, but too few for its runtime.
    command
        .args([
            "-c",
            r#"ulimit -n 4; exec 3>&-; exec "$0" run -k a -- echo ran"#,
        ])
        .arg(env!("CARGO_BIN_EXE_rlock"))
        .env("RLOCK_URL", server.url());
    let outcome = Running::start(command).end().await.exits(125);
    assert!(outcome.output.is_empty(), "{outcome:?}");
    assert!(outcome.log.starts_with("rlock: could not "), "{outcome:?}");
}
