//! What a hold tells the code inside: another client requests the release of the lock, or the lease will soon end.

use std::time::Duration;

use futures_util::future::FutureExt as _;
use rlock_core::{
    Hold, LockClient, LostCause,
    testing::{Clock, simulate_outage, use_clock},
};
use rlock_testkit::{eventually, within};
use tokio::sync::oneshot;

use crate::{
    common::{
        LASTING, LONG, begin, connect, here, hold,
        log::{keep_log, logged_with},
        on_tokio_clock, running, two_clients,
    },
    leases::clock::HOUR,
};

const MINUTE: Duration = Duration::from_secs(60);

/// Returns whether the hold was asked to release its lock.
fn is_requested(hold: &Hold) -> bool {
    hold.release_requested().now_or_never().is_some()
}

/// Repeats the request until the holder replies, because a busy one may reply too late. Returns the number of requests.
async fn ask(operator: &LockClient, key: &str) -> usize {
    let mut requests = 0;
    eventually(LONG, "the holder replies", async || {
        requests += 1;
        operator.request_release(key).await.expect("a reply")
    })
    .await;
    requests
}

#[tokio::test]
async fn a_request_reaches_each_handle_of_a_hold_and_no_later_hold() {
    let [one, operator] = two_clients("memory:requests").await;
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
    // No call uses it now, so the client releases it in the background.
    assert!(client.request_release("k").await.expect("a reply"));
    eventually(LONG, "it is released", async || {
        client.inspect("k").await.expect("a reply").is_none()
    })
    .await;
}

#[tokio::test]
async fn the_holder_logs_who_asks_for_its_lock() {
    keep_log();
    let store = "memory:logged-requests";
    let holder = connect(store).await;
    let operator = LockClient::builder().service("operations", "7");
    let operator = operator.connect(store).await.expect("a client");
    let guard = hold(&holder, "asked-for").await;
    let requests = ask(&operator, "asked-for").await;
    let logged = "another client requests the release of the lock";
    let lines = logged_with(&[logged, "key=asked-for "]);
    assert!((1..=requests).contains(&lines.len()), "{lines:#?}");
    for said in ["INFO", "by=\"`operations` on `", &guard.owner()] {
        assert!(lines.iter().all(|line| line.contains(said)), "{lines:#?}");
    }
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
    let client = on_tokio_clock("memory:").await;
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
    let (holding, hold) = running(&client.lock("k").lease(HOUR), here).await;
    let mut notice = Box::pin(hold.expiring());
    assert!(notice.as_mut().now_or_never().is_none());
    holding.abort();
    let left = within(LONG, "it ends with the hold", notice).await;
    assert_eq!(left, Duration::ZERO);
}
