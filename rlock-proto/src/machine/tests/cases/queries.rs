//! What a client shows of its locks without changing them.

use super::*;

#[test]
fn a_holder_is_warned_at_half_of_its_lease_or_of_its_max_hold() {
    // The client relies on its lease for 2,968 ms.
    for (max_hold, warned) in [(None, 1_468), (Some(1_000), 500), (Some(10_000), 1_468)] {
        let (client, _) = Client::holding(with(|terms| {
            (terms.lease, terms.max_hold) = (ms(LEASE), max_hold.map(ms));
        }));
        assert_eq!(
            client.own().expires_soon_in(at(0)),
            ms(warned),
            "{max_hold:?}"
        );
        assert_eq!(client.own().expires_soon_in(at(warned)), ms(0));
    }
}

#[test]
fn a_lock_is_present_until_its_lease_ends_or_it_is_released() {
    let permit = with(|terms| terms.mode = LockMode::Permits { take: 1, of: 3 });
    let mut client = Client::new();
    let entered = [(); 2].map(|()| {
        client.hold(LockOptions {
            lease: ms(LEASE),
            ..permit
        })
    });
    let held = |client: &Client, now| {
        client
            .machine
            .slot(&key("k"))
            .map_or(0, |slot| slot.held(at(now)).count())
    };
    assert_eq!([2_967, 2_968].map(|now| held(&client, now)), [2, 0]);
    let entry = &entered[1].entry;
    let own = client
        .machine
        .own_at(entry.slot, entry.owner)
        .expect("it is held");
    assert_eq!(
        [2_967, 2_968].map(|now| own.is_present(at(now))),
        [true, false]
    );
    client.leave(&entered[0]);
    assert_eq!(held(&client, 0), 1);
}

#[test]
fn an_entry_has_as_many_others_as_there_are_in_its_exclusive_hold() {
    let (mut client, entered) = Client::holding(terms(LEASE));
    let others = |client: &Client, entered: &Entered| client.machine.others(&entered.entry);
    assert_eq!(others(&client, &entered), 0);
    let nested = [(); 2].map(|()| client.enter(&entered, LEASE));
    assert_eq!(others(&client, &entered), 2);
    client.leave(&nested[0]);
    assert_eq!(
        [&entered, &nested[0]].map(|entered| others(&client, entered)),
        [1, 0]
    );
    let shared = with(|terms| terms.mode = LockMode::Shared);
    let (mut client, reader) = Client::holding(shared);
    client.nest_as(&reader, shared);
    assert_eq!(
        others(&client, &reader),
        0,
        "readers do not count each other"
    );
}

#[test]
fn a_client_tells_how_long_it_keeps_a_lock_for_a_call_that_is_not_polled() {
    let (mut client, entered) = Client::holding(terms(LONG));
    client.acquire("k", terms(LONG));
    let waiters = |client: &Client| client.machine.slot(&key("k")).map(Slot::waiters);
    assert_eq!(waiters(&client), Some(1));
    client.leave(&entered);
    assert_eq!(waiters(&client), Some(0), "it has the turn");
    let unpolled = |now| client.machine.unpolled(&key("k"), at(now));
    assert_eq!([400, 500, 600].map(unpolled), [None, None, Some(ms(400))]);
}
