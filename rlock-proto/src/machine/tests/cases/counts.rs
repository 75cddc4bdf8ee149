//! Nested calls, and the count that the store shows of them.

use super::{client::*, *};

/// When the client tells the store about an entry that began at the start.
const SOON: u64 = 20;

#[test]
fn a_nested_call_enters_at_once_and_the_store_is_told_soon() {
    let (mut client, outer) = Client::holding(terms(LEASE));
    let inner = only(client.nest(&outer, LONG).1);
    assert_eq!((inner.token, inner.began), (outer.token, None));
    client.tick(SOON - 1);
    assert!(client.sent().is_empty());
    client.tick(SOON);
    let told = client.sent_one();
    assert!(matches!(told.what, Ask::SetCount { count: 2, lease } if lease == ms(LEASE)));
    assert!(told.call.is_none() && !told.is_in_doubt());
    client.reply(told, DONE);
    assert_eq!(client.valid_until(), SOON + 2_968, "of its hold");
    assert_eq!(client.leave(&outer), Step::Left(Ok(())));
    client.tick(2 * SOON);
    assert_eq!(count(&client.sent_one()), 1);
    assert!(asked(client.leave(&inner)).is_release());
}

/// A guard that a body keeps is an entry, too.
#[test]
fn the_store_is_told_soon_of_a_guard_that_is_kept() {
    let (mut client, outer) = Client::holding(terms(LEASE));
    let kept = only(client.on(Input::Keep(outer.entry.clone())));
    client.tick(SOON - 1);
    assert!(client.sent().is_empty());
    client.tick(SOON);
    let told = client.sent_one();
    assert_eq!(count(&told), 2);
    client.reply(told, DONE);
    assert_eq!(client.leave(&kept), Step::Left(Ok(())));
    client.tick(2 * SOON);
    assert_eq!(count(&client.sent_one()), 1);
}

/// Only renewals show that others wait, if messages do not arrive, and only they make a quorum restore a lock.
#[test]
fn counts_put_no_renewal_off() {
    let (mut client, outer) = Client::holding(terms(LEASE));
    for now in (100..1_000).step_by(100) {
        client.tick(now);
        let inner = client.enter(&outer, LEASE);
        client.tick(now + SOON);
        client.reply_to_sent(DONE);
        assert_eq!(client.valid_until(), now + SOON + 2_968);
        client.leave(&inner);
        client.tick(now + 2 * SOON);
        client.reply_to_sent(DONE);
    }
    assert!(client.renewals().is_empty());
    client.tick(1_000);
    client.renew(Some(held(true, 0)));
    assert!(client.machine.slot(&key("k")).expect("held").others_wait());
}

/// Nothing else extends its lease.
#[test]
fn the_entry_of_a_hold_that_is_not_renewed_is_told_before_its_lease_ends() {
    let (mut client, outer) = Client::holding(unrenewed());
    client.tick(2_960);
    only(client.nest_as(&outer, unrenewed()).1);
    client.tick(2_964);
    let told = client.sent_one();
    assert_eq!(count(&told), 2);
    client.reply(told, DONE);
    assert_eq!(client.valid_until(), 2_964 + 2_968);
}

#[test]
fn entries_that_leave_soon_cost_no_request() {
    let (mut client, outer) = Client::holding(terms(LEASE));
    for now in (0..200).step_by(10) {
        client.tick(now);
        let inner = client.enter(&outer, LEASE);
        client.tick(now + 9);
        client.leave(&inner);
    }
    client.tick(500);
    assert!(client.sent().is_empty());
}

#[test]
fn entries_are_not_counted_on_the_store_if_the_client_counts_them() {
    let mut client = Client::with(|settings| settings.counts_entries = false);
    let outer = client.hold(retained());
    let inner = client.enter(&outer, LEASE);
    client.tick(500);
    assert!(client.sent().is_empty());
    client.leave(&inner);
    assert_eq!(client.leave(&outer), Step::Left(Ok(())));
    assert_eq!(client.own().phase(), Phase::Retained);
}

#[test]
fn one_count_is_under_way_and_the_latest_one_follows() {
    let (mut client, outer) = Client::holding(terms(LEASE));
    let [_, second, third] = [(); 3].map(|()| client.enter(&outer, LEASE));
    client.tick(SOON);
    let told = client.sent_one();
    assert_eq!(count(&told), 4);
    for now in [50, 100, 150] {
        client.tick(now);
        let inner = client.enter(&outer, LEASE);
        client.tick(now + SOON);
        client.leave(&inner);
    }
    client.leave(&second);
    client.leave(&third);
    client.tick(500);
    assert!(client.sent().is_empty());
    client.reply(told, DONE);
    let told = client.sent_one();
    assert_eq!(count(&told), 2);
    client.reply(told, DONE);
    client.tick(900);
    assert!(client.sent().is_empty());
}

