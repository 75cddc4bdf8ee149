//! Servers with missing capabilities: locks work without them, and one log line names the
//! consequences.

use rlock_core::LockClient;
use rlock_testkit::{RedisServer, RedisServerBuilder, eventually};
use tokio::{io::AsyncReadExt as _, net::TcpListener};

use crate::common::log::{keep_log, logged_with};
use crate::common::{
    LASTING, LONG, assert_notices_a_loss, assert_notified, builder, connect, hand_off, ms, resp2,
};

/// Starts a server without these commands.
fn server_without(commands: &[&str]) -> RedisServer {
    keep_log();
    let rename = |server: RedisServerBuilder, command: &&str| {
        server.config("rename-command", &format!("{command} \"\""))
    };
    commands.iter().fold(RedisServer::builder(), rename).start()
}

/// Returns the log lines about missing capabilities of the server.
fn logged(server: &RedisServer) -> Vec<String> {
    logged_with(&[&server.address(), "missing="])
}

/// Asserts that one line reports missing capabilities, with all of these parts.
#[track_caller]
fn assert_logged(server: &RedisServer, parts: &[&str]) {
    let lines = logged(server);
    assert_eq!(lines.len(), 1, "{lines:?}");
    for part in parts {
        assert!(lines[0].contains(part), "no {part:?} in {lines:?}");
    }
}

/// Acquires, enters and releases a lock.
async fn live(client: &LockClient) {
    let lock = client.lock("life").lease(LASTING);
    let outer = lock.acquire().await.expect("free");
    let inner = outer.scope(lock.acquire()).await.expect("enters");
    inner.release().await.expect("held");
    outer.release().await.expect("held");
}

/// A busy server refuses nearly everything, also what it can do.
#[tokio::test]
async fn a_client_that_connects_while_a_script_runs_has_all_capabilities_afterwards() {
    keep_log();
    for is_resp2 in [false, true] {
        let server = RedisServer::builder()
            .config("lua-time-limit", "50")
            .start();
        let url = server.url();
        let url = if is_resp2 { resp2(&url) } else { url };
        let connecting = async {
            tokio::time::sleep(ms(300)).await;
            builder().connect_retry_for(LONG).connect(&url).await
        };
        let ((), client) = tokio::join!(server.run_script_for(ms(1500)), connecting);
        let client = client.expect("the script ends");
        live(&client).await;
        eventually(LONG, "it has subscribed", async || {
            server.listening_clients().await == 1
        })
        .await;
        if !is_resp2 {
            assert_notices_a_loss(&server, &client, true).await;
        }
        assert_eq!(logged(&server), Vec::<String>::new());
    }
}

/// Servers before Redis 6, and some proxies, have no RESP3.
#[tokio::test]
async fn without_resp3_or_tracking_losses_are_found_by_renewals() {
    for (command, what) in [
        (
            "HELLO",
            "RESP3: a lock that is deleted is noticed by the next renewal",
        ),
        ("CLIENT", "CLIENT TRACKING: a lock that is deleted"),
    ] {
        let server = server_without(&[command]);
        let one = connect(&server.url()).await;
        assert_logged(&server, &["WARN", what]);
        live(&one).await;
        // A client that is configured for RESP2 does not miss RESP3.
        let other = connect(&resp2(&server.url())).await;
        live(&other).await;
        assert_logged(&server, &[what]);
        assert_notified((&one, &other), "k", "without RESP3 or tracking").await;
        assert_notices_a_loss(&server, &one, false).await;
    }
}

/// Starts a proxy that ignores what it reads, or closes the connection. Returns its URL.
async fn proxy_without_hello(closes: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("redis://{}/", listener.local_addr().expect("bound"));
    tokio::spawn(async move {
        let mut ignored = Vec::new();
        while let Ok((mut client, _)) = listener.accept().await {
            let _ = client.read_u8().await;
            if !closes {
                ignored.push(client);
            }
        }
    });
    url
}

#[tokio::test]
async fn the_error_for_a_proxy_that_ignores_or_cuts_hello_names_the_older_protocol() {
    for closes in [true, false] {
        let url = proxy_without_hello(closes).await;
        let connecting = LockClient::builder().connect_timeout(ms(500));
        let error = connecting.connect(&url).await.expect_err("no HELLO");
        let text = format!("{error:#}");
        assert!(text.contains("`?protocol=resp2`"), "{text}");
    }
}

#[tokio::test]
async fn every_script_that_a_client_calls_has_a_key() {
    let server = RedisServer::start();
    let mut watch = server.watch_commands().await;
    live(&connect(&server.url()).await).await;
    let seen = watch.seen().await.iter();
    let calls: Vec<_> = seen.filter(|command| command.is("EVALSHA")).collect();
    assert!(calls.len() > 2, "{calls:#?}");
    for call in calls {
        assert_ne!(call.words[2], "0", "{call:?}");
    }
}

#[tokio::test]
async fn without_notifications_waiters_proceed_by_reported_changes_or_timers() {
    for protocol in ["resp3", "resp2"] {
        let server = server_without(&["SUBSCRIBE"]);
        let url = format!("{}?protocol={protocol}", server.url());
        let one = connect(&url).await;
        assert_logged(&server, &["WARN", "SUBSCRIBE: a waiter"]);
        live(&one).await;
        let other = connect(&url).await;
        let (clients, template) = ((&one, &other), "without notifications");
        if protocol == "resp3" {
            assert_notified(clients, "k", template).await;
        } else {
            assert_eq!(hand_off(clients, "k", template).await, "timer");
        }
    }
}

#[tokio::test]
async fn missing_features_are_logged_in_one_line_and_not_again_with_every_connection() {
    let server = server_without(&["HELLO", "SUBSCRIBE"]);
    let client = connect(&server.url()).await;
    live(&client).await;
    for _ in 0..3 {
        assert!(server.kill_clients("normal").await > 0);
        eventually(LONG, "it is connected again", async || {
            client.inspect("k").await.is_ok()
        })
        .await;
    }
    assert_logged(&server, &["RESP3: ", "; SUBSCRIBE: "]);
}
