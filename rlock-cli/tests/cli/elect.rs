//! `rlock elect` and `rlock leader`: one host leads, and the command runs in each of its terms.

use std::process::Command;

use rlock_testkit::RedisServer;
use rustix::process::Signal;
use serde_json::Value;

use crate::{
    common::{PATIENT, Running, is_running, run, run_until, start, until_queued},
    holders::objects,
};

/// Shows its term, and runs until a signal.
const LEAD: &str = "echo $RLOCK_TERM; exec sleep 600";

/// Shows its term, and ends after a request and a line.
const FINISH: &str = "trap 'echo asked; read -r line; echo $line; exit 0' TERM
    echo $RLOCK_TERM; while :; do sleep 0.05; done";

fn electing(server: &RedisServer, options: &[&str], script: &str) -> Running {
    let words = [&["elect", "a"], options, &["--", "sh", "-c", script]].concat();
    start(&server, &words)
}

/// Reads the number of the term.
async fn term(running: &mut Running) -> u64 {
    let line = running.line().await;
    line.parse().unwrap_or_else(|_| panic!("no term: {line}"))
}

/// Asks the leader to resign, until it has received that.
async fn ask_to_resign(server: &RedisServer) {
    let text = "lock `a`: its holder was asked to release it, and does so when it is ready";
    run_until(&server, &["release", "a", "--ask", "--yes"], text)
        .await
        .exits(0);
}

#[tokio::test]
async fn another_host_leads_when_the_leader_is_killed() {
    let server = RedisServer::start();
    let mut one = electing(&server, &["--lease", "2s"], LEAD);
    let first = term(&mut one).await;
    let mut other = electing(&server, &["--lease", "2s"], LEAD);
    until_queued(&server, "a").await;
    one.kill();
    assert!(term(&mut other).await > first);
}

#[tokio::test]
async fn a_leader_that_is_stopped_resigns_at_once_and_ends_with_the_status_of_its_command() {
    let server = RedisServer::start();
    // The lease does not end within the test.
    let options = ["--lease", "10h"];
    let script =
        "trap 'echo usr1' USR1; trap 'exit 7' TERM; echo $RLOCK_TERM; while :; do sleep 0.05; done";
    let mut one = electing(&server, &options, script);
    let first = term(&mut one).await;
    let mut other = electing(&server, &options, script);
    until_queued(&server, "a").await;
    // For the command alone: a candidate has none.
    other.signal(Signal::USR1);
    one.signal(Signal::USR1);
    one.expect("usr1").await;
    one.signal(Signal::TERM);
    one.end().await.exits(7);
    assert!(term(&mut other).await > first);
    let candidate = electing(&server, &options, script);
    until_queued(&server, "a").await;
    candidate.signal(Signal::INT);
    candidate.end().await.exits(130);
    assert!(
        !server.exists("lock:{a}:queue").await,
        "it has left the queue"
    );
    other.signal(Signal::TERM);
    other.end().await.exits(7);
    assert!(!server.exists("lock:{a}").await, "it has resigned");
}

#[tokio::test]
async fn a_command_that_ends_runs_again_in_a_later_term_after_a_growing_pause() {
    let server = RedisServer::start();
    let script = "echo $RLOCK_TERM; echo $RLOCK_TOKEN $RLOCK_KEY $RLOCK_KEYS; exit 3";
    let mut running = electing(&server, &[], script);
    let mut latest = 0;
    for pause in ["100ms", "200ms", "400ms"] {
        let term = term(&mut running).await;
        assert!(term > latest);
        latest = term;
        running.expect(&format!("{term} a 1")).await;
        running.logs(&format!("after={pause} status=3")).await;
    }
    running.signal(Signal::TERM);
    let outcome = running.end().await;
    assert!([Some(3), Some(143)].contains(&outcome.code), "{outcome:?}");
    assert!(!server.exists("lock:{a}").await, "it has resigned");
}

#[tokio::test]
async fn a_command_that_cannot_be_executed_ends_the_candidate() {
    let server = RedisServer::start();
    for (program, status) in [("/nonexistent", 127), ("/", 126)] {
        let outcome = run(&server, &["elect", "a", "--", program])
            .await
            .exits(status);
        assert!(outcome.log.contains("could not execute"), "{outcome:?}");
        assert!(!server.exists("lock:{a}").await, "it has resigned");
    }
}

