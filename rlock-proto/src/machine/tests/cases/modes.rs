//! Shared holds and permits of one client.

use super::{client::*, *};
use crate::{mode::LockMode, store::RenewalOutcome};

pub(super) fn shared() -> LockOptions {
    with(|terms| terms.mode = LockMode::Shared)
}

fn permits(take: u32) -> LockOptions {
    with(|terms| terms.mode = LockMode::Permits { take, of: 3 })
}

fn permit() -> LockOptions {
    permits(1)
}

fn owners(client: &Client) -> Vec<Owner> {
    client.machine.ownerships().map(|own| own.owner).collect()
}

#[test]
fn readers_join_without_a_request_and_the_last_one_releases() {
    let (mut client, first) = Client::holding(shared());
    assert_eq!(client.own().mode, LockMode::Shared);
    let joined = only(client.acquire("k", shared()).1);
    assert_eq!((joined.token, joined.began), (first.token, Some(By::Local)));
    assert_ne!(joined.first, first.first, "each is a hold of its own");
    assert_eq!(client.leave(&first), Step::Left(Ok(())));
    assert!(client.sent().is_empty());
    let release = asked(client.leave(&joined));
    assert_eq!(
        (release.is_release(), release.claims[0].mode),
        (true, LockMode::Shared)
    );
    client.reply(release, DONE);
    assert!(client.is_empty());
}

#[test]
fn readers_that_wait_are_let_in_together_and_the_writer_behind_them_asks_at_once() {
    let (mut client, first, request) = Client::asking(shared());
    let (second, _) = client.acquire("k", shared());
    let (writer, _) = client.acquire("k", terms(LEASE));
    let (late, _) = client.acquire("k", shared());
    client.refuse(request, 0, 0);
    client.event(Event::Granted {
        mode: LockMode::Shared,
        fence: 8,
        ttl: ms(1_000),
        wanted: false,
    });
    only(client.poll(first));
    assert!(client.is_woken(second) && !client.is_woken(late));
    only(client.poll(second));
    let request = client.next(writer);
    assert_eq!(request.claims[0].mode, LockMode::Exclusive);
    assert_eq!(client.poll(late), Step::Wait);
    assert_eq!(owners(&client).len(), 2);
}

#[test]
fn a_reader_asks_again_while_others_wait() {
    let (mut client, first) = Client::holding(shared());
    client.event(Event::Wanted);
    let (call, step) = client.acquire("k", shared());
    let request = asked(step);
    assert_ne!(request.claims[0].owner, first.entry.owner);
    client.refuse(request, 0, FENCE);
    assert_eq!(client.poll(call), Step::Wait);
    // The first hold is still renewed, and then released.
    client.tick(1_000);
    assert_eq!(client.renewal().owner, first.entry.owner);
    let release = asked(client.leave(&first));
    assert_eq!(owner(&release), first.entry.owner);
    client.reply(release, DONE);
    let again = asked(client.poll(call));
    assert_ne!(owner(&again), first.entry.owner);
}

#[test]
fn an_attempt_of_another_client_ends_the_retention_of_a_reader_and_keeps_no_other_out() {
    let (mut client, first) = Client::holding(with(|terms| {
        (terms.mode, terms.retain) = (LockMode::Shared, ms(1_000));
    }));
    client.event(retry(LockMode::Shared, 0));
    let second = only(client.acquire("k", shared()).1);
    assert_eq!(second.entry.owner, first.entry.owner);
    client.leave(&second);
    assert_eq!(client.leave(&first), Step::Left(Ok(())));
    assert_eq!(client.own().phase(), Phase::Retained);
    client.event(retry(LockMode::Shared, 0));
    assert!(client.sent_one().is_release());
}

#[test]
fn a_reader_with_other_terms_has_an_owner_of_its_own() {
    for other in [
        with(|terms| (terms.mode, terms.lease) = (LockMode::Shared, ms(LONG))),
        with(|terms| (terms.mode, terms.watchdog) = (LockMode::Shared, false)),
        with(|terms| (terms.mode, terms.max_hold) = (LockMode::Shared, Some(ms(500)))),
    ] {
        let (mut client, first) = Client::holding(shared());
        let request = asked(client.acquire("k", other).1);
        assert_ne!(owner(&request), first.entry.owner);
    }
}

#[test]
fn a_reader_joins_no_hold_that_is_in_doubt_or_has_ended() {
    for is_in_doubt in [true, false] {
        let (mut client, first) = Client::holding(shared());
        if is_in_doubt {
            client.event(Event::Missed { is_heard: true });
        } else {
            client.now = LEASE;
        }
        let request = asked(client.acquire("k", shared()).1);
        assert_ne!(owner(&request), first.entry.owner, "{is_in_doubt}");
    }
}

