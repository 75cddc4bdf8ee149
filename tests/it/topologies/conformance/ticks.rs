//! Ticks of jobs: which client runs one, and what the others learn.

use std::{
    sync::atomic::{AtomicU32, Ordering::SeqCst},
    time::SystemTime,
};

use futures_util::future::join;
use rlock_core::{LockClient, once::Once};
use rlock_testkit::{Place, within};
use tokio::sync::oneshot;

use super::LONG;

pub(crate) async fn a_tick_runs_once_on_one_of_two_clients(place: Place) {
    let (one, other) = (place.client().await, place.client().await);
    let now = SystemTime::now();
    let runs = AtomicU32::new(0);
    let call = async |client: &LockClient, tick| {
        let body = async { runs.fetch_add(1, SeqCst) };
        let outcome = client.once("report", tick).run(body).await;
        outcome.expect("the store replies")
    };
    let both = join(call(&one, now), call(&other, now)).await;
    assert!(
        matches!(
            both,
            (Once::Ran(0), Once::Done | Once::Taken(_))
                | (Once::Done | Once::Taken(_), Once::Ran(0))
        ),
        "{both:?}"
    );
    for client in [&one, &other] {
        let late = call(client, now).await;
        assert!(matches!(late, Once::Done), "{late:?}");
        let missed = call(client, now - LONG * 11).await;
        assert!(matches!(missed, Once::Missed), "{missed:?}");
    }
    let next = call(&other, now + LONG).await;
    assert!(matches!(next, Once::Ran(1)), "{next:?}");
    let done = call(&one, now + LONG).await;
    assert!(matches!(done, Once::Done), "{done:?}");
    assert_eq!(runs.into_inner(), 2);
}

pub(crate) async fn a_tick_whose_run_fails_with_retry_runs_on_the_client_that_waits(place: Place) {
    let (one, other) = (place.client().await, place.client().await);
    let tick = SystemTime::now();
    let (begins, began) = oneshot::channel();
    let (fails, fail) = oneshot::channel();
    let failing = one.once("report", tick).retry().run(async move {
        begins.send(()).expect("the test waits");
        fail.await.expect("the test sends");
        Err::<(), _>("refused")
    });
    let failing = tokio::spawn(failing);
    began.await.expect("it begins");
    let waiting = other.once("report", tick).retry();
    let waiting = tokio::spawn(waiting.run(async { "ran" }));
    fails.send(()).expect("it runs");
    let outcome = failing.await.expect("no panic").expect("granted");
    assert!(matches!(outcome, Once::Ran(Err("refused"))), "{outcome:?}");
    let outcome = within(LONG, "the other client runs the tick", waiting).await;
    let outcome = outcome.expect("no panic").expect("granted");
    assert!(matches!(outcome, Once::Ran("ran")), "{outcome:?}");
}
