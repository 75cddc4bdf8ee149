//! One tick of a job: what its run leaves to later calls, and which calls are refused.

use std::{
    future::pending,
    panic::AssertUnwindSafe,
    time::{Duration, SystemTime},
};

use futures_util::FutureExt;
use rlock_core::{
    LockClient, LockError,
    once::{Claim, Job, Once},
};
use tokio::{sync::oneshot, task::JoinHandle};

use crate::common::LONG;

/// Returns the tick of now, of a client that would retain the lock of a plain call.
fn job() -> (LockClient, Job) {
    let client = LockClient::builder().default_retain(LONG);
    let client = client.in_memory().expect("valid");
    let job = client.once("report", SystemTime::now());
    (client, job)
}

/// Runs a body that does not end, and returns its call once it has begun.
async fn running(job: &Job) -> JoinHandle<Result<Once<()>, LockError>> {
    let (begins, began) = oneshot::channel();
    let call = tokio::spawn(job.run(async {
        begins.send(()).expect("the test waits");
        pending::<()>().await;
    }));
    began.await.expect("it begins");
    call
}

/// Asserts whether a later call runs the tick, or finds it done.
async fn assert_free(job: &Job, is_free: bool, what: &str) {
    let outcome = job.run(async {}).await.expect("a reply");
    match outcome {
        Once::Ran(()) => assert!(is_free, "{what}"),
        Once::Done => assert!(!is_free, "{what}"),
        other => panic!("{what}: {other:?}"),
    }
}

#[tokio::test]
async fn a_run_that_does_not_succeed_frees_its_tick_only_with_retry() {
    for retries in [false, true] {
        let tick = || {
            let (client, job) = job();
            (client, if retries { job.retry() } else { job })
        };
        let (_, succeeds) = tick();
        let outcome = succeeds.run(async { Ok::<_, u8>("done") }).await;
        assert!(matches!(outcome, Ok(Once::Ran(Ok("done")))), "{outcome:?}");
        assert_free(&succeeds, false, "`Ok`").await;
        let (_, fails) = tick();
        let outcome = fails.run(async { Err::<(), _>("refused") }).await;
        assert!(
            matches!(outcome, Ok(Once::Ran(Err("refused")))),
            "{outcome:?}"
        );
        assert_free(&fails, retries, "`Err`").await;
        let (_, panics) = tick();
        let call = AssertUnwindSafe(panics.run(async { panic!("in the body") }));
        call.catch_unwind().await.expect_err("it panics");
        assert_free(&panics, retries, "a panic").await;
        let (_, cancelled) = tick();
        let call = running(&cancelled).await;
        call.abort();
        call.await.expect_err("cancelled");
        assert_free(&cancelled, retries, "a cancelled body").await;
        let (_, marked) = tick();
        let Ok(Claim::Granted(mut guard)) = marked.acquire().await else {
            panic!("free")
        };
        guard.mark_failed();
        guard.release().await.expect("held");
        assert_free(&marked, retries, "a guard that is marked as failed").await;
    }
}

#[tokio::test]
async fn a_tick_whose_lock_is_taken_away_is_free() {
    let (client, job) = job();
    let call = running(&job).await;
    assert!(client.revoke(job.key()).await.expect("a reply"));
    let outcome = call.await.expect("no panic");
    assert!(outcome.expect_err("its lock is lost").is_lost());
    assert_free(&job, true, "a revoked run").await;
}

#[test]
fn a_call_inside_the_run_of_its_tick_is_refused() {
    let kinds: [fn(Job) -> Job; 3] = [|job| job, Job::retry, Job::again];
    for kind in kinds {
        let (_, job) = job();
        let nested = kind(job.clone());
        let outcome = pollster::block_on(job.run(async { nested.run(async {}).await }));
        let Ok(Once::Ran(Ok(Once::Taken(info)))) = outcome else {
            panic!("{outcome:?}")
        };
        assert!(info.holder.is_some(), "{info:?}");
    }
}

#[tokio::test]
async fn a_run_by_hand_ignores_what_is_done_or_missed_but_not_another_run() {
    let (client, _) = job();
    let now = SystemTime::now();
    for tick in [now, now - LONG * 60] {
        let job = client.once("report", tick);
        let by_hand = job.clone().again();
        assert_free(&by_hand, true, "no run yet").await;
        assert_free(&job, false, "a run by hand").await;
        assert_free(&by_hand, true, "a done tick").await;
        let call = running(&by_hand).await;
        let refused = by_hand.run(async {}).await;
        assert!(matches!(refused, Ok(Once::Taken(_))), "{refused:?}");
        assert_free(&job, false, "a second run by hand").await;
        call.abort();
    }
}

#[tokio::test]
async fn a_tick_or_window_out_of_bounds_is_an_error_without_a_request() {
    let client = LockClient::in_memory();
    let now = SystemTime::now();
    let job = || client.once("report", now);
    let second = Duration::from_secs(1);
    for (job, option) in [
        (job().window(second / 2), "window"),
        (job().window(second * 3600 * 8 + second), "window"),
        (client.once("report", now + LONG * 11), "tick"),
        (client.once("report", now + LONG * 11).again(), "tick"),
        (client.once("report", now - LONG * 60 * 24 * 367), "tick"),
        (job().lease(second / 1000), "lease"),
    ] {
        // With `retry`, whose lease is not made longer.
        let outcome = job.retry().run(async {}).await;
        let Err(LockError::InvalidOption { option: named, .. }) = outcome else {
            panic!("{option}: {outcome:?}")
        };
        assert_eq!(named, option);
    }
    let long = client.once("a".repeat(1024), now).run(async {}).await;
    assert!(
        matches!(long, Err(LockError::InvalidKey { .. })),
        "{long:?}"
    );
    let name = client.once("jobs:a", now);
    assert!(name.key().starts_with("jobs%3Aa:20"), "{}", name.key());
}
