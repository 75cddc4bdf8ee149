//! What is a loss, and what is none.

use super::*;

#[test]
fn a_hold_that_a_check_does_not_find_is_lost_and_its_lock_goes_to_the_next_call() {
    let (mut client, entered) = Client::holding(terms(LEASE));
    let (call, _) = client.acquire("k", terms(LEASE));
    client.event(Event::Changed);
    client.tick(1);
    client.renew(Some(RenewalOutcome::Lost));
    assert_eq!(client.losses(), [LostCause::Removed]);
    assert!(client.is_woken(call));
    assert_eq!(client.leave(&entered), Step::Left(Err(LostCause::Removed)));
    // Some members of a quorum may still have it.
    assert_eq!(owner(&client.sent_one()), entered.entry.owner);

    // A retained lock has no holder.
    let (mut client, entered) = Client::holding(retained());
    client.leave(&entered);
    client.tick(1_000);
    client.renew(Some(RenewalOutcome::Lost));
    assert!(client.losses().is_empty() && client.sent().len() == 1);
}

#[test]
fn a_lock_that_is_taken_by_force_before_its_grant_arrives_is_not_held() {
    let (mut client, _, request) = Client::asking(terms(LEASE));
    assert_eq!(client.revoked(Some(1), true), [Revoked::NotHeld]);
    assert_eq!(client.revoked(None, false), [Revoked::NotHeld]);
    assert_eq!(client.revoked(None, true), [Revoked::Given]);
    let first = owner(&request);
    let again = asked(client.grant(request, FENCE));
    assert_ne!(owner(&again), first);
    assert_eq!(owner(&client.sent_one()), first);
    only(client.grant(again, FENCE + 1));
    assert!(client.losses().is_empty());
}

/// The store handed `k` off to the call, and then refused its request because `z` is taken.
#[test]
fn a_lock_that_a_refused_call_may_have_is_not_taken_by_the_token_of_an_earlier_hold() {
    let mut client = Client::new();
    let request = asked(client.acquire("k z", terms(LEASE)).1);
    client.refuse_only(request, 1);
    assert_eq!(client.revoked(Some(1), true), [Revoked::NotHeld]);
}

#[test]
fn a_lock_that_is_taken_between_two_holds_is_no_loss() {
    let (mut client, entered) = Client::holding(terms(LEASE));
    let (call, _) = client.acquire("k", terms(LEASE));
    client.leave(&entered);
    assert_eq!(client.revoked(None, true), [Revoked::Given]);
    assert_ne!(owner(&asked(client.poll(call))), entered.entry.owner);
    assert!(client.losses().is_empty());
}

#[test]
fn a_hold_that_is_revoked_twice_is_lost_once() {
    let (mut client, entered) = Client::holding(terms(LEASE));
    let (call, _) = client.acquire("k", terms(LEASE));
    let other = Some(entered.token + 1);
    assert_eq!(client.revoked(other, true), [Revoked::OtherHold]);
    assert_eq!(client.revoked(Some(entered.token), false), [Revoked::Lost]);
    assert!(!client.is_woken(call), "it keeps the lock until it ends");
    assert_eq!(client.revoked(None, true), [Revoked::Given]);
    assert!(client.is_woken(call));
    assert_eq!(client.losses(), [LostCause::Revoked]);
}

#[test]
fn a_lost_hold_is_released_when_its_last_entry_leaves() {
    let (mut client, first) = Client::holding(terms(LEASE));
    let second = client.enter(&first, LEASE);
    client.event(Event::Changed);
    client.tick(1);
    client.renew(Some(RenewalOutcome::Lost));
    for (entered, sent) in [(first, 0), (second, 1)] {
        let left = client.leave(&entered);
        assert_eq!(left, Step::Left(Err(LostCause::Removed)));
        client.tick(2);
        assert_eq!(client.sent().len(), sent);
    }
}

#[test]
fn a_lock_that_is_gone_before_its_next_hold_began_is_no_loss() {
    let (mut client, entered) = Client::holding(terms(LEASE));
    let (next, _) = client.acquire("k", terms(LEASE));
    client.leave(&entered);
    client.on(Input::Cancel(next));
    client.reply_to_sent(NOT_HELD);
    assert!(client.losses().is_empty());
}

/// The hold before left it well, and no hold has it since.
#[test]
fn a_lock_that_ends_before_its_next_call_is_polled_is_no_loss() {
    let (mut client, entered) = Client::holding(terms(LEASE));
    client.acquire("k", terms(LEASE));
    let (next, _) = client.acquire("k", terms(LEASE));
    client.leave(&entered);
    client.tick(3_000);
    client.tick(4_000);
    client.next(next);
    let release = client.sent_one();
    assert_eq!(owner(&release), entered.entry.owner);
    client.on(Input::Reply(release, NOT_HELD));
    assert!(client.losses().is_empty());
}