#[test]
fn an_entry_that_no_poll_has_picked_up_is_not_renewed_and_leaves_the_hold() {
    for stays in [false, true] {
        let mut client = Client::new();
        let terms = with(|terms| (terms.mode, terms.lease) = (LockMode::Shared, ms(1_500)));
        let (_, step) = client.acquire("k", terms);
        let (second, _) = client.acquire("k", terms);
        let entered = only(client.grant(asked(step), FENCE));
        assert!(client.is_woken(second));
        if !stays {
            client.leave(&entered);
        }
        client.tick(999);
        assert_eq!(client.renewals().len(), usize::from(stays));
        assert!(client.sent().is_empty() && client.own().has(1));
        client.tick(1_000);
        if stays {
            assert!(!client.own().has(1) && client.sent().is_empty());
        } else {
            assert!(client.sent_one().is_release());
        }
        assert!(client.losses().is_empty());
        // It asks again.
        asked(client.poll(second));
    }
}

#[test]
fn a_call_of_several_keys_that_does_not_pick_up_its_entry_leaves_the_hold_of_that_key() {
    let mut client = Client::new();
    let (_, step) = client.acquire("j", shared());
    let outer = only(client.grant(asked(step), FENCE));
    let (_, step) = client.acquire("k", shared());
    let keys = [wanted("j", LockMode::Shared), wanted("k", LockMode::Shared)];
    let (second, waits) = client.begin(keys.into_iter().collect(), inside(&outer), shared());
    assert_eq!(waits, Step::Wait);
    let entered = only(client.grant(asked(step), FENCE));
    assert!(client.is_woken(second));
    client.leave(&entered);
    client.tick(1_000);
    assert_eq!(client.sent_one().claims[0].key, key("k"));
}

#[test]
fn a_call_that_lacks_several_locks_joins_no_shared_hold() {
    let (mut client, _, request) = Client::asking(shared());
    let (several, waits) = client.acquire("j k", shared());
    assert_eq!(waits, Step::Wait);
    let reader = only(client.grant(request, FENCE));
    // It would keep writers of one key out while it waits for the other one.
    let both = client.next(several);
    assert_eq!(both.claims.len(), 2);
    assert!(
        both.claims
            .iter()
            .all(|claim| claim.owner != reader.entry.owner)
    );
}

#[test]
fn a_reader_that_gives_up_before_it_is_polled_leaves_the_hold() {
    let (mut client, _, request) = Client::asking(shared());
    let (second, _) = client.acquire("k", shared());
    let entered = only(client.grant(request, FENCE));
    client.on(Input::Cancel(second));
    let release = asked(client.leave(&entered));
    client.reply(release, DONE);
    assert!(client.is_empty());
}

#[test]
fn readers_share_an_exclusive_lock_that_their_client_has_anyway() {
    let (mut client, writer) = Client::holding(terms(LEASE));
    let (one, _) = client.acquire("k", shared());
    let (other, _) = client.acquire("k", shared());
    let (next, _) = client.acquire("k", terms(LEASE));
    assert_eq!(client.leave(&writer), Step::Left(Ok(())));
    let one = only(client.poll(one));
    assert!(one.token > writer.token);
    let other = only(client.poll(other));
    assert_eq!(
        (one.mode, client.own().used()),
        (LockMode::Exclusive, LockMode::Shared)
    );
    client.leave(&one);
    assert_eq!(client.poll(next), Step::Wait);
    client.leave(&other);
    let next = only(client.poll(next));
    assert!(next.token > one.token);
    assert!(client.sent().is_empty(), "nothing was asked");
}

#[test]
fn only_calls_in_a_mode_that_the_hold_covers_enter_it() {
    let exclusive = terms(LEASE);
    for (outer, inner, enters) in [
        (exclusive, shared(), true),
        (exclusive, permit(), true),
        (shared(), shared(), true),
        (permit(), permit(), true),
        (permits(2), permit(), true),
        (permits(2), permits(3), false),
        (shared(), exclusive, false),
        (permit(), exclusive, false),
        (shared(), permit(), false),
        (permit(), shared(), false),
    ] {
        let mut client = Client::with(|settings| settings.counts_entries = false);
        let held = outer.mode;
        let outer = client.hold(outer);
        let (_, step) = client.nest_as(&outer, inner);
        if enters {
            assert_eq!(only(step).first, outer.first);
        } else {
            assert_eq!(step, Step::Refused(Refusal::Upgrade(key("k"), held)));
        }
    }
}

