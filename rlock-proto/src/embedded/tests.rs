//! Tests of the rules of the embedded store: who gets a lock, who is notified, and what each request leaves behind.

use std::{mem, sync::Arc, time::Duration};

use uuid::Uuid;

use super::{Fences, State};
use crate::{
    few::one,
    key::Key,
    lease::Time,
    mode::LockMode::{self, Exclusive, Shared},
    owner::OwnerId,
    store::{
        AcquireRequest, Acquired, Applied, Asks, BETWEEN_PROBES, Claim, DowngradeRequest, GRACE,
        KeyFilter, LONGEST_SILENCE, Notification, QUEUE_LIFETIME, QueuePlace, ReleaseRequest,
        Renewal, RenewalOutcome, SetCountRequest, TakenBy,
    },
};

const LEASE: Duration = Duration::from_secs(30);

/// Fences that count from 1.
#[derive(Default)]
struct Counted(u64);

impl Fences for Counted {
    fn next(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }

    fn last(&self) -> u64 {
        self.0
    }
}

/// A store with one lock, for which each client asks once.
struct Store {
    state: State<Counted>,
    now: Time,
}

impl Default for Store {
    fn default() -> Self {
        Self {
            state: State::default(),
            now: LEASE.into(),
        }
    }
}

impl Store {
    /// Connects a client, which asks for the lock.
    fn asks(&mut self, client: u64, mode: LockMode, waits: bool) -> Acquired {
        let id = Uuid::from_u128(client.into());
        self.state.clients.insert(id, Arc::new(|_| {}));
        let request = request("k", owner(client, mode), waits);
        self.state.acquire(&request, self.now)
    }

    /// Connects a client, which asks for the lock and waits. Returns the place in the queue.
    fn comes(&mut self, client: u64, mode: LockMode) -> Option<QueuePlace> {
        match self.asks(client, mode, true) {
            Acquired::Taken { queued, .. } => queued,
            _ => None,
        }
    }

    fn goes(&mut self, client: u64) {
        let id = Uuid::from_u128(client.into());
        self.state.clients.remove(&id);
    }

    fn releases(&mut self, client: u64, mode: LockMode) -> Applied {
        let release = ReleaseRequest::of(&claim("k", owner(client, mode)));
        self.state.release(&release, self.now)
    }

    /// Releases the lock, which `min_hold` keeps for a lease.
    fn releases_late(&mut self, client: u64) {
        let release = ReleaseRequest {
            min_hold: LEASE,
            ..ReleaseRequest::of(&claim("k", owner(client, Exclusive)))
        };
        self.state.release(&release, self.now);
    }

    fn downgrades(&mut self, client: u64) -> Applied {
        let Claim { key, owner } = claim("k", owner(client, Shared));
        let downgrade = DowngradeRequest {
            key,
            owner,
            fence: 0,
        };
        self.state.downgrade(&downgrade, self.now)
    }

    fn counts(&mut self, client: u64, count: u32) -> Applied {
        let Claim { key, owner } = claim("k", owner(client, Exclusive));
        let set = SetCountRequest {
            key,
            owner,
            count,
            lease: LEASE,
        };
        self.state.set_count(&set, self.now)
    }

    /// Returns the fence that the renewal sets, and whether others wait, if the lock is held.
    fn renews(&mut self, client: u64, fence: u64) -> Option<(u64, bool)> {
        let renewal = Renewal {
            fence,
            ..Renewal::of(claim("k", owner(client, Exclusive)))
        };
        match self.state.renew(&[renewal], LEASE, self.now).kept[0] {
            RenewalOutcome::Held { fence, wanted } => Some((fence, wanted)),
            _ => None,
        }
    }

    fn holds(&mut self, client: u64, mode: LockMode) -> bool {
        let Claim { key, owner } = claim("k", owner(client, mode));
        self.state.held_by(&key, owner, self.now).is_some()
    }

    /// Returns the notifications since the last call, each with the number of the client that it concerns.
    fn told(&mut self) -> Vec<(u64, Notification)> {
        let messages = mem::take(&mut self.state.messages).into_iter();
        let told = messages.map(|(_, told)| match &told {
            Notification::Retry { owner, .. }
            | Notification::Granted { owner, .. }
            | Notification::Wanted { owner, .. } => (number_of(*owner), told),
            _ => (u64::MAX, told),
        });
        told.collect()
    }

    /// Returns which waiters were told to ask again, and after how long, since the last call.
    fn retries(&mut self) -> Vec<(u64, Duration)> {
        let retry = |(client, told)| match told {
            Notification::Retry { after, .. } => Some((client, after)),
            _ => None,
        };
        self.told().into_iter().filter_map(retry).collect()
    }
}

