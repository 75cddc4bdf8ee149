//! What `testing` offers to services: simulated losses, and clocks that a test controls.

use std::time::{Duration, SystemTime};

use rlock_core::{
    DrainOutcome, LockClient, LockError, LostCause, StoreUrl,
    once::Once,
    testing::{Clock, simulate_loss, simulate_outage, use_clock, use_tokio_clock},
};
use rlock_testkit::{RedisServer, eventually, within};
use tokio::time::Instant;

use crate::{
    common::{
        LONG, acquiring, assert_lost, assert_refused, assert_soon_waits, begin, cause_of, client,
        its_turn, ms, on_tokio_clock, two_clients,
    },
    leases::clock::HOUR,
};

#[tokio::test]
async fn a_loss_that_another_client_simulates_is_noticed_at_once_and_the_next_waiter_has_the_lock()
{
    let [client, other] = two_clients("memory:revoked").await;
    for renews in [true, false] {
        // Neither the end of the lease nor a renewal finds the loss.
        let lock = client.lock("k").lease(HOUR).watchdog(renews);
        let guard = lock.acquire().await.expect("free");
        let mut waiting = Box::pin(client.lock("k").wait(LONG).acquire());
        begin(&mut waiting).await;
        assert!(simulate_loss(&other, "k").expect("the embedded store"));
        assert_lost(&guard, LONG, LostCause::Removed).await;
        let next = within(LONG, "its turn", waiting).await.expect("free");
        assert!(next.token() > guard.token());
        assert_eq!(cause_of(guard.release().await), Some(LostCause::Removed));
        let released = next.release().await;
        released.expect("the loss of another is not its own");
    }
}

#[tokio::test]
async fn no_loss_is_simulated_of_a_free_lock_nor_during_an_outage() {
    let client = LockClient::in_memory();
    assert!(!simulate_loss(&client, "k").expect("the embedded store"));
    let guard = client.lock("k").acquire().await.expect("free");
    let outage = simulate_outage(&client).expect("the embedded store");
    let error = simulate_loss(&client, "k").expect_err("the store is down");
    assert!(error.is_outage(), "{error:?}");
    drop(outage);
    guard.release().await.expect("held");
}

