//! Malicious keys.

use std::collections::BTreeSet;

use proptest::{
    collection::{btree_set, vec},
    prelude::*,
    test_runner::TestRunner,
};
use rlock_core::{LockClient, LockError};
use rlock_testkit::RedisServer;
use tokio::runtime::Runtime;

use crate::common::{self, LASTING, assert_notified, client, resp2_client};

/// Generates text with every character that is special in a key, a name, a message, a protocol, a
/// script, a pattern or a log.
fn texts() -> impl Strategy<Value = String> {
    const PIECES: [&str; 23] = [
        "{", "}", ":", "%", "%7B", "\0", "\r\n", "\n", " ", "*", "?", "[a]", "lock:", ":fence",
        ":queue", "client:", "\"", "\\", "é", "鍵", "\u{202e}", "-1", "a",
    ];
    const ATTACKS: [&str; 3] = [
        "$8\r\nFLUSHALL\r\n",
        "' .. redis.call('FLUSHALL') .. '",
        "00000000-0000-0000-0000-000000000000:1 9 9 lock:{k}",
    ];
    let piece = prop_oneof![
        10 => prop::sample::select(&PIECES[..]).prop_map(str::to_owned),
        2 => prop::sample::select(&ATTACKS[..]).prop_map(str::to_owned),
        2 => any::<String>(),
        1 => (0usize..1200).prop_map(|length| "x".repeat(length)),
    ];
    vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

/// Returns whether the documentation allows the key.
fn is_key(text: &str) -> bool {
    let braces: String = text.matches(['{', '}']).collect();
    let tag = braces.is_empty() || braces == "{}" && !text.contains("{}");
    tag && (1..=1024).contains(&text.len())
}

/// Returns the name of the lock on the server.
fn name(key: &str) -> String {
    if key.contains('{') {
        format!("lock:{key}}}")
    } else {
        common::name(key)
    }
}

/// Acquires all of these locks at once, hands each to another process, and leaves nothing.
async fn assert_locks_of_their_own(
    server: &RedisServer,
    clients: (&LockClient, &LockClient),
    keys: &BTreeSet<String>,
) {
    let (one, other) = clients;
    let (keys, others): (Vec<&String>, Vec<&String>) = keys.iter().partition(|key| is_key(key));
    for key in others {
        let error = one.lock(key).acquire().await.expect_err(key);
        assert!(matches!(error, LockError::InvalidKey { .. }), "{error:?}");
    }
    let mut guards = Vec::new();
    for key in &keys {
        let guard = one.lock(*key).lease(LASTING).acquire().await;
        guards.push(guard.unwrap_or_else(|error| panic!("{key:?}: {error}")));
        assert!(server.exists(&name(key)).await, "{key:?}");
    }
    let size: usize = server.command(&["DBSIZE"]).await;
    assert_eq!(size, keys.len() * 2, "a lock and a token each: {keys:?}");
    for guard in guards {
        let key = guard.key().to_owned();
        let info = other.inspect(&key).await.expect("a reply");
        assert_eq!(info.expect("held").owner, guard.owner().to_string());
        guard.release().await.expect("held");
        assert_notified(clients, &key, "whatever a key holds").await;
        assert!(!server.exists(&name(&key)).await, "{key:?}");
    }
    let () = server.command(&["FLUSHALL"]).await;
}

#[test]
fn whatever_a_key_holds_it_is_a_lock_of_its_own() {
    let runtime = Runtime::new().expect("a runtime");
    let server = RedisServer::start();
    let clients = runtime.block_on(async { [client(&server).await, resp2_client(&server).await] });
    let config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(16)
    };
    let outcome = TestRunner::new(config).run(&btree_set(texts(), 0..8), |keys| {
        for by in [(&clients[0], &clients[1]), (&clients[1], &clients[0])] {
            runtime.block_on(assert_locks_of_their_own(&server, by, &keys));
        }
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}
