//! A machine that sleeps: the clock of leases continues, timers stop. The clients use a clock that
//! the test can move.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use rlock_core::{Lock, LockClient, LockError, LockGuard, LostCause, current, testing::Clock};
use rlock_testkit::{Proxy, RedisServer, eventually, within};
use tokio::{runtime::Runtime, task::yield_now};

use crate::common::{LONG, assert_lost, assert_soon_free, cause_of, ms, name};
use crate::leases::clock::{self, HOUR};

/// A client on a machine that sleeps, and its store.
struct Place {
    what: &'static str,
    clock: Clock,
    client: LockClient,
    server: Option<RedisServer>,
    /// The runtime that made the client, if it is not the current one.
    elsewhere: Option<Runtime>,
}

impl Place {
    async fn all() -> [Self; 3] {
        let at = async |what, server: Option<RedisServer>, elsewhere: Option<Runtime>| {
            let url = server
                .as_ref()
                .map_or("memory:".to_owned(), RedisServer::url);
            let connecting = async move { clock::connect(&url).await };
            let (clock, client) = match &elsewhere {
                Some(runtime) => runtime.spawn(connecting).await.expect("no panic"),
                None => connecting.await,
            };
            Self {
                what,
                clock,
                client,
                server,
                elsewhere,
            }
        };
        let elsewhere = Runtime::new().expect("a runtime");
        [
            at("memory", None, None).await,
            at("caller", Some(RedisServer::start()), None).await,
            at("background", Some(RedisServer::start()), Some(elsewhere)).await,
        ]
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(runtime) = self.elsewhere.take() {
            runtime.shutdown_background();
        }
    }
}

#[tokio::test]
async fn a_hold_that_slept_through_its_end_is_invalid_at_once() {
    for place in Place::all().await {
        let guard = place.client.lock("k").acquire().await.expect("free");
        assert!(guard.is_valid(), "{}", place.what);
        place.clock.suspend(HOUR);
        assert!(!guard.is_valid(), "{}", place.what);
        assert_eq!(guard.valid_for(), Duration::ZERO);
        let nested = guard.scope(place.client.lock("k").acquire()).await;
        assert_eq!(cause_of(nested), Some(LostCause::Expired), "{}", place.what);
        assert_lost(&guard, LONG, LostCause::Expired).await;
        let released = guard.release().await;
        assert_eq!(cause_of(released), Some(LostCause::Expired));
        if let Some(server) = &place.server {
            assert_soon_free(server, "k").await;
        }
        let next = place.client.lock("k").acquire().await;
        next.expect("free").release().await.expect("held");
    }
}

#[tokio::test]
async fn a_body_that_slept_through_the_end_of_its_lease_is_dropped_at_its_next_await() {
    for place in Place::all().await {
        let went_on = AtomicBool::new(false);
        let lock = place.client.lock("k");
        let outcome = lock.run(async {
            yield_now().await;
            let hold = current().expect("inside");
            place.clock.suspend(HOUR);
            assert!(!hold.is_valid());
            yield_now().await;
            went_on.store(true, Ordering::SeqCst);
        });
        assert_eq!(cause_of(outcome.await), Some(LostCause::Expired));
        assert!(!went_on.load(Ordering::SeqCst), "{}", place.what);
    }
}

#[tokio::test]
async fn a_body_that_is_not_polled_is_dropped_when_the_clock_is_read() {
    for place in Place::all().await {
        let lock = place.client.lock("k");
        let body = async {
            place.clock.suspend(HOUR);
            std::future::pending::<()>().await;
        };
        let outcome = within(LONG, "the body is dropped", lock.run(body)).await;
        assert_eq!(cause_of(outcome), Some(LostCause::Expired));
    }
}

/// Without the jump, the renewal would be due in twenty minutes.
#[tokio::test]
async fn a_short_sleep_is_made_up_for_by_a_renewal_though_the_executor_is_blocked() {
    for place in Place::all().await {
        let guard = place.client.lock("k").acquire().await.expect("free");
        place.clock.suspend(HOUR / 2);
        assert!(guard.is_valid(), "{}", place.what);
        let blocked = Instant::now();
        while guard.valid_for() <= HOUR / 2 {
            assert!(blocked.elapsed() < LONG, "{}: no renewal", place.what);
            thread::sleep(ms(5));
        }
        guard.release().await.expect("held");
    }
}

/// Acquires a lock whose grant is on its way while the machine sleeps.
async fn acquired_across_a_sleep(
    server: &RedisServer,
    proxy: &Proxy,
    clock: &Clock,
    lock: Lock,
) -> Result<LockGuard, LockError> {
    proxy.hold_replies();
    let acquiring = tokio::spawn(async move { lock.acquire().await });
    eventually(LONG, "the server has granted the lock", async || {
        server.exists(&name("k")).await
    })
    .await;
    clock.suspend(HOUR);
    proxy.pass();
    let acquired = within(LONG, "the acquire ends", acquiring).await;
    acquired.expect("no panic")
}

#[tokio::test]
async fn a_reply_from_before_the_sleep_is_no_grant() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let patient = LockClient::builder().response_timeout(LONG);
    let (clock, client) = clock::connect_as(patient, &proxy.url()).await;
    let lock = client.lock("k");
    // The wait has ended during the sleep, too.
    let refused = acquired_across_a_sleep(&server, &proxy, &clock, lock).await;
    assert!(
        matches!(refused, Err(LockError::Unavailable { .. })),
        "{refused:?}"
    );
    assert_soon_free(&server, "k").await;

    let lock = client.lock("k").wait_forever();
    let asked_again = acquired_across_a_sleep(&server, &proxy, &clock, lock).await;
    let guard = asked_again.expect("free");
    assert!(guard.is_valid() && guard.valid_for() > HOUR / 2);
    guard.release().await.expect("held");
}