#[test]
fn a_release_waits_for_no_count_and_sends_none() {
    let (mut client, outer) = Client::holding(terms(LEASE));
    let inner = client.enter(&outer, LEASE);
    client.tick(SOON);
    let told = client.sent_one();
    client.leave(&inner);
    let release = asked(client.leave(&outer));
    assert!(release.is_release() && !release.is_in_doubt());
    client.reply(release, DONE);
    assert!(client.is_empty());
    // The count is executed after the release.
    client.reply(told, NOT_HELD);
    client.tick(1_000);
    assert!(client.sent().is_empty() && client.losses().is_empty() && client.is_empty());
}

/// No request of the hold before may end the next one.
#[test]
fn a_lock_whose_count_is_changing_goes_to_the_next_call() {
    let (mut client, outer) = Client::holding(terms(LEASE));
    let inner = client.enter(&outer, LEASE);
    client.tick(SOON);
    let told = client.sent_one();
    let (next, _) = client.acquire("k", terms(LEASE));
    client.leave(&inner);
    assert_eq!(client.leave(&outer), Step::Left(Ok(())));
    let next = only(client.poll(next));
    assert_eq!(next.entry.owner, outer.entry.owner);
    client.reply(told, DONE);
    client.tick(2 * SOON);
    assert_eq!(count(&client.sent_one()), 1, "of the next hold");
}

/// A quorum may be about to restore the lock at some of its members.
#[test]
fn a_count_that_finds_no_lock_is_a_loss_if_a_renewal_finds_none() {
    for (outcome, losses) in [
        (held(false, 0), vec![]),
        (RenewalOutcome::Lost, vec![LostCause::Removed]),
    ] {
        let (mut client, outer) = Client::holding(terms(LEASE));
        client.enter(&outer, LEASE);
        client.tick(SOON);
        client.reply_to_sent(NOT_HELD);
        assert!(client.losses().is_empty());
        client.tick(SOON + 1);
        client.renew(Some(outcome));
        assert_eq!(client.losses(), losses);
        client.tick(500);
        let again = client.sent();
        assert_eq!(
            again.iter().map(count).collect::<Vec<_>>(),
            if losses.is_empty() { vec![2] } else { vec![] }
        );
    }
}

#[test]
fn a_count_without_a_reply_is_sent_again_and_one_that_is_refused_is_not() {
    for (reply, is_sent_again) in [(UNANSWERED, true), (Reply::None, true), (REFUSED, false)] {
        let (mut client, outer) = Client::holding(terms(LEASE));
        let inner = client.enter(&outer, LEASE);
        client.tick(SOON);
        client.reply_to_sent(reply);
        client.leave(&inner);
        let again = client.enter(&outer, LEASE);
        client.tick(100);
        let sent = client.sent();
        assert_eq!(sent.len(), usize::from(is_sent_again), "{sent:?}");
        assert!(
            sent.iter()
                .all(|told| count(told) == 2 && told.is_in_doubt())
        );
        client.leave(&again);
        assert!(!asked(client.leave(&outer)).is_in_doubt());
    }
}

#[test]
fn a_nested_call_does_not_enter_a_hold_that_is_lost() {
    let refused = |cause| Step::Refused(Refusal::Lost(key("k"), cause));
    let (mut client, outer) = Client::holding(terms(LEASE));
    client.now = 2_968;
    assert_eq!(client.nest(&outer, LEASE).1, refused(LostCause::Expired));
    assert_eq!(client.losses(), [LostCause::Expired]);

    let (mut client, outer) = Client::holding(terms(LEASE));
    client.tick(1_000);
    client.renew(Some(RenewalOutcome::Lost));
    assert_eq!(client.nest(&outer, LEASE).1, refused(LostCause::Removed));
    assert!(client.sent().is_empty());
}

/// Its entry must not extend a lock that another owner may have.
#[test]
fn the_count_of_a_lost_hold_is_not_sent() {
    let limit = with(|terms| terms.max_hold = Some(ms(50)));
    let (mut client, outer) = Client::holding(limit);
    client.now = 40;
    client.enter(&outer, LEASE);
    client.tick(50);
    assert_eq!(client.losses(), [LostCause::MaxHold]);
    client.tick(100);
    assert!(client.sent().is_empty());
}

#[test]
fn a_renewal_carries_the_count_to_members_of_a_quorum_that_lack_the_lock() {
    for (needs_majority, counts_entries, mode, count) in [
        (true, true, LockMode::Exclusive, 2),
        (true, false, LockMode::Exclusive, 1),
        (false, true, LockMode::Exclusive, 1),
        (true, true, LockMode::Shared, 1),
    ] {
        let mut client = Client::with(|settings| {
            (settings.needs_majority, settings.counts_entries) = (needs_majority, counts_entries);
        });
        let terms = with(|terms| (terms.mode, terms.lease) = (mode, ms(LEASE)));
        let entered = client.hold(terms);
        only(client.nest_as(&entered, terms).1);
        client.tick(1_000);
        assert_eq!(
            client.renewal().count,
            count,
            "{needs_majority} {counts_entries} {mode:?}"
        );
    }
}
