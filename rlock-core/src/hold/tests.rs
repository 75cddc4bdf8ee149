use std::{sync::Arc, thread, time::Duration};

use uuid::Uuid;

use super::{Appointment, EntryId, Hold, Left, SharedLease, Succession, Terms};
use crate::{
    clock::ClientClock,
    error::LostCause,
    key::Key,
    lease::Time,
    owner::OwnerId,
    queue::Queues,
    store::{Grant, TokenBlock},
};

const LEASE: Duration = Duration::from_millis(20);
const TERMS: Terms = Terms {
    lease: LEASE,
    watchdog: true,
    until: None,
    retain: Duration::ZERO,
};

fn held() -> Arc<Hold> {
    held_on(TERMS)
}

fn held_on(terms: Terms) -> Arc<Hold> {
    let key = Key::parse("k").expect("valid");
    let turn = Arc::new(Queues::new(16)).try_turn(&key).expect("free");
    let hold = Hold::new(
        ClientClock::default(),
        key,
        OwnerId::new(Uuid::nil(), 1),
        terms.lease,
    );
    let grant = Grant {
        block: TokenBlock::granted(1),
        since: ClientClock::default().now(),
        ttl: terms.lease,
        wanted: false,
    };
    hold.begin(terms, grant, turn);
    hold.into()
}

#[test]
fn a_renewal_that_is_answered_in_time_extends_a_lease() {
    let hold = held();
    let before = hold.valid_until();
    // As seen a moment before the end, however slow the machine is.
    let sent = Time::from_nanos(before.nanos() - 1);
    hold.renewed(sent, LEASE, sent);
    assert!(hold.valid_until() > before);
}

#[test]
fn a_renewal_that_is_answered_late_does_not_bring_a_lease_back() {
    let hold = held();
    thread::sleep(LEASE);
    let now = ClientClock::default().now();
    hold.renewed(now, LEASE, now);
    assert_eq!(hold.broken(), Some(LostCause::Expired));
}

#[test]
fn an_entry_that_is_answered_late_does_not_bring_a_lease_back() {
    let hold = held();
    thread::sleep(LEASE);
    assert!(hold.enter(TERMS, ClientClock::default().now()).is_err());
    assert_eq!(hold.broken(), Some(LostCause::Expired));
}

const LONG: Duration = Duration::from_secs(60);
const LASTING: Terms = Terms {
    lease: LONG,
    ..TERMS
};

/// A hold whose lease was confirmed, due at that time, and that lease to be shared.
fn confirmed(terms: Terms) -> (Arc<Hold>, Arc<SharedLease>) {
    let hold = held_on(terms);
    let sent = Time::from_nanos(hold.valid_until().nanos() - 1);
    let next = Appointment {
        at: sent,
        suspect: false,
    };
    hold.appoint(Some(next));
    let (_, due) = hold.renewed(sent, LONG, sent).expect("in time");
    (hold, Arc::new(SharedLease::new(1, LONG, sent, due)))
}

#[test]
fn a_hold_shares_a_lease_only_if_it_was_confirmed_alike_and_goes_on_so() {
    let (hold, lease) = confirmed(LASTING);
    let due = lease.due();
    let sent = lease.confirmed_at();
    let earlier = Time::from_nanos(sent.nanos() - 1);
    for other in [
        SharedLease::new(1, LONG, earlier, due),
        SharedLease::new(1, LONG * 2, sent, due),
        SharedLease::new(1, LONG, sent, earlier),
    ] {
        assert!(!hold.share(&Arc::new(other)));
    }
    assert!(hold.share(&lease));
    assert!(!hold.share(&lease), "it does already");

    let unwatched = Terms {
        watchdog: false,
        ..LASTING
    };
    let limited = Terms {
        until: Some(due),
        ..LASTING
    };
    let longer = Terms {
        lease: LONG * 2,
        ..LASTING
    };
    for terms in [unwatched, limited, longer] {
        let (hold, lease) = confirmed(LASTING);
        hold.enter_locally(terms).expect("held").expect("held");
        assert!(!hold.share(&lease), "{terms:?}");
    }
    let (hold, lease) = confirmed(LASTING);
    let suspect = Appointment {
        at: lease.due(),
        suspect: true,
    };
    hold.appoint(Some(suspect));
    assert!(!hold.share(&lease));
}

#[test]
fn whatever_changes_a_hold_spoils_the_lease_that_it_shares() {
    type Change = fn(&Arc<Hold>, Time, EntryId);
    let changes: [Change; 6] = [
        |hold, sent, _| assert!(hold.enter(LASTING, sent).is_ok()),
        |hold, _, _| {
            assert!(
                hold.enter_locally(LASTING)
                    .is_some_and(|entered| entered.is_ok())
            );
        },
        |hold, _, entry| {
            assert!(matches!(
                hold.leave(entry, Succession::None),
                Left::GiveBack
            ))
        },
        |hold, _, _| hold.abandon(),
        |hold, _, _| assert!(hold.lose(LostCause::Removed)),
        |hold, _, _| hold.finish(),
    ];
    for (n, change) in changes.into_iter().enumerate() {
        let (hold, lease) = confirmed(LASTING);
        assert!(hold.share(&lease) && !lease.is_spoilt());
        change(&hold, lease.confirmed_at(), EntryId(0));
        assert!(lease.is_spoilt(), "change {n}");
    }
}

#[test]
fn a_shared_lease_is_valid_for_all_and_stays_so_for_those_that_part() {
    let (hold, lease) = confirmed(LASTING);
    assert!(hold.share(&lease));
    let (sent, until) = (lease.confirmed_at(), lease.valid_until());
    let later = Time::from_nanos(sent.nanos() + 1_000_000);
    assert!(lease.confirm(later, later));
    assert!(hold.valid_until() > until);
    let until = hold.valid_until();
    hold.stand_alone(later);
    assert!(hold.shared_lease().is_none());
    assert_eq!(hold.valid_until(), until);
    assert!(hold.appointment().is_some_and(|next| next.at == later));
    lease.confirm(until, later);
    assert_eq!(hold.valid_until(), until, "what others get is not its own");
}

#[test]
fn a_shared_lease_that_has_ended_is_not_brought_back() {
    let (_, lease) = confirmed(LASTING);
    let until = lease.valid_until();
    assert!(!lease.confirm(until, until));
    assert_eq!(lease.valid_until(), until);
}
