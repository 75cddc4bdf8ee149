//! `rlock once`: one host runs a tick.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rlock_testkit::{RedisServer, eventually, port};
use rustix::process::Signal;

use crate::common::{LONG, Outcome, Running, hold, is_running, rlock, run, run_until, start};

/// Returns the second that is this far from now, as a tick.
pub(crate) fn tick_at(offset: i64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.expect("a clock after 1970").as_secs();
    format!("@{}", now.checked_add_signed(offset).expect("a time"))
}

/// Returns the words of a call of the job `a`, whose window is an hour.
fn call<'a>(tick: &'a str, options: &[&'a str], script: &'a str) -> Vec<&'a str> {
    let words = ["once", "a", "--tick", tick, "--window", "1h"];
    [&words[..], options, &["--", "sh", "-c", script]].concat()
}

async fn called(server: &RedisServer, tick: &str, options: &[&str]) -> Outcome {
    run(&server, &call(tick, options, "echo ran")).await
}

/// Starts a call whose command prints its process id, and runs until its input ends.
async fn running(server: &RedisServer, tick: &str, options: &[&str]) -> (Running, i32) {
    let script = "echo $$; read -r line; exit ${line:-0}";
    let mut running = start(&server, &call(tick, options, script));
    let command = running.number().await;
    (running, command)
}

/// Starts a call with `--retry`, and returns when it waits for the host that runs the tick.
async fn waiting(server: &RedisServer, tick: &str, options: &[&str]) -> Running {
    let options = [&["-v", "--retry"], options].concat();
    let waiting = start(&server, &call(tick, &options, "echo ran"));
    waiting.logs("waiting, because").await;
    waiting
}

#[track_caller]
fn has_run(outcome: &Outcome) {
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(outcome.output, ["ran"], "{outcome:?}");
}

#[track_caller]
fn has_not_run(outcome: &Outcome, code: i32, reason: &str) {
    assert_eq!(outcome.code, Some(code), "{outcome:?}");
    assert!(outcome.output.is_empty(), "{outcome:?}");
    assert!(outcome.log.contains(reason), "{outcome:?}");
}

/// Asserts that a later call does nothing, even with `--retry`.
async fn assert_done(server: &RedisServer, tick: &str) {
    let later = called(server, tick, &["-v", "--retry"]).await;
    has_not_run(&later, 0, "is done");
}

#[tokio::test]
async fn the_first_call_runs_the_command_and_later_ones_do_nothing() {
    let server = RedisServer::start();
    let (tick, other) = (tick_at(0), tick_at(1));
    let first = called(&server, &tick, &[]).await;
    has_run(&first);
    assert_eq!(first.log, "");
    has_not_run(
        &called(&server, &tick, &["-v"]).await,
        0,
        "window of 1h, is done",
    );
    has_not_run(&called(&server, &tick, &["-vE", "9"]).await, 9, "is done");
    assert_done(&server, &tick).await;
    let idle = called(&server, &tick, &[]).await;
    assert_eq!((idle.code, &*idle.log), (Some(0), ""), "{idle:?}");
    has_run(&called(&server, &other, &[]).await);
    let other_job = ["once", "b", "--tick", &tick, "--", "echo", "ran"];
    has_run(&run(&server, &other_job).await);
}

#[tokio::test]
async fn the_tick_and_the_lock_are_in_the_environment_of_the_command() {
    let server = RedisServer::start();
    let script = "echo $RLOCK_TICK $RLOCK_KEY; test $RLOCK_TOKEN -gt 0";
    let words = ["once", "jobs:a", "--", "sh", "-c", script];
    let mut command = rlock(&server, &words);
    let seconds: u64 = tick_at(0)[1..].parse().expect("a number");
    let tick = UNIX_EPOCH + Duration::from_secs(seconds);
    let utc = humantime::format_rfc3339_seconds(tick).to_string();
    let local = tick + Duration::from_secs(5 * 3600 + 30 * 60);
    let local = humantime::format_rfc3339_seconds(local).to_string();
    command.env("RLOCK_TICK", local.replace('Z', "+05:30"));
    let outcome = Running::start(command).end().await.exits(0);
    assert_eq!(outcome.output, [format!("{utc} jobs%3Aa:{utc}")]);
    assert_eq!(outcome.log, "");
}

