//! A lock that is lost while the command runs.

use std::process::Command;

use rlock_testkit::RedisServer;

use crate::common::{Running, hold, is_running, start, stop_process};

/// Runs until a signal, and prints its name.
const ECHO_SIGNALS: &str = "for s in HUP INT TERM USR1; do trap \"echo $s; exit 0\" $s; done
    echo held; while :; do sleep 0.05; done";

fn holding(server: &RedisServer, options: &[&str], script: &str) -> Running {
    let words = ["run", "-k", "a", "--kill-after", "1h"];
    let words = [&words[..], options, &["--", "sh", "-c", script]].concat();
    start(&server, &words)
}

#[tokio::test]
async fn a_command_whose_lock_is_replaced_is_stopped_and_the_new_lock_stays() {
    let server = RedisServer::start();
    let mut running = holding(&server, &["--signal", "INT"], ECHO_SIGNALS);
    running.expect("held").await;
    let other = "00000000-0000-4000-8000-000000000000:1";
    let script = "redis.call('DEL', KEYS[1]) return redis.call('HSET', KEYS[1], ARGV[1], 1)";
    let _: i64 = server
        .command(&["EVAL", script, "1", "lock:{a}", other])
        .await;
    let outcome = running.end().await.exits(124);
    assert_eq!(outcome.output, ["INT"]);
    assert_eq!(server.hgetall("lock:{a}").await[other], "1");
}

#[tokio::test]
async fn a_command_may_run_on_without_its_lock() {
    let server = RedisServer::start();
    let mut running = hold(&server, &["-k", "a", "--on-lost", "continue"]).await;
    assert!(server.del("lock:{a}").await);
    running.logs("runs on").await;
    running.send("done");
    let outcome = running.end().await.exits(0);
    assert_eq!(outcome.output, ["done"]);
}

#[tokio::test]
async fn a_group_that_does_not_stop_is_killed() {
    // Ignores the signal, like its child process.
    let stubborn = "trap '' TERM; sh -c 'echo $$; while :; do sleep 0.05; done' & wait; sleep 60";
    // The signal ends the command itself, but not its child process.
    let orphan = "sh -c 'trap \"\" TERM; echo $$; while :; do sleep 0.05; done' & exec sleep 60";
    let server = RedisServer::start();
    for script in [stubborn, orphan] {
        let words = ["run", "-k", "a", "--kill-after", "300ms", "--", "sh", "-c"];
        let mut running = start(&server, &[&words[..], &[script]].concat());
        let child = running.number().await;
        assert!(server.del("lock:{a}").await);
        let outcome = running.end().await.exits(124);
        assert!(outcome.log.contains("killing it"), "{outcome:?}");
        assert!(!is_running(child), "no orphans");
    }
}

#[tokio::test]
async fn a_command_that_is_stopped_by_a_signal_is_stopped_all_the_same() {
    let server = RedisServer::start();
    let mut running = holding(&server, &[], "echo $$; exec sleep 600");
    let child = running.number().await;
    stop_process(child).await;
    assert!(server.del("lock:{a}").await);
    running.end().await.exits(124);
    assert!(!is_running(child));
}

#[tokio::test]
async fn max_hold_stops_the_command_and_keeps_the_lock_until_then() {
    let server = RedisServer::start();
    // The command ignores the signal from its start.
    let mut deaf = Command::new("sh");
    deaf.args(["-c", r#"trap "" TERM; exec "$0" "$@""#])
        .arg(env!("CARGO_BIN_EXE_rlock"))
        .args(["run", "-k", "a", "--max-hold", "400ms"])
        .args(["--kill-after", "1h", "--", "cat"])
        .env("RLOCK_URL", server.url());
    let running = Running::start(deaf);
    running.logs("stopping the command").await;
    assert!(server.exists("lock:{a}").await, "the command still runs");
    running.end().await.exits(124);
    assert!(!server.exists("lock:{a}").await, "released");
}

#[tokio::test]
async fn a_server_that_dies_ends_the_command_with_its_lease() {
    let server = RedisServer::start();
    let running = holding(&server, &["-v", "--lease", "3s"], "exec sleep 600");
    // The command ends in the same way if a busy machine loses the lock before the server dies.
    running.logs("command started").await;
    server.kill();
    let outcome = running.end().await.exits(124);
    assert!(outcome.log.contains("stopping the command"), "{outcome:?}");
}

#[tokio::test]
async fn a_command_that_ends_while_the_server_is_away_keeps_its_status() {
    let server = RedisServer::start();
    let mut running = hold(&server, &["-k", "a", "--response-timeout", "2s"]).await;
    server.kill();
    running.send("done");
    let outcome = running.end().await.exits(0);
    assert!(outcome.log.contains("could not release"), "{outcome:?}");
}

#[tokio::test]
async fn a_loss_that_only_the_release_finds_is_reported() {
    let server = RedisServer::start();
    // RESP2 has no client tracking, and the next renewal is far away.
    let url = format!("{}?protocol=resp2", server.url());
    for (policy, expected) in [("term", 124), ("continue", 0)] {
        let script = ["--", "sh", "-c", "echo held; read -r line"];
        let words = ["run", "-k", "a", "--lease", "10h", "--on-lost", policy];
        let words = [&words[..], &script].concat();
        let mut running = start(&url, &words);
        running.expect("held").await;
        assert!(server.del("lock:{a}").await);
        running.send("");
        let outcome = running.end().await.exits(expected);
        assert!(outcome.log.contains("was lost"), "{policy}: {outcome:?}");
    }
}
