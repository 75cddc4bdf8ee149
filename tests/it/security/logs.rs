//! Errors and logs never contain a password or a line of an attacker.

use std::{
    error::Error,
    fmt::{Debug, Write},
};

use rlock_core::{LockClient, LockError, LostCause, current};
use rlock_testkit::{RedisServer, eventually};

use crate::common::log::{keep_log, logged, logged_of};
use crate::common::{
    LASTING, LONG, assert_lost, builder, client, connect, connect_with, hold, ms, name,
};

/// A part of every password here. In URLs, `%` starts an escape and `é` is escaped.
const SECRET: &str = "Pa55w0rd";

/// The password in URLs: `:`, `/`, `?`, `#`, `@`, `%`, a space and an `é`.
const ENCODED: &str = "a%3A%2F%3F%23%40%25%20%C3%A9Pa55w0rd";
const DECODED: &str = "a:/?#@% éPa55w0rd";

fn assert_no_secret(shown: &str, of: &str) {
    let shown = shown.to_lowercase();
    for secret in [SECRET, "%50a55", "a:/?#@%", "a%3A%2F"] {
        assert!(!shown.contains(&secret.to_lowercase()), "{of}: {shown}");
    }
}

/// Returns the text of an error and of its sources.
fn all_of(error: &LockError) -> String {
    let mut said = format!("{error} {error:?} {error:#?}");
    let mut source = error.source();
    while let Some(error) = source {
        let _ = write!(said, " {error} {error:?}");
        source = error.source();
    }
    said
}

fn assert_silent(value: &dyn Debug) {
    assert_no_secret(&format!("{value:?} {value:#?}"), "Debug");
}

/// Starts a server with that password for the default user and for a user `alice`.
fn server() -> RedisServer {
    let rules = format!("on \">{DECODED}\" ~lock:* &lock:* +@all");
    RedisServer::builder()
        .acl_user("default", &rules)
        .acl_user("alice", &rules)
        .start()
}

#[tokio::test]
async fn no_password_is_in_any_error() {
    keep_log();
    let server = server();
    let at = server.address();
    let socket = server.unix_url();
    let unused = RedisServer::start().address();
    for url in [
        format!("redis://:wrong{ENCODED}@{at}/"),
        format!("redis://alice:wrong{ENCODED}@{at}/"),
        format!("{socket}?user=alice&pass=wrong{ENCODED}"),
        format!("redis://alice:{ENCODED}@{unused}/"),
        format!("rediss://alice:{ENCODED}@{at}/"),
        format!("redis://alice:{ENCODED}@{at}/x"),
        format!("redis://alice:{ENCODED}@{at}:70000/"),
        format!("redis://alice:{ENCODED}@{at}/?protocol=resp9"),
        format!("redis://alice:1234/{SECRET}@{at}/"),
        format!("redis:alice:{SECRET}@{at}"),
        format!("alice:{SECRET}@{at}"),
        format!("{SECRET}://{at}@"),
        format!("unix://alice:{SECRET}@localhost/redis.sock"),
        format!("unix:///nowhere.sock?pass={ENCODED}&db=x"),
        format!("redis://alice:{SECRET}%ff@{at}/"),
    ] {
        let builder = LockClient::builder().connect_timeout(ms(1500));
        assert_silent(&builder);
        let Err(error) = builder.connect(&url).await else {
            panic!("{url} is let in")
        };
        assert_no_secret(&all_of(&error), &url);
    }
    assert_no_secret(&logged(), "the log");
}