#[tokio::test]
async fn a_call_long_before_a_tick_or_a_year_after_it_is_an_error() {
    let unused = format!("redis://127.0.0.1:{}/", port::number(&port::listen()));
    let future = tick_at(3700);
    for options in [&[][..], &["--again"]] {
        let outcome = run(&unused, &call(&future, options, "echo ran")).await;
        has_not_run(&outcome, 64, "window of 1h, is too far ahead");
    }
    for tick in ["@0", "@20261127", "2024-02-29T02:00Z"] {
        let outcome = run(&unused, &call(tick, &["--retry"], "echo ran")).await;
        has_not_run(&outcome, 64, "is more than a year ago");
    }
    let server = RedisServer::start();
    has_run(&called(&server, "@0", &["--again"]).await);
    let soon = tick_at(3500);
    has_run(&called(&server, &soon, &[]).await);
    has_not_run(&called(&server, &soon, &["-v"]).await, 0, "is done");
}

#[tokio::test]
async fn a_tick_after_its_window_is_missed_unless_the_store_has_a_record() {
    let server = RedisServer::start();
    let past = tick_at(-3700);
    for (options, code) in [
        (&["-q"][..], 79),
        (&["--retry"], 79),
        (&["-E", "9"], 79),
        (&["--missed-exit-code", "9"], 9),
        (&["--missed-exit-code", "75"], 75),
    ] {
        let missed = "of `a`, with a window of 1h, was missed: ";
        has_not_run(&called(&server, &past, options).await, code, missed);
    }
    assert!(server.keys("lock:{*").await.is_empty(), "only asked");

    let (mut manual, _) = running(&server, &past, &["--again"]).await;
    let words = call(&past, &["-E", "9"], "echo ran");
    let pid = format!("(pid {})", manual.pid());
    let taken = run_until(&server, &words, &pid).await;
    has_not_run(&taken, 9, "is taken: lock `a:");
    manual.send("");
    manual.end().await.exits(0);
    for (options, code) in [(&["-v"][..], 0), (&["-v", "--retry", "-E", "9"], 9)] {
        let done = "is done; ";
        has_not_run(&called(&server, &past, options).await, code, done);
    }
    let idle = called(&server, &past, &[]).await;
    assert_eq!((idle.code, &*idle.log), (Some(0), ""), "{idle:?}");

    server.kill();
    for options in [&[][..], &["--retry"], &["-q"], &["-E", "0"]] {
        has_not_run(&called(&server, &past, options).await, 69, "");
    }
    // It waits for the store until the window has ended.
    let now = tick_at(0);
    let words = ["once", "a", "--retry", "--window", "2s", "--tick", &now];
    let outcome = run(&server, &[&words[..], &["--", "echo", "ran"]].concat()).await;
    has_not_run(&outcome, 69, "");
}

#[tokio::test]
async fn a_tick_whose_only_run_has_failed_with_retry_is_missed_after_its_window() {
    let server = RedisServer::start();
    let tick = tick_at(0);
    let start = |option, script| {
        let words = ["once", "a", "--retry", "--window", "6s", "--tick", &tick];
        let command = ["--", "sh", "-c", script];
        start(&server, &[&words[..], option, &command].concat())
    };
    let mut runner = start(&[], "echo begun; read -r line; exit 3");
    runner.expect("begun").await;
    let taken = start(&["-E", "9"], "echo ran").end().await;
    has_not_run(&taken, 9, "is taken");
    runner.send("");
    runner.end().await.exits(3);
    has_not_run(&start(&[], "echo ran").end().await, 79, "was missed");
}

#[tokio::test]
async fn a_command_that_fails_has_done_its_tick() {
    let server = RedisServer::start();
    for (offset, script, code) in [
        (0, "exit 3", 3),
        (1, "kill -KILL $$", 128 + Signal::KILL.as_raw()),
    ] {
        let tick = tick_at(offset);
        run(&server, &call(&tick, &[], script)).await.exits(code);
        assert_done(&server, &tick).await;
    }
}

