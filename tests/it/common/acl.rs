//! The permissions of clients, as `docs/security.md` documents them.

use std::collections::{BTreeSet, HashMap};

use rlock_testkit::RedisServer;

const DOCUMENT: &str = include_str!("../../../docs/security.md");

/// Returns the permissions that every server requires.
pub(crate) fn of_a_server() -> String {
    let (_, rest) = DOCUMENT
        .split_once(" -@all\n")
        .expect("the rules of a server");
    let (rules, _) = rest.split_once("```").expect("they end");
    let rules: Vec<&str> = rules.split_whitespace().collect();
    assert!(rules.len() > 20, "{rules:?}");
    rules.join(" ")
}

/// Returns the additional permissions of a topology.
pub(crate) fn beyond(topology: &str) -> String {
    let mut lines = DOCUMENT.lines();
    let rules = lines.find_map(|line| {
        let rules = line.strip_prefix(topology)?.trim_start();
        rules.starts_with('+').then_some(rules)
    });
    rules.expect("they are documented").to_owned()
}

/// Returns the rules of a user with these permissions only.
pub(crate) fn only(rules: &[&str]) -> String {
    let rules = rules.join(" ");
    format!("on >secret resetkeys resetchannels -@all {rules}")
}

/// Returns the refused commands, except `CLIENT SETINFO`, which locks do not need. Redis 6 refuses
/// it as `CLIENT`.
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

/// Returns the commands that any of these servers has refused.
pub(crate) async fn refused_by(
    servers: impl IntoIterator<Item = &RedisServer>,
) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for server in servers {
        all.extend(refused(server).await);
    }
    all
}

/// Returns whether the server can report the permissions of a user, as it can since Redis 7.
pub(crate) async fn can_be_reported(server: &RedisServer) -> bool {
    let ask = "return redis.acl_check_cmd and 1 or 0";
    server.command::<u64>(&["EVAL", ask, "0"]).await == 1
}
