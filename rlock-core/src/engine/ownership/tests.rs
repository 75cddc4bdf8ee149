use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use futures_util::FutureExt;
use uuid::Uuid;

use super::{Action, AfterLeave, EntryId, LocalQueues, Ownership};
use crate::{
    client::LockClient,
    clock::{ClientClock, Clock},
    engine::watchdog::Watchdog,
    error::LostCause,
    key::Key,
    lease::Time,
    observe::HoldEnd,
    options::{LockOptions, Site},
    owner::OwnerId,
    store::{Grant, KeyFilter, ReleaseRequest, SendOptions},
};

const LEASE: Duration = Duration::from_millis(20);

fn options() -> LockOptions {
    LockOptions {
        lease: LEASE,
        site: Site::new("order:<id>"),
        ..LockOptions::default()
    }
}

fn held() -> Arc<Ownership> {
    let key = Key::parse("k").expect("valid");
    let turn = Arc::new(LocalQueues::new(16, ClientClock::default()))
        .try_turn(&key)
        .expect("free");
    let hold = Ownership::new(
        ClientClock::default(),
        key,
        OwnerId::new(Uuid::nil(), 1),
        LEASE,
    );
    let grant = Grant {
        fence: 1,
        since: hold.now(),
        ttl: LEASE,
        wanted: false,
    };
    let begun = hold.begin(&options(), grant, turn, hold.now());
    begun.expect("it is not lost");
    hold
}

#[test]
fn a_renewal_that_is_answered_in_time_extends_a_lease() {
    let hold = held();
    let before = hold.valid_until();
    // A moment before the end, however slow the machine is.
    let sent = Time::from_nanos(before.nanos() - 1);
    hold.renewed(sent, (LEASE, 0), sent);
    assert!(hold.valid_until() > before);
}

#[test]
fn a_renewal_that_is_answered_late_does_not_bring_a_lease_back() {
    let hold = held();
    thread::sleep(LEASE);
    let now = ClientClock::default().now();
    hold.renewed(now, (LEASE, 0), now);
    assert_eq!(
        hold.broken(ClientClock::default().now()),
        Some(LostCause::Expired)
    );
}

#[test]
fn an_entry_that_is_answered_late_does_not_bring_a_lease_back() {
    let hold = held();
    thread::sleep(LEASE);
    let now = hold.now();
    assert!(hold.enter(&options(), now, None, now).is_err());
    assert_eq!(
        hold.broken(ClientClock::default().now()),
        Some(LostCause::Expired)
    );
}

/// A clock that stands still until it jumps.
#[derive(Default)]
struct Still(AtomicU64);

impl Clock for Still {
    fn elapsed(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::SeqCst))
    }
}

/// Returns an ownership of 30 s with its clock and its watchdog.
fn tracked(retain: Duration) -> (Arc<Ownership>, EntryId, Arc<Still>, Watchdog) {
    let still = Arc::new(Still::default());
    let clock = ClientClock::given(Arc::clone(&still) as Arc<dyn Clock>);
    let key = Key::parse("k").expect("valid");
    let turn = Arc::new(LocalQueues::new(16, ClientClock::default()))
        .try_turn(&key)
        .expect("free");
    let owner = OwnerId::new(Uuid::nil(), 1);
    let lease = Duration::from_secs(30);
    let hold = turn.ownership(clock.now(), || {
        Ownership::new(clock.clone(), key, owner, lease)
    });
    let hold = hold.expect("the turn is current");
    let options = LockOptions {
        lease,
        retain,
        ..options()
    };
    let grant = Grant {
        fence: 1,
        since: hold.now(),
        ttl: lease,
        wanted: false,
    };
    let begun = hold.begin(&options, grant, turn, hold.now());
    let (entry, _) = begun.expect("it is not lost");
    let watchdog = Watchdog::new(clock);
    watchdog.track(&hold, hold.now());
    (hold, entry, still, watchdog)
}

/// Ends a hold like its call.
fn leave(hold: &Arc<Ownership>, entry: EntryId, may_continue: bool) -> AfterLeave {
    let (left, _) = hold.leave(entry, HoldEnd::Released, may_continue, true, hold.now());
    left
}

