//! A machine that sleeps: the clock of leases continues, timers stop. The clients use a clock that
//! the test can move.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use rlock_core::{
    __private::Clock, Lock, LockClient, LockError, LockGuard, LostCause, Reentry, current,
};
use rlock_testkit::{Gate, RedisServer, Way, eventually, within};
use tokio::{
    runtime::{Builder, Runtime},
    task::yield_now,
};

use crate::common::{LASTING, LONG, assert_lost, assert_soon_free, cause_of, ms, name};

/// The client reads the clock once a second. The rest is for a busy machine.
const LOOKED: Duration = Duration::from_secs(4);
const HOUR: Duration = Duration::from_secs(60 * 60);

/// A clock that also jumps.
struct Sleepy {
    started: Instant,
    jumped: AtomicU64,
}

impl Sleepy {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            started: Instant::now(),
            jumped: AtomicU64::new(0),
        })
    }

    fn jump(&self, by: Duration) {
        let by = u64::try_from(by.as_nanos()).expect("less than centuries");
        self.jumped.fetch_add(by, Ordering::SeqCst);
    }
}

impl Clock for Sleepy {
    fn elapsed(&self) -> Duration {
        self.started.elapsed() + Duration::from_nanos(self.jumped.load(Ordering::SeqCst))
    }
}

/// A client on a machine that sleeps, and its store.
struct Place {
    what: &'static str,
    clock: Arc<Sleepy>,
    client: LockClient,
    server: Option<RedisServer>,
    /// The runtime that made the client, if it is not the current one.
    elsewhere: Option<Runtime>,
}

impl Place {
    async fn all(reentry: Reentry) -> Vec<Self> {
        let elsewhere = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build();
        let elsewhere = elsewhere.expect("a runtime");
        let (caller, background) = (RedisServer::start(), RedisServer::start());
        vec![
            Self::at("memory", "memory:", None, reentry, None).await,
            Self::at("caller", &caller.url(), None, reentry, Some(caller)).await,
            Self::at(
                "background",
                &background.url(),
                Some(elsewhere),
                reentry,
                Some(background),
            )
            .await,
        ]
    }

