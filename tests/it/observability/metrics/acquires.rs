//! Acquires: their outcomes, their waits, and what brings the lock to a waiter.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, SystemTime},
};

use rlock_core::LockClient;
use rlock_testkit::{RedisServer, eventually};

use super::{assert_idle, is, of_lock, of_lock_by, until_idle, until_waiting};
use crate::common::{
    LASTING, LONG, acquiring, client, its_turn, name,
    recorder::{keep_metrics, series, values},
    resp2_client,
};

fn durations(lock: &str, outcome: &str) -> Vec<f64> {
    let labels = [("lock", lock), ("outcome", outcome)];
    values("rlock_acquire_duration_seconds", &labels)
}

/// Returns two clients of one embedded store.
async fn clients_of_a_store() -> (LockClient, LockClient) {
    static STORES: AtomicU64 = AtomicU64::new(0);
    let store = STORES.fetch_add(1, Ordering::Relaxed);
    let url = format!("memory:metrics-{store}");
    let connect = async || LockClient::connect(&url).await.expect("a client");
    (connect().await, connect().await)
}

/// Returns how many times this brought the lock to a waiter.
fn arrivals(lock: &str, by: &str) -> f64 {
    of_lock_by("rlock_arrivals_total", lock, ("by", by))
}

/// Passes the lock on until an arrival is counted as `expected`, because on a busy machine the timer of a waiter may be first.
async fn assert_brought_by(lock: &'static str, expected: &str, pass_on: impl AsyncFn()) {
    keep_metrics();
    let before = arrivals(lock, expected);
    eventually(LONG, expected, async || {
        pass_on().await;
        assert_idle(lock);
        arrivals(lock, expected) > before
    })
    .await;
}

#[tokio::test]
async fn each_outcome_of_an_acquire_is_recorded_with_its_duration() {
    const LOCK: &str = "outcomes:<id>";
    const WAIT: Duration = Duration::from_millis(100);
    keep_metrics();
    let (one, other) = clients_of_a_store().await;
    let lock = |client: &LockClient| client.lock("outcomes:1").label(LOCK).lease(LASTING);
    let guard = lock(&one).acquire().await.expect("free");
    assert_eq!(durations(LOCK, "granted").len(), 1);

    for client in [&one, &other] {
        let lock = lock(client).wait(WAIT);
        lock.acquire().await.expect_err("it is held");
        let busy = lock.try_acquire().await.expect("a reply");
        assert!(busy.is_none());
        let lock = lock.wait(Duration::ZERO);
        lock.acquire().await.expect_err("it is held");
    }
    let timeouts = durations(LOCK, "timeout");
    assert_eq!(timeouts.len(), 2, "{timeouts:?}");
    for seconds in timeouts {
        assert!(seconds >= WAIT.as_secs_f64(), "{seconds}");
    }
    assert_eq!(durations(LOCK, "busy").len(), 4);
    assert!(is(of_lock("rlock_contended_total", LOCK), 6));

    let waiting = acquiring(lock(&other));
    until_waiting(LOCK, 1).await;
    waiting.abort();
    assert!(waiting.await.expect_err("aborted").is_cancelled());
    assert_eq!(durations(LOCK, "cancelled").len(), 1);

    guard.release().await.expect("held");
    one.shutdown().await.expect("released");
    lock(&one).acquire().await.expect_err("closed");
    assert_eq!(durations(LOCK, "error").len(), 1);
    assert_idle(LOCK);
}

#[tokio::test]
async fn a_nested_acquire_is_counted_as_a_reentry_and_as_no_other_acquire() {
    const LOCK: &str = "nested:<id>";
    keep_metrics();
    let client = LockClient::in_memory();
    let lock = client.lock("nested:1").label(LOCK).lease(LASTING);
    let nested = async {
        lock.run(async {}).await.expect("entered");
        lock.try_acquire().await.expect("a reply").expect("entered")
    };
    let inner = lock.run(nested).await.expect("free");
    assert!(is(of_lock("rlock_held", LOCK), 1), "one entry remains");
    drop(inner);
    assert!(is(of_lock("rlock_reentries_total", LOCK), 2));
    assert_eq!(durations(LOCK, "granted").len(), 1);
    assert!(is(of_lock("rlock_contended_total", LOCK), 0));
    assert_idle(LOCK);
}

#[tokio::test]
async fn an_arrival_is_counted_by_what_brought_the_lock() {
    const LOCAL: &str = "by-local:<id>";
    const RELEASE: &str = "by-release:<id>";
    const MESSAGE: &str = "by-message:<id>";
    let server = RedisServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    for (one, other) in [clients_of_a_store().await, (one, other)] {
        let pass = async |name, client: &LockClient, watchdog| {
            let lock = |client: &LockClient| client.lock(name).label(name).lease(LASTING);
            let guard = lock(&one).acquire().await.expect("free");
            let call = acquiring(lock(client).watchdog(watchdog));
            until_waiting(name, 1).await;
            guard.release().await.expect("held");
            its_turn(call).await.release().await.expect("held");
        };
        assert_brought_by(LOCAL, "local", async || pass(LOCAL, &one, true).await).await;
        // A waiter without renewal does not accept a lock whose lease has already begun.
        let release = async || pass(RELEASE, &one, false).await;
        assert_brought_by(RELEASE, "release", release).await;
        let message = async || pass(MESSAGE, &other, true).await;
        assert_brought_by(MESSAGE, "message", message).await;
    }
}

/// The server notifies RESP3 clients of the deletion.
#[tokio::test]
async fn a_lock_that_was_deleted_comes_by_message_and_without_reports_by_timer() {
    const REPORTED: &str = "deleted-told:<id>";
    const UNREPORTED: &str = "deleted-untold:<id>";
    let server = RedisServer::start();
    let notified = (client(&server).await, client(&server).await);
    let untold = (resp2_client(&server).await, resp2_client(&server).await);
    let delete = async |lock, (one, other): &(LockClient, LockClient)| {
        let handle = |client: &LockClient| client.lock(lock).label(lock).lease(LASTING);
        let guard = handle(one).acquire().await.expect("free");
        let call = acquiring(handle(other));
        until_waiting(lock, 1).await;
        assert!(server.del(&name(lock)).await);
        its_turn(call).await.release().await.expect("held");
        drop(guard);
        until_idle(lock).await;
    };
    let reported = async || delete(REPORTED, &notified).await;
    assert_brought_by(REPORTED, "message", reported).await;
    let unreported = async || delete(UNREPORTED, &untold).await;
    assert_brought_by(UNREPORTED, "timer", unreported).await;
    assert!(is(arrivals(UNREPORTED, "message"), 0));
}

#[tokio::test]
async fn a_job_counts_under_its_name_unless_the_client_redacts_keys() {
    keep_metrics();
    let redacts = LockClient::builder().redact_keys(true).in_memory();
    let hidden = redacts
        .expect("valid")
        .once("job:hidden", SystemTime::now());
    let shown = LockClient::in_memory().once("job:shown", SystemTime::now());
    for job in [hidden, shown.clone(), shown] {
        job.run(async {}).await.map(drop).expect("a reply");
    }
    assert_eq!(durations("job%3Ashown", "granted").len(), 1);
    assert_eq!(durations("job%3Ashown", "busy").len(), 1);
    let has_hidden = |(_, value): &(String, String)| value.contains("hidden");
    let hidden = series()
        .into_iter()
        .find(|(_, labels)| labels.iter().any(has_hidden));
    assert_eq!(hidden, None);
}
