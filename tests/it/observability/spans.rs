//! The spans of acquires and holds. Each test runs in its own process, because a process has one
//! subscriber.

use std::{future::pending, panic::AssertUnwindSafe};

use futures_util::FutureExt;
use rlock_core::{LockClient, LockError, distributed_lock, testing::simulate_loss};
use rlock_testkit::{Proxy, RedisServer, eventually};
use tracing::{Instrument, Level, level_filters::LevelFilter};

use crate::common::{
    LASTING, LONG, acquiring,
    alone::alone,
    client, connect, enqueued, its_turn, ms,
    recorder::{keep_metrics, metric},
    spans::{Seen, keep_spans, spans_of},
};

/// Waits until this many spans of the lock have closed, and returns them. The last ones close in
/// the background.
async fn closed(template: &str, count: usize) -> Vec<Seen> {
    eventually(LONG, "the spans close", async || {
        let spans = spans_of(template);
        spans.len() >= count && spans.iter().all(|seen| seen.is_closed)
    })
    .await;
    let spans = spans_of(template);
    assert_eq!(spans.len(), count, "{spans:#?}");
    spans
}

#[distributed_lock(key = "order:<id>", client = client)]
async fn pay(client: &LockClient, id: u64) -> Result<(), LockError> {
    tracing::info!("inside");
    Ok(())
}

#[tokio::test]
async fn a_call_has_two_spans() {
    alone!(a_call_has_two_spans);
    keep_spans(LevelFilter::DEBUG);
    let client = LockClient::in_memory();
    let call = pay(&client, 42).instrument(tracing::info_span!("request"));
    call.await.expect("free");
    let [acquire, hold] = &closed("order:<id>", 2).await[..] else {
        panic!("two spans");
    };
    assert_eq!(
        (acquire.name, acquire.level),
        ("lock.acquire", Level::DEBUG)
    );
    assert_eq!(acquire.parent, Some("request"));
    assert_eq!([acquire.target, hold.target], ["rlock_core::spans"; 2]);
    assert_eq!(acquire.field("lock.key"), Some("order:42"));
    assert_eq!(acquire.field("lock.outcome"), Some("granted"));
    assert_eq!(acquire.field("lock.contended"), Some("false"));
    let waited = acquire.field("lock.wait_ms").expect("recorded");
    assert!(waited.parse::<f64>().expect("a number") >= 0.0);
    assert_eq!(acquire.field("lock.holder"), None);
    assert_eq!(acquire.field("db.system.name"), None, "the embedded store");
    assert_eq!((hold.name, hold.level), ("lock.hold", Level::DEBUG));
    assert_eq!(hold.parent, Some("request"));
    assert_eq!(hold.field("lock.key"), Some("order:42"));
    assert_eq!(hold.field("lock.contended"), Some("false"));
    assert_eq!(hold.field("lock.token"), acquire.field("lock.token"));
    assert_eq!(hold.field("lock.end"), Some("released"));
    assert_eq!(hold.field("lock.renewals"), Some("0"));
    assert_eq!(hold.events, ["inside"]);
}

#[tokio::test]
async fn the_spans_of_a_call_that_waits_have_the_same_level_and_show_the_wait() {
    const LOCK: &str = "wait:<id>";
    alone!(the_spans_of_a_call_that_waits_have_the_same_level_and_show_the_wait);
    keep_spans(LevelFilter::DEBUG);
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let lock = |client: &LockClient| client.lock("wait:1").lease(LASTING);
    let guard = lock(&one).acquire().await.expect("free");
    let waiting = enqueued(&server, lock(&other).label(LOCK)).await;
    tokio::time::sleep(ms(50)).await;
    guard.release().await.expect("held");
    let guard = its_turn(waiting).await;
    let token = guard.token().to_string();
    guard.release().await.expect("held");
    let [acquire, hold] = &closed(LOCK, 2).await[..] else {
        panic!("two spans");
    };
    assert_eq!(acquire.name, "lock.acquire");
    assert_eq!([acquire.level, hold.level], [Level::DEBUG; 2]);
    assert_eq!(acquire.field("lock.contended"), Some("true"));
    let waited = acquire.field("lock.wait_ms").expect("recorded");
    let waited: f64 = waited.parse().expect("a number");
    assert!(waited >= 50.0, "the whole wait: {waited}");
    assert_eq!(acquire.field("db.system.name"), Some("redis"));
    assert_eq!(acquire.field("server.address"), Some(&*server.address()));
    assert_eq!(acquire.field("otel.kind"), Some("client"));
    assert_eq!(hold.field("lock.contended"), Some("true"));
    assert_eq!(hold.field("lock.token"), Some(&*token));
}

#[tokio::test]
async fn an_acquire_span_has_the_outcome_and_after_a_time_out_the_holder() {
    alone!(an_acquire_span_has_the_outcome_and_after_a_time_out_the_holder);
    keep_spans(LevelFilter::DEBUG);
    let client = LockClient::in_memory();
    let held = client.lock("k").lease(LASTING).acquire().await;
    let lock = |template| client.lock("k").label(template).wait(ms(50));
    lock("timeout").acquire().await.expect_err("held");
    lock("busy").try_acquire().await.expect("a reply");
    let waiting = acquiring(lock("cancelled").wait(LONG));
    eventually(LONG, "it waits", async || !spans_of("cancelled").is_empty()).await;
    waiting.abort();
    closed("cancelled", 1).await;
    drop(held);
    client.shutdown().await.expect("released");
    lock("error").acquire().await.expect_err("closed");
    for outcome in ["timeout", "busy", "cancelled", "error"] {
        let span = closed(outcome, 1).await.remove(0);
        assert_eq!(span.field("lock.outcome"), Some(outcome));
        let holder = span.field("lock.holder");
        let this_process = format!("(pid {})", std::process::id());
        let is_named = holder.is_some_and(|holder| holder.contains(&this_process));
        assert_eq!(is_named, outcome == "timeout", "{holder:?}");
        let error = span.field("lock.error").unwrap_or_default();
        let said = match outcome {
            "timeout" => "; it is held by another call of this client",
            "error" => "shut down",
            _ => "",
        };
        assert!(error.contains(said), "{error}");
        assert_eq!(error.is_empty(), said.is_empty(), "{error}");
    }
}

