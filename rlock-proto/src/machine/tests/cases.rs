//! Tests single inputs to one machine, and what it wants done then.

mod client;
mod counts;
mod leases;
mod modes;
mod slots;
mod unpolled;
mod waits;

use self::client::*;
use super::super::*;
use crate::{
    lost::LostCause,
    mode::LockMode,
    options::{LockOptions, Wait},
    store::{Acquired, QueuePlace, RenewalOutcome, TakenBy},
};

#[test]
fn a_call_asks_the_store_and_its_release_leaves_nothing() {
    let mut client = Client::new();
    let (call, step) = client.acquire("k", terms(LEASE));
    assert_eq!(client.poll(call), Step::Wait);
    let entered = only(client.grant(asked(step), FENCE));
    assert_eq!(entered.token, FENCE * TOKENS);
    assert_eq!(entered.began, Some(By::Release));
    let release = asked(client.leave(&entered));
    assert_eq!(kept(&release), Duration::ZERO);
    client.tick(1_000);
    assert!(client.renewals().is_empty() && !client.machine.is_released());
    assert_eq!(client.reply(release, DONE), Step::Left(Ok(())));
    assert!(client.is_empty() && client.machine.is_released());
}

#[test]
fn a_waiter_begins_its_hold_with_a_message_and_makes_it_last_soon() {
    let mut client = Client::new();
    let (call, step) = client.acquire("k", terms(LEASE));
    assert_eq!(client.refuse(asked(step), 0, 0), Step::Wait);
    client.now = 100;
    client.event(handed_off(8, false));
    assert!(client.is_woken(call));
    let entered = only(client.poll(call));
    assert_eq!(entered.began, Some(By::Message));
    // It counts from the request that was refused.
    assert_eq!(client.valid_until(), 1_000 - 12);
    client.tick(101);
    assert_eq!(client.renewal().lease, ms(LEASE));
}

#[test]
fn a_message_that_is_picked_up_late_or_without_a_watchdog_is_confirmed_first() {
    for (late, terms) in [(400, terms(LEASE)), (100, unrenewed())] {
        let mut client = Client::new();
        let (call, step) = client.acquire("k", terms);
        let owner = owner(&asked(step.clone()));
        client.refuse(asked(step), 0, 0);
        client.event(handed_off(8, false));
        client.now = late;
        let again = asked(client.poll(call));
        assert_eq!(again.claims[0].owner, owner);
        assert_eq!(only(client.grant(again, 8)).token, 8 * TOKENS);
    }
}

#[test]
fn a_message_about_an_ended_grant_says_nothing_about_the_present_one() {
    let mut client = Client::new();
    let (call, step) = client.acquire("k", terms(LEASE));
    client.refuse(asked(step), 0, 7);
    client.event(handed_off(7, true));
    assert_eq!(client.poll(call), Step::Wait);
    assert!(!client.machine.slot(&key("k")).expect("known").others_wait());
    client.event(handed_off(8, true));
    assert_eq!(only(client.poll(call)).token, 8 * TOKENS);
    assert!(client.machine.slot(&key("k")).expect("known").others_wait());
}

#[test]
fn a_waiter_that_has_gone_gives_a_lock_or_a_place_in_the_queue_back_at_once() {
    for (mode, message) in [
        (LockMode::Exclusive, handed_off(8, true)),
        (LockMode::Exclusive, retry(LockMode::Exclusive, 1_000)),
        (LockMode::Shared, retry(LockMode::Shared, 0)),
    ] {
        let mut client = Client::new();
        let (call, step) = client.acquire("k", with(|terms| terms.mode = mode));
        let gone = owner(&asked(step.clone()));
        client.refuse(asked(step), 0, 0);
        client.on(Input::Cancel(call));
        let left = client.sent_one();
        client.on(Input::Reply(left, NOT_HELD));
        assert!(client.is_empty());
        // The server, or one that took its place, still had it in the queue.
        client.on(Input::Event(key("k"), Some(gone), message));
        let release = client.sent_one();
        assert!(release.is_release() && owner(&release) == gone);
        assert_eq!(release.claims[0].mode, mode);
        client.on(Input::Reply(release, DONE));
        assert!(client.is_empty() && client.losses().is_empty());
    }
}

#[test]
fn the_first_waiter_asks_again_after_a_change_of_the_lock() {
    let mut client = Client::new();
    let (call, step) = client.acquire("k", terms(LEASE));
    client.refuse(asked(step), 0, 0);
    client.event(Event::Changed);
    assert_eq!(client.poll(call), Step::Wait);
    client.tick(499);
    assert_eq!(client.poll(call), Step::Wait);
    client.tick(500);
    let asked = asked(client.poll(call));
    assert_eq!(only(client.grant(asked, FENCE)).began, Some(By::Message));
}

#[test]
fn an_attempt_follows_the_release_of_its_own_client() {
    let (mut client, entered) = Client::holding(terms(LEASE));
    client.leave_as(&entered, None);
    let release = client.sent_one();
    let (call, step) = client.acquire("k", with(|terms| terms.wait = Wait::Never));
    assert_eq!(step, Step::Wait);
    client.on(Input::Reply(release, DONE));
    assert!(client.is_woken(call));
    let request = asked(client.poll(call));
    let refused = Refusal::Taken(key("k"), Some(ms(1_000)));
    assert_eq!(client.refuse(request, 0, 0), Step::Refused(refused));
}

