//! Holds that become shared without a release, and how the store learns of that.

use super::{modes::shared, *};

#[test]
fn a_downgrade_tells_the_store_and_lets_readers_in() {
    let (mut client, writer) = Client::holding(terms(LEASE));
    let (reader, _) = client.acquire("k", shared());
    let step = client.on(Input::Downgrade(writer.entry.clone()));
    assert_eq!(step, Step::Downgraded);
    let told = client.sent_one();
    assert_eq!(told.what, Ask::Downgrade { fence: 0 });
    assert_eq!(told.claims[0].mode, LockMode::Shared);
    let reader = only(client.poll(reader));
    assert_eq!(reader.token, writer.token);
    client.on(Input::Reply(told, DONE));
    assert!(client.sent().is_empty());
    client.leave(&writer);
    let release = asked(client.leave(&reader));
    assert_eq!(release.claims[0].mode, LockMode::Shared);
}

/// To the store, the calls of a client are one waiter, which precedes those that came after it.
#[test]
fn a_downgrade_lets_readers_in_that_wait_although_other_clients_do() {
    let (mut client, writer) = Client::holding(terms(LEASE));
    client.now = 10;
    let (reader, _) = client.acquire("k", shared());
    client.event(Event::Wanted);
    client.now = 20;
    client.on(Input::Downgrade(writer.entry.clone()));
    assert_eq!(only(client.poll(reader)).token, writer.token);
    client.now = 30;
    let (_, step) = client.acquire("k", shared());
    assert_ne!(owner(&asked(step)), writer.entry.owner);
}

#[test]
fn a_downgrade_is_told_again_until_the_store_confirms_it() {
    let (mut client, writer) = Client::holding(terms(LEASE));
    client.on(Input::Downgrade(writer.entry));
    client.reply_to_sent(UNANSWERED);
    client.tick(500);
    let told = client.sent_one();
    assert_eq!(told.what, Ask::Downgrade { fence: 0 });
    assert_eq!(told.claims[0].mode, LockMode::Shared);
    client.on(Input::Reply(told, NOT_HELD));
    client.tick(501);
    client.renew(Some(RenewalOutcome::Lost));
    assert_eq!(client.losses(), [LostCause::Removed]);
}

#[test]
fn a_renewal_from_before_a_downgrade_finds_no_loss() {
    let (mut client, writer) = Client::holding(terms(LEASE));
    client.tick(1_000);
    let renew = client.renewal();
    client.now = 1_001;
    client.on(Input::Downgrade(writer.entry));
    // It waited for a connection.
    client.renewed(&renew, 1_002, Some(RenewalOutcome::Lost));
    assert!(client.losses().is_empty());
}

#[test]
fn a_hold_with_nested_entries_is_not_downgraded() {
    let (mut client, outer) = Client::holding(terms(LEASE));
    let inner = client.enter(&outer, LEASE);
    for entered in [&inner, &outer] {
        let step = client.on(Input::Downgrade(entered.entry.clone()));
        assert_eq!(step, Step::Refused(Refusal::Nested(1)));
    }
    assert_eq!(client.own().mode, LockMode::Exclusive);
}
