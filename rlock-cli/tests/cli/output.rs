//! Standard streams: output carries data only, and the log has lines or objects.

use rlock_testkit::RedisServer;

use crate::common::{Outcome, hold, run, run_until, start};

fn messages(outcome: &Outcome) -> Vec<String> {
    let text = |object: &serde_json::Value| object["message"].as_str().map(str::to_owned);
    outcome.objects().iter().filter_map(text).collect()
}

#[tokio::test]
async fn standard_output_and_standard_error_are_those_of_the_command() {
    let server = RedisServer::start();
    let script = ["-k", "a", "--", "sh", "-c", "echo data; echo oops >&2"];
    // With `-n`, because on a busy machine a run that may wait would log that it waits for the server.
    let outcome = run(&server, &[&["run", "-n"], &script[..]].concat()).await;
    assert_eq!((outcome.code, &*outcome.log), (Some(0), "oops\n"));
    assert_eq!(outcome.output, ["data"]);
    for level in ["-vv", "--json"] {
        let outcome = run(&server, &[&["run", level], &script[..]].concat())
            .await
            .exits(0);
        assert_eq!(outcome.output, ["data"], "{level}");
    }
}

#[tokio::test]
async fn standard_input_is_that_of_the_command() {
    let server = RedisServer::start();
    let mut cat = start(&server, &["run", "-k", "a", "--", "cat"]);
    cat.send("one");
    cat.expect("one").await;
    cat.send("two");
    let outcome = cat.end().await;
    assert_eq!(
        (outcome.code, outcome.output),
        (Some(0), vec!["two".to_owned()])
    );
}

#[tokio::test]
async fn with_json_each_line_is_an_object() {
    let server = RedisServer::start();
    let words = ["run", "--json", "-v", "-n", "-k", "a", "--", "true"];
    let outcome = run(&server, &words).await;
    let messages = messages(&outcome);
    for expected in [
        "lock acquired",
        "command started",
        "command ended",
        "locks released",
    ] {
        assert!(
            messages.iter().any(|message| message == expected),
            "{messages:?}"
        );
    }
    for object in outcome.objects() {
        assert_eq!(object["level"], "info", "{object}");
        assert!(object["time"].is_string(), "{object}");
    }
    let acquired = &outcome.objects()[0];
    assert_eq!(acquired["key"], "a");
    assert!(acquired["token"].is_u64(), "{acquired}");
}

#[tokio::test]
async fn with_json_a_refusal_and_a_failure_are_objects_too() {
    let server = RedisServer::start();
    let _holder = hold(&server, &["-k", "a"]).await;
    let words = ["run", "--json", "-n", "-k", "a", "--", "true"];
    let taken = run_until(&server, &words, "it is held by `rlock/").await;
    assert_eq!(taken.objects()[0]["level"], "warn", "{taken:?}");
    let messages = messages(&taken);
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert!(messages[0].starts_with("lock `a` is taken; it is held by `rlock/"));
    let missing = run(
        &server,
        &["run", "--json", "-n", "-k", "b", "--", "/no/such"],
    )
    .await
    .exits(127);
    assert_eq!(missing.objects()[0]["level"], "error", "{missing:?}");
}
