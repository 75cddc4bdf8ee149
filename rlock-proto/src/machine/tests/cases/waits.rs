//! Calls with a short wait are as patient as those without one.

use super::*;
use crate::few::Few;

/// Waits that end before the reply to the first request, and none.
const SHORT: [Wait; 4] = [
    Wait::Never,
    Wait::For(Duration::ZERO),
    Wait::For(ms(1)),
    Wait::For(ms(20)),
];
const LATER: u64 = 20;

fn waits(wait: Wait) -> LockOptions {
    with(|terms| terms.wait = wait)
}

#[test]
fn the_first_request_has_the_response_time_out_however_short_the_wait() {
    for wait in SHORT
        .into_iter()
        .chain([Wait::For(ms(5_000)), Wait::Forever])
    {
        let (mut client, _, request) = Client::asking(waits(wait));
        assert_eq!(request.timeout, ms(2_000), "{wait:?}");
        let mut refused = client.clone_at(LATER);
        client.now = LATER;
        only(client.grant(request.clone(), FENCE));
        let step = refused.refuse(request, 0, 0);
        assert_eq!(is_taken(&step), SHORT.contains(&wait), "{wait:?}: {step:?}");
    }
}

#[test]
fn a_request_after_the_first_reply_ends_with_the_wait_and_hides_no_holder() {
    let (mut client, call, request) = Client::asking(waits(Wait::For(ms(50))));
    client.refuse(request, 0, 0);
    client.now = 30;
    client.event(retry(LockMode::Exclusive, 0));
    let again = client.next(call);
    assert_eq!(again.timeout, ms(20));
    client.now = 50;
    let step = client.reply(again, UNANSWERED);
    assert_taken(&step);
}

#[test]
fn a_short_wait_confirms_a_grant_after_a_reported_change() {
    for wait in SHORT {
        let (mut client, _, request) = Client::asking(waits(wait));
        client.event(Event::Changed);
        client.now = LATER;
        let again = asked(client.reply(request, granted(FENCE, 1, 0)));
        client.now += LATER;
        only(client.grant(again, FENCE));
    }
}

#[test]
fn a_short_wait_follows_the_release_of_its_own_client() {
    for wait in SHORT {
        let (mut client, entered) = Client::holding(terms(LEASE));
        client.leave_as(&entered, None);
        let release = client.sent_one();
        let (call, step) = client.acquire("k", waits(wait));
        assert_eq!(step, Step::Wait, "{wait:?}");
        client.now = LATER;
        client.on(Input::Reply(release, DONE));
        let request = client.next(call);
        assert_eq!(request.timeout, ms(2_000));
        client.now += LATER;
        only(client.grant(request, FENCE));
    }
}

#[test]
fn a_call_with_a_short_wait_uses_the_reply_to_the_call_before_it() {
    for wait in SHORT {
        let reader = with(|terms| (terms.mode, terms.wait) = (LockMode::Shared, wait));
        let mut client = Client::new();
        let (_, first) = client.acquire("k", reader);
        let second = client.queue("k", reader);
        client.tick(LATER);
        assert_eq!(client.poll(second), Step::Wait, "{wait:?}");
        let mut refused = client.clone_at(2 * LATER);
        client.now = 2 * LATER;
        let entered = only(client.grant(asked(first.clone()), FENCE));
        assert!(client.is_woken(second));
        assert_eq!(only(client.poll(second)).token, entered.token);
        assert!(is_taken(&refused.refuse(asked(first), 0, 0)));
        assert!(refused.is_woken(second));
        match refused.poll(second) {
            // An attempt asks for itself.
            Step::Send(_) => assert!(wait.is_none()),
            step => assert!(is_taken(&step), "{step:?}"),
        }
    }
}

#[test]
fn a_short_wait_asks_again_while_no_owner_has_a_majority() {
    for wait in SHORT {
        let mut client = Client::with(|settings| settings.needs_majority = true);
        let (call, step) = client.acquire("k", waits(wait));
        client.now = LATER;
        assert_eq!(client.split(asked(step)), Step::Wait, "{wait:?}");
        client.tick(client.now + LATER);
        let request = client.next(call);
        assert_eq!(request.timeout, ms(2_000 - 2 * LATER));
        client.now += LATER;
        only(client.grant(request, FENCE));
    }
}

