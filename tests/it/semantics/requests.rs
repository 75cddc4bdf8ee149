//! What a hold tells the code inside: another client requests the release of the lock, or the lease will soon end.

use std::{future::pending, time::Duration};

use futures_util::future::FutureExt as _;
use rlock_core::{
    CurrentHold, DrainOutcome, Hold, LockClient, LockError, LostCause, current, distributed_lock,
    testing::{Clock, simulate_outage, use_clock, use_tokio_clock},
};
use rlock_testkit::{eventually, within};
use tokio::sync::oneshot;

use crate::{
    common::{
        LASTING, LONG, begin, connect,
        log::{keep_log, logged_of},
    },
    leases::clock::HOUR,
};

const MINUTE: Duration = Duration::from_secs(60);

fn here() -> CurrentHold {
    current().expect("inside")
}

/// Returns whether the hold was asked to release its lock.
fn is_requested(hold: &Hold) -> bool {
    hold.release_requested().now_or_never().is_some()
}

async fn ask(operator: &LockClient, key: &str) {
    let asked = operator.request_release(key).await;
    assert!(asked.expect("a reply"), "{key} is held");
}

#[tokio::test]
async fn a_request_reaches_each_handle_of_a_hold_and_no_later_hold() {
    let [one, operator] = [
        connect("memory:requests").await,
        connect("memory:requests").await,
    ];
    let lock = one.lock("k").lease(LASTING).wait(LONG);
    let (sends, sent) = oneshot::channel();
    let inner = lock.clone();
    let holding = tokio::spawn(async move {
        let body = async {
            let (outer, guard) = (here(), here().guard().expect("held"));
            let nested = async {
                sends.send((outer, here(), guard)).expect("the test waits");
                here().release_requested().await;
                here().token()
            };
            inner.run(nested).await
        };
        lock.run(body).await
    });
    let (outer, nested, guard) = sent.await.expect("it runs");
    let mut next = Box::pin(one.lock("k").wait(LONG).acquire());
    begin(&mut next).await;
    assert!(!is_requested(&outer) && !is_requested(&nested));
    let hears = outer.clone();
    let hears = tokio::spawn(async move { hears.release_requested().await });
    ask(&operator, "k").await;
    within(LONG, "a clone hears of it", hears)
        .await
        .expect("no panic");
    assert!([&*outer, &*nested, &*guard].into_iter().all(is_requested));
    let token = within(LONG, "the body ends", holding).await;
    let token = token.expect("no panic").expect("held").expect("held");
    assert_eq!(token, guard.token());
    assert!(guard.is_valid(), "nothing is lost");
    guard.release().await.expect("held");
    // The client has served its own call before it releases the lock.
    let next = within(LONG, "the next call is served", next).await;
    let next = next.expect("granted");
    assert!(next.token() > token && !is_requested(&next));
}

#[distributed_lock(key = "order:<id>", guard = lock, client = client)]
async fn index(client: &LockClient, id: u64) -> Result<u64, LockError> {
    let hold = here();
    tokio::join!(lock.release_requested(), hold.release_requested());
    Ok(id)
}

#[tokio::test]
async fn a_request_reaches_an_annotated_function_by_its_guard_and_by_current() {
    let client = LockClient::in_memory();
    let mut indexing = Box::pin(index(&client, 7));
    assert!(indexing.as_mut().now_or_never().is_none());
    ask(&client, "order:7").await;
    assert_eq!(within(LONG, "it ends", indexing).await.expect("held"), 7);
}

#[tokio::test]
async fn a_request_for_one_of_several_keys_reaches_their_hold() {
    let client = LockClient::in_memory();
    let guard = client.lock_all(["a", "b", "c"]).acquire().await;
    let guard = guard.expect("free");
    assert!(!is_requested(&guard));
    ask(&client, "c").await;
    assert!(is_requested(&guard));
    guard.release().await.expect("held");
}