/// The reply to a nested acquire for a longer lease arrives after that to a renewal, which was sent later.
#[test]
fn a_lease_counts_from_when_its_own_request_was_sent() {
    let [nested_at, renewed_at, again_at] = [15, 16, 17].map(Time::from_nanos);
    let (hold, entry, _, _) = tracked(Duration::from_secs(60));
    let long = Duration::from_secs(300);
    let options = LockOptions {
        lease: long,
        ..options()
    };
    hold.renewed(renewed_at, (Duration::from_secs(30), 0), hold.now());
    let nested = hold.enter(&options, nested_at, None, hold.now());
    let (nested, _) = nested.expect("it is held");
    // An earlier renewal may be executed after the nested acquire, and sets the TTL to its own lease.
    assert!(hold.valid_until() < nested_at + long);
    hold.renewed(again_at, (long, 0), hold.now());
    assert!(hold.valid_until() > again_at + Duration::from_secs(290));
    leave(&hold, nested, true);
    hold.lowered(1);
    let left = leave(&hold, entry, true);
    assert!(matches!(left, AfterLeave::Retained));
    let _turn = hold.resume().expect("retained");
    let grant = hold.grant().expect("it is not in doubt");
    assert_eq!((grant.since, grant.ttl), (again_at, long));
}

#[test]
fn a_retained_ownership_whose_caller_begins_no_hold_is_released() {
    let (hold, entry, _, watchdog) = tracked(Duration::from_secs(60));
    let left = leave(&hold, entry, true);
    assert!(matches!(left, AfterLeave::Retained));
    watchdog.track(&hold, hold.now());
    let turn = hold.resume().expect("retained");
    let queues = Arc::clone(turn.queues());
    drop(turn);
    assert!(!hold.is_owned());
    assert_eq!(queues.releases.take(16).len(), 1, "it is released");
    assert!(queues.try_turn(&hold.key).is_none(), "not yet");
    hold.finish();
    assert!(queues.is_empty());
}

/// Otherwise the background would send a count or a release while the next hold has the lock.
#[test]
fn an_ownership_whose_count_is_changing_is_not_retained() {
    let retained = |begin_change: fn(&Arc<Ownership>)| {
        let (hold, entry, _clock, _watchdog) = tracked(Duration::from_secs(60));
        begin_change(&hold);
        matches!(leave(&hold, entry, true), AfterLeave::Retained)
    };
    assert!(retained(|_| ()));
    assert!(!retained(|hold| hold.queued.store(true, Ordering::Release)));
    assert!(!retained(|hold| std::mem::forget(hold.changing.try_lock())));
    assert!(!retained(|hold| {
        let nested = hold.enter(&options(), hold.now(), None, hold.now());
        let (nested, _) = nested.expect("it is not lost");
        let left = leave(hold, nested, true);
        assert!(matches!(left, AfterLeave::Lower));
    }));
}

#[test]
fn holds_that_begin_beside_a_renewal_do_not_send_another() {
    let (hold, _, clock, _watchdog) = tracked(Duration::ZERO);
    clock.0.store(10, Ordering::SeqCst);
    let now = Time::from(Duration::from_secs(10));
    let (action, next) = hold.come_due(now);
    assert!(matches!(action, Action::Renew(_)));
    assert!(hold.missing_deadline(now).is_none(), "it is to be sent");
    assert!(hold.begin_renewal(hold.lease(), now).is_some());
    assert!(hold.missing_deadline(now).is_none(), "it is under way");
    hold.abandon_renewal(hold.lease());
    assert!(hold.missing_deadline(now).is_some(), "it has failed");
    assert!(next > now);
}

/// A local caller receives an ownership late, after the store has granted the lock to another
/// client.
#[tokio::test]
async fn a_lost_ownership_that_was_handed_over_is_not_waited_for() {
    let still = Arc::new(Still::default());
    let url = format!("memory:{}", Uuid::new_v4());
    let connect = async || {
        let builder = LockClient::builder().clock(Arc::clone(&still) as Arc<dyn Clock>);
        builder.connect(&url).await.expect("the store is there")
    };
    let (client, other) = (connect().await, connect().await);
    let lock = client.lock("k").wait_forever();
    let outer = lock.acquire().await.expect("free");
    let mut waiting = Box::pin(lock.acquire());
    assert!(waiting.as_mut().now_or_never().is_none());
    let ownership = Arc::clone(&outer.entry().ownership);
    outer.release().await.expect("held");
    assert!(ownership.is_passed());
    still.0.store(12, Ordering::SeqCst);
    let release = ReleaseRequest::whole(&ownership.claim());
    let send = SendOptions::new(Duration::from_secs(1));
    let released = client.core().store.release(&release, send).await;
    released.expect("the store answers");
    let taken = other.lock("k").acquire().await.expect("free");
    assert!(waiting.as_mut().now_or_never().is_none(), "it is taken");
    taken.release().await.expect("held");
    let soon = tokio::time::timeout(Duration::from_secs(2), waiting).await;
    let guard = soon.expect("in time").expect("its turn");
    assert_ne!(guard.owner(), ownership.owner);
    guard.release().await.expect("held");
}

