//! Lost, late and cut requests and replies: nothing counts twice, and nothing is left behind.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use rlock_core::{Lock, LockClient, LockError, LostCause};
use rlock_testkit::{Proxy, RedisServer, Request, assert_taken, eventually, within};

use crate::common::{
    LASTING, LONG, assert_lost, assert_soon_free, assert_soon_queued, client, connect,
    connect_with, count, dropped_when_woken_after, hold, ms, name, polled, resp2, timed,
};

/// A server with two clients, one of them behind a proxy.
struct Place {
    server: RedisServer,
    proxy: Proxy,
    client: LockClient,
    other: LockClient,
}

impl Place {
    async fn new() -> Self {
        Self::with_response_timeout(Duration::from_secs(2)).await
    }

    async fn with_response_timeout(timeout: Duration) -> Self {
        let server = RedisServer::start();
        let proxy = Proxy::in_front_of(&server);
        let client = connect_with(timeout, &proxy.url()).await;
        let other = client_of(&server).await;
        Self {
            server,
            proxy,
            client,
            other,
        }
    }

    fn lock(&self) -> Lock {
        self.client.lock("k").lease(LASTING).wait(LONG)
    }

    /// Loses the reply to the next script for the lock.
    fn lose_the_next_reply(&self) {
        self.proxy.drop_replies_if(1, |request| {
            request.is("EVALSHA") && request.mentions("lock:{k}")
        });
    }

    fn assert_answers_lost(&self, lost: u64) {
        assert_eq!(self.proxy.replies_lost(), lost, "the fault has struck");
    }

    async fn assert_nothing_left(&self) {
        assert_soon_free(&self.server, "k").await;
        assert_soon_queued(&self.server, "k", 0).await;
    }

    /// Checks that the other client gets the lock long before a lease or a waiter's timer ends.
    async fn assert_soon_taken_by_another(&self, when: &str) {
        let lock = self.other.lock("k").lease(LASTING);
        eventually(ms(3000), when, async || {
            match lock.try_acquire().await.expect("a reply") {
                Some(guard) => {
                    guard.release().await.expect("held");
                    true
                }
                None => false,
            }
        })
        .await;
        // A cancelled request may reach the server late. It is released then.
        assert_soon_free(&self.server, "k").await;
    }
}

async fn client_of(server: &RedisServer) -> LockClient {
    client(server).await
}

#[tokio::test]
async fn an_acquire_whose_reply_is_lost_is_granted_once() {
    let place = Place::new().await;
    place.lose_the_next_reply();
    let guard = place.lock().acquire().await.expect("granted after all");
    place.assert_answers_lost(1);
    assert_eq!(count(&place.server, &guard).await, Some(1));
    assert_eq!(place.server.hgetall(&name("k")).await.len(), 1);
    guard.release().await.expect("held");
    assert!(!place.server.exists(&name("k")).await, "and nobody else's");
}

#[tokio::test]
async fn an_acquire_without_waiting_and_without_a_reply_leaves_nothing_behind() {
    let place = Place::new().await;
    place.lose_the_next_reply();
    let error = place.lock().try_acquire().await.expect_err("no reply");
    place.assert_answers_lost(1);
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    place
        .assert_soon_taken_by_another("the orphan is released")
        .await;
}

#[tokio::test]
async fn an_acquire_whose_request_is_lost_is_sent_again() {
    let place = Place::new().await;
    place.proxy.drop_requests_to("EVALSHA", 3);
    let guard = place.lock().acquire().await.expect("granted after all");
    assert_eq!(place.proxy.requests_lost(), 3);
    assert_eq!(count(&place.server, &guard).await, Some(1));
    guard.release().await.expect("held");
}

#[tokio::test]
async fn a_nested_acquire_whose_reply_is_lost_counts_once() {
    let place = Place::new().await;
    let lock = place.lock();
    let outer = lock.acquire().await.expect("free");
    place.lose_the_next_reply();
    let inner = outer.scope(lock.acquire()).await.expect("enters");
    place.assert_answers_lost(1);
    assert_eq!(count(&place.server, &outer).await, Some(2));
    inner.release().await.expect("held");
    assert_eq!(count(&place.server, &outer).await, Some(1));
    outer.release().await.expect("held");
    assert!(!place.server.exists(&name("k")).await);
}

