//! Holds whose lease a holder extends or shortens, and guards that are detached.

use super::{client::*, *};
use crate::mode::LockMode;

/// When a hold ends whose lease was confirmed for a request at this time.
const fn end(sent_at: u64, lease: u64) -> u64 {
    sent_at + lease - lease / 100 - 2
}

impl Client {
    fn extend_step(&mut self, entered: &Entered, lease: u64) -> Step {
        self.on(Input::Extend(entered.entry.clone(), ms(lease)))
    }

    fn extend(&mut self, entered: &Entered, lease: u64) -> Renew {
        match self.extend_step(entered, lease) {
            Step::Renew(renew) => *renew,
            step => panic!("{step:?}"),
        }
    }

    fn detached(&mut self, entered: &Entered) -> u64 {
        match self.detach(entered) {
            Step::Detached { token } => token,
            step => panic!("{step:?}"),
        }
    }

    fn detach(&mut self, entered: &Entered) -> Step {
        self.on(Input::Detach(entered.entry.clone()))
    }
}

#[test]
fn an_extension_counts_from_its_request_once_the_store_has_confirmed_it() {
    let (mut client, entered) = Client::holding(unrenewed());
    client.now = 1_000;
    let renew = client.extend(&entered, LONG);
    assert_eq!(renew.lease, ms(LONG));
    assert_eq!(client.valid_until(), end(0, LEASE), "not confirmed yet");
    client.now = 1_500;
    client.renewed(&renew, 1_000, HELD);
    assert_eq!(client.valid_until(), end(1_000, LONG), "it does not add");
    client.tick(20_000);
    assert!(client.renewals().is_empty(), "no watchdog");
    client.tick(end(1_000, LONG));
    assert_eq!(client.losses(), [LostCause::Expired]);
    let late = client.extend_step(&entered, LONG);
    let lost = Refusal::Lost(key("k"), LostCause::Expired);
    assert_eq!(late, Step::Refused(lost));
}

#[test]
fn a_confirmation_that_comes_after_the_end_revives_nothing() {
    let (mut client, entered) = Client::holding(unrenewed());
    client.now = 2_000;
    let renew = client.extend(&entered, LONG);
    client.now = end(0, LEASE);
    client.renewed(&renew, 2_000, HELD);
    assert_eq!(
        client.own().valid_until(at(client.now)),
        Err(LostCause::Expired)
    );
    client.tick(client.now + 1);
    assert_eq!(client.losses(), [LostCause::Expired]);
}

#[test]
fn a_shorter_lease_ends_the_hold_sooner_at_once_and_a_late_reply_does_not_undo_that() {
    let (mut client, entered) = Client::holding(terms(LONG));
    client.tick(10_000);
    let of_before = client.renewal();
    client.now = 10_100;
    let renew = client.extend(&entered, LEASE);
    assert_eq!(renew.lease, ms(LEASE));
    assert_eq!(client.valid_until(), end(10_100, LEASE));
    client.renewed(&of_before, 10_000, HELD);
    assert_eq!(client.valid_until(), end(10_100, LEASE));
    client.renewed(&renew, 10_100, None);
    client.tick(11_200);
    assert_eq!(client.renewal().lease, ms(LEASE), "the watchdog renews it");
    client.tick(end(10_100, LEASE));
    assert_eq!(client.losses(), [LostCause::Expired]);
    // The store may keep the lock for the longer lease, so the release is repeated for as long.
    client.leave_as(&entered, None);
    client.reply_to_sent(UNANSWERED);
    client.tick(client.now + 2 * LEASE);
    assert!(client.sent_one().is_release());
}

#[test]
fn the_watchdog_renews_the_new_lease_even_if_the_extension_has_no_reply() {
    let (mut client, entered) = Client::holding(terms(LEASE));
    client.now = 500;
    let renew = client.extend(&entered, LONG);
    client.renewed(&renew, 500, None);
    assert_eq!(client.valid_until(), end(0, LEASE), "what was confirmed");
    client.tick(1_000);
    let again = client.renewal();
    assert_eq!(again.lease, ms(LONG));
    client.renewed(&again, 1_000, HELD);
    assert_eq!(client.valid_until(), end(1_000, LONG));
}

#[test]
fn max_hold_ends_an_extended_hold() {
    let (mut client, entered) = Client::holding(with(|terms| terms.max_hold = Some(ms(5_000))));
    let renew = client.extend(&entered, LONG);
    client.renewed(&renew, 0, HELD);
    assert_eq!(client.valid_until(), 5_000);
}