#[test]
fn each_permit_has_an_owner_and_calls_of_one_client_ask_one_after_the_other() {
    let (mut client, first) = Client::holding(permit());
    let (_, step) = client.acquire("k", permit());
    let request = asked(step);
    assert_ne!(owner(&request), first.entry.owner);
    let second = only(client.grant(request, FENCE + 1));
    assert_ne!(first.token, second.token);
    let (third, step) = client.acquire("k", permit());
    client.refuse(asked(step), 0, FENCE + 1);
    let (fourth, _) = client.acquire("k", permit());
    assert!(!client.is_woken(fourth));
    let release = asked(client.leave(&first));
    assert_eq!(release.claims[0].mode, LockMode::Permits { take: 1, of: 3 });
    client.reply(release, DONE);
    assert_eq!(client.poll(third), Step::Wait);
}

#[test]
fn a_call_names_the_most_permits_that_a_call_behind_it_has_named() {
    let of = |of, wait| {
        with(|terms| (terms.mode, terms.wait) = (LockMode::Permits { take: 1, of }, wait))
    };
    let (mut client, _, request) = Client::asking(of(3, Wait::Forever));
    client.acquire("k", of(5, Wait::Forever));
    client.acquire("k", of(9, Wait::Never));
    let again = asked(client.refuse(request, 0, 0));
    assert_eq!(again.claims[0].mode, LockMode::Permits { take: 1, of: 5 });
}

#[test]
fn a_loss_concerns_all_who_share_the_hold() {
    let (mut client, first) = Client::holding(shared());
    let joined = only(client.acquire("k", shared()).1);
    client.tick(1_000);
    client.renew(Some(RenewalOutcome::Lost));
    let lost = client.take(|output| match output {
        Output::Lost(loss) => Some(loss.entries.clone()),
        _ => None,
    });
    assert_eq!(lost, [vec![first.entry.number, joined.entry.number]]);
}

#[test]
fn other_holders_that_come_and_go_cause_no_renewals() {
    let (mut client, _) = Client::holding(shared());
    client.event(Event::Changed);
    client.tick(10);
    assert!(client.renewals().is_empty());
    client.event(Event::Missed { is_heard: true });
    client.tick(20);
    client.renewal();
}

#[test]
fn a_shared_hold_lasts_as_long_as_the_latest_call_allows() {
    let short =
        |most| with(|terms| (terms.mode, terms.max_hold) = (LockMode::Shared, Some(ms(most))));
    let (mut client, _) = Client::holding(short(500));
    client.now = 400;
    only(client.acquire("k", short(500)).1);
    client.tick(899);
    assert!(client.losses().is_empty());
    client.tick(900);
    assert_eq!(client.losses(), [LostCause::MaxHold]);
}

#[test]
fn a_call_inside_a_reader_that_has_left_is_a_hold_of_its_own() {
    let (mut client, outer) = Client::holding(shared());
    let stays = only(client.acquire("k", shared()).1);
    client.leave(&outer);
    let inner = only(client.nest_as(&outer, shared()).1);
    assert_eq!(inner.began, Some(By::Local));
    assert_ne!(inner.first, stays.first);
}

#[test]
fn no_reader_joins_in_an_exclusive_lock_that_others_wait_for() {
    let (mut client, writer) = Client::holding(terms(LEASE));
    let (reader, _) = client.acquire("k", shared());
    client.leave(&writer);
    let reader = only(client.poll(reader));
    client.event(Event::Wanted);
    client.now = 1;
    let late = client.queue("k", shared());
    let release = asked(client.leave(&reader));
    assert_eq!(release.claims[0].mode, LockMode::Exclusive);
    // It asks behind the others.
    let request = client.next(late);
    assert_eq!(request.claims[0].mode, LockMode::Shared);
}

/// Two readers wait when the lock arrives: one gets it, and the other one joins.
#[test]
fn a_reader_that_joins_is_one_of_the_calls_that_come_before_the_other_clients() {
    let (mut client, _, request) = Client::asking(terms(LEASE));
    let readers = [(); 2].map(|()| client.acquire("k", shared()).0);
    let writer = only(client.grant(request, FENCE));
    client.event(Event::Wanted);
    client.leave(&writer);
    let [first, second] = readers.map(|reader| only(client.poll(reader)));
    client.now = 1;
    let (late, _) = client.acquire("k", shared());
    client.leave(&first);
    assert!(asked(client.leave(&second)).is_release());
    assert_ne!(owner(&client.next(late)), first.entry.owner);
}