/// The call behind has not asked yet, and one request without a reply says nothing about the lock.
#[test]
fn a_short_wait_behind_a_request_without_a_reply_asks_for_itself() {
    for wait in SHORT {
        let mut client = Client::new();
        let (_, first) = client.acquire("k", waits(wait));
        client.now = 1;
        let call = client.queue("k", waits(wait));
        client.tick(LATER + 1);
        assert_eq!(client.poll(call), Step::Wait);
        client.now = 2_000;
        let failed = Step::Refused(Refusal::Failed);
        assert_eq!(client.reply(asked(first), UNANSWERED), failed);
        let request = client.next(call);
        assert_eq!(request.timeout, ms(2_000), "{wait:?}");
        client.now = 4_000;
        assert_eq!(client.reply(request, UNANSWERED), failed);
    }
}

/// The lock that came in time is the one that others had.
#[test]
fn a_call_whose_first_lock_ends_while_it_waits_for_the_second_is_told_that_the_second_stayed_taken()
{
    for (second, is_in_time) in [(200, true), (0, false)] {
        let brief = |lease, wait| with(|terms| (terms.lease, terms.wait) = (ms(lease), wait));
        let mut client = Client::new();
        let (_, step) = client.acquire("a", brief(100, Wait::Forever));
        let held = only(client.grant(asked(step), FENCE));
        let call = client.queue("a b", brief(100, Wait::For(ms(150))));
        client.leave_as(&held, None);
        let request = client.next(call);
        assert_eq!(request.claims.len(), 1, "the client has `a` already");
        client.now = 250;
        let step = client.reply(request, granted(FENCE, 1, second));
        let taken = |key: &Key| matches!(&step, Step::Refused(Refusal::Taken(of, ..)) if of == key);
        assert_eq!(taken(&key("b")), is_in_time, "{step:?}");
        assert!(
            is_in_time || step == Step::Refused(Refusal::Failed),
            "{step:?}"
        );
    }
}

#[test]
fn a_short_wait_behind_a_call_that_is_cancelled_asks_for_itself() {
    for wait in SHORT {
        let mut client = Client::new();
        let (gone, _) = client.acquire("k", terms(LEASE));
        let call = client.queue("k", waits(wait));
        client.tick(LATER);
        assert_eq!(client.poll(call), Step::Wait, "{wait:?}");
        client.on(Input::Cancel(gone));
        let request = client.next(call);
        assert_eq!(request.timeout, ms(2_000), "{wait:?}");
        client.now += LATER;
        only(client.grant(request, FENCE));
    }
}

/// The turn comes too late for a request, but not because of a failure.
#[test]
fn a_wait_that_has_ended_in_the_line_sends_no_request() {
    let mut client = Client::new();
    let (gone, _) = client.acquire("k", terms(LEASE));
    let call = client.queue("k", waits(Wait::For(ms(3_000))));
    client.now = 3_000;
    client.on(Input::Cancel(gone));
    let step = client.poll(call);
    assert_taken(&step);
}

#[test]
fn a_short_wait_behind_a_call_whose_requests_fail_does_not_call_the_lock_taken() {
    for (is_refused, failure) in [
        (false, UNANSWERED),
        (false, NOT_EXECUTED),
        (true, UNANSWERED),
    ] {
        for wait in SHORT {
            let (mut client, first, mut request) = Client::asking(terms(LONG));
            if is_refused {
                client.refuse(request, 0, 0);
                client.tick(1_100);
                request = client.next(first);
            }
            client.now += 1;
            let call = client.queue("k", waits(wait));
            client.now += LATER;
            client.tick(client.now);
            assert_eq!(client.poll(call), Step::Wait, "{wait:?}");
            // The first call pauses before it asks again, and is not polled.
            client.now += 1_900;
            assert_eq!(client.reply(request, failure.clone()), Step::Wait);
            client.tick(client.now + 100);
            let step = client.poll(call);
            let expected = if is_refused {
                is_taken(&step)
            } else {
                step == Step::Refused(Refusal::Failed)
            };
            assert!(expected, "{is_refused}, {wait:?}: {step:?}");
        }
    }
}

#[test]
fn a_short_wait_behind_served_calls_ends_with_a_taken_lock() {
    for wait in SHORT {
        let (mut client, _, request) = Client::asking(terms(LONG));
        let next = client.queue("k", terms(LEASE));
        let call = client.queue("k", waits(wait));
        client.now = 1;
        let held = only(client.grant(request, FENCE));
        client.tick(LATER);
        client.leave_as(&held, None);
        client.next(next);
        client.tick(2_000);
        assert_taken(&client.poll(call));
    }
}

