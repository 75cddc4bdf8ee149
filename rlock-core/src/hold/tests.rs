use std::{sync::Arc, thread, time::Duration};

use uuid::Uuid;

use super::{Hold, Terms};
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