#[tokio::test]
async fn a_lock_whose_release_was_requested_is_not_retained() {
    let client = LockClient::in_memory();
    let lock = client.lock("k").retain(LASTING);
    lock.run(ask(&client, "k")).await.expect("free");
    assert_eq!(client.inspect("k").await.expect("a reply"), None);
    // The next hold is retained as usual.
    lock.run(async {}).await.expect("free");
    let info = client.inspect("k").await.expect("a reply");
    assert!(info.expect("retained").retained);
}

#[tokio::test]
async fn a_client_that_drains_asks_all_its_holds() {
    let client = LockClient::in_memory();
    let body = async {
        let hold = here();
        hold.release_requested().await;
        assert!(hold.is_valid());
    };
    let held = client.lock("k");
    let holding = tokio::spawn(async move { held.run(body).await });
    eventually(LONG, "the body runs", async || {
        client.inspect("k").await.expect("a reply").is_some()
    })
    .await;
    let drained = client.drain(LONG).await.expect("in good order");
    assert_eq!(drained, DrainOutcome::Completed);
    holding.await.expect("no panic").expect("nothing is lost");
}

#[tokio::test]
async fn a_request_that_no_holder_receives_is_reported() {
    let builder = LockClient::builder().inspectable(false);
    let silent = builder.connect("memory:unheard").await.expect("a client");
    let operator = connect("memory:unheard").await;
    let asked = async || operator.request_release("k").await.expect("a reply");
    assert!(!asked().await, "it is free");
    let guard = silent.lock("k").acquire().await.expect("free");
    assert!(!asked().await, "its client does not reply");
    assert!(!is_requested(&guard));
    guard.release().await.expect("held");
    let kept = silent.lock("k").min_hold(LASTING);
    kept.run(async {}).await.expect("free");
    assert!(!asked().await, "no call holds it");
}

#[tokio::test]
async fn the_holder_logs_who_asks_for_its_lock() {
    keep_log();
    let (one, operator) = (
        connect("memory:logged-requests").await,
        LockClient::builder().service("operations", "7"),
    );
    let operator = operator.connect("memory:logged-requests").await;
    let operator = operator.expect("a client");
    let guard = one.lock("asked-for").acquire().await.expect("free");
    ask(&operator, "asked-for").await;
    guard.release_requested().await;
    let lines = logged_of("another client requests the release of the lock");
    let lines: Vec<_> = lines
        .iter()
        .filter(|line| line.contains("key=asked-for "))
        .collect();
    let [line] = lines[..] else {
        panic!("one line: {lines:#?}")
    };
    assert!(line.contains("INFO"), "{line}");
    assert!(line.contains("by=\"`operations` on `"), "{line}");
    assert!(line.contains(&guard.owner()), "{line}");
}

fn on_clock() -> (Clock, LockClient) {
    let clock = Clock::new();
    let client = use_clock(LockClient::builder(), &clock).in_memory();
    (clock, client.expect("made"))
}

/// Returns whether the notice has not come.
fn is_early(hold: &Hold) -> bool {
    hold.expiring().now_or_never().is_none()
}

/// Waits for the notice. Returns what is left.
async fn noticed(hold: &Hold) -> Duration {
    within(LONG, "the notice comes", hold.expiring()).await
}

#[tokio::test]
async fn a_notice_comes_at_half_of_a_lease_that_is_not_renewed() {
    let (clock, client) = on_clock();
    let lock = client.lock("k").lease(HOUR).watchdog(false);
    let guard = lock.acquire().await.expect("free");
    clock.advance(28 * MINUTE);
    assert!(is_early(&guard));
    let mut notice = Box::pin(guard.expiring());
    assert!(notice.as_mut().now_or_never().is_none());
    clock.advance(4 * MINUTE);
    let left = within(LONG, "the clock wakes it", notice).await;
    assert!(left > 20 * MINUTE && left < 30 * MINUTE, "{left:?}");
    assert!(guard.is_valid());
    guard.release().await.expect("held");
}

