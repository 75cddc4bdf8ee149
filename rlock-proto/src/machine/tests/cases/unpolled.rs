//! Futures that are not polled: they keep no other call waiting, and no lock after the client has closed.

use super::{client::*, *};

fn attempt() -> LockOptions {
    with(|terms| terms.wait = Wait::Never)
}

#[test]
fn an_attempt_takes_the_turn_of_a_call_that_has_not_picked_up_its_grant() {
    let (mut client, idle, request) = Client::asking(terms(LONG));
    let first = owner(&request);
    client.refuse(request, 0, 0);
    assert_eq!(client.poll(idle), Step::Wait);
    client.event(handed_off(8, false));
    client.now = 999;
    let (call, step) = client.acquire("k", attempt());
    assert_eq!(step, Step::Wait, "it is reserved");
    assert!(client.sent().is_empty());
    client.tick(1_000);
    assert!(client.is_woken(call));
    assert_eq!(client.poll(call), Step::Wait, "it follows the release");
    let release = client.sent_one();
    assert_eq!(owner(&release), first);
    client.on(Input::Reply(release, DONE));
    let request = client.next(call);
    let entered = only(client.grant(request, 9));
    assert_eq!(client.poll(idle), Step::Wait, "it waits behind the attempt");
    client.leave(&entered);
    assert!(client.is_woken(idle));
}

#[test]
fn an_attempt_leaves_the_turn_to_a_call_that_waits_and_is_polled() {
    let (mut client, waits, request) = Client::asking(terms(LONG));
    client.refuse(request, 0, 0);
    for now in (0..6_000).step_by(500) {
        client.now = now;
        if let Step::Send(request) = client.poll(waits) {
            client.refuse(request, 0, 0);
            assert_eq!(client.poll(waits), Step::Wait);
        }
        assert!(is_taken(&client.acquire("k", attempt()).1), "at {now}");
    }
}

#[test]
fn a_call_that_does_not_pick_up_a_lock_in_time_keeps_out_neither_other_calls_nor_other_clients() {
    for others_are_local in [false, true] {
        let (mut client, entered) = Client::holding(terms(LONG));
        let (idle, _) = client.acquire("k", terms(LONG));
        client.leave(&entered);
        assert!(client.is_woken(idle));
        assert_eq!(client.own().phase(), Phase::HandedOver);
        client.now = 300;
        let next = others_are_local.then(|| client.acquire("k", terms(LONG)).0);
        if next.is_none() {
            client.event(Event::Wanted);
        }
        client.tick(999);
        assert!(client.sent().is_empty(), "it is reserved");
        client.tick(1_000);
        let release = client.sent_one();
        assert!(release.is_release() && owner(&release) == entered.entry.owner);
        if let Some(next) = next {
            client.next(next);
        } else {
            asked(client.poll(idle));
        }
        assert!(client.losses().is_empty());
    }
}

/// Wakes the task of a call for the reply to this request, or polls it without one.
fn woken(client: &mut Client, call: CallId, request: &Request, is_polled: bool) {
    let request = request.number;
    client.on(Input::Woken {
        call,
        request,
        is_polled,
    });
}

#[test]
fn a_call_that_does_not_read_its_reply_loses_its_turn_a_second_after_it_arrived() {
    let (mut client, idle, unread) = Client::asking(terms(LONG));
    let (next, _) = client.acquire("k", terms(LONG));
    client.tick(1_200);
    assert!(client.sent().is_empty(), "the store may be slow");
    woken(&mut client, idle, &unread, false);
    client.tick(2_199);
    assert!(client.sent().is_empty(), "its task has a second");
    client.tick(2_200);
    let release = client.sent_one();
    assert!(release.is_release() && owner(&release) == owner(&unread));
    // The client asks the store for nothing else, so other clients notice nothing.
    assert!(client.renewals().is_empty());
    client.on(Input::Reply(release, DONE));
    let request = client.next(next);
    let entered = only(client.grant(request, 9));
    // What the first call reads then is void.
    assert_eq!(client.reply(unread, granted(FENCE, 1, 0)), Step::Wait);
    assert!(client.sent_one().is_release());
    client.leave(&entered);
    assert!(client.is_woken(idle));
}

#[test]
fn a_call_that_does_not_read_its_reply_keeps_no_other_client_out() {
    for (is_woken, ends) in [(true, 1_000), (false, 4_000)] {
        let (mut client, idle, unread) = Client::asking(terms(LONG));
        client.event(Event::Wanted);
        if is_woken {
            woken(&mut client, idle, &unread, false);
        }
        client.tick(ends - 1);
        assert!(client.sent().is_empty());
        client.tick(ends);
        let release = client.sent_one();
        assert!(release.is_release() && owner(&release) == owner(&unread));
    }
}

