//! A lock that goes to the next call of its client, or is retained for it.

use super::*;

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
        let (mut client, _, request) = Client::asking(terms(LEASE));
        if has_attempt {
            client.acquire("k", with(|terms| terms.wait = Wait::Never));
        }
        let first = only(client.grant(request, FENCE));
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
fn a_call_that_is_not_polled_loses_its_turn_when_its_lock_has_ended() {
    let (mut client, idle, request) = Client::asking(terms(LEASE));
    let first = owner(&request);
    client.refuse(request, 0, 0);
    client.event(handed_off(8, false));
    let next = client.queue("k", terms(LEASE));
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
