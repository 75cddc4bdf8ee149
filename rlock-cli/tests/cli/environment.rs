//! The environment of the command, and locks of several keys.

use std::collections::BTreeMap;

use rlock_testkit::RedisServer;

use crate::common::{Running, rlock, run};

/// Returns the variables of a command's environment.
async fn environment_of(server: &RedisServer, options: &[&str]) -> BTreeMap<String, String> {
    let words = [&["run"], options, &["--", "env"]].concat();
    let outcome = run(&server, &words).await.exits(0);
    let variables = outcome
        .output
        .iter()
        .filter_map(|line| line.split_once('='));
    let ours = variables.filter(|(name, _)| name.starts_with("RLOCK_"));
    ours.map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

#[tokio::test]
async fn the_owner_is_the_one_that_the_server_knows() {
    let server = RedisServer::start();
    let script = ["--", "sh", "-c", "echo $RLOCK_OWNER; cat"];
    let words = [&["run", "-k", "a", "--prefix", "jobs:"][..], &script].concat();
    let mut running = Running::start(rlock(&server, &words));
    let owner = running.line().await;
    assert_eq!(server.hgetall("jobs:{a}").await[&owner], "1");
    running.end().await.exits(0);
}

#[tokio::test]
async fn several_keys_are_numbered_in_the_order_of_the_options() {
    let server = RedisServer::start();
    let environment = environment_of(&server, &["-k", "b", "-k", "a", "-k", "b", "-k", "c"]).await;
    assert_eq!(environment["RLOCK_KEYS"], "3");
    for (name, key) in [("1", "b"), ("2", "a"), ("3", "c")] {
        assert_eq!(environment[&format!("RLOCK_KEY_{name}")], key);
        assert!(environment.contains_key(&format!("RLOCK_OWNER_{name}")));
    }
    for name in ["KEY", "TOKEN", "OWNER"] {
        let first = &environment[&format!("RLOCK_{name}_1")];
        assert_eq!(&environment[&format!("RLOCK_{name}")], first);
    }
    assert!(!environment.contains_key("RLOCK_KEY_4"), "{environment:?}");
}

#[tokio::test]
async fn the_command_does_not_see_the_locks_of_an_outer_run() {
    let server = RedisServer::start();
    let inner = [
        "--",
        env!("CARGO_BIN_EXE_rlock"),
        "run",
        "-k",
        "c",
        "--",
        "env",
    ];
    let words = [&["run", "-k", "a", "-k", "b"][..], &inner].concat();
    let outcome = run(&server, &words).await.exits(0);
    let has = |line: &str| outcome.output.iter().any(|other| other == line);
    assert!(has("RLOCK_KEY=c") && has("RLOCK_KEY_1=c") && has("RLOCK_KEYS=1"));
    let stale = outcome.output.iter().find(|line| line.contains("_2="));
    assert_eq!(stale, None);
}

#[tokio::test]
async fn the_prefix_and_the_lease_come_from_the_environment() {
    let server = RedisServer::start();
    let words = ["run", "-k", "a", "--", "sh", "-c", "echo held; cat"];
    let mut command = rlock(&server, &words);
    command
        .env("RLOCK_PREFIX", "jobs:")
        .env("RLOCK_LEASE", "2h");
    let mut holder = Running::start(command);
    holder.expect("held").await;
    let left = server.pttl("jobs:{a}").await;
    assert!(left > 3_600_000, "{left}");
    holder.end().await.exits(0);
}

#[tokio::test]
async fn min_hold_does_not_keep_the_lock_after_a_failure() {
    let server = RedisServer::start();
    for (command, code) in [(&["sh", "-c", "exit 3"][..], 3), (&["/no/such/file"], 127)] {
        let words = ["run", "-n", "-k", "a", "--min-hold", "1h", "--"];
        run(&server, &[&words, command].concat()).await.exits(code);
        run(&server, &["run", "-n", "-k", "a", "--", "true"])
            .await
            .exits(0);
    }
}
