//! Signals: passed on to the whole group, or the end of a wait.

use std::process::Command;

use rlock_testkit::{RedisServer, eventually};
use rustix::process::Signal;

use crate::common::{LONG, Running, hold, start, until_queued};

const FORWARDED: [(&str, Signal); 6] = [
    ("HUP", Signal::HUP),
    ("INT", Signal::INT),
    ("QUIT", Signal::QUIT),
    ("TERM", Signal::TERM),
    ("USR1", Signal::USR1),
    ("USR2", Signal::USR2),
];

#[tokio::test]
async fn a_signal_reaches_the_command_and_what_it_has_started() {
    let server = RedisServer::start();
    for (name, signal) in FORWARDED {
        let script = format!(
            "trap 'echo child' {name}
             sh -c 'trap \"echo grandchild; exit\" {name}; echo ready; for i in $(seq 1200); do sleep 0.05; done'
             exit 7"
        );
        let mut running = start(&server, &["run", "-k", "a", "--", "sh", "-c", &script]);
        running.expect("ready").await;
        running.signal(signal);
        let mut outcome = running.end().await;
        outcome.output.sort();
        assert_eq!(
            outcome.output,
            ["child", "grandchild"],
            "{name}: {outcome:?}"
        );
        assert_eq!(outcome.code, Some(7), "{name}: {outcome:?}");
        assert!(!server.exists("lock:{a}").await, "{name}: released");
    }
}

#[tokio::test]
async fn a_signal_while_waiting_ends_rlock_and_takes_nothing() {
    let server = RedisServer::start();
    let holder = hold(&server, &["-k", "a"]).await;
    for (name, signal) in [("INT", Signal::INT), ("TERM", Signal::TERM)] {
        let words = ["run", "-v", "-k", "a", "--", "echo", "ran"];
        let waiter = start(&server, &words);
        until_queued(&server, "a").await;
        waiter.signal(signal);
        let outcome = waiter.end().await.exits(128 + signal.as_raw());
        assert!(outcome.output.is_empty(), "{name}: {outcome:?}");
        assert!(
            !server.exists("lock:{a}:queue").await,
            "{name}: it has left the queue"
        );
    }
    holder.end().await.exits(0);
    assert!(
        !server.exists("lock:{a}").await,
        "the lock was handed off to no waiter"
    );
}

#[tokio::test]
async fn a_signal_while_connecting_ends_rlock() {
    let server = RedisServer::start();
    server.pause();
    let running = start(&server, &["run", "-k", "a", "--", "echo", "ran"]);
    // Until it listens to signals, they end it as well.
    eventually(LONG, "it listens", async || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", running.pid()));
        let caught = status.unwrap_or_default();
        let caught = caught.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
        caught.is_some_and(|set| set & 1 << (Signal::TERM.as_raw() - 1) != 0)
    })
    .await;
    running.signal(Signal::TERM);
    let outcome = running.end().await.exits(128 + Signal::TERM.as_raw());
    assert!(outcome.output.is_empty(), "{outcome:?}");
}

#[tokio::test]
async fn a_signal_that_is_ignored_stays_ignored() {
    let server = RedisServer::start();
    let mut nohup = Command::new("sh");
    nohup
        .args(["-c", r#"trap "" HUP; exec "$0" "$@""#])
        .arg(env!("CARGO_BIN_EXE_rlock"))
        .args(["run", "-k", "a", "--", "sh", "-c"])
        .arg("echo ready; read -r line; kill -HUP $$; echo $line")
        .env("RLOCK_URL", server.url());
    let mut running = Running::start(nohup);
    running.expect("ready").await;
    running.signal(Signal::HUP);
    running.send("unimpressed");
    let outcome = running.end().await.exits(0);
    assert_eq!(outcome.output, ["unimpressed"]);
}

#[tokio::test]
async fn signals_that_were_blocked_at_the_start_arrive() {
    let server = RedisServer::start();
    let mut blocking = Command::new("env");
    blocking
        .args(["--block-signal", env!("CARGO_BIN_EXE_rlock")])
        .args(["run", "-k", "a", "--", "sh", "-c"])
        .arg("trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done")
        .env("RLOCK_URL", server.url());
    let mut running = Running::start(blocking);
    running.expect("ready").await;
    running.signal(Signal::TERM);
    running.end().await.exits(3);
}