#[tokio::test]
async fn a_hold_span_has_the_end_and_the_renewals() {
    alone!(a_hold_span_has_the_end_and_the_renewals);
    keep_spans(LevelFilter::DEBUG);
    keep_metrics();
    let client = LockClient::in_memory();
    let lock = |template| client.lock(template).label(template).lease(ms(9000));
    let hold = async |template| closed(template, 2).await.remove(1);

    let renewal = eventually(LONG, "it is renewed", async || {
        metric("rlock_renewals_total", &[("result", "ok")]).is_some_and(|renewals| renewals > 0.0)
    });
    lock("renewed").run(renewal).await.expect("free");
    let renewed = hold("renewed").await;
    assert_eq!(renewed.field("lock.end"), Some("released"));
    let renewals = renewed.field("lock.renewals").expect("recorded");
    assert!(renewals.parse::<u32>().expect("a number") >= 1);

    let running = lock("lost");
    let running = tokio::spawn(async move { running.run(pending::<()>()).await });
    eventually(LONG, "it is held", async || spans_of("lost").len() == 2).await;
    assert!(simulate_loss(&client, "lost").expect("the embedded store"));
    running.await.expect("no panic").expect_err("lost");
    let lost = hold("lost").await;
    assert_eq!(lost.field("lock.end"), Some("lost"));
    for message in ["lock lost", "another client changed the lock"] {
        assert!(lost.events.contains(&message.to_owned()), "{lost:?}");
    }

    let panicking = lock("panicked");
    let panics = AssertUnwindSafe(panicking.run(async { panic!("a bug") }));
    panics.catch_unwind().await.expect_err("a bug");
    let panicked = hold("panicked").await;
    assert_eq!(panicked.field("lock.end"), Some("panicked"));

    let blocking = lock("blocking");
    let body = move || blocking.run_blocking(|| tracing::info!("inside"));
    let ran = tokio::task::spawn_blocking(body).await.expect("no panic");
    ran.expect("free");
    assert_eq!(hold("blocking").await.events, ["inside"]);
}

#[tokio::test]
async fn a_renewal_that_fails_or_is_late_is_counted_and_an_event_of_its_hold() {
    const LOCK: &str = "late:<id>";
    alone!(a_renewal_that_fails_or_is_late_is_counted_and_an_event_of_its_hold);
    keep_spans(LevelFilter::DEBUG);
    keep_metrics();
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let client = connect(&proxy.url()).await;
    let renewals = |result| {
        let labels = [("result", result)];
        metric("rlock_renewals_total", &labels).unwrap_or_default()
    };
    let lock = client.lock("late").label(LOCK).lease(ms(30_000));
    let guard = lock.acquire().await.expect("free");
    proxy.hold_replies();
    let happens = async |event: &str| {
        eventually(LONG, event, async || {
            let spans = spans_of(LOCK);
            let mut events = spans.iter().flat_map(|seen| &seen.events);
            events.any(|own| own == event)
        })
        .await;
    };
    // The first attempt has no reply when the next one is due.
    happens("renewal failed, it will be tried again").await;
    proxy.pass();
    happens("renewal arrived late").await;
    assert!(renewals("late") >= 1.0 && guard.is_valid());
    proxy.refuse();
    proxy.reset();
    eventually(LONG, "a renewal fails", async || renewals("failed") >= 1.0).await;
}

#[tokio::test]
async fn several_locks_have_one_acquire_span_and_a_nested_call_has_no_hold_span() {
    alone!(several_locks_have_one_acquire_span_and_a_nested_call_has_no_hold_span);
    keep_spans(LevelFilter::DEBUG);
    let client = LockClient::in_memory();
    let locks = client.lock_all(["b", "a"]).label("both");
    let both = locks.run(async { tracing::info!("inside") });
    both.await.expect("free");
    let spans = closed("both", 3).await;
    let keys: Vec<_> = spans.iter().map(|seen| seen.field("lock.key")).collect();
    assert_eq!(keys, [Some("a, b"), Some("a"), Some("b")]);
    assert_eq!(spans[1].events, ["inside"], "in the span of the last key");

    let mixed = client.lock("written").and_shared(["read"]).label("mixed");
    mixed.run(async {}).await.expect("free");
    let spans = closed("mixed", 3).await;
    let modes: Vec<_> = spans.iter().map(|seen| seen.field("lock.mode")).collect();
    let expected = [Some("exclusive"), Some("shared"), Some("exclusive")];
    assert_eq!(modes, expected, "of the call, `read` and `written`");

    let lock = client.lock("k").label("nested");
    let nested = lock.run(async { lock.run(async {}).await.expect("entered") });
    nested.await.expect("free");
    let spans = closed("nested", 3).await;
    let names: Vec<_> = spans.iter().map(|seen| seen.name).collect();
    assert_eq!(names, ["lock.acquire", "lock.hold", "lock.acquire"]);
}
