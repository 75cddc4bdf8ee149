//! Processes that are left behind: children of a command that has ended, and the command of an `rlock` that was
//! killed.

use rlock_testkit::{RedisServer, eventually};
use rustix::process::Signal;

use crate::common::{LONG, is_running, run_until, send_signal, start, stop_process};

#[tokio::test]
async fn a_process_that_outlives_the_command_keeps_the_lock() {
    let server = RedisServer::start();
    // Without a reaper, an orphan stays in its process group as a zombie.
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).expect("Linux 3.4");
    let script = "sh -c 'sleep 60 >/dev/null & echo $!' & wait; exit 4";
    let mut running = start(&server, &["run", "-k", "a", "--", "sh", "-c", script]);
    let orphan = running.number().await;
    running.logs("left behind").await;
    assert!(server.exists("lock:{a}").await, "held");
    assert!(is_running(orphan));
    send_signal(orphan, Signal::KILL);
    running.end().await.exits(4);
    assert!(!server.exists("lock:{a}").await, "released");
}

#[tokio::test]
async fn a_signal_reaches_the_processes_that_outlive_the_command() {
    let server = RedisServer::start();
    let script = "sleep 60 >/dev/null & echo $!";
    let mut running = start(&server, &["run", "-k", "a", "--", "sh", "-c", script]);
    let orphan = running.number().await;
    running.logs("left behind").await;
    running.signal(Signal::TERM);
    running.end().await.exits(0);
    assert!(!is_running(orphan));
}

#[tokio::test]
async fn a_process_that_leaves_the_group_is_not_waited_for() {
    let server = RedisServer::start();
    let script = "setsid sleep 60 >/dev/null & echo $!";
    let mut running = start(&server, &["run", "-k", "a", "--", "sh", "-c", script]);
    let daemon = running.number().await;
    // Before `setsid` has run, the child belongs to the group.
    running.end().await.exits(0);
    assert!(is_running(daemon));
    send_signal(daemon, Signal::KILL);
}

#[tokio::test]
async fn if_rlock_is_killed_the_command_receives_the_chosen_signal_and_the_lease_goes_on() {
    let server = RedisServer::start();
    let script = "for s in TERM USR1; do trap \"echo $s; exit\" $s; done; echo $$; while :; do sleep 0.05; done";
    for (options, expected) in [(&[][..], "TERM"), (&["--signal", "USR1"], "USR1")] {
        let words = ["run", "-k", "a", "--lease", "1h"];
        let words = [&words[..], options, &["--", "sh", "-c", script]].concat();
        let mut running = start(&server, &words);
        let child = running.number().await;
        running.kill();
        running.expect(expected).await;
        eventually(LONG, "the command ends", async || !is_running(child)).await;
        let left = server.pttl("lock:{a}").await;
        assert!((1..=3_600_000).contains(&left), "{left}");
        assert!(server.del("lock:{a}").await);
    }
}

#[tokio::test]
async fn a_command_that_is_stopped_keeps_its_lock() {
    let server = RedisServer::start();
    let script = "echo $$; read -r line; echo $line";
    let mut running = start(&server, &["run", "-k", "a", "--", "sh", "-c", script]);
    let child = running.number().await;
    stop_process(child).await;
    // Only the command has stopped, so `rlock` still answers.
    let pid = format!("(pid {})", running.pid());
    run_until(&server, &["inspect", "a"], &pid).await;
    send_signal(child, Signal::CONT);
    running.send("continued");
    let outcome = running.end().await.exits(0);
    assert_eq!(outcome.output, ["continued"]);
}