/// Returns the queues of the holding client.
fn queues_of(hold: &Ownership) -> Arc<LocalQueues> {
    let state = hold.state();
    let turn = state.turn.as_ref().expect("it has its turn");
    Arc::clone(turn.queues())
}

#[test]
fn nothing_is_left_of_an_ownership_that_was_not_released_when_its_client_has_ended() {
    let (hold, entry, _, watchdog) = tracked(Duration::ZERO);
    let left = leave(&hold, entry, false);
    assert!(matches!(left, AfterLeave::Release));
    watchdog.forget(&hold);
    let queues = queues_of(&hold);
    queues.releases.settle(Arc::clone(&hold));
    queues.releases.close();
    queues.forget_all();
    let left = (Arc::downgrade(&hold), Arc::downgrade(&queues));
    drop((hold, queues, watchdog));
    assert!(left.0.upgrade().is_none() && left.1.upgrade().is_none());
}

#[test]
fn an_ownership_in_doubt_is_not_retained_until_a_later_request_confirms_it() {
    for confirmed_after in [None, Some(0), Some(1)] {
        let (hold, entry, clock, watchdog) = tracked(Duration::from_secs(60));
        clock.0.store(2, Ordering::SeqCst);
        watchdog.doubt_all(&KeyFilter::all());
        if let Some(after) = confirmed_after {
            let sent_at = Time::from(Duration::from_secs(2 + after));
            clock.0.store(4, Ordering::SeqCst);
            hold.renewed(sent_at, (Duration::from_secs(30), 0), hold.now());
        }
        let left = leave(&hold, entry, true);
        let is_retained = matches!(left, AfterLeave::Retained);
        assert_eq!(
            is_retained,
            confirmed_after == Some(1),
            "{confirmed_after:?}"
        );
    }
}

#[test]
fn a_retained_ownership_in_doubt_is_confirmed_before_the_next_hold() {
    let (hold, entry, clock, watchdog) = tracked(Duration::from_secs(60));
    let left = leave(&hold, entry, true);
    assert!(matches!(left, AfterLeave::Retained));
    clock.0.store(2, Ordering::SeqCst);
    watchdog.doubt_all(&KeyFilter::all());
    let turn = hold.resume().expect("retained");
    assert!(hold.grant().is_none() && !hold.is_unusable(hold.now()));
    drop(turn);
    assert!(!hold.is_retained(), "it is released");
}

#[tokio::test]
async fn an_ownership_that_is_revoked_between_two_holds_is_no_loss() {
    let client = LockClient::in_memory();
    let lock = client.lock("k").wait_forever();
    let guard = lock.acquire().await.expect("free");
    let ownership = Arc::clone(&guard.entry().ownership);
    let mut waiting = Box::pin(lock.acquire());
    assert!(waiting.as_mut().now_or_never().is_none());
    guard.release().await.expect("held");
    assert!(ownership.is_passed());
    assert!(client.force_release("k").await.expect("a reply"));
    let guard = waiting.await.expect("its turn");
    assert_ne!(guard.owner(), ownership.owner);
    guard.release().await.expect("held");
    assert_eq!(client.core().watchdog.losses(), 0);
}

/// The tokens run out before a renewal has brought a new fence, so the ownership waits for it with its callers.
#[tokio::test]
async fn an_ownership_without_callers_is_released_when_its_tokens_arrive() {
    let client = LockClient::in_memory();
    let lock = client.lock("k").wait_forever();
    let guard = lock.acquire().await.expect("free");
    let ownership = Arc::clone(&guard.entry().ownership);
    while ownership.state().tokens.take().is_some() {}
    assert!(ownership.runs_low());
    let mut waiting = Box::pin(lock.acquire());
    assert!(waiting.as_mut().now_or_never().is_none());
    guard.release().await.expect("held");
    assert!(ownership.is_owned(), "it waits for tokens");
    drop(waiting);
    let dropped_at = std::time::Instant::now();
    while ownership.is_owned() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(
        dropped_at.elapsed() < Duration::from_millis(900),
        "not by its timer"
    );
    client.core().releases().idle().await;
    let info = client.inspect("k").await.expect("a reply");
    assert!(info.is_none(), "{info:?}");
}