fn permits(take: u32, of: u32) -> LockMode {
    LockMode::Permits { take, of }
}

fn owner(client: u64, mode: LockMode) -> OwnerId {
    OwnerId::new(Uuid::from_u128(client.into()), 1, mode)
}

fn number_of(owner: OwnerId) -> u64 {
    u64::try_from(owner.client().as_u128()).expect("it is small")
}

fn claim(key: &str, owner: OwnerId) -> Claim {
    let key = Key::parse(key).expect("valid");
    Claim { key, owner }
}

fn request(key: &str, owner: OwnerId, waits: bool) -> AcquireRequest {
    AcquireRequest {
        claims: one(claim(key, owner)),
        lease: LEASE,
        waits,
    }
}

#[test]
fn expired_locks_do_not_pile_up() {
    let mut state = State::<Counted>::default();
    for n in 0..10_000 {
        let request = AcquireRequest {
            lease: Duration::ZERO,
            ..request(&format!("k:{n}"), owner(n, Exclusive), false)
        };
        state.acquire(&request, LEASE.into());
    }
    assert!(state.locks.len() <= 128, "{}", state.locks.len());
}

#[test]
fn only_the_holder_changes_a_lock_and_a_repeated_request_changes_nothing() {
    let mut store = Store::default();
    assert_eq!(
        (store.counts(1, 2), store.renews(1, 0)),
        (Applied::NotHeld, None)
    );
    assert!(store.state.locks.is_empty(), "a renewal takes no lock");
    store.comes(1, Exclusive);
    for _ in 0..2 {
        assert_eq!(store.counts(1, 2), Applied::Done);
        let lock = store
            .state
            .inspect(&claim("k", owner(1, Exclusive)).key, store.now);
        assert_eq!(lock.map(|lock| lock.count), Some(2));
    }
    let changes = [
        store.counts(2, 1),
        store.downgrades(2),
        store.releases(2, Exclusive),
    ];
    assert_eq!(changes, [Applied::NotHeld; 3]);
    assert_eq!(
        (store.renews(2, 0), store.renews(1, 0)),
        (None, Some((0, false)))
    );
    assert_eq!(store.releases(1, Exclusive), Applied::Done);
    assert_eq!(store.releases(1, Exclusive), Applied::NotHeld);
}

#[test]
fn each_grant_and_each_renewal_that_asks_for_one_has_a_larger_fence() {
    let mut store = Store::default();
    let mut last = 0;
    for client in 1..4 {
        let Acquired::Granted { fences, .. } = store.asks(client, Shared, false) else {
            panic!("readers share it");
        };
        assert!(fences[0] > std::mem::replace(&mut last, fences[0]));
    }
    store.comes(9, Exclusive);
    store.comes(10, Exclusive);
    (1..4).for_each(|client| {
        store.releases(client, Shared);
    });
    let told = store.told();
    let granted = told.iter().find_map(|(_, told)| match told {
        Notification::Granted {
            fence,
            wanted: true,
            ..
        } => Some(*fence),
        _ => None,
    });
    assert!(granted > Some(last), "{granted:?} after {last}");
    let granted = granted.unwrap_or_default();
    assert_eq!(store.renews(9, granted), Some((0, true)), "it has that one");
    assert_eq!(store.renews(9, granted + 1), Some((granted + 1, true)));
}

#[test]
fn a_lock_that_was_handed_off_is_free_after_the_grace_period() {
    let mut store = Store::default();
    store.comes(1, Exclusive);
    store.comes(2, Exclusive);
    store.releases(1, Exclusive);
    assert!(store.holds(2, Exclusive));
    store.now = store.now + GRACE;
    assert!(!store.holds(2, Exclusive));
}

#[test]
fn a_renewal_keeps_a_lock_for_a_lease_and_never_ends_it_sooner() {
    let mut store = Store::default();
    store.comes(1, Exclusive);
    store.now = store.now + LEASE / 2;
    store.renews(1, 0);
    let short = Renewal::of(claim("k", owner(1, Exclusive)));
    store.state.renew(&[short], LEASE / 100, store.now);
    store.now = store.now + LEASE.saturating_sub(Duration::from_nanos(1));
    assert!(store.holds(1, Exclusive));
    store.now = store.now + Duration::from_nanos(1);
    assert!(!store.holds(1, Exclusive) && store.renews(1, 0).is_none());
}

