//! Processes that the command leaves behind, and processes that `rlock` leaves behind.

use std::time::Duration;

use rlock_testkit::{RedisServer, eventually};
use rustix::process::Signal;
use tokio::time::sleep;

use crate::common::{LONG, hold, is_running, run, send_signal, start};

#[tokio::test]
async fn a_process_that_outlives_the_command_keeps_the_lock() {
    let server = RedisServer::start();
    // Without a reaper, an orphan stays in its process group as a zombie.
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).expect("Linux 3.4");
    let script = "sh -c 'sleep 60 >/dev/null & echo $!' & wait; exit 4";
    let mut running = start(&server.url(), &["run", "-k", "a", "--", "sh", "-c", script]);
    let orphan = running.number().await;
    running.logs("left behind").await;
    assert!(server.exists("lock:{a}").await, "held");
    assert!(is_running(orphan));
    send_signal(orphan, Signal::KILL);
    let outcome = running.end().await;
    assert_eq!(
        outcome.code,
        Some(4),
        "the status of the command: {outcome:?}"
    );
    assert!(!server.exists("lock:{a}").await, "released");
}

#[tokio::test]
async fn a_signal_reaches_the_processes_that_outlive_the_command() {
    let server = RedisServer::start();
    let script = "sleep 60 >/dev/null & echo $!";
    let mut running = start(&server.url(), &["run", "-k", "a", "--", "sh", "-c", script]);
    let orphan = running.number().await;
    running.logs("left behind").await;
    running.signal(Signal::TERM);
    assert_eq!(running.end().await.code, Some(0));
    assert!(!is_running(orphan));
}

#[tokio::test]
async fn a_process_that_leaves_the_group_is_not_waited_for() {
    let server = RedisServer::start();
    let script = "setsid sleep 60 >/dev/null & echo $!";
    let mut running = start(&server.url(), &["run", "-k", "a", "--", "sh", "-c", script]);
    let daemon = running.number().await;
    // Before `setsid` has run, the child belongs to the group.
    let outcome = running.end().await;
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(is_running(daemon));
    send_signal(daemon, Signal::KILL);
}

#[tokio::test]
async fn if_rlock_is_killed_the_command_gets_a_signal_and_the_lock_is_free_after_its_lease() {
    let server = RedisServer::start();
    let script = "echo $$; exec sleep 60";
    let words = ["run", "-k", "a", "--lease", "1s", "--", "sh", "-c", script];
    let mut running = start(&server.url(), &words);
    let child = running.number().await;
    running.kill();
    eventually(LONG, "the command ends", async || !is_running(child)).await;
    let outcome = run(&server.url(), &["run", "-k", "a", "--", "echo", "next"]).await;
    assert_eq!(
        (outcome.code, outcome.output),
        (Some(0), vec!["next".to_owned()])
    );
}

#[tokio::test]
async fn if_rlock_is_killed_the_command_receives_the_chosen_signal() {
    let server = RedisServer::start();
    let script = "trap 'echo told; exit' USR1; echo $$; for i in $(seq 1200); do sleep 0.05; done";
    let words = [
        "run", "-k", "a", "--signal", "USR1", "--", "sh", "-c", script,
    ];
    let mut running = start(&server.url(), &words);
    let child = running.number().await;
    running.kill();
    running.expect("told").await;
    eventually(LONG, "the command ends", async || !is_running(child)).await;
}

#[tokio::test]
async fn a_command_that_is_stopped_keeps_its_lock() {
    let server = RedisServer::start();
    let script = "echo $$; read -r line";
    let words = ["run", "-k", "a", "--lease", "1s", "--", "sh", "-c", script];
    let mut running = start(&server.url(), &words);
    let child = running.number().await;
    send_signal(child, Signal::STOP);
    sleep(Duration::from_secs(3)).await;
    assert!(server.exists("lock:{a}").await, "renewed");
    send_signal(child, Signal::CONT);
    running.send("");
    assert_eq!(running.end().await.code, Some(0));
}

#[tokio::test]
async fn a_long_command_is_renewed() {
    let server = RedisServer::start();
    let holder = hold(&server, &["-k", "a", "--lease", "1s"]).await;
    sleep(Duration::from_secs(3)).await;
    assert!(server.exists("lock:{a}").await, "renewed");
    assert_eq!(holder.end().await.code, Some(0));
}