#[test]
fn a_message_about_an_ended_grant_says_nothing_about_the_present_one() {
    let queues = Arc::new(LocalQueues::new(16, ClientClock::default()));
    let (clock, key) = (ClientClock::default(), Key::parse("k").expect("valid"));
    let turn = queues.try_turn(&key).expect("free");
    let owner = OwnerId::new(Uuid::nil(), 1);
    let ownership = turn.ownership(clock.now(), || {
        Ownership::new(clock.clone(), key.clone(), owner, LEASE)
    });
    let ownership = ownership.expect("the turn is current");
    ownership.requests(|requests| {
        requests.begin(clock.now());
        requests.note_fence(7);
    });
    queues.handed_off(&key, owner, 7, LEASE, true);
    assert!(ownership.grant().is_none() && !queues.waiters(&key).1);
    queues.handed_off(&key, owner, 8, LEASE, true);
    assert!(ownership.grant().is_some() && queues.waiters(&key).1);
}

/// A nested call with a shorter lease extends the validity beyond the lease that was confirmed first.
#[tokio::test]
async fn a_check_of_a_hold_that_is_not_renewed_does_not_change_its_lease() {
    let url = format!("memory:{}", Uuid::new_v4());
    let client = LockClient::connect(&url).await.expect("the store is there");
    let other = LockClient::connect(&url).await.expect("the store is there");
    for doubted_after in [540, 640] {
        let lock = client.lock("k").watchdog(false);
        let begun = std::time::Instant::now();
        let until = async |ms| {
            let left = Duration::from_millis(ms).saturating_sub(begun.elapsed());
            tokio::time::sleep(left).await;
        };
        let outer = lock.clone().lease(Duration::from_millis(600));
        let outer = outer.acquire().await.expect("free");
        until(500).await;
        let nested = lock.lease(Duration::from_millis(400));
        let nested = outer.scope(nested.acquire()).await.expect("held");
        let valid_until = nested.entry().ownership.valid_until();
        until(doubted_after).await;
        client.core().watchdog.suspect_all(&KeyFilter::all());
        until(720).await;
        let taken = other.lock("k").try_acquire().await.expect("a reply");
        let now = client.core().clock.now();
        assert!(taken.is_none() || now >= valid_until);
        assert_eq!(nested.entry().ownership.valid_until(), valid_until);
        let ownership = &nested.entry().ownership;
        assert!(ownership.state().doubted_at.is_none() || now >= valid_until);
        drop((nested, outer));
    }
}

/// The request on behalf of a waiter may be executed after that waiter's own requests, and grant what it has released.
#[test]
fn a_release_keeps_the_turn_while_it_asks_for_the_next_waiter() {
    for asks in [false, true] {
        let queues = Arc::new(LocalQueues::new(16, ClientClock::default()));
        let (clock, key) = (ClientClock::default(), Key::parse("k").expect("valid"));
        let turn = queues.try_turn(&key).expect("free");
        let owner = |n| OwnerId::new(Uuid::nil(), n);
        let given_up = turn.ownership(clock.now(), || {
            Ownership::new(clock.clone(), key.clone(), owner(1), LEASE)
        });
        let given_up = given_up.expect("the turn is current");
        given_up.requests(|requests| requests.begin(clock.now()));
        drop(turn);
        let Some(Err(waiting)) = queues.follow_release(&key, &options()) else {
            panic!("it is being released");
        };
        let next = asks.then(|| given_up.next(LEASE, || owner(2)).expect("somebody waits").0);
        assert_eq!(given_up.leave_turn().is_none(), asks);
        given_up.finish();
        let turn = waiting.turn().now_or_never().expect("its turn");
        let current = queues.current(&key).expect("the turn has it");
        assert_eq!(current.owner, owner(if asks { 2 } else { 1 }));
        drop((turn, next));
    }
}

#[tokio::test]
async fn a_hold_that_is_revoked_twice_is_lost_once() {
    let client = LockClient::in_memory();
    let guard = client.lock("k").acquire().await.expect("free");
    assert!(client.ask_release("k").await.expect("a reply"));
    assert!(client.force_release("k").await.expect("a reply"));
    assert!(!guard.is_valid());
    assert_eq!(client.core().watchdog.losses(), 1);
    let next = client.lock("k").try_acquire().await.expect("a reply");
    assert!(next.is_some(), "the store has released it");
}