/// The client had the lock until shortly before, so the store need not have said who has it.
#[test]
fn a_short_wait_behind_a_hold_that_has_just_ended_ends_with_a_taken_lock() {
    for is_detached in [false, true] {
        let (mut client, held) = Client::holding(terms(LEASE));
        client.tick(1);
        let next = client.queue("k", terms(LONG));
        let call = client.queue("k", waits(Wait::For(ms(1_980))));
        client.tick(1_950);
        if is_detached {
            client.on(Input::Detach(held.entry.clone()));
        } else {
            client.leave_as(&held, None);
        }
        client.next(next);
        client.tick(1_981);
        assert_eq!(client.poll(call), Step::Wait);
        client.tick(2_001);
        assert_taken(&client.poll(call));
    }
}

#[test]
fn what_the_store_said_before_a_short_wait_does_not_call_the_lock_taken() {
    for wait in SHORT {
        let (mut client, held) = Client::holding(terms(LONG));
        client.tick(1);
        client.leave_as(&held, None);
        let (_, step) = client.acquire("k", terms(LONG));
        client.tick(2);
        let call = client.queue("k", waits(wait));
        client.tick(2_001);
        assert_eq!(client.reply(asked(step), UNANSWERED), Step::Wait);
        client.tick(2_100);
        assert_eq!(client.poll(call), Step::Refused(Refusal::Failed));
    }
}

/// Its request was answered, so it has not failed.
#[test]
fn a_call_whose_grant_is_taken_by_force_at_the_end_of_its_wait_is_told_that_the_lock_is_taken() {
    for wait in SHORT.into_iter().chain([Wait::For(ms(3_000))]) {
        let (mut client, call, mut request) = Client::asking(waits(wait));
        if wait == Wait::For(ms(3_000)) {
            client.now = 2_000;
            client.reply(request, UNANSWERED);
            client.tick(2_500);
            request = client.next(call);
        }
        assert_eq!(client.revoked(None, true), [Revoked::Given]);
        let mut early = client.clone();
        client.now = 2_000.max(client.now + 500);
        let late = granted(FENCE, 1, client.now);
        let step = client.reply(request.clone(), late);
        assert!(is_taken(&step), "{wait:?}: {step:?}");
        early.now += LATER;
        let again = asked(early.grant(request, FENCE));
        early.now += LATER;
        only(early.grant(again, FENCE + 1));
    }
}

/// No notification arrives, so a fixed pause would be too long at first, or send too many requests later.
#[test]
fn a_waiter_that_its_store_cannot_notify_asks_again_after_growing_pauses() {
    let (mut client, call, request) = Client::asking(waits(Wait::Forever));
    let (mut request, mut pauses) = (request, Vec::new());
    for _ in 0..8 {
        let place = QueuePlace {
            asks: Asks::Polling,
            ..QueuePlace::BEHIND
        };
        client.refuse_at(request, place, ms(60_000));
        let began = client.now;
        while !client.is_woken(call) {
            client.tick(client.now + 1);
        }
        pauses.push(client.now - began);
        request = asked(client.poll(call));
    }
    assert!(pauses[0] <= 25 && pauses[7] >= 250, "{pauses:?}");
    assert!(pauses.iter().all(|pause| *pause <= 530), "{pauses:?}");
    client.refuse_at(request, QueuePlace::BEHIND, ms(60_000));
    client.tick(client.now + 4_000);
    assert!(!client.is_woken(call), "it is notified now");
}

/// Each of them has the turn for one key, whose release is under way, and an entry in a hold of the other key.
#[test]
fn calls_that_wait_for_releases_do_not_wake_each_other() {
    let mut client = Client::new();
    let mut hold = |key, terms| {
        let request = asked(client.acquire(key, terms).1);
        let entered = only(client.grant(request, FENCE));
        (terms.mode == LockMode::Exclusive).then(|| client.leave_as(&entered, None));
        entered
    };
    let shared = with(|terms| terms.mode = LockMode::Shared);
    let outer = ["a", "b"].map(|key| (hold(key, terms(LEASE)), hold(key, shared)).1);
    let [_, release] = client.sent().try_into().expect("both are released");
    let [first, second] = [0, 1].map(|entered| {
        let mode = |n| [LockMode::Exclusive, LockMode::Shared][usize::from(n == entered)];
        let locks = Few::from_iter([wanted("a", mode(0)), wanted("b", mode(1))]);
        let (call, step) = client.begin(locks, inside(&outer[entered]), waits(Wait::For(ms(50))));
        assert_eq!(step, Step::Wait);
        call
    });
    assert!(!client.is_woken(first));
    assert_eq!(client.poll(first), Step::Wait);
    assert!(!client.is_woken(second));
    client.reply(Box::new(release), DONE);
    assert!(!client.is_woken(second));
    assert_eq!(client.next(first).claims[0].key, key("b"));
}