#[test]
fn an_attempt_asks_again_while_no_owner_has_a_majority() {
    let mut client = Client::with(|settings| settings.needs_majority = true);
    let (call, step) = client.acquire("k", with(|terms| terms.wait = Wait::Never));
    let mut request = asked(step);
    let mut asked_again = 0;
    loop {
        let former = owner(&request);
        if client.split(request) != Step::Wait {
            break;
        }
        client.tick(client.now + 500);
        let step = client.poll(call);
        if step == Step::Refused(Refusal::Split) {
            break;
        }
        request = asked(step);
        assert_ne!(owner(&request), former);
        let release = client.sent_one();
        assert_eq!(owner(&release), former);
        client.on(Input::Reply(release, DONE));
        asked_again += 1;
    }
    assert!((3..=6).contains(&asked_again), "{asked_again}");

    let mut client = Client::with(|settings| settings.needs_majority = true);
    let (call, step) = client.acquire("k", with(|terms| terms.wait = Wait::Never));
    assert_eq!(client.split(asked(step)), Step::Wait);
    client.tick(client.now + 500);
    let request = client.next(call);
    let refused = Refusal::Taken(key("k"), Some(ms(1_000)));
    assert_eq!(client.refuse(request, 0, 0), Step::Refused(refused));
}

/// Returns whether a hold leaves its lock to the next call.
fn is_passed(
    settings: impl FnOnce(&mut Settings),
    [first, next]: [LockOptions; 2],
    between: impl FnOnce(&mut Client, &Entered),
) -> bool {
    let mut client = Client::with(settings);
    let entered = client.hold(first);
    let (call, _) = client.acquire("k", next);
    between(&mut client, &entered);
    client.leave(&entered);
    matches!(client.poll(call), Step::Entered(_))
}

#[test]
fn a_hold_leaves_its_lock_only_to_a_call_with_the_same_terms_within_them() {
    let passed =
        |first, next, later: u64| is_passed(|_| (), [first, next], |client, _| client.now = later);
    let min_hold = with(|terms| terms.min_hold = Some(ms(50)));
    let max_hold = with(|terms| terms.max_hold = Some(ms(50)));
    assert!(passed(terms(LEASE), terms(LEASE), 999));
    assert!(!passed(terms(LEASE), terms(LEASE), 1_000), "not renewed");
    assert!(!passed(terms(LEASE), terms(LEASE - 1), 10));
    assert!(!passed(terms(LEASE), terms(LONG), 10));
    assert!(!passed(terms(LEASE), unrenewed(), 10));
    assert!(passed(unrenewed(), terms(LEASE), 10));
    assert!(!passed(min_hold, terms(LEASE), 49));
    assert!(passed(min_hold, terms(LEASE), 50));
    assert!(passed(max_hold, terms(LEASE), 49));
    assert!(!passed(max_hold, terms(LEASE), 50));
    let both = [terms(LEASE); 2];
    assert!(!is_passed(|set| set.replicas = true, both, |_, _| ()));
}

#[test]
fn a_lock_in_doubt_is_not_left_to_the_next_call_until_a_later_request_confirms_it() {
    for (confirmed, expected) in [(None, false), (Some(100), false), (Some(101), true)] {
        let passed = is_passed(
            |_| (),
            [terms(LEASE); 2],
            |client, _| {
                client.now = 100;
                client.event(Event::Missed { is_heard: true });
                client.tick(101);
                let renew = client.renewal();
                if let Some(sent_at) = confirmed {
                    client.renewed(&renew, sent_at, HELD);
                }
            },
        );
        assert_eq!(passed, expected, "{confirmed:?}");
    }
}

#[test]
fn the_next_call_asks_behind_the_release_and_does_not_wait_for_its_reply() {
    let (mut client, entered) = Client::holding(terms(LEASE));
    client.event(Event::Wanted);
    let (call, _) = client.acquire("k", terms(LEASE));
    let release = asked(client.leave(&entered));
    let next = client.next(call);
    assert_ne!(owner(&next), entered.entry.owner);
    assert_eq!(client.poll(call), Step::Wait, "it does not ask twice");
    assert_eq!(client.reply(release, DONE), Step::Left(Ok(())));
    assert_eq!(only(client.grant(next, 8)).token, 8 * TOKENS);
}

/// The lock of an earlier owner went on, and the present one was granted later.
#[test]
fn a_late_refusal_of_an_earlier_request_takes_no_hold_away() {
    let (mut client, entered) = Client::holding(terms(LEASE));
    client.event(Event::Wanted);
    let (call, _) = client.acquire("k", terms(LEASE));
    let (second, _) = client.acquire("k", terms(LEASE));
    client.leave(&entered);
    let early = client.next(call);
    client.on(Input::Cancel(call));
    let step = client.poll(second);
    let entered = only(client.grant(asked(step), 8));
    let refused = Reply::Acquired(Acquired::Taken {
        claim: 0,
        ttl: Some(ms(1_000)),
        queued: Some(QueuePlace::BEHIND),
        sent_at: at(client.now),
        fences: one(7),
        retired: false,
        by: TakenBy::Unnamed,
    });
    client.on(Input::Reply(early, refused));
    assert!(client.own().has(entered.entry.number) && client.losses().is_empty());
}

