//! Holders of locks for the tests of several subcommands, and common tests of these subcommands.

use std::time::Duration;

use rlock_core::LockClient;
use rlock_testkit::{RedisServer, port};
use serde_json::Value;

use crate::common::{Outcome, run, run_until, until_queued};

/// The subcommands that connect to the store, with their arguments.
const CONNECTING: [&[&str]; 10] = [
    &["run", "-n", "-k", "a", "--", "echo", "ran"],
    &["leader", "a"],
    &["wait", "a"],
    &["ls"],
    &["ls", "--scan"],
    &["inspect", "order:42"],
    &["extend", "order:42", "--token", "1", "--lease", "1m"],
    &["release", "order:42", "--force", "--yes"],
    &["top"],
    &["doctor"],
];

/// A user that may only acquire and release locks.
pub(crate) const LOCKER: &str = "on >s3cret resetkeys ~lock:* -@all +evalsha +script|load +get +hdel +hexists +hget \
    +hset +pexpire +pttl +set +time +hgetall +exists";

pub(crate) async fn client(server: &RedisServer) -> LockClient {
    let builder = LockClient::builder().response_timeout(Duration::from_secs(10));
    builder.connect(&server.url()).await.expect("it runs")
}

/// Returns the lines of standard output as objects.
pub(crate) fn objects(outcome: &Outcome) -> Vec<Value> {
    let parse =
        |line: &String| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"));
    outcome.output.iter().map(parse).collect()
}

#[tokio::test]
async fn without_a_server_each_subcommand_exits_with_69() {
    let unused = format!(
        "redis://:s3cret@127.0.0.1:{}/",
        port::number(&port::listen())
    );
    for words in CONNECTING {
        let outcome = run(&unused, words).await.exits(69);
        assert!(outcome.output.is_empty(), "{words:?}: {outcome:?}");
        assert!(outcome.log.contains("refused"), "{words:?}: {outcome:?}");
        assert!(!outcome.log.contains("s3cret"), "{words:?}: {outcome:?}");
    }
}

#[tokio::test]
async fn an_embedded_store_and_a_wrong_url_exit_with_64() {
    for url in ["memory:orders", "redis:s3cret", "http://u:s3cret@h/"] {
        for words in CONNECTING {
            let outcome = run(url, words).await.exits(64);
            assert!(outcome.output.is_empty(), "{outcome:?}");
            assert!(!outcome.log.contains("s3cret"), "{outcome:?}");
            let reason = outcome.log.contains("locks nothing");
            assert_eq!(reason, url.starts_with("memory:"), "{outcome:?}");
        }
    }
}

#[tokio::test]
async fn a_missing_permission_exits_with_69_and_is_named() {
    let server = RedisServer::builder().acl_user("locker", LOCKER).start();
    let url = server.url_as("locker", "s3cret");
    let holder = client(&server).await;
    let _guard = holder.lock("order:42").acquire().await.expect("free");
    for (words, command) in [
        (&["ls"][..], "pubsub"),
        (&["top"], "pubsub"),
        (&["ls", "--scan"], "scan"),
        (&["release", "order:42", "--revoke", "--yes"], "publish"),
    ] {
        let outcome = run(&url, words).await.exits(69);
        assert!(
            outcome.log.contains(&format!("'{command}")),
            "{words:?}: {outcome:?}"
        );
    }
    // The holder does not reply, but the store does.
    let outcome = run(&url, &["inspect", "order:42"]).await.exits(0);
    assert!(outcome.output[1].contains("does not reply"), "{outcome:?}");
}

/// The rules of the user `operator` on the page about security.
fn operator() -> String {
    const PAGE: &str = include_str!("../../../docs/security.md");
    let (_, rules) = PAGE
        .split_once("ACL SETUSER operator on >password ")
        .expect("the user");
    let (rules, _) = rules.split_once("```").expect("the end");
    let rules: Vec<&str> = rules.split_whitespace().collect();
    format!("on >s3cret {}", rules.join(" "))
}

#[tokio::test]
async fn an_operator_who_looks_needs_the_permissions_of_the_page() {
    let server = RedisServer::builder()
        .acl_user("operator", &operator())
        .start();
    let url = server.url_as("operator", "s3cret");
    let (holder, waiter) = (client(&server).await, client(&server).await);
    let guard = holder.lock("order:42").acquire().await.expect("free");
    let shared = holder.lock("report:7").shared().acquire().await;
    let _shared = shared.expect("free");
    let waiter =
        tokio::spawn(async move { waiter.lock("order:42").wait_forever().acquire().await });
    until_queued(&server, "order:42").await;
    let () = server.command(&["ACL", "LOG", "RESET"]).await;
    for (words, expected) in [
        (&["ls"][..], "order:42"),
        (&["ls", "--scan"], "order:42"),
        (&["inspect", "order:42"], "1 other process"),
        (&["inspect", "order:42", "--json"], "\"waiter_count\":1"),
        (&["inspect", "report:7"], "report:7"),
        (
            &["release", "order:42", "--revoke", "--yes"],
            "its holder stops its body",
        ),
    ] {
        run_until(&url, words, expected).await.exits(0);
    }
    let log: Vec<Vec<redis::Value>> = server.command(&["ACL", "LOG"]).await;
    let log: Vec<String> = log.iter().map(|entry| format!("{entry:?}")).collect();
    let refused: Vec<&String> = log
        .iter()
        .filter(|entry| !entry.contains("setinfo"))
        .collect();
    assert!(refused.is_empty(), "{refused:?}");
    guard.lost().await;
    drop(guard);
    drop(waiter.await.expect("no panic").expect("it is served"));
}