#[test]
fn a_holder_learns_that_another_client_waits_for_its_lock_or_tries_to_get_it() {
    for (mode, waits, wanted) in [
        (Exclusive, true, true),
        (Exclusive, false, true),
        (Shared, true, true),
        (Shared, false, false),
    ] {
        let mut store = Store::default();
        store.comes(1, mode);
        store.asks(2, Exclusive, waits);
        let told = store.told();
        let is_wanted = |(client, told): &(u64, Notification)| {
            *client == 1 && matches!(told, Notification::Wanted { .. })
        };
        assert_eq!(
            told.iter().any(is_wanted),
            wanted,
            "{mode:?} {waits}: {told:?}"
        );
        assert_eq!(told.len(), 1, "{told:?}");
        store.asks(3, Exclusive, true);
        assert_eq!(
            store.told().len(),
            usize::from(!waits),
            "only the first waiter asks"
        );
    }
}

#[test]
fn a_downgrade_lets_the_next_readers_in_and_a_reader_that_died_keeps_no_writer_out() {
    let mut store = Store::default();
    store.comes(1, Exclusive);
    for (client, mode) in [(2, Shared), (3, Exclusive), (4, Shared)] {
        store.comes(client, mode);
    }
    assert_eq!(store.downgrades(1), Applied::Done);
    assert!(store.holds(1, Shared) && store.holds(2, Shared) && !store.holds(4, Shared));
    store.now = store.now + GRACE;
    store.releases(1, Shared);
    assert!(
        store.holds(3, Exclusive),
        "the lease of the other reader has ended"
    );
}

#[test]
fn holders_take_as_many_permits_as_there_are() {
    let mut store = Store::default();
    assert!(store.comes(1, permits(2, 3)).is_none());
    assert!(store.comes(2, permits(2, 3)).is_some(), "one is left");
    assert!(
        store.comes(3, permits(1, 3)).is_some(),
        "another waits before"
    );
    store.releases(1, permits(2, 3));
    assert!(store.holds(2, permits(2, 3)) && store.holds(3, permits(1, 3)));
    let mut store = Store::default();
    store.comes(1, permits(1, 2));
    store.now = store.now + LEASE / 2;
    store.comes(2, permits(1, 2));
    store.now = store.now + LEASE / 2;
    assert!(
        store.comes(3, permits(1, 2)).is_none(),
        "one lease has ended"
    );
}

#[test]
fn a_holder_of_permits_learns_that_another_one_counts_by_another_number() {
    let mut store = Store::default();
    for (client, of) in [(1, 3), (2, 3), (3, 5)] {
        store.comes(client, permits(1, of));
        let told = store.told();
        let differ = |(_, told): &(u64, Notification)| {
            matches!(
                told,
                Notification::PermitsDiffer {
                    mine: 5,
                    theirs: 3,
                    ..
                }
            )
        };
        assert_eq!(
            (told.len(), told.iter().any(differ)),
            (usize::from(of == 5), of == 5)
        );
    }
    store.now = store.now + LEASE / 2;
    store.comes(5, permits(2, 5));
    let Acquired::Taken { ttl, .. } = store.asks(4, permits(1, 5), true) else {
        panic!("all are taken");
    };
    assert_eq!(ttl, Some(LEASE / 2), "until the first lease ends");
}

#[test]
fn waiters_for_permits_go_by_the_largest_number_that_one_of_them_names() {
    let mut store = Store::default();
    store.comes(1, permits(2, 2));
    assert!(store.comes(2, permits(1, 2)).is_some());
    store.comes(3, permits(1, 3));
    assert!(store.holds(2, permits(1, 2)) && !store.holds(3, permits(1, 3)));
    // A waiter that is not let in may name one, too.
    store.comes(4, permits(2, 4));
    assert!(store.holds(3, permits(1, 3)) && !store.holds(4, permits(2, 4)));
}

#[test]
fn several_locks_are_taken_together_or_none_of_them() {
    let mut store = Store::default();
    let several = |client| AcquireRequest {
        claims: ["a", "k", "z"]
            .map(|key| claim(key, owner(client, Exclusive)))
            .into_iter()
            .collect(),
        ..request("k", owner(client, Exclusive), true)
    };
    store.comes(1, Exclusive);
    // Another client waits for the first lock, which is free.
    for client in [2, 3] {
        let clients = &mut store.state.clients;
        clients.insert(Uuid::from_u128(client), Arc::new(|_| {}));
    }
    let first = claim("a", owner(3, Exclusive));
    store.state.queues.join(&first.key, first.owner, store.now);
    let taken = store.state.acquire(&several(2), store.now);
    assert!(
        matches!(taken, Acquired::Taken { claim: 1, .. }),
        "{taken:?}"
    );
    let told = store.state.messages.iter().map(|(_, told)| told);
    let mut granted =
        told.filter(|told| matches!(told, Notification::Granted { wanted: false, .. }));
    assert!(granted.next().is_some(), "it waits alone");
    store.releases(1, Exclusive);
    assert!(store.holds(2, Exclusive), "it is handed this one");
    let Acquired::Taken {
        claim: 0,
        past_fences,
        ..
    } = store.state.acquire(&several(2), store.now)
    else {
        panic!("another client has the first lock");
    };
    let may_have = past_fences.iter().map(Option::is_none);
    assert!(may_have.eq([false, true, false]), "{past_fences:?}");
    assert!(store.holds(2, Exclusive), "only the client releases it");
    store.state.release(&ReleaseRequest::of(&first), store.now);
    let granted = store.state.acquire(&several(2), store.now);
    assert!(matches!(granted, Acquired::Granted { .. }), "{granted:?}");
}

