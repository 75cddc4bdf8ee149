//! A client that drains, closes or has ended.

use super::*;

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
fn a_client_that_drains_or_closes_releases_the_retained_locks_of_all_keys() {
    for end in [Input::Drain, Input::Close] {
        let mut client = Client::new();
        for name in ["j", "k"] {
            let (_, step) = client.acquire(name, retained());
            let entered = only(client.grant(asked(step), FENCE));
            assert_eq!(client.leave(&entered), Step::Left(Ok(())));
        }
        assert!(client.sent().is_empty());
        client.on(end);
        assert_eq!(client.sent().len(), 2);
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