#[tokio::test]
async fn a_release_whose_reply_is_lost_succeeds() {
    let place = Place::new().await;
    let guard = place.lock().acquire().await.expect("free");
    place.lose_the_next_reply();
    guard.release().await.expect("released, once");
    place.assert_answers_lost(1);
    assert!(!place.server.exists(&name("k")).await);
}

#[tokio::test]
async fn a_nested_release_whose_reply_is_lost_lowers_the_count_once() {
    let place = Place::new().await;
    let lock = place.lock();
    let outer = lock.acquire().await.expect("free");
    let middle = outer.scope(lock.acquire()).await.expect("enters");
    let inner = outer.scope(lock.acquire()).await.expect("enters");
    assert_eq!(count(&place.server, &outer).await, Some(3));
    place.lose_the_next_reply();
    inner.release().await.expect("held");
    place.assert_answers_lost(1);
    assert_eq!(count(&place.server, &outer).await, Some(2));
    place.lose_the_next_reply();
    middle.release().await.expect("held");
    assert_eq!(count(&place.server, &outer).await, Some(1));
    outer.release().await.expect("held");
    assert!(!place.server.exists(&name("k")).await);
}

#[tokio::test]
async fn a_repeated_release_does_not_free_the_lock_of_the_next_owner() {
    let place = Place::new().await;
    let guard = place.lock().acquire().await.expect("free");
    let next = place.other.lock("k").lease(LASTING).wait(LONG);
    let next = tokio::spawn(async move { next.acquire().await.expect("its turn") });
    assert_soon_queued(&place.server, "k", 1).await;

    // The release runs, and is not repeated before the next owner has the lock.
    place.lose_the_next_reply();
    place.proxy.refuse();
    let release = tokio::spawn(guard.release());
    let next = within(LONG, "the next owner is in", next).await;
    let next = next.expect("no panic");
    // The proxy has to lose the reply before it passes others, but the server may be faster.
    let lost = async || place.proxy.replies_lost() == 1;
    eventually(LONG, "the reply is lost", lost).await;
    assert!(!release.is_finished(), "it has received no reply");
    let before = place.proxy.requests_of("EVALSHA");
    place.proxy.pass();
    let outcome = within(LONG, "the release ends", release).await;
    outcome.expect("no panic").expect("the first one did it");
    place.assert_answers_lost(1);
    assert!(
        place.proxy.requests_of("EVALSHA") > before,
        "it was repeated"
    );
    assert_eq!(count(&place.server, &next).await, Some(1));
    next.release().await.expect("held");
}

/// Cancels a call after every number of polls, and as soon as it is woken after them.
async fn cancelled<F: Future>(call: impl Fn() -> F, mut after: impl AsyncFnMut(&str)) {
    for polls in 0..20 {
        for (woken, when) in [(false, "right after"), (true, "when woken after")] {
            let call = async {
                if woken {
                    dropped_when_woken_after(polls, call()).await;
                } else {
                    polled(polls, call()).await;
                }
            };
            // A call that is not woken makes no progress.
            let _ = tokio::time::timeout(ms(50), call).await;
            after(&format!("cancelled {when} poll {polls}")).await;
        }
    }
}

#[tokio::test]
async fn an_acquire_that_is_cancelled_anywhere_leaves_nothing_behind() {
    let place = Place::new().await;
    let lock = place.lock();
    // A guard that was granted is dropped with the call.
    let call = || async { drop(lock.acquire().await) };
    cancelled(call, async |when| {
        place.assert_soon_taken_by_another(when).await;
    })
    .await;
    place.assert_nothing_left().await;
}

#[tokio::test]
async fn a_waiting_acquire_that_is_cancelled_anywhere_leaves_nothing_behind() {
    let place = Place::new().await;
    let lock = place.lock();
    let taken = hold(&place.other, "k").await;
    let call = || async { drop(lock.acquire().await) };
    cancelled(call, async |when| {
        assert_eq!(count(&place.server, &taken).await, Some(1), "{when}");
    })
    .await;
    let owners = place.server.hgetall(&name("k")).await;
    assert_eq!(owners.len(), 1, "{owners:?}");
    assert_soon_queued(&place.server, "k", 0).await;
    taken.release().await.expect("held");
    place.assert_soon_taken_by_another("all have gone").await;
    place.assert_nothing_left().await;
}