#[test]
fn a_call_that_is_polled_keeps_its_turn_however_slow_the_store_is() {
    let (mut client, call, request) = Client::asking(terms(LONG));
    let (next, _) = client.acquire("k", terms(LONG));
    for now in [500, 1_000, 1_900] {
        // A timer, or a member of a quorum, wakes it.
        client.tick(now);
        woken(&mut client, call, &request, false);
        client.tick(now + 100);
        woken(&mut client, call, &request, true);
    }
    client.tick(3_900);
    assert!(client.sent().is_empty() && client.renewals().is_empty());
    let first = owner(&request);
    let entered = only(client.grant(request, FENCE));
    assert_eq!(entered.entry.owner, first);
    client.leave(&entered);
    assert!(client.is_woken(next));
}

#[test]
fn a_call_of_a_process_that_stood_still_has_another_second() {
    for joins in [false, true] {
        let terms = with(|terms| {
            terms.lease = ms(LONG);
            terms.mode = if joins {
                LockMode::Shared
            } else {
                LockMode::Exclusive
            };
        });
        let (mut client, _, request) = Client::asking(terms);
        let (call, _) = client.acquire("k", terms);
        let entered = only(client.grant(request, FENCE));
        client.leave(&entered);
        assert!(client.is_woken(call));
        client.event(Event::Wanted);
        client.tick(8_000);
        assert!(client.is_woken(call));
        client.tick(8_999);
        assert!(client.sent().is_empty());
        client.tick(9_000);
        assert!(client.sent_one().is_release());
    }
}

#[test]
fn an_unpolled_call_gives_up_what_it_may_have_if_another_client_waits() {
    let mut client = Client::new();
    let (_, step) = client.acquire("a b", terms(LONG));
    client.refuse_only(asked(step), 1);
    client.on(Input::Event(key("a"), None, Event::Wanted));
    client.on(Input::Event(key("b"), None, Event::Wanted));
    client.tick(2_009);
    assert!(client.sent().is_empty());
    client.tick(2_010);
    assert_eq!(client.sent_one().claims[0].key, key("a"));
}

#[test]
fn a_client_that_closes_releases_what_an_unpolled_call_asked_for() {
    // Its request is under way, its lock was handed off, or it waits for another call.
    for case in 0..3 {
        let (mut client, idle, request) = Client::asking(terms(LONG));
        let queued = (case == 2).then(|| client.acquire("k", terms(LONG)).0);
        if case > 0 {
            client.refuse(request.clone(), 0, 0);
            assert_eq!(client.poll(idle), Step::Wait);
            client.event(handed_off(8, false));
        }
        client.on(Input::Close);
        assert!(client.machine.is_quiet(), "case {case}");
        assert!(!client.machine.is_released(), "case {case}");
        let release = client.sent_one();
        assert_eq!(owner(&release), owner(&request));
        client.on(Input::Reply(release, DONE));
        assert!(client.machine.is_released(), "case {case}");
        for call in queued.into_iter().chain([idle]) {
            assert_eq!(client.poll(call), Step::Refused(Refusal::Closed));
        }
        if case == 0 {
            // The store grants it after the release.
            client.on(Input::Reply(request, granted(9, 1, 0)));
            assert!(client.sent_one().is_release());
        } else {
            assert!(client.is_empty());
        }
    }
}

#[test]
fn a_client_that_drains_does_not_wait_for_an_unpolled_call() {
    let (mut client, idle, request) = Client::asking(terms(LONG));
    client.on(Input::Drain);
    for now in [4_100, 5_200] {
        assert!(!client.machine.is_drained() && client.sent().is_empty());
        client.tick(now);
        assert!(client.is_woken(idle));
    }
    let release = client.sent_one();
    assert_eq!(owner(&release), owner(&request));
    client.on(Input::Reply(release, DONE));
    assert!(client.machine.is_drained());
    assert_eq!(client.poll(idle), Step::Refused(Refusal::Draining));

    // A call that is polled when it is woken waits on.
    let mut client = Client::new();
    let (call, step) = client.acquire("k", terms(LONG));
    client.on(Input::Drain);
    client.refuse(asked(step), 0, 0);
    for now in (0..10_000).step_by(100) {
        client.tick(now);
        if client.is_woken(call)
            && let Step::Send(request) = client.poll(call)
        {
            client.refuse(request, 0, 0);
        }
    }
    assert!(client.sent().is_empty() && !client.machine.is_drained());
}

