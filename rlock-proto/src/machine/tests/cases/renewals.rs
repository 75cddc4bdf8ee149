//! How a hold keeps its lock: renewals, its `max_hold`, and the fence that the store keeps.

use super::*;

#[test]
fn a_hold_is_renewed_after_a_third_and_again_until_its_lease_ends() {
    let mut client = Client::with(|settings| settings.counts_entries = false);
    let entered = client.hold(terms(LEASE));
    let nested = client.enter(&entered, LEASE);
    for attempt in [1_000, 1_500, 2_000, 2_500] {
        assert_eq!(client.machine.due(), Some(at(attempt)));
        client.tick(attempt);
        assert_eq!(client.renewal().lease, ms(LEASE));
    }
    let (call, _) = client.acquire("k", terms(LEASE));
    assert_eq!(client.machine.due(), Some(at(2_968)));
    client.tick(2_968);
    assert_eq!(client.losses(), [LostCause::Expired]);
    // The next call does not wait for the guard, and the lock is released with it.
    assert!(client.is_woken(call));
    assert_ne!(owner(&asked(client.poll(call))), entered.entry.owner);
    assert!(client.renewals().is_empty() && client.sent().is_empty());
    for entered in [&nested, &entered] {
        assert_eq!(client.leave(entered), Step::Left(Err(LostCause::Expired)));
    }
    assert_eq!(owner(&client.sent_one()), entered.entry.owner);
}

#[test]
fn a_lease_counts_from_its_request_and_a_late_reply_does_not_bring_it_back() {
    for (replied_at, until) in [(2_967, Some(3_968)), (2_968, None)] {
        let (mut client, _, request) = Client::asking(terms(LEASE));
        client.now = 500;
        let entered = only(client.reply(request, granted(FENCE, 1, 0)));
        assert_eq!(client.valid_until(), 2_968);
        client.tick(1_000);
        let renew = client.renewal();
        client.now = replied_at;
        client.renewed(&renew, 1_000, HELD);
        let valid_until = client.own().valid_until(at(replied_at));
        assert_eq!(valid_until, until.map(at).ok_or(LostCause::Expired));
        let (_, step) = client.nest(&entered, LEASE);
        let is_lost = matches!(step, Step::Refused(Refusal::Lost(..)));
        assert_eq!(is_lost, until.is_none());
    }

    // The late reply to a count.
    let (mut client, entered) = Client::holding(terms(LEASE));
    client.enter(&entered, LEASE);
    client.tick(20);
    let told = client.sent_one();
    client.now = 2_968;
    client.reply(told, DONE);
    let valid_until = client.own().valid_until(at(2_968));
    assert_eq!(valid_until, Err(LostCause::Expired));
}

/// A store that is down is asked four times in a lease, not without a pause.
#[test]
fn a_renewal_that_fails_at_once_is_tried_again_by_the_schedule() {
    let (mut client, _) = Client::holding(terms(LEASE));
    client.tick(1_000);
    let renew = client.renewal();
    client.now = 1_001;
    client.renewed(&renew, 1_000, None);
    client.tick(1_010);
    assert!(client.renewals().is_empty());
    client.tick(1_500);
    client.renewal();
}

#[test]
fn a_hold_without_a_watchdog_is_only_looked_for() {
    let (mut client, entered) = Client::holding(unrenewed());
    let until = client.valid_until();
    client.tick(2_500);
    assert!(client.renewals().is_empty());
    client.event(Event::Missed { is_heard: true });
    client.tick(2_510);
    let look = client.renewal();
    assert_eq!(look.lease, Duration::ZERO);
    client.renewed(&look, 2_510, HELD);
    assert_eq!(client.valid_until(), until);
    client.tick(2_900);
    assert!(client.renewals().is_empty() && client.own().has(entered.entry.number));
}

#[test]
fn a_hold_ends_with_its_max_hold_and_keeps_its_lock_until_it_leaves() {
    let limit = with(|terms| terms.max_hold = Some(ms(500)));
    let (mut client, entered) = Client::holding(limit);
    let (call, _) = client.acquire("k", terms(LEASE));
    client.tick(500);
    assert_eq!(client.losses(), [LostCause::MaxHold]);
    client.tick(1_500);
    assert!(client.renewals().is_empty() && !client.is_woken(call));
    let release = asked(client.leave(&entered));
    client.next(call);
    let lost = Step::Left(Err(LostCause::MaxHold));
    assert_eq!(client.reply(release, DONE), lost);
    assert!(client.losses().is_empty());
}

#[test]
fn a_hold_that_another_client_asked_for_is_not_renewed_beyond_its_max_hold() {
    let (mut client, _) = Client::holding(with(|terms| terms.max_hold = Some(ms(1_500))));
    client.tick(500);
    assert_eq!(client.revoked(None, false), [Revoked::Lost]);
    client.tick(1_000);
    client.renew(Some(RenewalOutcome::Held {
        wanted: true,
        fence: 0,
    }));
    client.tick(2_500);
    assert!(client.renewals().is_empty());
}

/// The store keeps the fence for the lease and a minute, and then, each time, for another lease.
#[test]
fn renewals_make_the_store_keep_the_fence_of_a_long_hold_once_for_each_lease_and_retention() {
    let (mut client, _) = Client::holding(terms(30_000));
    let mut asked = Vec::new();
    for seconds in (10..400).step_by(10) {
        client.tick(seconds * 1_000);
        let renew = client.renewal();
        if renew.keeps_fence {
            assert_eq!((renew.fence, renew.last_fence), (0, FENCE));
            asked.push(seconds);
        }
        // What has failed is repeated.
        let outcome = (seconds != 70).then_some(held(false, 0));
        client.renewed(&renew, seconds * 1_000, outcome);
    }
    assert_eq!(asked, [70, 80, 180, 280, 380]);
}

#[test]
fn a_server_that_may_have_taken_over_is_asked_to_keep_the_fence_until_it_has_replied() {
    let (mut client, _) = Client::holding(terms(30_000));
    client.tick(10_000);
    let renew = client.renewal();
    assert!(!renew.keeps_fence);
    client.event(Event::Missed { is_heard: true });
    // The former master replies late.
    client.renewed(&renew, 10_000, Some(held(false, 0)));
    for reply in [None, Some(held(false, 0))] {
        client.tick(client.now + 10_000);
        let renew = client.renewal();
        assert!(renew.keeps_fence && renew.last_fence == FENCE);
        client.renewed(&renew, client.now, reply);
    }
    client.tick(client.now + 10_000);
    assert!(!client.renewal().keeps_fence);
}