#[tokio::test]
async fn a_nested_acquire_that_is_cancelled_anywhere_leaves_the_count_right() {
    let place = Place::new().await;
    let lock = place.lock();
    let outer = lock.acquire().await.expect("free");
    let call = || outer.scope(async { drop(lock.acquire().await) });
    cancelled(call, async |when| {
        eventually(LONG, when, async || {
            count(&place.server, &outer).await == Some(1)
        })
        .await;
    })
    .await;
    assert!(outer.is_valid());
    outer.release().await.expect("held");
    assert!(!place.server.exists(&name("k")).await);
}

#[tokio::test]
async fn a_release_that_is_cancelled_at_any_step_releases_the_lock() {
    let place = Place::new().await;
    for polls in 0..6 {
        let guard = place.lock().acquire().await.expect("free");
        drop(polled(polls, guard.release()).await);
        place
            .assert_soon_taken_by_another("it is released in the background")
            .await;
    }
    place.assert_nothing_left().await;
}

#[tokio::test]
async fn an_acquire_at_a_paused_server_fails_in_time_and_a_late_grant_is_released() {
    let place = Place::with_response_timeout(ms(300)).await;
    for wait in [ms(150), ms(900)] {
        place.server.pause();
        let (outcome, took) = timed(place.lock().wait(wait).acquire()).await;
        let error = outcome.expect_err("no reply");
        assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
        assert!(took < wait + ms(1000), "{took:?}: {error}");
        // The request runs now, long after its call has ended.
        place.server.resume();
        place
            .assert_soon_taken_by_another("the orphan is released")
            .await;
    }
    place.assert_nothing_left().await;
}

/// Returns the last script that went through the proxy.
fn last_script(proxy: &Proxy) -> Request {
    let mut requests = proxy.requests().into_iter();
    let last = requests.rfind(|request| request.is("EVALSHA"));
    last.expect("a script was sent")
}

/// Runs a copy of a request, like a network that duplicates or delays it.
async fn run_late(server: &RedisServer, request: &Request) -> redis::Value {
    let mut command = redis::Cmd::new();
    for word in &request.words {
        command.arg(word);
    }
    let mut connection = server.connection().await;
    command
        .query_async(&mut connection)
        .await
        .expect("the server runs it")
}

#[tokio::test]
async fn an_acquire_that_runs_late_blocks_others_for_a_lease_at_most() {
    const LEASE: Duration = Duration::from_millis(1200);
    let place = Place::new().await;
    let lock = place.lock().lease(LEASE);
    lock.acquire()
        .await
        .map(drop)
        .expect("free, and released in the background");
    let acquire = place
        .proxy
        .requests()
        .into_iter()
        .find(|request| request.is("EVALSHA") && request.mentions(&name("k")))
        .expect("the acquire");
    place.assert_nothing_left().await;

    run_late(&place.server, &acquire).await;
    assert_eq!(place.server.hgetall(&name("k")).await.len(), 1, "an orphan");
    // Neither the sender nor another client relies on the copy.
    for client in [&place.client, &place.other] {
        assert_taken(client, "k").await;
    }
    let next = place.client.lock("k").lease(LASTING).wait(LONG);
    let (next, waited) = timed(next.acquire()).await;
    let next = next.expect("nothing renews the orphan");
    assert!(waited < LEASE + ms(1500), "it took {waited:?}");
    assert_eq!(count(&place.server, &next).await, Some(1));
    // And once more while the next owner has the lock.
    run_late(&place.server, &acquire).await;
    assert_eq!(place.server.hgetall(&name("k")).await.len(), 1);
    next.release().await.expect("held");
}