#[test]
fn a_client_serves_only_calls_before_the_grant_and_no_more_than_its_limit_before_another_client() {
    let mut client = Client::with(|settings| settings.local_handovers = 1);
    let (_, step) = client.acquire("k", terms(LEASE));
    let (second, _) = client.acquire("k", terms(LEASE));
    let (third, _) = client.acquire("k", terms(LEASE));
    let first = only(client.grant(asked(step), FENCE));
    client.event(Event::Wanted);
    client.leave(&first);
    let second = only(client.poll(second));
    asked(client.leave(&second));
    assert_ne!(owner(&client.next(third)), first.entry.owner);

    // Its limit is not reached, but the second call came after the grant. An attempt before it does not count.
    for has_attempt in [false, true] {
        let mut client = Client::new();
        let (_, step) = client.acquire("k", terms(LEASE));
        if has_attempt {
            client.acquire("k", with(|terms| terms.wait = Wait::Never));
        }
        let first = only(client.grant(asked(step), FENCE));
        let (second, _) = client.acquire("k", terms(LEASE));
        client.event(Event::Wanted);
        asked(client.leave(&first));
        assert_ne!(owner(&client.next(second)), first.entry.owner);
    }
}

#[test]
fn a_retained_lock_is_renewed_until_its_retention_ends() {
    let (mut client, entered) = Client::holding(retained());
    assert_eq!(client.leave(&entered), Step::Left(Ok(())));
    assert_eq!(client.own().phase(), Phase::Retained);
    for now in (1_000..=9_000).step_by(1_000) {
        client.tick(now);
        client.renew(HELD);
    }
    client.tick(9_999);
    assert!(client.renewals().is_empty() && client.sent().is_empty());
    client.tick(10_000);
    assert_eq!(kept(&client.sent_one()), Duration::ZERO);

    // It ends in time although the next renewal would be later.
    let (mut client, entered) = Client::holding(with(|terms| terms.retain = ms(100)));
    client.leave(&entered);
    client.tick(100);
    assert!(client.renewals().is_empty() && client.sent().len() == 1);
}

#[test]
fn a_retained_lock_serves_a_call_with_its_terms_and_is_released_for_any_other_wish() {
    let idle = || {
        let (mut client, entered) = Client::holding(retained());
        client.leave(&entered);
        (client, entered)
    };
    let (mut client, entered) = idle();
    let next = only(client.acquire("k", terms(LEASE)).1);
    assert_eq!(
        (next.token, next.began),
        (entered.token + 1, Some(By::Local))
    );

    let wishes: [fn(&mut Client); 5] = [
        |client| client.event(Event::Wanted),
        |client| drop(client.on(Input::Drain)),
        |client| drop(client.acquire("k", terms(LONG))),
        |client| assert_eq!(client.revoked(None, false), [Revoked::Retained]),
        |client| {
            client.tick(1_000);
            client.renew(Some(held(true, 0)));
        },
    ];
    for wish in wishes {
        let (mut client, entered) = idle();
        wish(&mut client);
        assert_eq!(owner(&client.sent_one()), entered.entry.owner);
        assert!(client.losses().is_empty());
    }
}

#[test]
fn a_retained_lock_in_doubt_is_confirmed_before_the_next_hold() {
    let (mut client, entered) = Client::holding(retained());
    client.leave(&entered);
    client.event(Event::Missed { is_heard: false });
    client.now = 10;
    let (_, step) = client.acquire("k", terms(LEASE));
    let request = asked(step);
    assert_eq!(owner(&request), entered.entry.owner);
    let next = only(client.grant(request, FENCE));
    assert_eq!(next.token, entered.token + 1);
}

/// A quorum may have taken the lock back.
#[test]
fn a_failed_request_leaves_a_lock_in_doubt_that_was_confirmed_since() {
    let (mut client, entered) = Client::holding(retained());
    client.leave(&entered);
    client.event(Event::Missed { is_heard: true });
    client.tick(10);
    let renew = client.renewal();
    let (call, step) = client.acquire("k", terms(LEASE));
    client.renewed(&renew, 10, HELD);
    client.now = 20;
    client.reply(asked(step), UNANSWERED);
    client.tick(100);
    let again = asked(client.poll(call));
    assert_eq!(owner(&again), entered.entry.owner);
    assert!(again.is_in_doubt());
}

/// Holds of the earlier time may remain.
#[test]
fn an_owner_that_is_granted_the_lock_once_more_is_not_used() {
    let (mut client, entered) = Client::holding(retained());
    client.leave(&entered);
    client.event(Event::Missed { is_heard: false });
    client.now = 10;
    let (_, step) = client.acquire("k", terms(LEASE));
    let again = asked(client.grant(asked(step), FENCE + 1));
    assert_ne!(owner(&again), entered.entry.owner);
    assert_eq!(owner(&client.sent_one()), entered.entry.owner);
}

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
        let mut client = Client::new();
        let (_, step) = client.acquire("k", terms(LEASE));
        client.now = 500;
        let entered = only(client.reply(asked(step), granted(FENCE, 1, 0)));
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