#[test]
fn a_lock_whose_lease_was_changed_is_released_so_that_the_next_hold_has_its_own() {
    // Back at the lease with which it began, the store may still keep it for the longer one.
    for leases in [&[LONG][..], &[LEASE / 2], &[LONG, LEASE]] {
        for waits in [true, false] {
            let (mut client, entered) = Client::holding(retained());
            for lease in leases {
                let renew = client.extend(&entered, *lease);
                client.renewed(&renew, 0, HELD);
            }
            let next = waits.then(|| client.acquire("k", retained()).0);
            assert!(asked(client.leave(&entered)).is_release(), "{leases:?}");
            let next = next.map(|call| owner(&client.next(call)));
            assert_ne!(next, Some(entered.entry.owner));
        }
    }
}

#[test]
fn a_lock_that_was_extended_by_its_own_lease_is_retained() {
    let (mut client, entered) = Client::holding(retained());
    let renew = client.extend(&entered, LEASE);
    client.renewed(&renew, 0, HELD);
    assert_eq!(client.leave(&entered), Step::Left(Ok(())));
    let next = only(client.acquire("k", retained()).1);
    assert_eq!(next.entry.owner, entered.entry.owner);
}

#[test]
fn of_several_holds_of_a_shared_lock_each_may_only_lengthen_the_lease() {
    let shared = || with(|terms| terms.mode = LockMode::Shared);
    let (mut client, first) = Client::holding(shared());
    let second = only(client.acquire("k", shared()).1);
    assert_eq!(client.extend(&second, LEASE / 2).lease, ms(LEASE));
    assert_eq!(client.extend(&second, LONG).lease, ms(LONG));
    client.leave(&second);
    assert_eq!(client.extend(&first, LEASE).lease, ms(LEASE), "it is alone");
}

#[test]
fn another_client_extends_the_hold_with_its_token_and_never_shortens_it() {
    let (mut client, entered) = Client::holding(unrenewed());
    let extend = |token, lease| Event::Extend {
        token,
        lease: ms(lease),
    };
    client.event(extend(entered.token + 1, LONG));
    assert!(client.renewals().is_empty(), "another token");
    client.event(extend(entered.token, LEASE / 2));
    assert_eq!(client.renewal().lease, ms(LEASE));
    client.event(extend(entered.token, LONG));
    client.renew(HELD);
    assert_eq!(client.valid_until(), end(0, LONG));
}

#[test]
fn a_detached_lock_is_left_to_its_lease_whatever_message_comes() {
    let (mut client, entered) = Client::holding(terms(LEASE));
    client.tick(1_000);
    let renew = client.renewal();
    let (waiting, _) = client.acquire("k", terms(LEASE));
    assert_eq!(client.detached(&entered), entered.token);
    let owner_before = entered.entry.owner;
    assert_ne!(owner(&client.next(waiting)), owner_before, "it asks");
    let ends = client.take(|output| match output {
        Output::Ended { end, .. } => Some(*end),
        _ => None,
    });
    assert_eq!(ends, [HoldEnd::Detached]);
    client.renewed(&renew, 1_000, Some(RenewalOutcome::Lost));
    client.on(Input::Event(
        key("k"),
        Some(owner_before),
        handed_off(FENCE, false),
    ));
    client.on(Input::Drain);
    client.on(Input::Close);
    client.tick(1_000 + LEASE - 1);
    let mut sent = client.sent().into_iter();
    assert!(sent.all(|request| owner(&request) != owner_before));
    assert!(client.losses().is_empty());
    assert!(client.renewals().is_empty());
    assert!(client.machine.own(&key("k"), owner_before).is_some());
    client.tick(1_000 + LEASE);
    assert!(client.machine.own(&key("k"), owner_before).is_none());
}

#[test]
fn a_detached_lock_has_a_token_of_the_fence_that_the_store_knows() {
    let (mut client, mut entered) = Client::holding(retained());
    for _ in 0..TOKENS / 2 {
        client.leave(&entered);
        entered = only(client.acquire("k", retained()).1);
    }
    let renew = client.extend(&entered, LONG);
    assert_eq!(renew.fence, FENCE + 1, "the tokens run low");
    client.renewed(&renew, client.now, Some(held(false, FENCE + 1)));
    assert_eq!(entered.token / TOKENS, FENCE);
    assert_eq!(client.detached(&entered), (FENCE + 1) * TOKENS);
}

#[test]
fn only_the_single_entry_of_an_exclusive_lock_is_detached() {
    let (mut client, outer) = Client::holding(terms(LEASE));
    let inner = client.enter(&outer, LEASE);
    assert_eq!(client.detach(&outer), Step::Refused(Refusal::Nested(1)));
    client.leave(&inner);
    assert_eq!(client.detached(&outer), outer.token);
    let left = Refusal::Lost(key("k"), LostCause::Released);
    assert_eq!(client.detach(&outer), Step::Refused(left));
    let (mut client, reader) = Client::holding(with(|terms| terms.mode = LockMode::Shared));
    let shared = Refusal::Upgrade(key("k"), LockMode::Shared);
    assert_eq!(client.detach(&reader), Step::Refused(shared));
}