    async fn at(
        what: &'static str,
        url: &str,
        elsewhere: Option<Runtime>,
        reentry: Reentry,
        server: Option<RedisServer>,
    ) -> Self {
        let clock = Sleepy::new();
        let builder = crate::common::builder()
            .clock(Arc::clone(&clock) as Arc<dyn Clock>)
            .default_lease(LASTING)
            .reentry(reentry);
        let url = url.to_owned();
        let connecting = async move { builder.connect(&url).await };
        let client = match &elsewhere {
            Some(runtime) => runtime.spawn(connecting).await.expect("no panic"),
            None => connecting.await,
        };
        Self {
            what,
            clock,
            client: client.expect("the store is there"),
            server,
            elsewhere,
        }
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
async fn a_hold_that_slept_through_its_end_is_invalid_at_once_and_never_renewed() {
    for place in Place::all(Reentry::Counted).await {
        let guard = place.client.lock("k").acquire().await.expect("free");
        assert!(guard.is_valid(), "{}", place.what);
        let mut watch = match &place.server {
            Some(server) => Some(server.watch_commands().await),
            None => None,
        };
        place.clock.jump(HOUR);
        assert!(!guard.is_valid(), "{}", place.what);
        assert_eq!(guard.valid_for(), Duration::ZERO);
        let nested = guard.scope(place.client.lock("k").acquire()).await;
        assert_eq!(cause_of(nested), Some(LostCause::Expired), "{}", place.what);
        assert_lost(&guard, LOOKED, LostCause::Expired).await;
        // The client reads the clock once or twice in this time.
        tokio::time::sleep(ms(2500)).await;
        assert!(!guard.is_valid(), "{}", place.what);
        if let Some(watch) = &mut watch {
            assert_eq!(watch.seen().await, [], "{}: nothing is sent", place.what);
        }
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
    for reentry in [Reentry::Counted, Reentry::Local] {
        for place in Place::all(reentry).await {
            let went_on = AtomicBool::new(false);
            let lock = place.client.lock("k");
            let outcome = lock.run(async {
                yield_now().await;
                let hold = current().expect("inside");
                place.clock.jump(HOUR);
                assert!(!hold.is_valid());
                yield_now().await;
                went_on.store(true, Ordering::SeqCst);
            });
            assert_eq!(cause_of(outcome.await), Some(LostCause::Expired));
            assert!(!went_on.load(Ordering::SeqCst), "{}", place.what);
        }
    }
}

#[tokio::test]
async fn a_body_that_is_not_polled_is_dropped_when_the_clock_is_read() {
    for place in Place::all(Reentry::Counted).await {
        let lock = place.client.lock("k");
        let body = async {
            place.clock.jump(HOUR);
            std::future::pending::<()>().await;
        };
        let outcome = within(LOOKED, "the body is dropped", lock.run(body)).await;
        assert_eq!(cause_of(outcome), Some(LostCause::Expired));
    }
}

#[tokio::test]
async fn a_short_sleep_is_made_up_for_by_the_next_renewal() {
    for place in Place::all(Reentry::Counted).await {
        let guard = place.client.lock("k").acquire().await.expect("free");
        place.clock.jump(LASTING / 2);
        assert!(guard.is_valid(), "{}", place.what);
        assert!(guard.valid_for() < LASTING / 2, "{}", place.what);
        eventually(LOOKED, place.what, async || guard.valid_for() > LASTING / 2).await;
        guard.release().await.expect("held");
    }
}

#[tokio::test]
async fn a_short_lease_that_begins_right_after_a_sleep_is_renewed() {
    for place in Place::all(Reentry::Counted).await {
        let lasting = place.client.lock("lasting").lease(HOUR * 24);
        let lasting = lasting.acquire().await.expect("free");
        // The timer sleeps for the rest of a second.
        tokio::time::sleep(ms(100)).await;
        place.clock.jump(HOUR);
        let short = place.client.lock("short").lease(ms(700));
        let short = short.acquire().await.expect("free");
        tokio::time::sleep(ms(900)).await;
        assert!(short.is_valid(), "{}: {:?}", place.what, short.valid_for());
        short.release().await.expect("held");
        lasting.release().await.expect("held");
    }
}

#[tokio::test]
async fn max_hold_continues_while_the_machine_sleeps() {
    for place in Place::all(Reentry::Counted).await {
        let lock = place.client.lock("k").lease(HOUR * 24).max_hold(HOUR / 2);
        let guard = lock.acquire().await.expect("free");
        place.clock.jump(HOUR);
        assert!(!guard.is_valid(), "{}", place.what);
        assert_lost(&guard, LOOKED, LostCause::MaxHold).await;
        let released = guard.release().await;
        assert_eq!(cause_of(released), Some(LostCause::MaxHold));
    }
}

/// Acquires a lock whose grant is on its way while the machine sleeps.
async fn acquired_across_a_sleep(
    server: &RedisServer,
    gate: &Gate,
    place: &Place,
    lock: Lock,
) -> Result<LockGuard, LockError> {
    let each = |act: fn(&Gate, usize, Way)| {
        (0..gate.connections()).for_each(|connection| act(gate, connection, Way::Replies));
    };
    each(Gate::hold);
    let acquiring = tokio::spawn(async move { lock.acquire().await });
    eventually(LONG, "the server has granted the lock", async || {
        server.exists(&name("k")).await
    })
    .await;
    place.clock.jump(HOUR);
    each(Gate::pass);
    let acquired = within(LOOKED, "the acquire ends", acquiring).await;
    acquired.expect("no panic")
}

#[tokio::test]
async fn a_reply_from_before_the_sleep_is_no_grant() {
    let server = RedisServer::start();
    let gate = Gate::in_front_of(&server);
    let place = Place::at("gate", &gate.url(), None, Reentry::Counted, None).await;
    let lock = place.client.lock("k");
    // The wait has ended during the sleep, too.
    let refused = acquired_across_a_sleep(&server, &gate, &place, lock).await;
    assert!(
        matches!(refused, Err(LockError::Unavailable { .. })),
        "{refused:?}"
    );
    assert_soon_free(&server, "k").await;

    let lock = place.client.lock("k").wait_forever();
    let asked_again = acquired_across_a_sleep(&server, &gate, &place, lock).await;
    let guard = asked_again.expect("free");
    assert!(guard.is_valid() && guard.valid_for() > LASTING / 2);
    guard.release().await.expect("held");
}
