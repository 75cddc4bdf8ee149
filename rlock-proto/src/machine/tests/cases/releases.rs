//! Releases: until when they are repeated, what they find, and how long `min_hold` keeps the lock after them.

use super::*;

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
    let (mut client, entered) = Client::holding(terms(100));
    let release = asked(client.leave(&entered));
    client.now = 150;
    assert_eq!(client.reply(release, NOT_EXECUTED), Step::Wait);
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
    client.on(Input::Reply(again, UNANSWERED));
    assert_eq!(client.poll(call), Step::Wait, "it may not be released yet");
    client.tick(60);
    client.reply_to_sent(NOT_HELD);
    assert!(client.is_woken(call));
    assert_eq!(client.poll(call), Step::Left(Ok(())));
    assert!(client.losses().is_empty() && client.is_empty());
}

/// The store may still have its lock, or a copy of its acquire that joins the queue.
#[test]
fn an_owner_whose_release_is_refused_for_good_is_released_with_its_fence_when_the_store_tells_it() {
    let fence = |release: &Request| match release.what {
        Ask::Release { fence, .. } => fence,
        _ => panic!("{release:?}"),
    };
    let mut client = Client::with(|settings| settings.needs_majority = true);
    let entered = client.hold(terms(LEASE));
    let release = asked(client.leave(&entered));
    let step = client.reply(release, REFUSED);
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
        client.on(Input::Reply(again, REFUSED));
    }
    client.tick(100 + LEASE);
    assert!(client.is_empty() && client.losses().is_empty());
}

/// A release that was not executed, or was sent after the lease ended, explains nothing.
#[test]
fn a_release_that_finds_nothing_at_first_is_a_loss_that_is_told_once() {
    let (mut client, entered) = Client::holding(terms(LEASE));
    let release = asked(client.leave(&entered));
    let call = release.call.expect("a call releases");
    client.reply(release, NOT_EXECUTED);
    client.tick(20);
    client.reply_to_sent(NOT_HELD);
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

/// The limit of the attempts at a release is the longest lease that was asked for.
#[test]
fn the_release_of_an_owner_that_several_calls_asked_with_is_repeated_for_the_longest_lease() {
    let (mut client, first, request) = Client::asking(terms(LEASE));
    client.refuse(request, 0, 0);
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
    client.reply_to_sent(UNANSWERED);
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
