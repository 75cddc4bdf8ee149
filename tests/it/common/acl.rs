//! What a client is given on its servers: the rules of `docs/security.md`.

use std::collections::{BTreeSet, HashMap};

use rlock_testkit::RedisServer;

const DOCUMENT: &str = include_str!("../../../docs/security.md");

/// What every user needs at every server.
pub(crate) fn of_a_server() -> String {
    let (_, rest) = DOCUMENT
        .split_once(" -@all\n")
        .expect("the rules of a server");
    let (rules, _) = rest.split_once("```").expect("they end");
    let rules: Vec<&str> = rules.split_whitespace().collect();
    assert!(rules.len() > 20, "{rules:?}");
    rules.join(" ")
}

/// What comes on top there.
pub(crate) fn beyond(topology: &str) -> String {
    let mut lines = DOCUMENT.lines();
    let rules = lines.find_map(|line| {
        let rules = line.strip_prefix(topology)?.trim_start();
        rules.starts_with('+').then_some(rules)
    });
    rules.expect("they are documented").to_owned()
}

/// The rules of a user who may do this and nothing else.
pub(crate) fn only(rules: &[&str]) -> String {
    let rules = rules.join(" ");
    format!("on >secret resetkeys resetchannels -@all {rules}")
}

/// What was refused, but for `CLIENT SETINFO`, which only tells the server's operator what connects: not all
/// servers know it, and those before Redis 7 refuse it as `CLIENT`.
pub(crate) async fn refused(server: &RedisServer) -> BTreeSet<String> {
    let log: Vec<HashMap<String, redis::Value>> = server.command(&["ACL", "LOG"]).await;
    let refused = log.iter().map(|entry| match &entry["object"] {
        redis::Value::BulkString(object) => String::from_utf8_lossy(object).into_owned(),
        object => format!("{object:?}"),
    });
    refused
        .filter(|object| !["client", "client|setinfo"].contains(&object.as_str()))
        .collect()
}