#[tokio::test]
async fn with_retry_waiting_hosts_end_when_the_tick_is_done() {
    let server = RedisServer::start();
    let tick = tick_at(0);
    let (mut runner, _) = running(&server, &tick, &["--retry"]).await;
    let others = [
        waiting(&server, &tick, &[]).await,
        waiting(&server, &tick, &["-E", "9"]).await,
    ];
    runner.send("");
    runner.end().await.exits(0);
    for (other, code) in others.into_iter().zip([0, 9]) {
        has_not_run(&other.end().await, code, "window of 1h, is done");
    }
    assert!(server.keys("*:queue").await.is_empty(), "none waits");
}

#[tokio::test]
async fn with_retry_a_waiting_host_ends_with_the_window() {
    let server = RedisServer::start();
    let tick = tick_at(0);
    let (runner, _) = running(&server, &tick, &["--retry"]).await;
    let words = ["once", "a", "--tick", &tick, "--window", "3s", "--retry"];
    let words = [&words[..], &["-E", "9", "--", "echo", "ran"]].concat();
    let outcome = run(&server, &words).await;
    has_not_run(&outcome, 9, "with a window of 3s, is ");
    runner.end().await.exits(0);
}

/// Kills `rlock`, with which its command ends.
async fn kill(mut runner: Running, command: i32) {
    runner.kill();
    eventually(LONG, "it ends", async || !is_running(command)).await;
}

#[tokio::test]
async fn a_host_that_dies_has_done_its_tick() {
    let server = RedisServer::start();
    let tick = tick_at(0);
    let (runner, command) = running(&server, &tick, &["--lease", "1s"]).await;
    kill(runner, command).await;
    for options in [&[][..], &["--again"]] {
        has_not_run(&called(&server, &tick, options).await, 0, "is taken");
    }
    let [key] = &server.keys("lock:{a:*}").await[..] else {
        panic!("one tick")
    };
    let left: i64 = server.command(&["TTL", key]).await;
    assert!(left > 7000, "two windows, not the lease: {left} s");
}

#[tokio::test]
async fn with_retry_a_waiting_host_takes_over_from_one_that_dies_or_loses_its_lock() {
    let server = RedisServer::start();
    let tick = tick_at(0);
    let (runner, command) = running(&server, &tick, &["--retry", "--lease", "5s"]).await;
    let next = waiting(&server, &tick, &[]).await;
    kill(runner, command).await;
    has_run(&next.end().await);
    let tick = tick_at(1);
    let (runner, _) = running(&server, &tick, &["--retry", "--lease", "30m"]).await;
    let next = waiting(&server, &tick, &[]).await;
    let held = server.keys("lock:{a:*}").await;
    let mut lost = 0;
    for key in held {
        lost +=
            i32::from(!server.hgetall(&key).await.contains_key("kept") && server.del(&key).await);
    }
    assert_eq!(lost, 1);
    runner.end().await.exits(124);
    has_run(&next.end().await);
}

#[tokio::test]
async fn with_retry_a_tick_whose_runner_died_is_missed_when_the_window_ends_before_the_lease() {
    let server = RedisServer::start();
    let tick = tick_at(0);
    let (runner, command) = running(&server, &tick, &["--retry", "--lease", "6s"]).await;
    kill(runner, command).await;
    let words = ["once", "a", "--tick", &tick, "--window", "2s", "--retry"];
    let words = [&words[..], &["--", "echo", "ran"]].concat();
    has_not_run(&run(&server, &words).await, 79, "was missed");
}