/// A late renewal of the hold before would take back the longer lease, or confirm more than the shorter one.
#[test]
fn a_lock_that_was_passed_on_is_not_used_by_a_call_with_another_lease() {
    let (mut client, entered) = Client::holding(terms(LONG));
    let (gone, _) = client.acquire("k", terms(LONG));
    let (call, _) = client.acquire("k", terms(LEASE));
    client.leave(&entered);
    client.on(Input::Cancel(gone));
    assert!(client.is_woken(call));
    assert_ne!(owner(&asked(client.poll(call))), entered.entry.owner);
    assert_eq!(owner(&client.sent_one()), entered.entry.owner);
}

#[test]
fn a_change_that_is_reported_before_the_reply_makes_a_call_ask_again() {
    let mut client = Client::new();
    let (_, step) = client.acquire("k", terms(LEASE));
    let mut request = asked(step);
    for n in 0..=3 {
        let granted = granted(FENCE, 1, client.now);
        client.now += 10;
        client.event(Event::Changed);
        let step = client.reply(request, granted);
        if n == 3 {
            // Its own requests over another connection may be reported.
            only(step);
            break;
        }
        request = asked(step);
    }
    client.tick(client.now + 1);
    assert_eq!(client.renewal().lease, ms(LEASE), "it is confirmed");
}

#[test]
fn an_attempt_asks_again_after_a_reported_change_only_for_as_long_as_it_waits_for_its_own_client() {
    for (late, asks_again) in [(1_999, true), (2_000, false)] {
        let mut client = Client::new();
        let attempt = with(|terms| (terms.wait, terms.lease) = (Wait::Never, ms(LONG)));
        let (_, step) = client.acquire("k", attempt);
        client.event(Event::Changed);
        client.now = late;
        let step = client.reply(asked(step), granted(FENCE, 1, 0));
        assert_eq!(
            matches!(step, Step::Send(_)),
            asks_again,
            "{late}: {step:?}"
        );
        assert_eq!(
            matches!(step, Step::Entered(_)),
            !asks_again,
            "{late}: {step:?}"
        );
    }
}

