//! Calls with a short wait are as patient as those without one.

use super::*;

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

fn is_taken(step: &Step) -> bool {
    matches!(step, Step::Refused(Refusal::Taken(..)))
}

#[test]
fn the_first_request_has_the_response_time_out_however_short_the_wait() {
    for wait in SHORT
        .into_iter()
        .chain([Wait::For(ms(5_000)), Wait::Forever])
    {
        let mut client = Client::new();
        let (_, step) = client.acquire("k", waits(wait));
        let request = asked(step);
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
    let mut client = Client::new();
    let (call, step) = client.acquire("k", waits(Wait::For(ms(50))));
    client.refuse(asked(step), 0, 0);
    client.now = 30;
    client.event(retry(LockMode::Exclusive, 0));
    let again = client.next(call);
    assert_eq!(again.timeout, ms(20));
    client.now = 50;
    let step = client.reply(again, UNANSWERED);
    assert!(is_taken(&step), "{step:?}");
}

#[test]
fn a_short_wait_confirms_a_grant_after_a_reported_change() {
    for wait in SHORT {
        let mut client = Client::new();
        let (_, step) = client.acquire("k", waits(wait));
        client.event(Event::Changed);
        client.now = LATER;
        let again = asked(client.reply(asked(step), granted(FENCE, 1, 0)));
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
        let (second, step) = client.acquire("k", reader);
        assert_eq!(step, Step::Wait);
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

#[test]
fn an_attempt_behind_a_request_without_a_reply_does_not_call_the_lock_taken() {
    for wait in [Wait::Never, Wait::For(Duration::ZERO)] {
        let mut client = Client::new();
        let (_, first) = client.acquire("k", waits(wait));
        client.now = 1;
        let (call, step) = client.acquire("k", waits(wait));
        assert_eq!(step, Step::Wait);
        client.now = 2_000;
        let failed = Step::Refused(Refusal::Failed);
        assert_eq!(client.reply(asked(first), UNANSWERED), failed);
        let request = client.next(call);
        client.now = 4_000;
        assert_eq!(client.reply(request, UNANSWERED), failed);
    }
}
