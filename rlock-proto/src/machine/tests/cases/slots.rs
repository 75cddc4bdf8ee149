//! The slots of keys: an unused one waits for the next call for its key, and goes to another key only after many others.

use super::*;

/// How many unused keys keep their slots.
const IDLE_KEYS: usize = 64;

/// Holds each of as many keys as are remembered, one after the other.
fn use_others(client: &mut Client) {
    for n in 0..IDLE_KEYS {
        use_once(client, &format!("other-{n}"));
    }
}

fn use_once(client: &mut Client, name: &str) {
    let (_, step) = client.acquire(name, terms(LEASE));
    let entered = only(client.grant(asked(step), FENCE));
    let release = asked(client.leave(&entered));
    assert_eq!(client.reply(release, DONE), Step::Left(Ok(())));
}

fn has_slot(client: &Client, name: &str) -> bool {
    client.machine.slots.find(&key(name)).is_some()
}

#[test]
fn an_unused_key_loses_its_slot_and_its_deadline_after_many_others() {
    let mut client = Client::new();
    use_once(&mut client, "k");
    assert!(has_slot(&client, "k") && client.machine.due().is_some());
    use_others(&mut client);
    assert!(!has_slot(&client, "k"));
    client.tick(LEASE);
    assert_eq!(client.machine.due(), None);
    assert!(client.is_empty());
}

#[test]
fn a_key_that_is_used_again_keeps_its_slot() {
    let mut client = Client::new();
    use_once(&mut client, "k");
    let entered = client.hold(terms(LEASE));
    use_others(&mut client);
    let release = asked(client.leave(&entered));
    assert_eq!(client.reply(release, DONE), Step::Left(Ok(())));
    assert!(client.is_empty());
}

/// A call for several keys has no turn for the others while it waits for one of them.
#[test]
fn a_key_keeps_its_slot_for_a_call_that_has_not_asked_for_it_yet() {
    let mut client = Client::new();
    use_once(&mut client, "k");
    let (both, step) = client.acquire("j k", terms(LEASE));
    assert_eq!(client.refuse(asked(step), 0, 0), Step::Wait);
    assert!(
        client
            .machine
            .slot(&key("k"))
            .expect("it is wanted")
            .ownerships()
            .is_empty()
    );
    use_others(&mut client);
    client.on(Input::Event(key("j"), None, Event::Changed));
    client.tick(LEASE);
    assert_eq!(client.next(both).claims.len(), 2);
}

/// The background has released the lock by then, so nothing but the call knows the slot.
#[test]
fn a_call_that_waits_for_a_release_outlives_the_slot_of_its_key() {
    let (mut client, entered) = Client::holding(terms(LEASE));
    let release = asked(client.leave(&entered));
    let call = CallId(client.calls);
    assert_eq!(client.reply(release, UNANSWERED), Step::Wait);
    client.tick(1_000);
    client.reply_to_sent(DONE);
    assert!(client.is_woken(call));
    use_others(&mut client);
    assert!(!has_slot(&client, "k"));
    client.tick(LEASE);
    assert!(client.is_woken(call));
    assert_eq!(client.poll(call), Step::Left(Ok(())));
    assert!(client.is_empty());
}

/// A notification has the text of the key, and another call hides it behind another text.
#[test]
fn a_loss_shows_the_key_as_the_call_that_lost_its_lock_hides_it() {
    let mut client = Client::new();
    let fence = FENCE;
    let (ttl, wanted) = (ms(1_000), false);
    let granted = Event::Granted {
        fence,
        ttl,
        wanted,
        mode: LockMode::Exclusive,
    };
    client.on(Input::Event(key("k"), Some(99), granted));
    let _ = client.sent();
    for (n, shown) in [(1, "first"), (2, "second")] {
        let lock = WantedLock {
            key: Key::parse_hidden("k", Some(shown)).expect("valid"),
            mode: LockMode::Exclusive,
        };
        let (_, step) = client.begin(one(lock), crate::few::Few::new(), terms(LEASE));
        let entered = only(client.grant(asked(step), FENCE + n));
        client.revoked(None, true);
        let shown_by = client.take(|output| match output {
            Output::Lost(loss) => Some(loss.key.shown().to_owned()),
            _ => None,
        });
        assert_eq!(shown_by, [shown]);
        client.leave(&entered);
    }
}

#[test]
fn a_call_hides_a_key_that_a_notification_has_shown_before_it_has_the_lock() {
    let mut client = Client::new();
    client.on(Input::Event(key("k"), Some(99), handed_off(FENCE, false)));
    let _ = client.sent();
    let lock = WantedLock {
        key: Key::parse_hidden("k", Some("hidden")).expect("valid"),
        mode: LockMode::Exclusive,
    };
    let (call, step) = client.begin(one(lock), crate::few::Few::new(), terms(LEASE));
    asked(step);
    client.on(Input::Cancel(call));
    assert_eq!(client.sent_one().claims[0].key.shown(), "hidden");
}