#[test]
fn a_lock_that_is_taken_by_force_before_its_grant_arrives_is_not_held() {
    let mut client = Client::new();
    let (_, step) = client.acquire("k", terms(LEASE));
    let request = asked(step);
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
fn an_entry_is_kept_next_to_one_that_is_valid_and_sends_nothing() {
    let (mut client, entered) = Client::holding(terms(LEASE));
    let kept = only(client.on(Input::Keep(entered.entry.clone())));
    assert_eq!((kept.token, kept.began), (entered.token, None));
    assert_eq!(client.leave(&entered), Step::Left(Ok(())));
    let keep = |client: &mut Client, of: &Entered| client.on(Input::Keep(of.entry.clone()));
    let refused = |cause| Step::Refused(Refusal::Lost(key("k"), cause));
    assert_eq!(keep(&mut client, &entered), refused(LostCause::Released));
    assert_eq!(client.own().entries(), 1);
    client.now = LEASE;
    assert_eq!(keep(&mut client, &kept), refused(LostCause::Expired));
    client.revoked(None, true);
    assert_eq!(keep(&mut client, &kept), refused(LostCause::Revoked));
    client.leave(&kept);
    assert_eq!(keep(&mut client, &kept), refused(LostCause::Released));
}

#[test]
fn the_call_with_the_turn_waits_for_another_client_after_a_refusal_and_the_others_do_not() {
    let mut client = Client::new();
    let (first, step) = client.acquire("k", terms(LEASE));
    let (second, _) = client.acquire("k", terms(LEASE));
    assert_eq!(client.machine.contended(first), None);
    client.refuse(asked(step), 0, 0);
    assert_eq!(client.machine.contended(first), Some(&key("k")));
    assert_eq!(client.machine.contended(second), None);
    client.on(Input::Cancel(first));
    assert_eq!(client.poll(second), Step::Wait);
    assert_eq!(client.machine.contended(second), Some(&key("k")));
    client.event(handed_off(8, false));
    assert_eq!(client.machine.contended(second), None);
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
fn a_call_that_is_not_polled_loses_its_turn_when_its_lock_has_ended() {
    let mut client = Client::new();
    let (idle, step) = client.acquire("k", terms(LEASE));
    let first = owner(&asked(step.clone()));
    client.refuse(asked(step), 0, 0);
    client.event(handed_off(8, false));
    let (next, step) = client.acquire("k", terms(LEASE));
    assert_eq!(step, Step::Wait);
    for now in (100..1_000).step_by(100) {
        client.tick(now);
    }
    assert!(!client.is_woken(next) && client.renewals().is_empty());
    client.tick(1_000);
    let request = client.next(next);
    let release = client.sent_one();
    assert!(owner(&release) == first && owner(&request) != first);
    only(client.grant(request, 9));
    assert_eq!(client.poll(idle), Step::Wait, "it waits behind the other");
}

#[test]
fn a_lock_that_is_gone_before_its_next_hold_began_is_no_loss() {
    let (mut client, entered) = Client::holding(terms(LEASE));
    let (next, _) = client.acquire("k", terms(LEASE));
    client.leave(&entered);
    client.on(Input::Cancel(next));
    let release = client.sent_one();
    client.on(Input::Reply(release, NOT_HELD));
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

#[test]
fn a_lock_goes_to_the_next_call_without_a_request_or_is_released_if_none_remains() {
    let (mut client, entered) = Client::holding(terms(LEASE));
    let [gone, next] = [(); 2].map(|()| client.acquire("k", terms(LEASE)).0);
    assert_eq!(client.leave(&entered), Step::Left(Ok(())));
    assert!(client.is_woken(gone) && !client.is_woken(next));
    client.on(Input::Cancel(gone));
    assert!(client.is_woken(next) && client.sent().is_empty());
    let mut passed = client.clone_at(10);
    let hold = only(passed.poll(next));
    assert_eq!(hold.entry.owner, entered.entry.owner);
    assert_eq!(
        (hold.token, hold.began),
        (entered.token + 1, Some(By::Local))
    );

    client.tick(1_100);
    assert!(client.renewals().is_empty(), "no call has picked it up");
    client.on(Input::Cancel(next));
    let release = client.sent_one();
    assert_eq!(owner(&release), entered.entry.owner);
    client.reply(release, DONE);
    assert!(client.is_empty());
}

#[test]
fn several_locks_are_asked_for_together_and_none_is_kept_while_another_is_taken() {
    let mut client = Client::new();
    let (both, step) = client.acquire("a b", terms(LEASE));
    let request = asked(step);
    assert_eq!(request.claims.len(), 2);
    assert_eq!(client.refuse(request, 1, 0), Step::Wait);
    assert!(client.sent().is_empty(), "the store has neither");
    let (one, step) = client.acquire("a", terms(LEASE));
    client.on(Input::Event(key("b"), None, handed_off(8, false)));
    assert!(client.is_woken(both));
    assert_eq!(client.poll(both), Step::Wait, "another call asks for `a`");
    assert_eq!(client.sent_one().claims[0].key, key("b"));
    client.on(Input::Cancel(one));
    client.on(Input::Reply(asked(step), Reply::None));
    client.now = 10;
    let request = asked(client.poll(both));
    let keys: Vec<_> = request.claims.iter().map(|claim| &claim.key).collect();
    assert_eq!(keys, [&key("a"), &key("b")]);
    let step = client.grant(request, 9);
    let Step::Entered(entered) = step else {
        panic!("{step:?}");
    };
    assert!(entered.iter().all(|entered| entered.token == 9 * TOKENS));
    assert_eq!(entered.len(), 2);

    // The same while another call of the client has one of them.
    let mut client = Client::new();
    client.acquire("b", terms(LEASE));
    assert_eq!(client.acquire("a b", terms(LEASE)).1, Step::Wait);
    asked(client.acquire("a", terms(LEASE)).1);
}

/// A roll back may be executed after the next grant to the same owner.
#[test]
fn an_owner_whose_grant_may_be_taken_back_is_not_used_again() {
    let again = |needs_majority, keys, reply| {
        let mut client = Client::with(|settings| settings.needs_majority = needs_majority);
        let (call, step) = client.acquire(keys, terms(LEASE));
        let first = owner(&asked(step.clone()));
        client.reply(asked(step), reply);
        client.tick(100);
        let request = asked(client.poll(call));
        assert_eq!(owner(&request) == first, request.is_in_doubt());
        owner(&request) == first
    };
    assert!(again(false, "k", UNANSWERED));
    assert!(!again(false, "a b", UNANSWERED));
    // The reply that a majority is missing tells that the roll back has ended.
    assert!(again(true, "k", UNANSWERED));
    assert!(!again(true, "k", Reply::None));

    // The same while the request is under way.
    let follows = |needs_majority, keys| {
        let mut client = Client::with(|settings| settings.needs_majority = needs_majority);
        let (call, step) = client.acquire(keys, terms(LEASE));
        let (next, _) = client.acquire(keys, terms(LEASE));
        client.on(Input::Cancel(call));
        owner(&client.next(next)) == owner(&asked(step))
    };
    assert!(follows(false, "k"));
    assert!(!follows(false, "a b"));
    assert!(!follows(true, "k"));
}

#[test]
fn a_cancelled_acquire_is_released_behind_its_request_and_again_after_a_late_grant() {
    let mut client = Client::new();
    let (call, step) = client.acquire("k", terms(LEASE));
    client.on(Input::Cancel(call));
    let release = client.sent_one();
    assert!(release.is_in_doubt());
    client.on(Input::Reply(release, NOT_HELD));
    assert!(!client.is_empty(), "its reply is missing");
    client.grant(asked(step), FENCE);
    let release = client.sent_one();
    client.on(Input::Reply(release, DONE));
    assert!(client.is_empty() && client.losses().is_empty());
}

#[test]
fn a_call_inside_an_ended_hold_does_not_enter_the_next_hold_of_its_owner() {
    let (mut client, outer) = Client::holding(terms(LEASE));
    let (next, _) = client.acquire("k", terms(LEASE));
    client.leave(&outer);
    let next = only(client.poll(next));
    assert_eq!(next.entry.owner, outer.entry.owner);
    assert_eq!(client.nest(&outer, LEASE).1, Step::Wait);
}

#[test]
fn a_call_waits_for_a_silent_release_for_one_response_time_out() {
    let (mut client, entered) = Client::holding(terms(LONG));
    let release = asked(client.leave(&entered));
    assert_eq!(release.timeout, ms(2_000));
    client.now = 2_000;
    let step = client.reply(release, UNANSWERED);
    assert_eq!(step, Step::Refused(Refusal::Failed));
    client.tick(3_000);
    assert!(repeats(&client.sent_one()), "the background goes on");
}

#[test]
fn a_call_with_a_short_lease_waits_for_its_release_for_one_response_time_out_as_well() {
    let unsent = Failure {
        maybe_executed: false,
        transient: true,
    };
    let (mut client, entered) = Client::holding(terms(100));
    let release = asked(client.leave(&entered));
    client.now = 150;
    assert_eq!(client.reply(release, Reply::Failed(unsent)), Step::Wait);
    client.tick(200);
    assert!(client.sent_one().is_release());
}

#[test]
fn a_repeated_release_that_finds_nothing_has_succeeded() {
    let (mut client, entered) = Client::holding(terms(LEASE));
    let release = asked(client.leave(&entered));
    assert!(!repeats(&release));
    let call = release.call.expect("a call releases");
    assert_eq!(client.reply(release, UNANSWERED), Step::Wait);
    client.tick(20);
    let again = client.sent_one();
    assert!(repeats(&again) && again.is_in_doubt());
    client.on(Input::Reply(again, NOT_HELD));
    assert!(client.is_woken(call));
    assert_eq!(client.poll(call), Step::Left(Ok(())));
    assert!(client.losses().is_empty() && client.is_empty());
}

/// The store may still have its lock, or a copy of its acquire that joins the queue.
#[test]
fn an_owner_whose_release_is_refused_for_good_is_released_with_its_fence_when_the_store_tells_it() {
    let refused = Reply::Failed(Failure {
        maybe_executed: false,
        transient: false,
    });
    let fence = |release: &Request| match release.what {
        Ask::Release { fence, .. } => fence,
        _ => panic!("{release:?}"),
    };
    let mut client = Client::with(|settings| settings.needs_majority = true);
    let entered = client.hold(terms(LEASE));
    let release = asked(client.leave(&entered));
    let step = client.reply(release, refused.clone());
    assert_eq!(step, Step::Refused(Refusal::Failed));
    client.tick(100);
    assert!(client.sent().is_empty() && client.machine.is_released());
    let mut untold = client.clone_at(LEASE);
    untold.on(Input::Time);
    assert!(untold.is_empty(), "its lease has ended the lock");

    for event in [retry(LockMode::Exclusive, 10), handed_off(FENCE + 1, false)] {
        let owner = Some(entered.entry.owner);
        client.on(Input::Event(key("k"), owner, event));
        let again = client.sent_one();
        assert_eq!(fence(&again), FENCE);
        client.on(Input::Reply(again, refused.clone()));
    }
    client.tick(100 + LEASE);
    assert!(client.is_empty() && client.losses().is_empty());
}

/// A release that was not executed, or was sent after the lease ended, explains nothing.
#[test]
fn a_release_that_finds_nothing_at_first_is_a_loss_that_is_told_once() {
    let (mut client, entered) = Client::holding(terms(LEASE));
    let release = asked(client.leave(&entered));
    let unsent = Failure {
        maybe_executed: false,
        transient: true,
    };
    let call = release.call.expect("a call releases");
    client.reply(release, Reply::Failed(unsent));
    client.tick(20);
    let again = client.sent_one();
    client.on(Input::Reply(again, NOT_HELD));
    assert_eq!(client.losses(), [LostCause::Removed]);
    assert_eq!(client.poll(call), Step::Left(Err(LostCause::Removed)));

    let (mut client, entered) = Client::holding(terms(LEASE));
    client.now = 2_968;
    assert_eq!(client.leave(&entered), Step::Left(Err(LostCause::Expired)));
    assert_eq!(client.losses(), [LostCause::Expired]);
    let release = client.sent_one();
    assert!(!repeats(&release));
    client.on(Input::Reply(release, NOT_HELD));
    assert!(client.losses().is_empty() && client.is_empty());
}

#[test]
fn a_lock_stays_taken_for_its_min_hold() {
    let limit = with(|terms| terms.min_hold = Some(ms(500)));
    let (mut client, entered) = Client::holding(limit);
    let (call, _) = client.acquire("k", terms(LEASE));
    client.now = 100;
    let release = asked(client.leave(&entered));
    assert_eq!(kept(&release), ms(400));
    client.next(call);
}

#[test]
fn a_hold_that_did_not_succeed_leaves_its_lock_at_once_despite_min_hold() {
    let limit = with(|terms| terms.min_hold = Some(ms(500)));
    for end in [HoldEnd::Failed, HoldEnd::Panicked, HoldEnd::Cancelled] {
        let (mut client, entered) = Client::holding(limit);
        client.now = 100;
        client.end(&entered, end, None);
        assert_eq!(kept(&client.sent_one()), ms(0), "{end:?}");
    }
    let (mut client, entered) = Client::holding(limit);
    client.now = 100;
    assert_eq!(client.revoked(None, false), [Revoked::Lost]);
    client.leave_as(&entered, None);
    assert_eq!(kept(&client.sent_one()), ms(0), "asked to release");
}

#[test]
fn only_nested_calls_that_succeed_keep_the_lock_for_their_min_hold() {
    let limit = with(|terms| terms.min_hold = Some(ms(500)));
    for (of_inner, of_outer, until) in [
        (HoldEnd::Failed, HoldEnd::Released, ms(400)),
        (HoldEnd::Released, HoldEnd::Failed, ms(0)),
    ] {
        let (mut client, outer) = Client::holding(limit);
        let inner = client.enter(&outer, LEASE);
        client.now = 100;
        client.end(&inner, of_inner, None);
        client.end(&outer, of_outer, None);
        let release = client.sent_one();
        assert_eq!(self::kept(&release), until, "{of_inner:?}");
    }
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

#[test]
fn each_hold_has_a_token_of_its_own_and_a_new_fence_is_asked_for_in_time() {
    let (mut client, mut entered) = Client::holding(terms(LEASE));
    let (mut fence, mut asked) = (FENCE, 0);
    for _ in 0..500 {
        let (call, _) = client.acquire("k", terms(LEASE));
        client.leave(&entered);
        let next = only(client.poll(call));
        assert!(next.token > entered.token && next.entry.owner == entered.entry.owner);
        entered = next;
        client.tick(client.now + 1);
        for renew in client.renewals() {
            if renew.fence > 0 {
                assert_eq!(renew.fence, fence + 1);
                (fence, asked) = (renew.fence, asked + 1);
            }
            client.renewed(&renew, client.now, Some(held(false, renew.fence)));
        }
    }
    assert!((4..=8).contains(&asked), "{asked}");
    assert!(client.sent().is_empty());
}

/// Returns a client whose tokens ran out before their renewal brought a fence, and the call that waits for it.
fn out_of_tokens() -> (Client, CallId, Renew) {
    let (mut client, mut entered) = Client::holding(terms(LEASE));
    for n in 1..=TOKENS {
        let (call, _) = client.acquire("k", terms(LEASE));
        assert_eq!(client.leave(&entered), Step::Left(Ok(())));
        if n == TOKENS {
            assert_eq!(client.poll(call), Step::Wait);
            client.tick(10);
            let renew = client.renewal();
            assert_eq!(renew.fence, FENCE + 1);
            return (client, call, renew);
        }
        entered = only(client.poll(call));
    }
    unreachable!("the tokens end");
}

#[test]
fn a_lock_without_tokens_waits_for_them_with_its_next_call() {
    let (mut client, call, renew) = out_of_tokens();
    client.renewed(&renew, 10, Some(held(false, FENCE + 1)));
    assert!(client.is_woken(call));
    assert_eq!(only(client.poll(call)).token, (FENCE + 1) * TOKENS);

    // Without a reply it waits for a second.
    let (mut client, call, _) = out_of_tokens();
    client.tick(999);
    assert!(client.sent().is_empty());
    client.tick(1_000);
    assert_ne!(owner(&client.next(call)), owner(&client.sent_one()));
}

#[test]
fn an_attempt_waits_for_the_tokens_of_a_retained_lock() {
    let (mut client, mut entered) = Client::holding(retained());
    let attempt = with(|terms| (terms.retain, terms.wait) = (ms(10_000), Wait::Never));
    for _ in 1..TOKENS {
        assert_eq!(client.leave(&entered), Step::Left(Ok(())));
        entered = only(client.acquire("k", attempt).1);
    }
    client.leave(&entered);
    let (call, step) = client.acquire("k", attempt);
    assert_eq!(step, Step::Wait);
    client.tick(10);
    let renew = client.renewal();
    assert!(!client.is_woken(call));
    client.renewed(&renew, 10, Some(held(false, FENCE + 1)));
    assert!(client.is_woken(call));
    assert_eq!(only(client.poll(call)).token, (FENCE + 1) * TOKENS);
}

#[test]
fn an_attempt_is_refused_when_the_tokens_that_it_waits_for_do_not_come() {
    let (mut client, call, _) = out_of_tokens();
    let (attempt, step) = client.acquire("k", with(|terms| terms.wait = Wait::Never));
    assert_eq!(step, Step::Wait);
    client.tick(1_000);
    // The other call asks, and the attempt waits for that.
    let request = client.next(call);
    assert!(!client.is_woken(attempt));
    only(client.grant(request, FENCE + 1));
    assert!(client.is_woken(attempt));
    let refused = client.poll(attempt);
    assert!(matches!(refused, Step::Refused(Refusal::Taken(..))));
}

#[test]
fn a_lock_without_calls_is_released_when_its_tokens_arrive() {
    let (mut client, call, renew) = out_of_tokens();
    client.on(Input::Cancel(call));
    client.renewed(&renew, 10, Some(held(false, FENCE + 1)));
    assert_eq!(client.sent().len(), 1);
}

#[test]
fn a_client_that_drains_serves_calls_that_wait_or_are_inside_a_hold() {
    let (mut client, entered) = Client::holding(retained());
    let (call, _) = client.acquire("k", retained());
    client.on(Input::Drain);
    let refused = client.acquire("k", terms(LEASE)).1;
    assert_eq!(refused, Step::Refused(Refusal::Draining));
    let begin = |client: &mut Client| {
        let other = one(wanted("other", LockMode::Exclusive));
        client.begin(other, inside(&entered), terms(LEASE)).1
    };
    asked(begin(&mut client));
    client.leave(&entered);
    // Nothing needs the locks of a call whose hold has ended.
    assert_eq!(begin(&mut client), Step::Refused(Refusal::Draining));
    let next = only(client.poll(call));
    assert!(!client.machine.is_drained());
    assert!(asked(client.leave(&next)).is_release(), "not retained");
}

#[test]
fn a_client_that_closes_loses_its_holds_and_releases_those_without_a_body() {
    for has_body in [false, true] {
        let (mut client, entered) = Client::holding(terms(LEASE));
        if has_body {
            client.on(Input::Run(entered.entry.clone()));
        }
        client.on(Input::Close);
        assert_eq!(client.losses(), [LostCause::Closed]);
        assert_eq!(client.machine.is_quiet(), !has_body);
        assert_eq!(client.sent().len(), usize::from(!has_body));
        assert_eq!(client.leave(&entered), Step::Left(Err(LostCause::Closed)));
        assert_eq!(client.sent().len(), usize::from(has_body));
        let refused = client.acquire("k", terms(LEASE)).1;
        assert_eq!(refused, Step::Refused(Refusal::Closed));
    }
}

#[test]
fn a_client_that_closes_asks_for_no_call_that_waits() {
    let (mut client, _) = Client::holding(terms(LEASE));
    let (call, _) = client.acquire("k", terms(LEASE));
    client.on(Input::Close);
    assert!(client.is_woken(call));
    assert_eq!(client.poll(call), Step::Refused(Refusal::Closed));
    client.sent_one();
}

#[test]
fn a_client_that_has_ended_asks_and_waits_for_nothing() {
    let (mut client, entered) = Client::holding(terms(LEASE));
    let release = asked(client.leave(&entered));
    let call = release.call.expect("a call releases");
    client.on(Input::End);
    client.on(Input::Reply(release, Reply::None));
    assert_eq!(client.poll(call), Step::Left(Err(LostCause::Closed)));
    client.tick(10_000);
    assert!(client.sent().is_empty());
    let refused = client.acquire("k", terms(LEASE)).1;
    assert_eq!(refused, Step::Refused(Refusal::Closed));
}

#[test]
fn a_client_that_has_ended_releases_nothing() {
    let (mut client, entered) = Client::holding(terms(LEASE));
    client.on(Input::End);
    assert_eq!(client.leave(&entered), Step::Left(Err(LostCause::Closed)));
    assert!(client.sent().is_empty());
}

#[test]
fn a_release_whose_reply_comes_twice_ends_nothing_else() {
    let (mut client, entered) = Client::holding(terms(LEASE));
    client.event(Event::Wanted);
    let (call, _) = client.acquire("k", terms(LEASE));
    let release = asked(client.leave(&entered));
    let next = client.next(call);
    let twice = release.clone();
    client.reply(release, DONE);
    let entered = only(client.grant(next, 8));
    client.on(Input::Reply(twice, NOT_HELD));
    assert!(client.own().has(entered.entry.number) && client.losses().is_empty());
}

#[test]
fn a_call_that_is_polled_when_its_wait_for_tokens_has_ended_gets_the_turn_and_is_woken() {
    let (mut client, call, _) = out_of_tokens();
    client.now = 1_000;
    assert!(client.poll(call) == Step::Wait && client.is_woken(call));
    asked(client.poll(call));
}

/// The limit of the attempts at a release is the longest lease that was asked for.
#[test]
fn the_release_of_an_owner_that_several_calls_asked_with_is_repeated_for_the_longest_lease() {
    let mut client = Client::new();
    let (first, step) = client.acquire("k", terms(LEASE));
    client.refuse(asked(step), 0, 0);
    let (second, _) = client.acquire("k", terms(60_000));
    client.on(Input::Cancel(first));
    client.now = 3_100;
    let request = asked(client.poll(second));
    client.on(Input::Reply(request, Reply::None));
    client.on(Input::Cancel(second));
    let owner_of = |request: &Request| request.claims[0].owner;
    let release = client.sent_one();
    let owner = owner_of(&release);
    client.on(Input::Reply(release, UNANSWERED));
    client.tick(20_000);
    client.tick(20_100);
    assert_eq!(owner_of(&client.sent_one()), owner);
}

#[test]
fn an_attempt_that_is_polled_when_a_release_is_given_up_asks_at_once() {
    let (mut client, entered) = Client::holding(terms(LEASE));
    client.leave_as(&entered, None);
    let release = client.sent_one();
    client.on(Input::Reply(release, UNANSWERED));
    // The lease has ended the lock.
    client.now = LEASE + 10;
    let (call, step) = client.acquire("k", with(|terms| terms.wait = Wait::Never));
    assert!(step == Step::Wait && client.is_woken(call));
    asked(client.poll(call));
}

#[test]
fn a_release_that_finds_no_lock_after_its_lease_reports_that_the_lease_has_ended() {
    for (now, cause) in [
        (LEASE - 100, LostCause::Removed),
        (LEASE + 100, LostCause::Expired),
    ] {
        let (mut client, entered) = Client::holding(terms(LEASE));
        client.now = LEASE - 200;
        let release = asked(client.leave(&entered));
        client.now = now;
        assert_eq!(client.reply(release, NOT_HELD), Step::Left(Err(cause)));
    }
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
