//! What a call asks the store for, and what it makes of the replies and the messages.

use std::collections::VecDeque;

use uuid::Uuid;

use super::*;

#[test]
fn a_call_asks_the_store_and_its_release_leaves_nothing() {
    let (mut client, call, request) = Client::asking(terms(LEASE));
    assert_eq!(client.poll(call), Step::Wait);
    let entered = only(client.grant(request, FENCE));
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
    let (mut client, call, request) = Client::asking(terms(LEASE));
    assert_eq!(client.refuse(request, 0, 0), Step::Wait);
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
        let (mut client, call, request) = Client::asking(terms);
        let owner = owner(&request);
        client.refuse(request, 0, 0);
        client.event(handed_off(8, false));
        client.now = late;
        let again = asked(client.poll(call));
        assert_eq!(again.claims[0].owner, owner);
        assert_eq!(only(client.grant(again, 8)).token, 8 * TOKENS);
    }
}

#[test]
fn a_message_about_an_ended_grant_says_nothing_about_the_present_one() {
    let (mut client, call, request) = Client::asking(terms(LEASE));
    client.refuse(request, 0, 7);
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
        let (mut client, call, request) = Client::asking(with(|terms| terms.mode = mode));
        let gone = owner(&request);
        client.refuse(request, 0, 0);
        client.on(Input::Cancel(call));
        client.reply_to_sent(NOT_HELD);
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
    let (mut client, call, request) = Client::asking(terms(LEASE));
    client.refuse(request, 0, 0);
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
    let call = client.queue("k", with(|terms| terms.wait = Wait::Never));
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

/// Without replies to its last request, the attempt could not say why it got no lock.
#[test]
fn an_attempt_asks_for_a_majority_again_only_while_the_servers_have_time_to_reply() {
    let refused = Step::Refused(Refusal::Split);
    for (now, expected) in [(1_799, Step::Wait), (1_800, refused)] {
        let mut client = Client::with(|settings| settings.needs_majority = true);
        let (_, step) = client.acquire("k", with(|terms| terms.wait = Wait::Never));
        client.now = now;
        assert_eq!(client.split(asked(step)), expected);
    }
    // A call that waits asks until its wait ends.
    let mut client = Client::with(|settings| settings.needs_majority = true);
    let (call, step) = client.acquire("k", with(|terms| terms.wait = Wait::For(ms(1_950))));
    client.now = 1_900;
    assert_eq!(client.split(asked(step)), Step::Wait);
    client.tick(1_950);
    let request = client.next(call);
    let refused = Step::Refused(Refusal::Taken(key("k"), None));
    assert_eq!(client.split(request), refused);
}

#[test]
fn an_attempt_is_not_refused_because_the_one_before_it_got_no_majority() {
    let mut client = Client::with(|settings| settings.needs_majority = true);
    let attempt = with(|terms| terms.wait = Wait::Never);
    let (_, step) = client.acquire("k", attempt);
    let (second, _) = client.acquire("k", attempt);
    client.now = 10;
    assert_eq!(client.split(asked(step)), Step::Wait);
    assert_eq!(client.poll(second), Step::Wait);
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
        past_fences: one(Some(7)),
        retired: false,
        by: TakenBy::Unnamed,
    });
    client.on(Input::Reply(early, refused));
    assert!(client.own().has(entered.entry.number) && client.losses().is_empty());
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
fn a_change_that_is_reported_before_the_reply_makes_a_call_ask_again() {
    let (mut client, _, mut request) = Client::asking(terms(LEASE));
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
    let (mut client, first, request) = Client::asking(terms(LEASE));
    let (second, _) = client.acquire("k", terms(LEASE));
    assert_eq!(client.machine.contended(first), None);
    client.refuse(request, 0, 0);
    assert_eq!(client.machine.contended(first), Some(&key("k")));
    assert_eq!(client.machine.contended(second), None);
    client.on(Input::Cancel(first));
    assert_eq!(client.poll(second), Step::Wait);
    assert_eq!(client.machine.contended(second), Some(&key("k")));
    client.event(handed_off(8, false));
    assert_eq!(client.machine.contended(second), None);
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

/// Otherwise, two clients that each have what the other one lacks would swap their locks again and again.
#[test]
fn a_refused_call_gives_a_later_lock_up_at_once_and_an_earlier_one_soon() {
    for (taken, other, keeps) in [(0, "b", false), (1, "a", true)] {
        let mut client = Client::new();
        let (both, step) = client.acquire("a b", terms(LEASE));
        assert_eq!(client.refuse_only(asked(step), taken), Step::Wait);
        if keeps {
            client.tick(9);
            assert!(client.sent().is_empty() && !client.is_woken(both));
            client.tick(10);
            assert!(client.is_woken(both) && client.poll(both) == Step::Wait);
        }
        let release = client.sent_one();
        assert!(release.is_release() && release.claims[0].key == key(other));
    }

    let mut client = Client::new();
    let (both, step) = client.acquire("a b", terms(LEASE));
    let first = asked(step);
    client.refuse_only(first.clone(), 1);
    client.on(Input::Event(key("b"), None, handed_off(8, false)));
    let again = client.next(both);
    assert!(client.sent().is_empty() && again.claims.len() == 2);
    assert_eq!(owner(&again), owner(&first), "it has kept `a`");
}

/// A hold left `k` to the call, which names it in its request if it was confirmed long ago.
#[test]
fn a_refused_call_keeps_what_a_hold_left_for_a_moment_if_the_store_may_have_it() {
    let refused = |keys: &str, named: bool, refuse: fn(&mut Client, Box<Request>) -> Step| {
        let (mut client, entered) = Client::holding(terms(LEASE));
        let call = client.queue(keys, terms(LEASE));
        client.leave(&entered);
        client.now = if named { LEASE / 2 } else { 0 };
        let request = client.next(call);
        assert_eq!(request.claims.len(), keys.len() / 2 + usize::from(named));
        let step = refuse(&mut client, request);
        (step, client.sent().is_empty(), entered.entry.owner)
    };
    let keeps = |named, refuse| matches!(refused("k z", named, refuse), (Step::Wait, true, _));
    assert!(keeps(true, |client, it| client.refuse_only(it, 1)));
    assert!(!keeps(true, |client, it| client.refuse(it, 1, 0)));
    assert!(keeps(false, |client, it| client.refuse(it, 0, 0)));
    assert!(!keeps(false, Client::split), "the next request is far");
    let (step, _, first) = refused("k", true, |client, it| client.refuse(it, 0, 0));
    assert_ne!(owner(&asked(step)), first);
}

#[test]
fn a_refused_call_that_waits_for_a_release_ends_in_time() {
    let (mut client, entered) = Client::holding(terms(LEASE));
    let (call, _) = client.acquire("k", with(|terms| terms.wait = Wait::For(ms(100))));
    client.leave(&entered);
    client.event(Event::Changed);
    let request = client.next(call);
    assert_eq!(client.refuse(request, 0, 0), Step::Wait);
    client.tick(100);
    assert!(client.is_woken(call) && is_taken(&client.poll(call)));
}

/// The request for the other lock is under way when the report arrives, so the call is not polled in between.
#[test]
fn a_call_asks_again_for_a_lock_that_changed_while_it_asked_for_another_one() {
    let (mut client, entered) = Client::holding(terms(LEASE));
    let both = client.queue("k j", terms(LEASE));
    client.leave(&entered);
    let request = client.next(both);
    assert_eq!(request.claims.len(), 1, "it owns the other one");
    client.on(Input::Event(key("j"), None, handed_off(8, false)));
    client.event(Event::Changed);
    client.now = 1;
    let again = asked(client.refuse(request, 0, 0));
    assert_eq!(again.claims[0].key, key("k"));
}

#[test]
fn a_call_gives_up_what_other_masters_have_granted_when_its_request_fails() {
    let mut client = Client::new();
    let (both, step) = client.acquire("a b", terms(LEASE));
    let first = asked(step);
    let failure = Failure {
        maybe_executed: false,
        transient: true,
    };
    let failed = Reply::FailedInPart(one(0), failure);
    assert_eq!(client.reply(first.clone(), failed), Step::Wait);
    assert_eq!(owner(&client.sent_one()), owner(&first));
    client.tick(100);
    let again = asked(client.poll(both));
    let are_kept = first
        .claims
        .iter()
        .zip(&again.claims)
        .map(|(one, next)| one.owner == next.owner);
    assert!(are_kept.eq([false, true]));
}

/// The call has waited for `a` in its client, and no other client has it.
#[test]
fn a_call_that_got_the_lock_it_has_waited_for_reports_why_it_lacks_another_one() {
    for (granted, is_reported) in [(0, true), (1, false)] {
        let mut client = Client::new();
        let (first, step) = client.acquire("a", terms(LEASE));
        let both = client.queue("a b", with(|terms| terms.wait = Wait::For(ms(5_000))));
        client.on(Input::Cancel(first));
        client.on(Input::Reply(asked(step), Reply::None));
        let request = client.next(both);
        client.now = 5_000;
        let failed = Reply::FailedInPart(one(granted), Failure::UNANSWERED);
        let step = client.reply(request, failed);
        assert_eq!(is_taken(&step), !is_reported);
        assert_eq!(step == Step::Refused(Refusal::Failed), is_reported);
    }
}

/// A roll back may be executed after the next grant to the same owner.
#[test]
fn an_owner_whose_grant_may_be_taken_back_is_not_used_again() {
    let again = |needs_majority, reply| {
        let mut client = Client::with(|settings| settings.needs_majority = needs_majority);
        let (call, step) = client.acquire("k", terms(LEASE));
        let first = owner(&asked(step.clone()));
        client.reply(asked(step), reply);
        client.tick(100);
        let request = asked(client.poll(call));
        assert_eq!(owner(&request) == first, request.is_in_doubt());
        owner(&request) == first
    };
    assert!(again(false, UNANSWERED));
    // The reply that a majority is missing tells that the roll back has ended.
    assert!(again(true, UNANSWERED));
    assert!(!again(true, Reply::None));

    // The same while the request is under way.
    let follows = |needs_majority| {
        let mut client = Client::with(|settings| settings.needs_majority = needs_majority);
        let (call, step) = client.acquire("k", terms(LEASE));
        let (next, _) = client.acquire("k", terms(LEASE));
        client.on(Input::Cancel(call));
        owner(&client.next(next)) == owner(&asked(step))
    };
    assert!(follows(false) && !follows(true));
}

#[test]
fn a_cancelled_acquire_is_released_behind_its_request_and_again_after_a_late_grant() {
    let (mut client, call, request) = Client::asking(terms(LEASE));
    client.on(Input::Cancel(call));
    let release = client.sent_one();
    assert!(release.is_in_doubt());
    client.on(Input::Reply(release, NOT_HELD));
    assert!(!client.is_empty(), "its reply is missing");
    client.grant(request, FENCE);
    client.reply_to_sent(DONE);
    assert!(client.is_empty() && client.losses().is_empty());
}

#[test]
fn an_owner_whose_acquire_has_no_answer_is_released_although_a_later_one_was_refused() {
    let (mut client, call, request) = Client::asking(terms(LEASE));
    let first = owner(&request);
    client.reply(request, UNANSWERED);
    client.tick(100);
    let again = asked(client.poll(call));
    assert_eq!(owner(&again), first);
    let refused = Acquired::Taken {
        claim: 0,
        ttl: Some(ms(1_000)),
        queued: None,
        sent_at: at(100),
        past_fences: one(Some(0)),
        retired: false,
        by: TakenBy::Unnamed,
    };
    client.reply(again, Reply::Acquired(refused));
    client.on(Input::Cancel(call));
    let release = client.sent_one();
    assert!(owner(&release) == first && !release.is_in_doubt());
    let StoreRequest::Change(Change::Release(release)) = release.for_store(Uuid::nil()) else {
        panic!("{release:?}");
    };
    assert!(release.refuses_late);
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
fn each_lock_of_a_call_is_asked_for_in_its_own_mode() {
    let mut client = Client::new();
    let modes = [
        LockMode::Shared,
        LockMode::Permits { take: 1, of: 3 },
        LockMode::Exclusive,
    ];
    let keys =
        [("j", modes[0]), ("k", modes[1]), ("l", modes[2])].map(|(name, mode)| wanted(name, mode));
    let (_, step) = client.begin(
        keys.into_iter().collect(),
        crate::few::Few::new(),
        terms(LEASE),
    );
    let asked = asked(step);
    assert!(asked.claims.iter().map(|claim| claim.mode).eq(modes));
}

/// Each call that is offered a turn finds that of its other key with the next call.
#[test]
fn calls_do_not_offer_each_other_their_turns_in_a_circle() {
    for calls in 3..12 {
        let mut client = Client::new();
        let (_, first) = client.acquire("a b c", terms(LONG));
        let keys = ["a b", "b c", "a c"].into_iter().cycle();
        for keys in keys.take(calls) {
            client.queue(keys, terms(LONG));
        }
        let mut step = client.grant(asked(first), FENCE);
        let (mut woken, mut polls, mut served) = (VecDeque::new(), 0, 0);
        loop {
            if let Step::Entered(held) = step {
                served += 1;
                held.iter().for_each(|entered| drop(client.leave(entered)));
            }
            woken.extend(client.take(|output| match output {
                Output::Wake(call) => Some(*call),
                _ => None,
            }));
            let Some(call) = woken.pop_front() else {
                break;
            };
            polls += 1;
            assert!(polls < 1_000, "{calls} calls wake each other");
            step = client.poll(call);
            if let Step::Send(request) = step {
                step = client.grant(request, FENCE);
            }
        }
        assert_eq!(served, calls + 1);
    }
}

/// Wound-wait: of two calls that lack each other's turn, the older one goes on.
#[test]
fn an_offered_turn_goes_to_an_older_call_for_several_locks_and_not_to_a_younger_one() {
    for is_older in [true, false] {
        let mut client = Client::new();
        let hold = |client: &mut Client, key| {
            let (_, step) = client.acquire(key, terms(LONG));
            only(client.grant(asked(step), FENCE))
        };
        let (a, b) = (hold(&mut client, "a"), hold(&mut client, "b"));
        let mut queue = |keys| client.queue(keys, terms(LONG));
        let (both, one) = if is_older {
            (queue("a b"), queue("b"))
        } else {
            let one = queue("b");
            (queue("a b"), one)
        };
        client.leave(&b);
        client.leave(&a);
        assert!(client.is_woken(one) && client.is_woken(both));
        assert_eq!(client.poll(both) != Step::Wait, is_older);
        assert_eq!(client.poll(one) != Step::Wait, !is_older);
    }
}