#[test]
fn a_refusal_names_the_fence_after_which_grants_are_new_and_an_exclusive_holder() {
    let mut store = Store::default();
    store.comes(9, Exclusive);
    store.releases(9, Exclusive);
    let granted = store.asks(1, Exclusive, true);
    let fence = granted.fences().next();
    assert!(matches!(granted, Acquired::Granted { fences, .. } if Some(fences[0]) == fence));
    let refused = |store: &mut Store, client, waits| match store.asks(client, Exclusive, waits) {
        ref taken @ Acquired::Taken { by, .. } => (taken.fences().next(), by),
        granted => panic!("{granted:?}"),
    };
    let holder = TakenBy::Owner(owner(1, Exclusive));
    assert_eq!(refused(&mut store, 2, true), (fence, holder));
    store.releases_late(1);
    let (_, by) = refused(&mut store, 3, false);
    assert_eq!(by, TakenBy::Unnamed, "`min_hold` keeps it");
    for (mode, expected) in [(Shared, TakenBy::Unnamed), (Exclusive, holder)] {
        let mut store = Store::default();
        store.comes(1, mode);
        assert_eq!(refused(&mut store, 2, false).1, expected, "{mode:?}");
    }
}

#[test]
fn a_waiter_that_gives_up_leaves_the_queue_and_the_next_one_asks() {
    let mut store = Store::default();
    for client in 1..6 {
        store.comes(client, Exclusive);
    }
    store.told();
    assert_eq!(store.releases(3, Exclusive), Applied::NotHeld);
    assert_eq!(store.retries(), [], "it was not the first");
    store.releases(2, Exclusive);
    assert_eq!(store.retries(), [(4, Duration::ZERO)]);
    store.releases_late(1);
    assert_eq!(
        store.retries(),
        [(4, LEASE), (5, LEASE + GRACE)],
        "when the lock is free"
    );
    store.now = store.now + LEASE;
    store.comes(4, Exclusive);
    assert!(store.holds(4, Exclusive));
}

#[test]
fn a_lock_that_an_operator_takes_goes_to_the_next_waiter_and_its_holder_learns_that() {
    for (mode, told) in [(Exclusive, 0), (Shared, 1)] {
        let mut store = Store::default();
        let key = claim("k", owner(1, mode)).key;
        assert!(!store.state.revoke(&key, store.now));
        store.comes(1, mode);
        store.comes(2, Exclusive);
        store.told();
        assert!(store.state.revoke(&key, store.now));
        let changed = [
            Notification::Changed(key.clone()),
            Notification::SomeChanged(KeyFilter::One(key)),
        ];
        assert_eq!(store.told()[0].1, changed[told]);
        assert!(store.holds(2, Exclusive) && !store.holds(1, mode));
    }
}

#[test]
fn a_member_restores_a_lock_unless_another_owner_has_it_or_its_owner_has_released_it() {
    let mut store = Store::default();
    let restores = |store: &mut Store, client| {
        let renewal = Renewal {
            last_fence: 900,
            count: 3,
            ..Renewal::of(claim("k", owner(client, Exclusive)))
        };
        store.state.restore(&renewal, LEASE, store.now)
    };
    assert!(restores(&mut store, 1) && !restores(&mut store, 1) && !restores(&mut store, 2));
    let Claim { key, owner: mine } = claim("k", owner(1, Exclusive));
    let lock = store
        .state
        .inspect(&key, store.now)
        .expect("it is restored");
    assert_eq!(
        (lock.count, lock.fence, lock.ttl),
        (3, Some(900), Some(LEASE))
    );
    store.releases(1, Exclusive);
    store.state.note_release(&key, mine, GRACE, store.now);
    assert!(
        !restores(&mut store, 1) && store.state.was_released(&key, owner(1, Shared), store.now)
    );
    assert!(restores(&mut store, 2), "another owner has not released it");
    store.releases(2, Exclusive);
    store.now = store.now + GRACE;
    assert!(restores(&mut store, 1), "by then no copy is on its way");
    store.releases(1, Exclusive);
    store.state.note_release(&key, mine, GRACE, store.now);
    store.state.forget_releases();
    assert!(restores(&mut store, 1));
}

