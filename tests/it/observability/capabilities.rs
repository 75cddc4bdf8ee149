//! Servers with missing capabilities: locks work without them, and one log line names the
//! consequences.

use std::time::Duration;

use rlock_core::LockClient;
use rlock_testkit::{RedisServer, eventually};

use crate::common::log::{keep_log, logged_of};
use crate::common::{LONG, builder, connect, hand_over, ms, notices_a_loss, resp2};

/// More than a notification takes, and less than a waiter's timer of five seconds.
const AT_ONCE: Duration = Duration::from_secs(3);

/// Starts a server without these commands.
fn server_without(commands: &[&str]) -> RedisServer {
    keep_log();
    let rename = |server: rlock_testkit::RedisServerBuilder, command: &&str| {
        server.config("rename-command", &format!("{command} \"\""))
    };
    commands.iter().fold(RedisServer::builder(), rename).start()
}

/// Returns the log lines about missing capabilities of the server.
fn logged(server: &RedisServer) -> Vec<String> {
    let mut lines = logged_of(&server.address());
    lines.retain(|line| line.contains("missing="));
    lines
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

/// Acquires, enters, renews and releases a lock.
async fn live(client: &LockClient) {
    let lock = client.lock("life").lease(ms(600));
    let outer = lock.acquire().await.expect("free");
    let inner = outer.scope(lock.acquire()).await.expect("enters");
    tokio::time::sleep(ms(900)).await;
    inner.release().await.expect("held");
    outer.release().await.expect("held");
}

/// Locks work, and only renewals find losses.
async fn assert_losses_are_found_by_renewals(server: &RedisServer, client: &LockClient) {
    live(client).await;
    assert!(hand_over(client, &server.url()).await < AT_ONCE);
    let took = notices_a_loss(server, client).await;
    assert!(took > AT_ONCE && took < ms(8000), "by a renewal: {took:?}");
}

#[tokio::test]
async fn of_a_server_that_can_do_everything_nothing_is_said() {
    let server = server_without(&[]);
    for url in [server.url(), resp2(&server.url())] {
        let client = connect(&url).await;
        live(&client).await;
        assert!(hand_over(&client, &url).await < AT_ONCE);
    }
    assert_eq!(logged(&server), Vec::<String>::new());
}

/// A busy server refuses nearly everything, also what it can do.
#[tokio::test]
async fn a_client_that_connects_while_a_script_runs_has_all_capabilities_afterwards() {
    keep_log();
    for is_resp2 in [false, true] {
        let server = RedisServer::builder()
            .config("lua-time-limit", "50")
            .start();
        let url = if is_resp2 {
            resp2(&server.url())
        } else {
            server.url()
        };
        let connecting = async {
            tokio::time::sleep(ms(300)).await;
            builder().connect_wait(LONG).connect(&url).await
        };
        let ((), client) = tokio::join!(server.run_script_for(ms(1500)), connecting);
        let client = client.expect("the script ends");
        live(&client).await;
        assert_eq!(server.listening_clients().await, 1, "{url}");
        if !is_resp2 {
            assert!(notices_a_loss(&server, &client).await < AT_ONCE);
        }
        assert_eq!(logged(&server), Vec::<String>::new());
    }
}

/// Servers before Redis 6, and some proxies, have no RESP3.
#[tokio::test]
async fn a_server_without_resp3_is_spoken_to_by_resp2() {
    let server = server_without(&["HELLO"]);
    let client = connect(&server.url()).await;
    let what = "RESP3: a lock that is deleted is noticed by the next renewal";
    assert_logged(&server, &["WARN", what]);
    assert_losses_are_found_by_renewals(&server, &client).await;
}

#[tokio::test]
async fn a_client_configured_for_resp2_does_not_report_missing_resp3() {
    let server = server_without(&["HELLO"]);
    live(&connect(&resp2(&server.url())).await).await;
    assert_eq!(logged(&server), Vec::<String>::new());
}

#[tokio::test]
async fn without_tracking_losses_are_found_by_renewals() {
    let server = server_without(&["CLIENT"]);
    let client = connect(&server.url()).await;
    let what = "CLIENT TRACKING: a lock that is deleted";
    assert_logged(&server, &["WARN", what]);
    assert_losses_are_found_by_renewals(&server, &client).await;
}

#[tokio::test]
async fn without_notifications_waiters_proceed_by_reported_changes_or_timers() {
    for (protocol, within) in [("resp3", AT_ONCE), ("resp2", ms(9000))] {
        let server = server_without(&["SUBSCRIBE"]);
        let url = format!("{}?protocol={protocol}", server.url());
        let client = connect(&url).await;
        assert_logged(&server, &["WARN", "SUBSCRIBE: a waiter"]);
        live(&client).await;
        let took = hand_over(&client, &url).await;
        assert!(took < within, "{protocol}: {took:?}");
    }
}

#[tokio::test]
async fn several_that_are_missing_are_told_in_one_line() {
    let server = server_without(&["HELLO", "SUBSCRIBE"]);
    let client = connect(&server.url()).await;
    assert_logged(&server, &["RESP3: ", "; SUBSCRIBE: "]);
    live(&client).await;
}

#[tokio::test]
async fn what_is_missing_is_said_once_and_not_with_every_connection() {
    let server = server_without(&["SUBSCRIBE"]);
    let client = connect(&server.url()).await;
    for _ in 0..3 {
        assert!(server.kill_clients("normal").await > 0);
        eventually(LONG, "it is connected again", async || {
            client.inspect("k").await.is_ok()
        })
        .await;
    }
    assert_logged(&server, &["SUBSCRIBE: "]);
}

/// If the server can list permissions, the line about them is enough.
#[tokio::test]
async fn what_the_user_may_not_do_is_said_once() {
    keep_log();
    let server = RedisServer::builder()
        .acl_user(
            "locker",
            "on >secret resetchannels ~lock:* &lock:* +@all -subscribe",
        )
        .start();
    let client = connect(&server.url_as("locker", "secret")).await;
    live(&client).await;
    let lines = logged_of(&server.address());
    let lines: Vec<_> = lines
        .iter()
        .filter(|line| line.contains("lacks") && line.to_lowercase().contains("subscribe"))
        .collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
}