#[test]
fn the_late_end_of_an_unpolled_request_loses_no_hold_that_was_released_since() {
    let (mut client, _idle, unread) = Client::asking(terms(LONG));
    let (next, _) = client.acquire("k", terms(LONG));
    client.on(Input::Drain);
    client.tick(4_100);
    client.tick(5_200);
    let again = client.next(next);
    assert_eq!(owner(&again), owner(&unread));
    let entered = only(client.grant(again, FENCE));
    let release = asked(client.leave(&entered));
    client.reply(release, DONE);
    client.on(Input::Reply(unread, Reply::None));
    client.reply_to_sent(NOT_HELD);
    assert!(client.losses().is_empty());
}

#[test]
fn a_client_that_closes_repeats_a_release_whose_reply_is_not_read() {
    let (mut client, entered) = Client::holding(terms(LEASE));
    asked(client.leave(&entered));
    client.on(Input::Close);
    client.tick(100);
    let release = client.sent_one();
    assert!(repeats(&release));
    client.on(Input::Reply(release, NOT_HELD));
    assert!(client.machine.is_released() && client.losses().is_empty());
}

#[test]
fn a_call_that_is_polled_after_its_wait_sends_no_request() {
    // It has lost its turn.
    let (mut client, idle, request) = Client::asking(with(|terms| terms.wait = Wait::For(ms(50))));
    let (next, _) = client.acquire("k", terms(LONG));
    client.tick(4_000);
    client.next(next);
    client.on(Input::Reply(request, Reply::None));
    let step = client.poll(idle);
    assert_taken(&step);
}

#[test]
fn a_lock_that_an_operator_released_before_its_grant_was_read_is_not_held() {
    let (mut client, call, request) = Client::asking(terms(LEASE));
    // The store compares the token, and releases the lock.
    assert_eq!(
        client.revoked(Some(FENCE * TOKENS), true),
        [Revoked::NotHeld]
    );
    assert_eq!(client.revoked(None, true), [Revoked::Given]);
    let first = owner(&request);
    let again = asked(client.grant(request, FENCE));
    assert_ne!(owner(&again), first);
    assert!(only(client.grant(again, 9)).token > FENCE * TOKENS);
    assert!(
        client.poll(call) == Step::Left(Ok(())),
        "the call has ended"
    );
}

#[test]
fn a_call_without_a_limit_that_gets_the_turn_while_the_client_drains_does_not_keep_it_from_ending()
{
    let (mut client, entered) = Client::holding(terms(LONG));
    let forever = with(|terms| (terms.lease, terms.wait) = (ms(LONG), Wait::Forever));
    let call = client.queue("k", forever);
    client.on(Input::Drain);
    client.leave(&entered);
    assert!(client.is_woken(call));
    for now in [1_001, 2_002] {
        client.tick(now);
    }
    assert!(client.machine.is_drained());
    assert_eq!(client.poll(call), Step::Refused(Refusal::Draining));
}

/// Each attempt is alone, so no other call takes the turn.
#[test]
fn an_attempt_takes_the_turn_of_a_waiter_that_does_not_ask_again_in_time() {
    for is_polled in [false, true] {
        let (mut client, waiter, request) = Client::asking(terms(LEASE));
        client.refuse(request, 0, 0);
        let ask_at = client.machine.due().expect("it asks again");
        client.now = ask_at.nanos() / 1_000_000 - 1;
        assert!(is_taken(&client.acquire("k", attempt()).1), "it waits");
        client.tick(client.now + 1);
        assert!(client.is_woken(waiter));
        if is_polled {
            let again = asked(client.poll(waiter));
            let (call, step) = client.acquire("k", attempt());
            assert_eq!(step, Step::Wait, "the waiter is asking");
            client.refuse(again, 0, 0);
            assert!(client.is_woken(call) && is_taken(&client.poll(call)));
            continue;
        }
        client.tick(client.now + 2_000);
        let call = client.queue("k", attempt());
        client.tick(client.now);
        client.reply_to_sent(DONE);
        let request = client.next(call);
        only(client.grant(request, FENCE));
    }
}

#[test]
fn an_entry_that_a_poll_has_picked_up_is_renewed_after_the_others_have_left() {
    let mut client = Client::new();
    let shared = || with(|terms| (terms.mode, terms.lease) = (LockMode::Shared, ms(LEASE)));
    let (_, step) = client.acquire("k", shared());
    let (second, _) = client.acquire("k", shared());
    let entered = only(client.grant(asked(step), FENCE));
    only(client.poll(second));
    client.leave(&entered);
    client.tick(1_000);
    assert_eq!(client.renewals().len(), 1);
}