#[test]
fn a_member_hands_nothing_off() {
    let mut store = Store::default();
    store.comes(1, Exclusive);
    store.comes(2, Shared);
    store.now = store.now + LEASE;
    let request = request("k", owner(3, Shared), false);
    let granted = store.state.acquire_at_member(&request, store.now);
    assert!(matches!(granted, Acquired::Granted { wanted: true, .. }));
    assert!(!store.holds(2, Shared));
}

#[test]
fn a_member_restores_a_reader_once_although_others_read() {
    let mut store = Store::default();
    store.asks(1, Shared, false);
    let renewal = Renewal::of(claim("k", owner(2, Shared)));
    let mut restores = || store.state.restore(&renewal, LEASE, store.now);
    assert!(restores() && !restores());
}

#[test]
fn the_next_and_the_last_connected_waiter_retry_after_a_silent_one() {
    for (waited, retries) in [(LONGEST_SILENCE, vec![]), (LONGEST_SILENCE * 2, vec![3, 5])] {
        let mut store = Store::default();
        for client in 0..7 {
            store.comes(client, Exclusive);
        }
        for gone in [2, 6] {
            store.goes(gone);
        }
        store.now = store.now + waited;
        store.releases(0, Exclusive);
        let expected: Vec<_> = retries.into_iter().map(|n| (n, GRACE)).collect();
        assert_eq!(store.retries(), expected, "after {waited:?}");
    }
}

#[test]
fn a_release_lets_in_64_readers_and_the_next_connected_one_lets_in_the_others() {
    let mut store = Store::default();
    store.comes(200, Exclusive);
    for client in 0..100 {
        store.comes(client, Shared);
    }
    // One of the first 64 readers is gone, and two of those that follow.
    for gone in [3, 65, 67] {
        store.goes(gone);
    }
    store.comes(300, Exclusive);
    store.goes(300);
    for client in 100..103 {
        store.comes(client, Shared);
    }
    store.releases(200, Exclusive);
    let inside = (0..65).filter(|client| store.holds(*client, Shared));
    assert_eq!(inside.count(), 64);
    assert_eq!(store.retries(), [(66, Duration::ZERO)]);
    assert_eq!(store.comes(66, Shared), None);
    let inside = (68..103).filter(|client| store.holds(*client, Shared));
    assert_eq!(
        inside.count(),
        35,
        "those behind the writer that is gone, too"
    );
}

#[test]
fn a_disconnected_waiter_does_not_keep_out_waiters_that_the_lock_admits() {
    let modes = [
        (Shared, Exclusive, Shared),
        (permits(1, 9), Exclusive, permits(1, 9)),
        (permits(1, 9), permits(9, 9), permits(1, 9)),
    ];
    for (holder, gone, waiter) in modes {
        for case in 0..3 {
            let mut store = Store::default();
            for client in 0..3 {
                store.comes(client, holder);
            }
            let first = store.comes(3, gone).expect("it waits");
            assert!(first.first && first.asks == Asks::Late);
            let probes = |place: Option<QueuePlace>| place.expect("it waits").asks == Asks::Probing;
            assert!(probes(store.comes(4, waiter)), "it is the next");
            assert!(!probes(store.comes(5, Exclusive)), "it is not admitted");
            assert!(probes(store.comes(6, waiter)), "it is the last");
            store.comes(7, Exclusive);
            assert!(probes(store.comes(4, waiter)), "it is still the next");
            assert!(!probes(store.comes(6, waiter)), "it is the last no more");
            store.retries();
            if case == 0 {
                // While the first waiter is there, a release makes the next one ask soon.
                store.releases(2, holder);
                assert_eq!(store.retries(), [(3, QUEUE_LIFETIME), (4, BETWEEN_PROBES)]);
            }
            store.goes(3);
            assert!(!store.holds(4, waiter));
            match case {
                0 => assert_eq!(store.releases(1, holder), Applied::Done),
                1 => assert!(store.comes(6, waiter).is_some(), "a writer precedes it"),
                _ => assert!(store.comes(4, waiter).is_none()),
            }
            assert!(store.holds(4, waiter), "case {case}");
            assert!(!store.holds(6, waiter), "a writer precedes it");
        }
    }
}
