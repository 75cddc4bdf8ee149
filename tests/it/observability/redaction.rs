//! With `redact_keys`, no message contains a key.

use std::{
    error::Error,
    fmt::{Debug, Write},
    future::pending,
};

use futures_util::future::try_join_all;
use rlock_core::{LockClient, LockError, current, distributed_lock};
use rlock_testkit::{RedisServer, eventually};
use tracing::level_filters::LevelFilter;

use crate::common::{
    LASTING, LONG, acquiring,
    alone::alone,
    builder, its_turn, ms, name,
    spans::{all_text, keep_spans, spans_of},
};

/// A part of every key here.
const SECRET: &str = "ann-4711";
const TEMPLATE: &str = "patient:<id>";

fn assert_no_secret(text: &str, of: &str) {
    assert!(!text.contains(SECRET), "{of}: {text}");
}

/// Checks the text and the fields of an error. Returns its text.
#[track_caller]
fn assert_redacted(error: &LockError) -> String {
    let mut text = format!("{error} {error:?} {error:#?} {:?}", error.key());
    let mut source = error.source();
    while let Some(error) = source {
        let _ = write!(text, " {error} {error:?}");
        source = error.source();
    }
    assert_no_secret(&text, "an error");
    error.to_string()
}

fn assert_debug(value: &dyn Debug) {
    assert_no_secret(&format!("{value:?} {value:#?}"), "Debug");
}

fn key(n: u32) -> String {
    format!("patient:{SECRET}-{n}")
}

#[distributed_lock(key = "patient:<id>", client = client, wait = "50ms")]
async fn treat(client: &LockClient, id: &str) -> Result<(), LockError> {
    pending().await
}