#[tokio::test]
async fn copies_of_requests_that_run_late_change_nothing() {
    let place = Place::new().await;
    let lock = place.lock();
    let copies = async |request: &Request| {
        for _ in 0..3 {
            run_late(&place.server, request).await;
        }
    };
    let outer = lock.acquire().await.expect("free");
    let first = last_script(&place.proxy);
    copies(&first).await;
    assert_eq!(count(&place.server, &outer).await, Some(1));

    let inner = outer.scope(lock.acquire()).await.expect("enters");
    let second = last_script(&place.proxy);
    copies(&second).await;
    assert_eq!(count(&place.server, &outer).await, Some(2));

    inner.release().await.expect("held");
    let leave = last_script(&place.proxy);
    copies(&leave).await;
    assert_eq!(count(&place.server, &outer).await, Some(1));
    assert!(outer.is_valid());

    outer.release().await.expect("held");
    let release = last_script(&place.proxy);
    let again = run_late(&place.server, &release).await;
    assert_eq!(again, redis::Value::Int(0), "it is not held any more");

    let next = hold(&place.other, "k").await;
    let before = place.server.hgetall(&name("k")).await;
    for request in [&first, &second, &leave, &release] {
        copies(request).await;
    }
    assert_eq!(place.server.hgetall(&name("k")).await, before);
    next.release().await.expect("held");
    assert!(!place.server.exists(&name("k")).await);
}

#[tokio::test]
async fn a_lease_counts_from_before_its_request_was_sent() {
    const LEASE: Duration = Duration::from_secs(2);
    let place = Place::with_response_timeout(Duration::from_secs(10)).await;
    place.proxy.delay_replies(LEASE * 8 / 10);
    let lock = place.lock().lease(LEASE).watchdog(false);
    let guard = match lock.acquire().await {
        Ok(guard) => guard,
        Err(error) => panic!("granted, though late: {error}"),
    };
    let asked = Instant::now();
    let left = guard.valid_for();
    assert!(left <= LEASE / 5, "{left:?} of {LEASE:?} left");
    let server_says = u64::try_from(place.server.pttl(&name("k")).await).unwrap_or(0);
    let later = asked.elapsed();
    assert!(
        left <= ms(server_says) + later,
        "{left:?} and {server_says} ms, {later:?} later"
    );
    place.proxy.pass();
    assert_lost(&guard, LEASE / 5 + ms(500), LostCause::Expired).await;
    drop(guard);
    place.assert_nothing_left().await;
}

#[tokio::test]
async fn a_reply_later_than_its_lease_is_no_grant() {
    let place = Place::with_response_timeout(Duration::from_secs(10)).await;
    place.proxy.delay_replies(ms(600));
    for (key, wait) in [("at once", Duration::ZERO), ("after some tries", ms(1500))] {
        let lock = place.client.lock(key).lease(ms(400)).wait(wait);
        let (outcome, took) = timed(lock.acquire()).await;
        let error = outcome.expect_err("every lease has ended before it is known");
        assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
        assert!(took < wait + ms(2500), "{took:?}");
    }
    place.proxy.pass();
    for key in ["at once", "after some tries"] {
        assert_soon_free(&place.server, key).await;
        let guard = place.client.lock(key).lease(LASTING).wait(LONG);
        let guard = guard.acquire().await.expect("in time again");
        assert!(guard.is_valid());
        guard.release().await.expect("held");
    }
}

#[derive(Debug, Clone, Copy)]
enum Outage {
    /// Bytes are lost, and a reset ends the outage.
    Loses,
    /// Bytes are held.
    Holds,
    /// Requests run, and their replies are lost.
    LosesReplies,
    /// The connection is cut, and new ones are refused.
    Refuses,
}

async fn a_lock_survives(outage: Outage) {
    const LEASE: Duration = Duration::from_secs(3);
    let place = Place::new().await;
    let guard = place.lock().lease(LEASE).acquire().await.expect("free");
    let renewals = || place.proxy.requests_of("EVALSHA");
    let before = renewals();
    eventually(LONG, "it is renewed", async || renewals() > before).await;
    tokio::time::sleep(ms(50)).await;

    match outage {
        Outage::Loses => place.proxy.black_hole(),
        Outage::Holds => place.proxy.hold(),
        Outage::LosesReplies => place.proxy.black_hole_replies(),
        Outage::Refuses => {
            place.proxy.refuse();
            place.proxy.reset();
        }
    }
    tokio::time::sleep(LEASE / 2).await;
    assert!(guard.is_valid(), "{outage:?}: the lease has not ended");
    place.proxy.pass();
    tokio::time::sleep(LEASE).await;
    assert!(guard.is_valid(), "{outage:?}: renewed in time");
    assert_eq!(count(&place.server, &guard).await, Some(1), "{outage:?}");
    guard.release().await.expect("held");
}