#[tokio::test]
async fn only_the_embedded_store_simulates_losses_and_outages() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let guard = client.lock("k").acquire().await.expect("free");
    let said = assert_refused(simulate_loss(&client, "k"), "a server");
    assert!(said.contains("force_release"), "{said}");
    assert_refused(simulate_outage(&client), "a server");
    guard.release().await.expect("held");
    client.shutdown().await.expect("in good order");
    for error in [
        simulate_loss(&client, "k").expect_err("closed"),
        simulate_outage(&client).expect_err("closed"),
    ] {
        assert!(matches!(error, LockError::Closed { .. }), "{error:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn clients_that_share_a_store_wait_by_its_paused_clock() {
    let one = on_tokio_clock("memory:paused").await;
    tokio::time::advance(HOUR).await;
    let other = on_tokio_clock("memory:paused").await;
    let held = one.lock("k").acquire().await.expect("free");
    let error = other.lock("k").wait(HOUR).acquire().await;
    let Err(LockError::Taken { waited, .. }) = error else {
        panic!("{error:?}")
    };
    assert!(waited >= HOUR && waited < HOUR + ms(100), "{waited:?}");
    assert!(held.is_valid(), "it was renewed for an hour");
    held.release().await.expect("held");

    let brief = one.lock("k").lease(HOUR).watchdog(false);
    let held = brief.acquire().await.expect("free");
    let waiter = other.lock("k").wait(HOUR * 2).acquire().await;
    let waiter = waiter.expect("the lease ends before the wait does");
    assert!(!held.is_valid());
    waiter.release().await.expect("held");
}

#[tokio::test(start_paused = true)]
async fn a_min_hold_and_a_drain_go_by_the_paused_clock() {
    let client = on_tokio_clock("memory:").await;
    let night = client.lock("night").min_hold(HOUR);
    let kept = night.acquire().await.expect("free");
    kept.release().await.expect("held");
    assert!(night.try_acquire().await.expect("a reply").is_none());
    tokio::time::advance(HOUR).await;
    let later = night.try_acquire().await.expect("a reply");
    let _later = later.expect("free after an hour");
    let began = Instant::now();
    let drained = client.drain(HOUR).await.expect("in good order");
    assert_eq!(drained, DrainOutcome::Interrupted { locks: 1 });
    assert!(began.elapsed() >= HOUR);
}

/// Returns a client that goes by this clock.
async fn by(clock: &Clock, store: &str) -> LockClient {
    let builder = use_clock(LockClient::builder(), clock).default_lease(HOUR);
    builder.connect(store).await.expect("a client")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_ends_when_the_clock_passes_its_end_and_the_next_waiter_has_the_lock() {
    let clock = Clock::new();
    let (one, other) = (
        by(&clock, "memory:ahead").await,
        by(&clock, "memory:ahead").await,
    );
    for renews in [true, false] {
        let guard = one.lock("k").watchdog(renews).acquire().await;
        let guard = guard.expect("free");
        let waiting = acquiring(other.lock("k").wait(HOUR * 2));
        assert_soon_waits(&one, "k", 1).await;
        clock.advance(HOUR);
        assert!(!guard.is_valid());
        let cause = within(LONG, "the loss is reported", guard.lost()).await;
        assert_eq!(cause, LostCause::Expired);
        its_turn(waiting).await.release().await.expect("held");
    }
    let capped = one.lock("capped").lease(HOUR * 3).max_hold(HOUR);
    let body = capped.run(async {
        clock.advance(HOUR);
        std::future::pending::<()>().await;
    });
    let stopped = within(LONG, "the body stops", body).await;
    assert_eq!(cause_of(stopped), Some(LostCause::MaxHold));
}

/// Runs a tick three hours from now, while `advance` moves the clock of the client past its window and its record.
async fn ticks_go_by_the_clock(client: &LockClient, advance: impl AsyncFn(Duration)) {
    const WINDOW: Duration = Duration::from_secs(600);
    let tick = SystemTime::now() + HOUR * 3;
    let [ran, missed] = ["ran", "missed"].map(|name| client.once(name, tick).window(WINDOW));
    let early = ran.run(async {}).await;
    assert!(
        matches!(early, Err(LockError::InvalidOption { option: "tick", .. })),
        "{early:?}"
    );
    advance(HOUR * 3).await;
    for (job, outcome) in [(&ran, "Ran(())"), (&ran, "Done")] {
        let run = job.run(async {}).await.expect("a reply");
        assert_eq!(format!("{run:?}"), outcome);
    }
    advance(WINDOW + WINDOW).await;
    for (job, outcome) in [(&ran, "Done"), (&missed, "Missed")] {
        let run = job.run(async {}).await.expect("a reply");
        assert_eq!(format!("{run:?}"), outcome);
    }
    advance(ran.memory()).await;
    let run = ran.run(async {}).await.expect("a reply");
    assert!(matches!(run, Once::Missed), "the record has ended: {run:?}");
}

#[tokio::test]
async fn ticks_are_due_done_and_missed_by_the_clock_of_a_test() {
    let clock = Clock::new();
    let client = by(&clock, "memory:").await;
    ticks_go_by_the_clock(&client, async |time| clock.advance(time)).await;
}

#[tokio::test(start_paused = true)]
async fn ticks_are_due_done_and_missed_by_the_paused_clock() {
    let client = on_tokio_clock("memory:").await;
    ticks_go_by_the_clock(&client, async |time| tokio::time::advance(time).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocking_call_gives_up_when_the_clock_passes_the_end_of_its_wait() {
    let clock = Clock::new();
    let client = by(&clock, "memory:").await;
    let held = client.lock("k").lease(HOUR * 3).acquire().await;
    let held = held.expect("free");
    let call = client.lock("k").wait(HOUR);
    let call = tokio::task::spawn_blocking(move || call.acquire_blocking());
    eventually(LONG, "it waits", async || {
        let info = client.inspect("k").await.expect("a reply");
        info.and_then(|info| info.holder)
            .is_some_and(|holder| holder.waiter_count == 1)
    })
    .await;
    clock.advance(HOUR);
    let taken = within(LONG, "it gives up", call).await.expect("no panic");
    let Err(LockError::Taken { waited, .. }) = taken else {
        panic!("{taken:?}")
    };
    assert!(waited >= HOUR, "{waited:?}");
    assert!(held.is_valid());
    held.release().await.expect("held");
}

#[tokio::test]
async fn clients_of_one_store_have_one_clock() {
    const STORE: &str = "memory:clocks";
    let (clock, another) = (Clock::new(), Clock::new());
    let refused = async |builder: rlock_core::LockClientBuilder| {
        let error = builder.connect(STORE).await.expect_err("refused");
        let is_about_the_url = matches!(error, LockError::InvalidOption { option: "url", .. });
        assert!(is_about_the_url, "{error:?}");
        assert!(error.to_string().contains("memory:clocks"), "{error}");
        assert!(error.to_string().contains("the same clock"), "{error}");
    };
    let one = by(&clock, STORE).await;
    by(&clock, STORE).await.ping().await.expect("a reply");
    refused(use_clock(LockClient::builder(), &another)).await;
    refused(use_tokio_clock(LockClient::builder())).await;
    refused(LockClient::builder()).await;
    one.ping().await.expect("a reply");
    by(&another, "memory:other-clocks").await;
}

#[test]
fn the_clock_of_tokio_is_refused_outside_of_a_runtime_and_for_servers() {
    let refused = |outcome: Result<LockClient, LockError>, why: &str| {
        let error = outcome.expect_err("refused");
        assert!(
            matches!(
                error,
                LockError::InvalidOption {
                    option: "use_tokio_clock",
                    ..
                }
            ),
            "{error:?}"
        );
        assert!(error.to_string().contains(why), "{error}");
    };
    let builder = || use_tokio_clock(LockClient::builder());
    refused(builder().in_memory(), "no Tokio runtime");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let server = builder().connect("redis://127.0.0.1/");
    refused(runtime.block_on(server), "server");
    let quorum = builder().connect(StoreUrl::quorum(["redis://127.0.0.1/"]));
    refused(runtime.block_on(quorum), "server");
}
