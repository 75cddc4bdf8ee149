//! With `redact_keys`, no message contains a key.

use std::{
    error::Error,
    fmt::{Debug, Write},
    future::pending,
};

use futures_util::future::join_all;
use rlock_core::{LockClient, LockError, current, distributed_lock, testing::simulate_loss};
use rlock_testkit::{RedisServer, eventually};
use tracing::level_filters::LevelFilter;

use crate::common::{
    LASTING, LONG, acquiring,
    alone::alone,
    assert_soon_queued, builder, its_turn, ms, name,
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
fn redacted<T>(outcome: Result<T, LockError>) -> String {
    let Err(error) = outcome else {
        panic!("it has to fail");
    };
    let mut text = format!("{error} {error:?} {error:#?} {:?}", error.key());
    let mut source = error.source();
    while let Some(error) = source {
        let _ = write!(text, " {error} {error:?}");
        source = error.source();
    }
    assert_no_secret(&text, "an error");
    format!("{error:#}")
}

/// Checks the error as [`redacted`] does, and that it begins with this text.
#[track_caller]
fn assert_redacted<T>(outcome: Result<T, LockError>, start: &str) {
    let text = redacted(outcome);
    assert!(text.starts_with(start), "{text}");
}

fn assert_debug(value: &dyn Debug) {
    assert_no_secret(&format!("{value:?} {value:#?}"), "Debug");
}

fn key(n: u32) -> String {
    format!("patient:{SECRET}-{n}")
}

fn lock(client: &LockClient, n: u32) -> rlock_core::Lock {
    client.lock(key(n)).label(TEMPLATE).lease(LASTING)
}

#[distributed_lock(key = "patient:<id>", client = client, wait = "1s")]
async fn treat(client: &LockClient, id: &str) -> Result<(), LockError> {
    pending().await
}

#[distributed_lock(key = "patient:<id>")]
async fn treat_without_a_client(id: &str) -> Result<(), LockError> {
    let _ = id;
    Ok(())
}

/// Checks the errors of calls that time out, because another call holds the second lock.
async fn time_out(client: &LockClient) {
    const TAKEN: &str = "lock `patient:<id>` was still taken";
    let late = lock(client, 2).wait(ms(1000));
    assert_redacted(late.acquire().await, TAKEN);
    assert_redacted(treat(client, &format!("{SECRET}-2")).await, TAKEN);
    let unnamed = client.lock(key(2)).wait(ms(1000));
    let unnamed = unnamed.acquire().await;
    assert_redacted(unnamed, "lock `<redacted>` was still taken");
    let nested = lock(client, 3).run(async { late.acquire().await });
    let text = redacted(nested.await.expect("free"));
    assert!(text.contains("; this call holds `patient:<id>`"), "{text}");
}

#[distributed_lock(key = ["patient:<id>", shared "ward:<id>"], client = client, wait = "0s")]
async fn transfer(client: &LockClient, id: &str) -> Result<(), LockError> {
    Ok(())
}

#[tokio::test]
async fn each_of_several_keys_is_shown_by_its_own_template() {
    let client = builder().redact_keys(true).in_memory().expect("a client");
    for (key, shown) in [("patient", TEMPLATE), ("ward", "ward:<id>")] {
        let held = client.lock(format!("{key}:{SECRET}")).acquire().await;
        let taken = transfer(&client, SECRET).await;
        assert_redacted(taken, &format!("lock `{shown}` "));
        held.expect("free").release().await.expect("held");
    }
    client.shutdown().await.expect("nothing is held");
    let text = redacted(transfer(&client, SECRET).await);
    assert!(text.contains("`patient:<id>`, `ward:<id>`"), "{text}");
}

#[tokio::test]
async fn nothing_that_is_written_contains_a_key() {
    alone!(nothing_that_is_written_contains_a_key);
    keep_spans(LevelFilter::TRACE);
    let server = RedisServer::start();
    let connect = async || {
        let builder = builder().redact_keys(true);
        builder.connect(&server.url()).await.expect("up")
    };
    let (one, other) = (connect().await, connect().await);

    // Contended, in and between processes.
    let guard = lock(&one, 1).acquire().await.expect("free");
    let calls = [&one, &other].map(|client| acquiring(lock(client, 1)));
    assert_soon_queued(&server, &key(1), 1).await;
    guard.release().await.expect("held");
    let calls = calls.map(|call| async move { its_turn(call).await.release().await });
    for released in join_all(calls).await {
        released.expect("held");
    }
    let guard = lock(&one, 2).acquire().await.expect("free");
    time_out(&one).await;
    time_out(&other).await;

    // Shown.
    assert_eq!(guard.key(), key(2), "what it is, not how it is shown");
    assert_debug(&guard);
    assert_debug(&lock(&one, 2));
    let several = one.lock_all([key(7), key(8)]).label(TEMPLATE);
    assert_debug(&several);
    let both = several.acquire().await.expect("free");
    assert_debug(&both);
    both.release().await.expect("held");
    let shown = async { assert_debug(&current().expect("inside")) };
    guard.scope(shown).await;

    // Lost: a guard, and bodies.
    assert!(server.del(&name(&key(2))).await);
    guard.lost().await;
    assert_redacted(guard.release().await, "lock `patient:<id>` was lost");
    let body = async {
        assert!(server.del(&name(&key(3))).await);
        pending::<()>().await;
    };
    redacted(lock(&one, 3).run(body).await);
    let max_hold = lock(&one, 4).max_hold(ms(50));
    redacted(max_hold.run(pending::<()>()).await);

    // Refused: the server's error names the key.
    let fence = format!("{}:fence", name(&key(5)));
    let _: u64 = server.command(&["RPUSH", &fence, "item"]).await;
    let text = redacted(lock(&one, 5).acquire().await);
    assert!(text.contains("`lock:{patient:<id>}:fence`"), "{text}");
    let () = server.command(&["SET", &name(&key(6)), "text"]).await;
    redacted(lock(&one, 6).acquire().await);
    redacted(one.inspect(&key(6)).await);

    // Not valid, or not to be called here.
    let invalid = format!("{}{{", key(1));
    let outcome = one.lock(&invalid).acquire().await;
    assert_redacted(outcome, "invalid lock key `<redacted>`");
    redacted(one.inspect(&invalid).await);
    redacted(simulate_loss(&one, &key(1)));
    redacted(lock(&one, 1).acquire_blocking());
    let without_a_client = redacted(treat_without_a_client(SECRET).await);
    assert!(without_a_client.contains(TEMPLATE), "{without_a_client}");

    // Unreachable.
    let short = lock(&one, 9).lease(ms(6000)).acquire().await.expect("free");
    let held = lock(&one, 10).acquire().await.expect("free");
    server.kill();
    redacted(lock(&other, 1).wait(ms(100)).acquire().await);
    redacted(one.inspect(&key(1)).await);
    redacted(held.release().await);
    short.lost().await;
    redacted(short.release().await);
    redacted(one.shutdown().await);
    redacted(lock(&one, 1).acquire().await);
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