#[tokio::test]
async fn a_lock_survives_an_outage_of_half_a_lease() {
    tokio::join!(
        a_lock_survives(Outage::Loses),
        a_lock_survives(Outage::Holds),
        a_lock_survives(Outage::LosesReplies),
        a_lock_survives(Outage::Refuses),
    );
}

#[tokio::test]
async fn an_outage_that_outlasts_the_lease_is_a_loss_by_its_end() {
    const LEASE: Duration = Duration::from_millis(900);
    let place = Place::new().await;
    let guard = place.lock().lease(LEASE).acquire().await.expect("free");
    place.proxy.black_hole();
    let ((), took) = timed(assert_lost(&guard, LONG, LostCause::Expired)).await;
    assert!(took <= LEASE + ms(1000), "notified only after {took:?}");
    place
        .assert_soon_taken_by_another("the lease has ended")
        .await;
    place.proxy.pass();
    drop(guard);
    let guard = within(
        LONG,
        "the proxy passes connections again",
        place.lock().acquire(),
    )
    .await;
    guard.expect("free").release().await.expect("held");
}

#[tokio::test]
async fn a_connection_that_is_reset_is_replaced_and_reports_losses_again() {
    for watchdog in [true, false] {
        let place = Place::new().await;
        let guard = place.lock().watchdog(watchdog);
        let guard = guard.acquire().await.expect("free");
        let before = place.proxy.requests_of("EVALSHA");
        let tracked = place.proxy.requests_of("CLIENT TRACKING");
        place.proxy.reset();
        // A client checks its locks at once on a new connection.
        eventually(LONG, "the client checks its lock", async || {
            place.proxy.requests_of("EVALSHA") > before
        })
        .await;
        assert!(place.proxy.requests_of("CLIENT TRACKING") > tracked);
        tokio::time::sleep(ms(300)).await;
        assert!(guard.is_valid(), "a lost connection is no lost lock");
        assert!(place.server.del(&name("k")).await);
        // The next renewal is ten seconds away, if there is one.
        assert_lost(&guard, ms(3000), LostCause::Removed).await;
    }
}

#[tokio::test]
async fn a_loss_that_happens_without_a_connection_is_noticed_with_the_next() {
    let place = Place::new().await;
    let guard = place.lock().acquire().await.expect("free");
    place.proxy.refuse();
    place.proxy.reset();
    assert!(place.server.del(&name("k")).await);
    tokio::time::sleep(ms(200)).await;
    assert!(guard.is_valid(), "it cannot know yet");
    place.proxy.pass();
    assert_lost(&guard, ms(3000), LostCause::Removed).await;
}

#[tokio::test]
async fn a_half_closed_connection_is_replaced() {
    let place = Place::new().await;
    let guard = place.lock().lease(ms(1500)).acquire().await.expect("free");
    place.proxy.half_close();
    tokio::time::sleep(ms(2500)).await;
    assert!(guard.is_valid());
    guard.release().await.expect("held");
}

#[tokio::test]
async fn a_connection_cut_within_a_reply_is_replaced() {
    let place = Place::new().await;
    let older = connect(&resp2(&place.proxy.url())).await;
    for client in [&place.client, &older] {
        let lock = client.lock("k").lease(LASTING).wait(LONG);
        for bytes in (1..40).step_by(3) {
            place.proxy.cut_after_bytes(bytes);
            let guard = lock.acquire().await.expect("granted after all");
            assert_eq!(count(&place.server, &guard).await, Some(1), "{bytes}");
            place.proxy.cut_after_bytes(bytes);
            guard.release().await.expect("released");
            assert!(!place.server.exists(&name("k")).await, "{bytes}");
        }
    }
}