#[tokio::test]
async fn a_lost_leadership_ends_the_command_before_the_next_term() {
    let server = RedisServer::start();
    // Ignores the signal, so that it is killed.
    let script = "trap '' TERM; echo $RLOCK_TERM; echo $$; while :; do sleep 0.05; done";
    let mut running = electing(&server, &["--kill-after", "300ms"], script);
    let first = term(&mut running).await;
    let command = running.number().await;
    run(&server, &["release", "a", "--force", "--yes"])
        .await
        .exits(0);
    assert!(term(&mut running).await > first);
    assert!(!is_running(command));
    assert!(running.log().contains("stopping the command"));
    let second = running.number().await;
    // The command ignores this signal. `rlock` ends with the command all the same.
    running.signal(Signal::TERM);
    assert!(server.del("lock:{a}").await);
    running.end().await.exits(137);
    assert!(!is_running(second));
}

#[tokio::test]
async fn a_leader_that_is_asked_to_resign_finishes_its_work_and_campaigns_again() {
    let server = RedisServer::start();
    // A command that has to stop because of a loss is killed at once.
    let options = ["--lease", "10h", "--kill-after", "0s"];
    let mut one = electing(&server, &options, FINISH);
    let mut latest = term(&mut one).await;
    let mut other = electing(&server, &options, FINISH);
    for _ in 0..2 {
        until_queued(&server, "a").await;
        ask_to_resign(&server).await;
        one.expect("asked").await;
        let pid = format!("\"pid\":{},", one.pid());
        let outcome = run_until(&server, &["leader", "a", "--json"], &pid).await;
        assert_eq!(
            objects(&outcome)[0]["leader"]["term"],
            latest,
            "it still leads"
        );
        one.send("done");
        one.expect("done").await;
        let next = term(&mut other).await;
        assert!(next > latest);
        latest = next;
        (one, other) = (other, one);
    }
}