#[test]
fn all_entries_of_an_exclusive_lock_are_in_one_hold() {
    let mut client = Client::with(|settings| settings.counts_entries = false);
    let outer = client.hold(terms(LEASE));
    let kept = only(client.on(Input::Keep(outer.entry.clone())));
    assert_eq!((kept.first, kept.began), (outer.first, None));
    client.leave(&outer);
    // A call that is inside the entry that has left.
    let inner = only(client.nest(&outer, LEASE).1);
    assert_eq!(inner.first, outer.first);
    let ends = |client: &mut Client| {
        let ended = client.take(|output| matches!(output, Output::Ended { .. }).then_some(()));
        ended.len()
    };
    assert_eq!(ends(&mut client), 0);
    client.leave(&inner);
    client.on(Input::Leave {
        entry: kept.entry,
        end: HoldEnd::Released,
        call: None,
    });
    assert_eq!(ends(&mut client), 1);
}

#[test]
fn attempts_at_once_each_learn_whether_there_is_room() {
    let attempt = |mode| with(|terms| (terms.mode, terms.wait) = (mode, Wait::Never));
    let permit = attempt(LockMode::Permits { take: 1, of: 3 });
    let mut client = Client::new();
    let (_, first) = client.acquire("k", permit);
    let others = [(); 2].map(|()| client.acquire("k", permit));
    assert!(others.iter().all(|(_, step)| *step == Step::Wait));
    only(client.grant(asked(first), FENCE));
    let [(second, _), (third, _)] = others;
    let request = client.next(second);
    assert_eq!(client.poll(third), Step::Wait);
    only(client.grant(request, FENCE + 1));
    let step = client.next(third);
    assert!(matches!(
        client.refuse(step, 0, 0),
        Step::Refused(Refusal::Taken(..))
    ));

    let mut client = Client::new();
    let (_, first) = client.acquire("k", attempt(LockMode::Shared));
    let (second, _) = client.acquire("k", attempt(LockMode::Shared));
    let first = only(client.grant(asked(first), FENCE));
    let second = only(client.poll(second));
    assert_eq!(second.entry.owner, first.entry.owner);
}

#[test]
fn an_attempt_is_refused_as_soon_as_the_call_before_it_waits() {
    let attempt = with(|terms| (terms.mode, terms.wait) = (LockMode::Shared, Wait::Never));
    let mut client = Client::new();
    let (_, first) = client.acquire("k", shared());
    let second = client.queue("k", attempt);
    assert_eq!(client.refuse(asked(first), 0, 0), Step::Wait);
    assert!(client.is_woken(second));
    let step = client.poll(second);
    assert_taken(&step);

    let mut client = Client::new();
    let (_, first) = client.acquire("k", terms(LEASE));
    let (second, _) = client.acquire("k", attempt);
    only(client.grant(asked(first), FENCE));
    assert!(client.is_woken(second));
    let step = client.poll(second);
    assert_taken(&step);
}

#[test]
fn an_attempt_in_another_mode_closes_no_shared_lock() {
    let (mut client, first) = Client::holding(shared());
    for mode in [LockMode::Exclusive, LockMode::Permits { take: 1, of: 2 }] {
        let attempt = with(|terms| (terms.mode, terms.wait) = (mode, Wait::Never));
        let (_, step) = client.acquire("k", attempt);
        assert_taken(&step);
    }
    let joined = only(client.acquire("k", shared()).1);
    assert_eq!(joined.entry.owner, first.entry.owner);

    // The same if it waits for the reply to the reader.
    let mut client = Client::new();
    let (_, reader) = client.acquire("k", shared());
    let attempt = client.queue("k", with(|terms| terms.wait = Wait::Never));
    let first = only(client.grant(asked(reader), FENCE));
    assert!(client.is_woken(attempt));
    let step = client.poll(attempt);
    assert_taken(&step);
    let joined = only(client.acquire("k", shared()).1);
    assert_eq!(joined.entry.owner, first.entry.owner);
}

#[test]
fn a_refusal_answers_all_attempts_that_began_before_its_request() {
    let permit = with(|terms| {
        (terms.mode, terms.wait) = (permit().mode, Wait::Never);
    });
    let shared = with(|terms| (terms.mode, terms.wait) = (LockMode::Shared, Wait::Never));
    let mut client = Client::new();
    let (_, first) = client.acquire("k", permit);
    let (late, _) = client.acquire("k", permit);
    client.refuse(asked(first), 0, 0);
    // It began when that request was sent, so a permit may be free for it.
    client.next(late);

    let mut client = Client::new();
    let (_, first) = client.acquire("k", permit);
    client.now += 1;
    let others = [(); 3].map(|()| client.acquire("k", permit).0);
    let (reader, _) = client.acquire("k", shared);
    client.now += 1;
    // A reply to a request that was sent now.
    client.refuse(asked(first), 0, 0);
    for other in others {
        let step = client.poll(other);
        assert_taken(&step);
    }
    client.next(reader);
}