#[tokio::test]
async fn a_lock_that_a_host_releases_at_once_does_not_count_as_a_run() {
    let server = RedisServer::start();
    let tick = tick_at(0);
    let seconds = tick[1..].parse().expect("a number");
    let time = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(seconds));
    for options in [&["-v"][..], &["-v", "--again"]] {
        // If the call is stopped too late, it finds the lock taken.
        eventually(LONG, "it looks again after the release", async || {
            let mut late = hold(&server, &["--key", &format!("a:{time}")]).await;
            let mut next = start(&server, &call(&tick, options, "echo ran"));
            next.logs("looking again, because").await;
            next.stop();
            late.send("");
            late.end().await.exits(0);
            next.resume();
            let outcome = next.end().await;
            server.flush_all().await;
            let is_late = outcome.log.contains("is taken");
            if !is_late {
                has_run(&outcome);
            }
            !is_late
        })
        .await;
    }
}

#[tokio::test]
async fn a_manual_run_excludes_another_one_and_leaves_the_tick_done() {
    let server = RedisServer::start();
    let tick = tick_at(0);
    // The first one has the lock of the tick, which is not done yet, and the second one has that of manual runs.
    for key in ["a:", ":again"] {
        let (mut manual, _) = running(&server, &tick, &["--again"]).await;
        let words = call(&tick, &["--again"], "echo ran");
        let pid = format!("(pid {})", manual.pid());
        let refused = run_until(&server, &words, &pid).await;
        has_not_run(&refused, 0, "is taken");
        assert!(refused.log.contains(key), "{refused:?}");
        has_not_run(&called(&server, &tick, &["-v"]).await, 0, "of 1h, is");
        manual.send("3");
        manual.end().await.exits(3);
        assert_done(&server, &tick).await;
    }
    let script = "echo $RLOCK_KEY; test $RLOCK_TOKEN -gt 0";
    let outcome = run(&server, &call(&tick, &["--again"], script))
        .await
        .exits(0);
    assert!(outcome.output[0].ends_with(":again"), "{outcome:?}");
}

#[tokio::test]
async fn without_a_tick_it_is_that_of_the_window_with_a_warning() {
    let server = RedisServer::start();
    let words = ["once", "a", "--window", "8h", "--", "sh", "-c"];
    let words = [&words[..], &["echo $RLOCK_TICK"]].concat();
    let first = run(&server, &words).await.exits(0);
    assert!(
        ["T00:00:00Z", "T08:00:00Z", "T16:00:00Z"]
            .iter()
            .any(|time| first.output[0].ends_with(time)),
        "{first:?}"
    );
    let warning = format!("no tick is given, so it is {}, ", first.output[0]);
    assert!(first.log.contains(&warning), "{first:?}");
    let mut named = rlock(&server, &[&["-v"], &words[..]].concat());
    named.env("RLOCK_TICK", &first.output[0]);
    let second = Running::start(named).end().await;
    has_not_run(&second, 0, "is done");
    assert!(!second.log.contains("no tick"), "{second:?}");
}

#[tokio::test]
async fn wrong_usage_exits_with_64_and_says_what_to_do() {
    let unused = format!("redis://127.0.0.1:{}/", port::number(&port::listen()));
    for (options, way_out) in [
        (
            &["--tick", "02:00"][..],
            "'02:00' for '--tick <TIME>': write a time with its offset",
        ),
        (&["--tick", "2026-11-27T02:00"], "`2026-11-27T02:00Z`"),
        (&["--tick", "@0", "--window", "9h"], "between 1s and 8h"),
        (&["--tick", "@0", "--window", "5"], "`30s`"),
        (
            &["--tick", "@0", "--again", "--retry"],
            "cannot be used with",
        ),
        (&[], "<--tick <TIME>|--window <DURATION>>"),
    ] {
        let words = [&["once", "a"], options, &["--", "echo", "ran"]].concat();
        has_not_run(&run(&unused, &words).await, 64, way_out);
    }
    let forgotten = ["once", "--tick", "@0", "a", "echo", "a b"];
    let corrected = "tip: '--' precedes the command: rlock once --tick @0 a -- echo 'a b'\n";
    has_not_run(&run(&unused, &forgotten).await, 64, corrected);
    let mut command = rlock(&unused, &["once", "a", "--", "echo", "ran"]);
    command.env("RLOCK_TICK", "today");
    has_not_run(&Running::start(command).end().await, 64, "'today'");
}