#[tokio::test]
async fn without_a_leader_there_is_none_to_show() {
    let server = RedisServer::start();
    let none = "election `a` has no leader";
    let outcome = run(&server, &["leader", "a"]).await;
    assert_eq!((outcome.code, &*outcome.log), (Some(1), ""), "{outcome:?}");
    assert_eq!(outcome.output, [none]);
    let outcome = run(&server, &["leader", "a", "--json"]).await.exits(1);
    assert_eq!(outcome.output, [r#"{"key":"a","leader":null}"#]);
    for words in [
        &["leader", ""][..],
        &["leader", "", "--watch"],
        &["elect", "", "--", "true"],
    ] {
        run(&server, words).await.exits(64);
    }
}

#[tokio::test]
async fn a_silent_leader_is_shown_even_if_its_term_is_unknown() {
    let server = RedisServer::start();
    let mut leader = electing(&server, &["--lease", "10h"], LEAD);
    let term = term(&mut leader).await;
    leader.signal(Signal::STOP);
    let shown = |term: &str| format!("term {term}: a process that does not reply (lease: 9h");
    // The fence has the first of the 128 tokens of the term.
    let first = (term / 128 * 128).to_string();
    for (term, number) in [
        (&*first, Value::from(term / 128 * 128)),
        ("unknown", Value::Null),
    ] {
        run_until(&server, &["leader", "a"], &shown(term))
            .await
            .exits(0);
        let outcome = run(&server, &["leader", "a", "--json"]).await.exits(0);
        let object = &objects(&outcome)[0]["leader"];
        assert_eq!(
            (&object["term"], &object["holder"]),
            (&number, &Value::Null)
        );
        assert!(
            object["lease_left_ms"]
                .as_u64()
                .is_some_and(|left| left > 0),
            "{object}"
        );
        server.del("lock:{a}:fence").await;
    }
    server.del("lock:{a}").await;
    run(&server, &["leader", "a"]).await.exits(1);
    leader.signal(Signal::CONT);
}

#[tokio::test]
async fn a_leader_is_shown_with_its_term_and_its_value() {
    let server = RedisServer::start();
    let mut leader = electing(&server, &["--value", "10.0.3.7:8080"], LEAD);
    let term = term(&mut leader).await;
    let pid = format!("(pid {})", leader.pid());
    let output = run_until(&server, &["leader", "a"], &pid).await.output;
    let [line] = &output[..] else {
        panic!("one line: {output:?}");
    };
    let (first, last) = (format!("term {term} since 20"), ", value 10.0.3.7:8080");
    assert!(line.starts_with(&first) && line.ends_with(last), "{line}");
    assert!(
        line.contains("Z: `rlock/") && line.contains(", for "),
        "{line}"
    );
    let pid = format!("\"pid\":{},", leader.pid());
    let outcome = run_until(&server, &["leader", "a", "--json"], &pid).await;
    let object = &objects(&outcome)[0];
    let leader = &object["leader"];
    assert_eq!(
        (&object["key"], &leader["term"], &leader["value"]),
        (&"a".into(), &term.into(), &"10.0.3.7:8080".into())
    );
    assert!(
        leader["since"]
            .as_str()
            .is_some_and(|since| since.ends_with('Z'))
    );
    let shown = format!(" {} [10.0.3.7:8080]", leader["holder"]["pid"]);
    run_until(&server, &["ls"], &shown).await;
    run_until(&server, &["inspect", "a"], "value     10.0.3.7:8080").await;
    run_until(
        &server,
        &["inspect", "a", "--json"],
        "\"value\":\"10.0.3.7:8080\"",
    )
    .await;
    let mut top = start(&server, &["top"]);
    while !top.line().await.contains(&shown) {}
}

#[tokio::test]
async fn a_value_of_a_kilobyte_is_announced_and_a_longer_one_exits_with_64() {
    let server = RedisServer::start();
    let (longest, longer) = ("x".repeat(1024), "x".repeat(1025));
    let mut leader = electing(&server, &["--value", &longest], LEAD);
    term(&mut leader).await;
    run_until(&server, &["leader", "a"], &format!(", value {longest}")).await;
    // A list is not as wide as the value.
    let list = run_until(&server, &["ls"], "[xxx").await.output;
    assert!(list[0].chars().count() < 200, "{list:?}");
    let words = ["elect", "a", "--value", &longer, "--", "true"];
    let outcome = run(&server, &words).await.exits(64);
    let text = "a leader announces at most 1,024 bytes";
    assert!(outcome.log.contains(text), "{outcome:?}");
}

/// Reads lines of an observer until one shows this term, or no leader for `None`. Asserts that terms are in order.
async fn until_shown(observer: &mut Running, term: Option<u64>) {
    let mut latest = 0;
    while term != Some(latest) {
        let line = observer.line().await;
        if ["election `a` has no leader", r#"{"key":"a","leader":null}"#].contains(&&*line) {
            if term.is_none() {
                return;
            }
            continue;
        }
        let number = serde_json::from_str::<Value>(&line).map_or_else(
            |_| line.split(' ').nth(1).and_then(|term| term.parse().ok()),
            |object| object["leader"]["term"].as_u64(),
        );
        let number = number.unwrap_or_else(|| panic!("no term: {line}"));
        assert!(number >= latest, "{line}");
        latest = number;
    }
}

#[tokio::test]
async fn an_observer_sees_each_change_until_its_output_is_closed() {
    let server = RedisServer::start();
    let mut text = start(&server, &["leader", "a", "--watch"]);
    let mut json = start(&server, &["leader", "a", "--watch", "--json"]);
    let mut latest = 0;
    for _ in 0..3 {
        let mut leader = electing(&server, &["--value", "here"], LEAD);
        let next = term(&mut leader).await;
        assert!(next > latest);
        latest = next;
        for observer in [&mut text, &mut json] {
            until_shown(observer, Some(latest)).await;
        }
        leader.signal(Signal::TERM);
        leader.end().await.exits(128 + Signal::TERM.as_raw());
        for observer in [&mut text, &mut json] {
            until_shown(observer, None).await;
        }
    }
    // Nothing changes any more. `head` ends after one line, and the pipeline when its programs have ended.
    let mut shell = Command::new("bash");
    let pipeline = "set -o pipefail; \"$0\" leader a --watch | head -n 1";
    shell.args(["-c", pipeline, env!("CARGO_BIN_EXE_rlock")]);
    shell.envs([PATIENT]).env("RLOCK_URL", server.url());
    let outcome = Running::start(shell).end().await;
    assert_eq!(
        (outcome.code, outcome.output.len()),
        (Some(0), 1),
        "{outcome:?}"
    );
}
