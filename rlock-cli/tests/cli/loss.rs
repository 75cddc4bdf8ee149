//! A lock that is lost while the command runs.

use std::time::{Duration, Instant};

use rlock_testkit::{RedisServer, eventually};
use rustix::process::Signal;

use crate::common::{LONG, Running, hold, is_running, start};

/// Runs until a signal, and prints its name.
const ECHO_SIGNALS: &str = "for s in HUP INT TERM USR1; do trap \"echo $s; exit 0\" $s; done
    echo held; for i in $(seq 1200); do sleep 0.05; done";

/// Ignores TERM, like its child process. Prints the process ids of both.
const STUBBORN: &str = "trap '' TERM
    sh -c 'trap \"\" TERM; echo $$; for i in $(seq 1200); do sleep 0.05; done' & echo $$; wait; sleep 60";

fn holding(server: &RedisServer, options: &[&str], script: &str) -> Running {
    let words = [&["run", "-k", "a"], options, &["--", "sh", "-c", script]].concat();
    start(&server.url(), &words)
}

#[tokio::test]
async fn a_command_whose_lock_is_deleted_is_stopped() {
    let server = RedisServer::start();
    let mut running = holding(&server, &[], ECHO_SIGNALS);
    running.expect("held").await;
    assert!(server.del("lock:{a}").await);
    let outcome = running.end().await;
    assert_eq!(outcome.code, Some(124), "{outcome:?}");
    assert_eq!(outcome.output, ["TERM"]);
    assert!(outcome.log.contains("stopping the command"), "{outcome:?}");
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
    let outcome = running.end().await;
    assert_eq!(outcome.code, Some(124), "{outcome:?}");
    assert_eq!(outcome.output, ["INT"]);
    assert_eq!(server.hgetall("lock:{a}").await[other], "1");
}

#[tokio::test]
async fn one_of_several_locks_that_is_lost_stops_the_command_and_the_others_are_released() {
    let server = RedisServer::start();
    let mut running = holding(&server, &["-k", "b"], ECHO_SIGNALS);
    running.expect("held").await;
    assert!(server.del("lock:{b}").await);
    let outcome = running.end().await;
    assert_eq!(outcome.code, Some(124), "{outcome:?}");
    assert!(outcome.log.contains("key=b"), "{outcome:?}");
    assert!(server.keys("lock:{?}").await.is_empty());
}

#[tokio::test]
async fn a_command_may_run_on_without_its_lock() {
    let server = RedisServer::start();
    let running = hold(&server, &["-k", "a", "--on-lost", "continue"]).await;
    assert!(server.del("lock:{a}").await);
    running.logs("runs on").await;
    let mut running = running;
    running.send("done");
    let outcome = running.end().await;
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(outcome.output, ["done"]);
}

#[tokio::test]
async fn a_group_that_does_not_stop_is_killed() {
    let server = RedisServer::start();
    let started = Instant::now();
    let mut running = holding(&server, &["--kill-after", "300ms"], STUBBORN);
    let group = [running.number().await, running.number().await];
    assert!(server.del("lock:{a}").await);
    let outcome = running.end().await;
    assert_eq!(outcome.code, Some(124), "{outcome:?}");
    assert!(started.elapsed() >= Duration::from_millis(300));
    assert!(outcome.log.contains("killing it"), "{outcome:?}");
    assert_eq!(group.map(is_running), [false, false], "no orphans");
}

#[tokio::test]
async fn an_orphan_that_does_not_stop_is_killed_too() {
    let server = RedisServer::start();
    // The signal ends the command itself.
    let script = "sh -c 'trap \"\" TERM; echo $$; for i in $(seq 1200); do sleep 0.05; done' & exec sleep 60";
    let mut running = holding(&server, &["--kill-after", "300ms"], script);
    let orphan = running.number().await;
    assert!(server.del("lock:{a}").await);
    let outcome = running.end().await;
    assert_eq!(outcome.code, Some(124), "{outcome:?}");
    assert!(!is_running(orphan));
}

#[tokio::test]
async fn a_command_that_is_stopped_by_a_signal_is_stopped_all_the_same() {
    let server = RedisServer::start();
    let options = ["--kill-after", "1h"];
    let mut running = holding(&server, &options, "echo $$; exec sleep 60");
    let child = running.number().await;
    crate::common::send_signal(child, Signal::STOP);
    assert!(server.del("lock:{a}").await);
    assert_eq!(running.end().await.code, Some(124));
    assert!(!is_running(child));
}

#[tokio::test]
async fn max_hold_stops_the_command_and_keeps_the_lock_until_then() {
    let server = RedisServer::start();
    let options = ["--max-hold", "400ms", "--kill-after", "1s"];
    let mut running = holding(&server, &options, STUBBORN);
    let _ = [running.number().await, running.number().await];
    running.logs("stopping the command").await;
    assert!(server.exists("lock:{a}").await, "the command still runs");
    let outcome = running.end().await;
    assert_eq!(outcome.code, Some(124), "{outcome:?}");
    assert!(!server.exists("lock:{a}").await, "released");
}

#[tokio::test]
async fn a_server_that_dies_ends_the_command_with_its_lease() {
    let server = RedisServer::start();
    let mut running = holding(&server, &["--lease", "1s"], ECHO_SIGNALS);
    running.expect("held").await;
    server.kill();
    let outcome = running.end().await;
    assert_eq!(outcome.code, Some(124), "{outcome:?}");
    assert_eq!(outcome.output, ["TERM"]);
}

#[tokio::test]
async fn after_a_loss_to_a_dead_server_rlock_ends_with_its_command() {
    let server = RedisServer::start();
    let mut running = holding(&server, &["--lease", "3s"], ECHO_SIGNALS);
    running.expect("held").await;
    server.kill();
    running.expect("TERM").await;
    let stopped = Instant::now();
    assert_eq!(running.end().await.code, Some(124));
    let took = stopped.elapsed();
    assert!(took < Duration::from_millis(1500), "{took:?}");
}

#[tokio::test]
async fn a_command_that_ends_while_the_server_is_away_keeps_its_status() {
    let server = RedisServer::start();
    let mut running = hold(&server, &["-k", "a"]).await;
    server.kill();
    running.send("done");
    let outcome = running.end().await;
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.log.contains("could not release"), "{outcome:?}");
}

#[tokio::test]
async fn a_short_outage_loses_nothing() {
    let server = RedisServer::start();
    let mut running = hold(&server, &["-k", "a", "--lease", "5s"]).await;
    server.pause();
    tokio::time::sleep(Duration::from_millis(300)).await;
    server.resume();
    running.send("done");
    let outcome = running.end().await;
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    eventually(LONG, "released", async || !server.exists("lock:{a}").await).await;
}

#[tokio::test]
async fn a_loss_that_only_the_release_finds_is_reported() {
    let server = RedisServer::start();
    // RESP2 has no client tracking, and the next renewal is far away.
    let url = format!("{}?protocol=resp2", server.url());
    for (policy, expected) in [("term", 124), ("continue", 0)] {
        let script = ["--", "sh", "-c", "echo held; read -r line"];
        let words = [&["run", "-k", "a", "--on-lost", policy][..], &script].concat();
        let mut running = start(&url, &words);
        running.expect("held").await;
        assert!(server.del("lock:{a}").await);
        running.send("");
        let outcome = running.end().await;
        assert_eq!(outcome.code, Some(expected), "{policy}: {outcome:?}");
        assert!(outcome.log.contains("was lost"), "{policy}: {outcome:?}");
    }
}