#[tokio::test]
#[expect(
    clippy::too_many_lines,
    reason = "the text of all is searched at the end"
)]
async fn nothing_that_is_written_contains_a_key() {
    alone!(nothing_that_is_written_contains_a_key);
    keep_spans(LevelFilter::TRACE);
    let server = RedisServer::start();
    let connect = async || {
        let builder = builder().redact_keys(true).response_timeout(ms(500));
        builder.connect(&server.url()).await.expect("up")
    };
    let (one, other) = (connect().await, connect().await);
    let lock = |client: &LockClient, n| client.lock(key(n)).name(TEMPLATE).lease(LASTING);

    // Contended, in and between processes.
    let guard = lock(&one, 1).acquire().await.expect("free");
    let calls = [&one, &other].map(|client| acquiring(lock(client, 1)));
    tokio::time::sleep(ms(100)).await;
    guard.release().await.expect("held");
    let calls = calls.map(|call| async move { its_turn(call).await.release().await });
    try_join_all(calls).await.expect("held");

    // Timed out.
    let guard = lock(&one, 2).acquire().await.expect("free");
    for client in [&one, &other] {
        let timeout = lock(client, 2).wait(ms(50)).acquire().await;
        let text = assert_redacted(&timeout.expect_err("held"));
        assert!(
            text.starts_with("lock `patient:<id>` was still taken"),
            "{text}"
        );
        let id = format!("{SECRET}-2");
        let text = assert_redacted(&treat(client, &id).await.expect_err("held"));
        assert!(
            text.starts_with("lock `patient:<id>` was still taken"),
            "{text}"
        );
        let unnamed = client.lock(key(2)).wait(ms(50)).acquire().await;
        let text = assert_redacted(&unnamed.expect_err("held"));
        assert!(
            text.starts_with("lock `<redacted>` was still taken"),
            "{text}"
        );
        let nested = client.lock(key(2)).wait(ms(50));
        let nested = lock(&one, 3).run(async { nested.acquire().await }).await;
        let text = assert_redacted(&nested.expect("free").expect_err("held"));
        assert!(text.contains("; this call holds `patient:<id>`"), "{text}");
    }

    // Shown.
    assert_eq!(guard.key(), key(2), "what it is, not how it is shown");
    assert_debug(&guard);
    assert_debug(&lock(&one, 2));
    let several = one.lock_all([key(7), key(8)]).name(TEMPLATE);
    assert_debug(&several);
    let both = several.acquire().await.expect("free");
    assert_debug(&both);
    both.release().await.expect("held");
    guard
        .scope(async { assert_debug(&current().expect("inside")) })
        .await;

    // Lost: a guard, a body, and a hold that only the release finds lost.
    assert!(server.del(&name(&key(2))).await);
    guard.lost().await;
    let text = assert_redacted(&guard.release().await.expect_err("lost"));
    assert!(text.starts_with("lock `patient:<id>` was lost"), "{text}");
    let body = async {
        assert!(server.del(&name(&key(3))).await);
        pending::<()>().await;
    };
    let lost = lock(&one, 3).run(body).await.expect_err("lost");
    assert_redacted(&lost);
    let max_hold = lock(&one, 4).max_hold(ms(50)).run(pending::<()>()).await;
    assert_redacted(&max_hold.expect_err("lost"));

    // Refused: the server's error names the key.
    let fence = format!("{}:fence", name(&key(5)));
    let _: u64 = server.command(&["RPUSH", &fence, "item"]).await;
    let refused = lock(&one, 5).acquire().await.expect_err("no token");
    assert!(matches!(refused, LockError::Store { .. }), "{refused:?}");
    let text = assert_redacted(&refused);
    assert!(text.contains("<redacted>"), "{text}");
    let () = server.command(&["SET", &name(&key(6)), "text"]).await;
    assert_redacted(&lock(&one, 6).acquire().await.expect_err("no lock"));
    assert_redacted(&one.inspect(&key(6)).await.expect_err("no lock"));

    // Not valid, or not to be called here.
    let invalid = one.lock(format!("{}{{", key(1))).acquire().await;
    let text = assert_redacted(&invalid.expect_err("a brace"));
    assert!(text.starts_with("invalid lock key `<redacted>`"), "{text}");
    assert_redacted(
        &one.inspect(&format!("{}{{", key(1)))
            .await
            .expect_err("a brace"),
    );
    assert_redacted(&one.revoke(&key(1)).expect_err("a server"));
    assert_redacted(&lock(&one, 1).acquire_blocking().expect_err("in a task"));

    // Unreachable.
    let short = lock(&one, 9).lease(ms(1500)).acquire().await.expect("free");
    let held = lock(&one, 10).acquire().await.expect("free");
    server.kill();
    assert_redacted(
        &lock(&other, 1)
            .wait(ms(100))
            .acquire()
            .await
            .expect_err("gone"),
    );
    assert_redacted(&one.inspect(&key(1)).await.expect_err("gone"));
    assert_redacted(&held.release().await.expect_err("gone"));
    short.lost().await;
    assert_redacted(&short.release().await.expect_err("lost"));
    one.shutdown().await.expect_err("not released");
    assert_redacted(&lock(&one, 1).acquire().await.expect_err("closed"));
    drop(other);

    for message in [
        "lock lost",
        "renewal failed",
        "another client changed the lock",
        "lock.hold",
    ] {
        eventually(LONG, message, async || all_text().contains(message)).await;
    }
    let spans = spans_of(TEMPLATE);
    assert!(spans.len() > 10, "{spans:#?}");
    assert!(spans.iter().all(|seen| seen.field("lock.key").is_none()));
    assert_no_secret(&all_text(), "spans and events");
}

#[distributed_lock(key = "patient:<id>")]
async fn treat_without_a_client(id: &str) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

#[tokio::test]
async fn an_error_without_a_client_names_the_template_of_the_key() {
    let error = treat_without_a_client(SECRET).await.expect_err("no client");
    let text = assert_redacted(&error);
    assert!(text.contains(TEMPLATE), "{text}");
}

#[tokio::test]
async fn without_the_option_errors_and_spans_name_the_key() {
    alone!(without_the_option_errors_and_spans_name_the_key);
    keep_spans(LevelFilter::TRACE);
    let client = LockClient::in_memory();
    let lock = client.lock(key(1)).name(TEMPLATE);
    let guard = lock.acquire().await.expect("free");
    let timeout = client.lock(key(1)).wait(ms(50)).acquire().await;
    let timeout = timeout.expect_err("held");
    assert_eq!(timeout.key(), Some(&*key(1)));
    assert!(timeout.to_string().contains(SECRET), "{timeout}");
    assert!(format!("{guard:?} {lock:?}").matches(SECRET).count() >= 2);
    assert!(all_text().contains(SECRET));
}