#[tokio::test]
async fn no_password_is_in_anything_that_a_client_shows_or_logs() {
    keep_log();
    let server = server();
    let (at, socket) = (server.address(), server.unix_url());
    for url in [
        format!("redis://:{ENCODED}@{at}/"),
        format!("redis://alice:{ENCODED}@{at}/?protocol=resp2"),
        format!("{socket}?user=alice&pass={ENCODED}"),
    ] {
        let client = connect_with(LONG, &url).await;
        let lock = client.lock("k").lease(LASTING).wait(LONG);
        let guard = lock.acquire().await.expect("free");
        let shown = async { assert_silent(&current().expect("inside")) };
        guard.scope(shown).await;
        let info = client.inspect("k").await.expect("a reply");
        for value in [&client as &dyn Debug, &lock, &guard, &guard.owner(), &info] {
            assert_silent(value);
        }
        // Reconnecting logs the most.
        server.kill_all_clients().await;
        guard.release().await.expect("held");
        assert_silent(&lock.acquire().await.expect("free"));
        client.shutdown().await.expect("released");
    }
    // The server refuses this client while it reconnects.
    let client = connect(&format!("redis://alice:{ENCODED}@{at}/")).await;
    let change = ["ACL", "SETUSER", "alice", "resetpass", ">another"];
    let () = server.command(&change).await;
    server.kill_all_clients().await;
    let lock = client.lock("k").wait(ms(500));
    eventually(LONG, "it is refused", async || {
        let Err(error) = lock.acquire().await else {
            return false;
        };
        assert_no_secret(&all_of(&error), "the error");
        matches!(error, LockError::Refused { .. })
    })
    .await;
    drop(client);
    for part in ["connecting failed", "WRONGPASS"] {
        let is_logged = async || logged_of(&at).iter().any(|line| line.contains(part));
        eventually(LONG, part, is_logged).await;
    }
    assert_no_secret(&logged(), "the log");
}

#[tokio::test]
async fn a_key_never_begins_a_line_of_its_own() {
    const KEY: &str = "k\r\n2026-01-01T00:00:00Z ERROR forged: \u{1b}[2J\u{2028}\u{202e}";
    keep_log();
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let guard = hold(&one, KEY).await;
    assert_eq!(guard.key(), KEY, "what it is, not how it is shown");
    let timeout = other.lock(KEY).wait(ms(2000)).acquire().await;
    let timeout = timeout.expect_err("held");
    assert!(matches!(&timeout, LockError::Taken { key, .. } if key == KEY));
    assert!(server.del(&name(KEY)).await);
    assert_lost(&guard, LONG, LostCause::Removed).await;
    let lost = guard.release().await.expect_err("lost");
    assert!(matches!(&lost, LockError::Lost { key, .. } if key == KEY));
    let () = server.command(&["SET", &name(KEY), "text"]).await;
    let foreign = one.lock(KEY).acquire().await.expect_err("no lock");
    let invalid = one.lock(format!("{KEY}{{")).acquire().await;
    server.kill();
    let gone = one.lock(KEY).wait(ms(50)).acquire().await;
    let gone = gone.expect_err("gone");
    for error in [timeout, lost, foreign, invalid.expect_err("a brace"), gone] {
        let said = format!("{error:#}");
        assert!(said.contains("k\\r\\n2026"), "{said}");
        assert!(!said.contains(char::is_control), "{said:?}");
        assert!(!said.contains(['\u{2028}', '\u{202e}']), "{said:?}");
    }
    let lines = logged_of("forged");
    let is_lost = lines.iter().any(|line| line.contains("lock lost"));
    assert!(is_lost, "{lines:?}");
    for line in lines {
        assert!(line.contains("k\\r\\n2026"), "{line:?}");
        let special = line.contains(['\u{1b}', '\u{2028}', '\u{202e}']);
        assert!(!special, "{line:?}");
    }
}

/// Servers count wrong passwords, and may block a user.
#[tokio::test]
async fn a_wrong_password_is_tried_once() {
    keep_log();
    let server = server();
    let url = format!("redis://alice:wrong@{}/", server.address());
    let error = builder().connect(&url).await.expect_err("refused");
    assert!(format!("{error:#}").contains("WRONGPASS"), "{error:#}");
    let log: Vec<Vec<redis::Value>> = server.command(&["ACL", "LOG"]).await;
    assert_eq!(log.len(), 1, "{log:?}");
    let text = |text: &str| redis::Value::BulkString(text.into());
    let once = [
        text("count"),
        redis::Value::Int(1),
        text("reason"),
        text("auth"),
    ];
    assert_eq!(log[0][..4], once);
}