#[tokio::test]
async fn a_notice_comes_when_renewals_fail_and_not_after_one_has_succeeded() {
    let (clock, client) = on_clock();
    let guard = client.lock("k").lease(HOUR).acquire().await;
    let guard = guard.expect("free");
    assert!(is_early(&guard));
    let outage = simulate_outage(&client).expect("the embedded store");
    clock.advance(35 * MINUTE);
    let left = noticed(&guard).await;
    assert!(left > 20 * MINUTE && left < 25 * MINUTE, "{left:?}");
    drop(outage);
    clock.advance(10 * MINUTE); // the next renewal is due
    eventually(LONG, "it is renewed", async || guard.valid_for() > left).await;
    assert!(is_early(&guard));
    guard.release().await.expect("held");
}

#[tokio::test]
async fn a_notice_comes_before_a_hold_ends_by_its_max_hold() {
    let (clock, client) = on_clock();
    let lock = client.lock("k").lease(HOUR).max_hold(20 * MINUTE);
    let guard = lock.acquire().await.expect("free");
    clock.advance(9 * MINUTE);
    assert!(is_early(&guard));
    clock.advance(2 * MINUTE);
    let left = noticed(&guard).await;
    assert!(left > 5 * MINUTE && left < 10 * MINUTE, "{left:?}");
    guard.release().await.expect("held");

    let lock = client.lock("k").lease(HOUR / 2).max_hold(40 * MINUTE);
    let guard = lock.acquire().await.expect("free");
    clock.advance(12 * MINUTE);
    let is_renewed = async || guard.valid_for() > 20 * MINUTE;
    eventually(LONG, "it is renewed", is_renewed).await;
    clock.advance(12 * MINUTE);
    assert!(is_early(&guard));
    clock.advance(2 * MINUTE);
    let left = noticed(&guard).await;
    assert!(left > 10 * MINUTE && left < 15 * MINUTE, "{left:?}");
    guard.release().await.expect("held");
}

#[tokio::test]
async fn the_lock_that_ends_first_decides_when_a_notice_comes() {
    let (clock, client) = on_clock();
    let outer = client.lock("outer").lease(HOUR).watchdog(false);
    let inner = client.lock("inner").lease(10 * MINUTE).watchdog(false);
    let both = outer.run(inner.run(async { here().guard_all() })).await;
    let both = both.expect("free").expect("free").expect("held");
    assert!(is_early(&both));
    clock.advance(6 * MINUTE);
    let left = noticed(&both).await;
    assert!(left > MINUTE && left < 4 * MINUTE, "{left:?}");
    both.release().await.expect("held");
}

#[tokio::test(start_paused = true)]
async fn a_notice_that_waits_comes_at_half_of_a_lease_that_its_holder_has_shortened() {
    let client = use_tokio_clock(LockClient::builder()).in_memory();
    let client = client.expect("made");
    let lock = client.lock("k").lease(HOUR).watchdog(false);
    let guard = lock.acquire().await.expect("free");
    let mut notice = Box::pin(guard.expiring());
    assert!(notice.as_mut().now_or_never().is_none());
    let lease = Duration::from_millis(500);
    guard.extend(lease).await.expect("held");
    let left = notice.await;
    assert!(!left.is_zero() && left <= lease / 2, "{left:?}");
    assert_eq!(guard.lost().await, LostCause::Expired);
}

#[tokio::test]
async fn a_notice_that_waits_resolves_to_zero_when_its_hold_ends() {
    let (_clock, client) = on_clock();
    let (sends, sent) = oneshot::channel();
    let lock = client.lock("k").lease(HOUR);
    let holding = tokio::spawn(async move {
        let body = async {
            sends.send(here()).expect("the test waits");
            pending::<()>().await;
        };
        lock.run(body).await
    });
    let hold = sent.await.expect("it runs");
    let mut notice = Box::pin(hold.expiring());
    assert!(notice.as_mut().now_or_never().is_none());
    holding.abort();
    let left = within(LONG, "it ends with the hold", notice).await;
    assert_eq!(left, Duration::ZERO);
}
