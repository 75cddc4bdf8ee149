//! Keys and holders that attack the terminal of an operator.

use rlock_testkit::RedisServer;
use tokio::task::JoinHandle;

use crate::{
    common::{run_until, start},
    holders::{client, objects},
    terminal::Shell,
};

/// Text that clears a screen, colours it, breaks a line and reverses the writing direction.
const HOSTILE: &str = "x\u{1b}[2J\u{1b}]0;t\u{7}\u{9b}31m\r\n\u{202e}y";

/// Panics if something in these lines could control a terminal or mislead its reader.
fn assert_harmless<'a>(lines: impl Iterator<Item = &'a str>) {
    for line in lines {
        let is_bad = |c: char| c.is_control() || c == '\u{202e}';
        assert!(!line.contains(is_bad), "{line:?}");
    }
}

/// A client that owns this lock, and replies with hostile text.
async fn hostile(server: &RedisServer, key: &str) -> JoinHandle<()> {
    const CLIENT: &str = "11111111-2222-4333-8444-555555555555";
    let owner = format!("{CLIENT}:1");
    let lock = format!("lock:{{{key}}}");
    let _: u64 = server.command(&["HSET", &lock, &owner, "1"]).await;
    let _: u64 = server.command(&["PEXPIRE", &lock, "3600000"]).await;
    let channel = format!("lock:client:{CLIENT}");
    let redis = redis::Client::open(format!("{}?protocol=resp3", server.url())).expect("a URL");
    let (sender, mut messages) = tokio::sync::mpsc::unbounded_channel();
    let config = redis::AsyncConnectionConfig::new().set_push_sender(sender);
    let connecting = redis.get_multiplexed_async_connection_with_config(&config);
    let mut connection = connecting.await.expect("it runs");
    connection.subscribe(&channel).await.expect("it may");
    let mut answers = redis
        .get_multiplexed_async_connection()
        .await
        .expect("it runs");
    let encoded = |text: &str| {
        let encode = |byte: u8| format!("%{byte:02X}");
        text.bytes().map(encode).collect::<String>()
    };
    let (key, owner, text) = (encoded(key), encoded(&owner), encoded(HOSTILE));
    tokio::spawn(async move {
        let _connection = connection;
        while let Some(push) = messages.recv().await {
            let Some(redis::Value::BulkString(message)) = push.data.last() else {
                continue;
            };
            let message = String::from_utf8_lossy(message);
            let fields: Vec<&str> = message.split('\t').collect();
            let ["@ask", from, number, ..] = fields[..] else {
                continue;
            };
            // Databases, more, lost; key, owner, count, lease, token, retained, wanted; service to pid; held for; lock
            // to trace; waiters, renewals, asked to release it for; values, the latest value.
            let answer = format!(
                "@tell\t{number}\tlocks\t0\t0\t0\t{key}\t{owner}\t1\t60000\t7\t0\t1\t{text}\t{text}\t{text}\t4711\t1000\t\
                 {text}\t{text}\t{text}\t2\t3\t\t1\t{text}"
            );
            let sent: redis::RedisResult<u64> = redis::cmd("PUBLISH")
                .arg(format!("lock:client:{from}"))
                .arg(answer)
                .query_async(&mut answers)
                .await;
            sent.expect("it may publish");
        }
    })
}

#[tokio::test]
async fn hostile_keys_and_holders_do_not_reach_the_terminal() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let _guard = client
        .lock(format!("a{HOSTILE}"))
        .acquire()
        .await
        .expect("free");
    let liar = hostile(&server, "order:42").await;
    for words in [
        &["ls"][..],
        &["ls", "--scan"],
        &["ls", "--json"],
        &["inspect", "order:42"],
        &["inspect", "order:42", "--json"],
        &["inspect", HOSTILE],
        &["leader", "order:42"],
        &["leader", "order:42", "--json"],
        &["release", "order:42", "--token", "9", "--yes"],
        &["release", "order:42", "--token", "9", "--yes", "--json"],
        &["release", &format!("a{HOSTILE}"), "--token", "9", "--yes"],
    ] {
        // The visible rest of the sequence that clears a screen.
        let outcome = run_until(&server, words, "[2J").await;
        assert_harmless(
            outcome
                .output
                .iter()
                .map(String::as_str)
                .chain(outcome.log.lines()),
        );
        match words {
            ["ls", "--json"] => {
                assert_eq!(objects(&outcome)[0]["key"], format!("a{HOSTILE}"));
            }
            ["leader", _, "--json"] => {
                assert_eq!(objects(&outcome)[0]["leader"]["value"], HOSTILE);
            }
            _ => {}
        }
    }
    let mut observer = start(&server, &["leader", "order:42", "--watch"]);
    let line = observer.line().await;
    assert!(line.contains("[2J"), "{line:?}");
    assert_harmless([&*line].into_iter());
    let mut shell = Shell::start(&server);
    shell.type_line("rlock ls");
    shell.shows("order:42").await;
    shell.is_back_after(0).await;
    shell.type_line("stty rows 12 cols 120; rlock top");
    shell.shows("order:42").await;
    shell.press("q");
    shell.shows("\u{1b}[?1049l").await;
    shell.is_back_after(0).await;
    assert!(
        !shell.screen().contains("\u{1b}]0;t"),
        "{:?}",
        shell.screen()
    );
    liar.abort();
}
