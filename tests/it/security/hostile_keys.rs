//! Malicious keys and prefixes.

use std::{collections::BTreeSet, time::Duration};

use futures_util::future::join_all;
use proptest::{
    collection::{btree_set, vec},
    prelude::*,
    test_runner::TestRunner,
};
use rlock_core::{LockClient, LockError};
use rlock_testkit::{RedisServer, eventually};
use tokio::runtime::Runtime;

use crate::common::{LASTING, LONG, acquiring, client, resp2_client};

/// More than a notification takes, and less than a waiter's timer of five seconds.
const NOTIFIED: Duration = Duration::from_secs(4);

/// Generates text with every character that is special in a key, a name, a message, a protocol, a
/// script, a pattern or a log.
fn texts() -> impl Strategy<Value = String> {
    const PIECES: [&str; 28] = [
        "{",
        "}",
        ":",
        "%",
        "%7B",
        "\0",
        "\r\n",
        "\n",
        " ",
        "  ",
        "*",
        "?",
        "[a]",
        "lock:",
        ":fence",
        ":queue",
        "client:",
        "$8\r\nFLUSHALL\r\n",
        "' .. redis.call('FLUSHALL') .. '",
        "\"",
        "\\",
        "é",
        "鍵",
        "\u{202e}",
        "00000000-0000-0000-0000-000000000000:1 9 9 lock:{k}",
        "-1",
        "a",
        "b",
    ];
    let piece = prop_oneof![
        12 => prop::sample::select(&PIECES[..]).prop_map(str::to_owned),
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

fn name(prefix: &str, key: &str) -> String {
    if key.contains('{') {
        format!("{prefix}{key}}}")
    } else {
        format!("{prefix}{{{key}}}")
    }
}

/// Acquires all of these locks at once, hands each to another process, and leaves nothing.
async fn assert_locks_of_their_own(
    server: &RedisServer,
    prefix: &str,
    (one, other): (&LockClient, &LockClient),
    keys: &BTreeSet<String>,
) {
    let (keys, others): (Vec<&String>, Vec<&String>) = keys.iter().partition(|key| is_key(key));
    for key in others {
        let error = one.lock(key).acquire().await.expect_err(key);
        assert!(matches!(error, LockError::InvalidKey { .. }), "{error:?}");
    }
    let mut guards = Vec::new();
    for key in &keys {
        let guard = one.lock(*key).lease(LASTING).acquire().await;
        guards.push(guard.unwrap_or_else(|error| panic!("{key:?}: {error}")));
        assert!(server.exists(&name(prefix, key)).await, "{key:?}");
    }
    let size: usize = server.command(&["DBSIZE"]).await;
    assert_eq!(size, keys.len() * 2, "a lock and a token each: {keys:?}");
    let hand_over = guards.into_iter().map(|guard| async move {
        let key = guard.key().to_owned();
        let info = other.inspect(&key).await.expect("a reply");
        assert_eq!(info.expect("held").owner, guard.owner().to_string());
        let waiting = acquiring(other.lock(&key).lease(LASTING).wait(LONG));
        let queue = format!("{}:queue", name(prefix, &key));
        eventually(LONG, "it is waited for", async || {
            server.command::<u64>(&["ZCARD", &queue]).await == 1
        })
        .await;
        guard.release().await.expect("held");
        let next = tokio::time::timeout(NOTIFIED, waiting).await;
        let next = next.unwrap_or_else(|_| panic!("no notification of {key:?}"));
        let next = next.expect("no panic").expect("its turn");
        assert_eq!(next.key(), key);
        next.release().await.expect("held");
    });
    join_all(hand_over).await;
    for key in &keys {
        assert!(!server.exists(&name(prefix, key)).await, "{key:?}");
    }
    let () = server.command(&["FLUSHALL"]).await;
}

fn runner(cases: u32) -> TestRunner {
    TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(cases)
    })
}

#[test]
fn whatever_a_key_holds_it_is_a_lock_of_its_own() {
    let runtime = Runtime::new().expect("a runtime");
    let server = RedisServer::start();
    let clients = runtime.block_on(async { [client(&server).await, resp2_client(&server).await] });
    let outcome = runner(48).run(&btree_set(texts(), 0..8), |keys| {
        for by in [(&clients[0], &clients[1]), (&clients[1], &clients[0])] {
            runtime.block_on(assert_locks_of_their_own(&server, "lock:", by, &keys));
        }
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn whatever_a_prefix_holds_names_begin_with_it() {
    let runtime = Runtime::new().expect("a runtime");
    let server = RedisServer::start();
    let keys: BTreeSet<String> = ["k", "{k}", "k{k}", "a b", ":", "k:fence"]
        .map(str::to_owned)
        .into();
    let outcome = runner(24).run(&texts(), |prefix| {
        runtime.block_on(async {
            let url = server.url();
            let connect = || LockClient::builder().prefix(&prefix).connect(&url);
            if prefix.contains(['{', '}']) || prefix.len() > 256 {
                let error = connect().await.expect_err("no prefix");
                assert!(
                    matches!(error, LockError::InvalidOption { .. }),
                    "{error:?}"
                );
                assert!(!error.to_string().contains(char::is_control));
                return;
            }
            let clients = (
                connect().await.expect("a prefix"),
                connect().await.expect("a prefix"),
            );
            assert_locks_of_their_own(&server, &prefix, (&clients.0, &clients.1), &keys).await;
        });
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}