/// A client may hold tens of thousands of locks, each with an ownership.
#[test]
fn an_ownership_is_small() {
    let size = size_of::<Ownership>();
    let counted = size_of::<crate::metrics::Held>().next_multiple_of(16);
    assert!(size <= 608 + counted, "{size} bytes");
}

/// A renewal may be executed after the requests that were sent later, over another connection, and then sets the TTL to
/// its own lease.
#[test]
fn a_longer_lease_is_not_confirmed_beside_a_renewal_with_a_shorter_one() {
    let (short, long) = (Duration::from_secs(30), Duration::from_secs(60));
    let whole = Time::from(Duration::from_secs(50));
    let at = Time::from_nanos(20);
    let open = |count| {
        let (hold, _, clock, watchdog) = tracked(Duration::ZERO);
        for _ in 0..count {
            assert!(hold.begin_renewal(short, hold.now()).is_some());
        }
        (hold, clock, watchdog)
    };
    let replies = |hold: &Ownership, replies: &[bool]| {
        for has_reply in replies {
            if *has_reply {
                hold.renewed(at, (short, 0), hold.now());
            } else {
                hold.abandon_renewal(short);
            }
        }
    };
    for given in [
        &[][..],
        &[true],
        &[false],
        &[true, false],
        &[false, true],
        &[true, true],
    ] {
        // A nested call: the reply to its request comes last.
        let (hold, _clock, _watchdog) = open(2);
        let before = hold.settled_renewals();
        enter(&hold, long);
        replies(&hold, given);
        let options = LockOptions {
            lease: long,
            ..options()
        };
        hold.enter(&options, at, before, hold.now())
            .expect("it is held");
        assert!(hold.valid_until() < whole, "nested, {given:?}");
        // A renewal: its reply comes last.
        let (hold, _clock, _watchdog) = open(2);
        enter(&hold, long);
        assert!(hold.begin_renewal(long, hold.now()).is_some());
        replies(&hold, given);
        hold.renewed(at, (long, 0), hold.now());
        assert!(hold.valid_until() < whole, "{given:?}");
        // The next one, alone.
        let is_alone = *given == [true, true];
        assert!(hold.begin_renewal(long, hold.now()).is_some());
        hold.renewed(at, (long, 0), hold.now());
        assert_eq!(hold.valid_until() > whole, is_alone, "{given:?}");
    }
}

/// The nested call's thread applies its reply between the two steps of a renewal's.
#[test]
fn a_renewal_that_was_sent_beside_a_nested_call_counts_even_after_its_reply() {
    let (hold, _, _clock, _watchdog) = tracked(Duration::ZERO);
    let before = hold.settled_renewals();
    assert!(hold.begin_renewal(hold.lease(), hold.now()).is_some());
    hold.renewed(Time::from_nanos(20), (hold.lease(), 0), hold.now());
    assert_ne!(hold.settled_renewals(), before);
}

/// Enters the hold with this lease.
fn enter(hold: &Arc<Ownership>, lease: Duration) {
    let options = LockOptions { lease, ..options() };
    let renewals = hold.settled_renewals();
    let entered = hold.enter(&options, hold.now(), renewals, hold.now());
    entered.expect("it is held");
}

/// The renewals of the next hold set the TTL to its shorter lease.
#[test]
fn the_reply_to_a_renewal_of_an_earlier_hold_confirms_no_more_than_the_present_lease() {
    let (hold, entry, _clock, _watchdog) = tracked(Duration::from_secs(60));
    let long = hold.lease();
    assert!(hold.begin_renewal(long, hold.now()).is_some());
    assert!(matches!(leave(&hold, entry, true), AfterLeave::Retained));
    let turn = hold.resume().expect("retained");
    let grant = hold.grant().expect("it is not in doubt");
    let options = LockOptions {
        lease: long / 3,
        ..options()
    };
    hold.begin(&options, grant, turn, hold.now())
        .expect("it is not lost");
    hold.renewed(Time::from_nanos(20), (long, 0), hold.now());
    assert!(hold.valid_until() < Time::from(long / 3));
}

#[test]
fn a_renewal_that_was_due_before_a_longer_nested_lease_is_not_sent() {
    let (hold, _, still, _watchdog) = tracked(Duration::ZERO);
    still.0.store(11, Ordering::SeqCst);
    let (Action::Renew(lease), _) = hold.come_due(hold.now()) else {
        panic!("it is due after a third");
    };
    enter(&hold, lease * 2);
    assert!(hold.begin_renewal(lease, hold.now()).is_none());
    assert!(hold.begin_renewal(lease * 2, hold.now()).is_some());
}
