//! Tokens of holds, and a lock whose tokens have run out.

use super::*;

#[test]
fn each_hold_has_a_token_of_its_own_and_a_new_fence_is_asked_for_in_time() {
    let (mut client, mut entered) = Client::holding(terms(LEASE));
    let (mut fence, mut asked) = (FENCE, 0);
    for _ in 0..500 {
        let (call, _) = client.acquire("k", terms(LEASE));
        client.leave(&entered);
        let next = only(client.poll(call));
        assert!(next.token > entered.token && next.entry.owner == entered.entry.owner);
        entered = next;
        client.tick(client.now + 1);
        for renew in client.renewals() {
            if renew.fence > 0 {
                assert_eq!(renew.fence, fence + 1);
                (fence, asked) = (renew.fence, asked + 1);
            }
            client.renewed(&renew, client.now, Some(held(false, renew.fence)));
        }
    }
    assert!((4..=8).contains(&asked), "{asked}");
    assert!(client.sent().is_empty());
}

/// Returns a client whose tokens ran out before their renewal brought a fence, and the call that waits for it.
fn out_of_tokens() -> (Client, CallId, Renew) {
    let (mut client, mut entered) = Client::holding(terms(LEASE));
    for n in 1..=TOKENS {
        let (call, _) = client.acquire("k", terms(LEASE));
        assert_eq!(client.leave(&entered), Step::Left(Ok(())));
        if n == TOKENS {
            assert_eq!(client.poll(call), Step::Wait);
            client.tick(10);
            let renew = client.renewal();
            assert_eq!(renew.fence, FENCE + 1);
            return (client, call, renew);
        }
        entered = only(client.poll(call));
    }
    unreachable!("the tokens end");
}

#[test]
fn a_lock_without_tokens_waits_for_them_with_its_next_call() {
    let (mut client, call, renew) = out_of_tokens();
    client.renewed(&renew, 10, Some(held(false, FENCE + 1)));
    assert!(client.is_woken(call));
    assert_eq!(only(client.poll(call)).token, (FENCE + 1) * TOKENS);

    // Without a reply it waits for a second.
    let (mut client, call, _) = out_of_tokens();
    client.tick(999);
    assert!(client.sent().is_empty());
    client.tick(1_000);
    assert_ne!(owner(&client.next(call)), owner(&client.sent_one()));
}

#[test]
fn an_attempt_waits_for_the_tokens_of_a_retained_lock() {
    let (mut client, mut entered) = Client::holding(retained());
    let attempt = with(|terms| (terms.retain, terms.wait) = (ms(10_000), Wait::Never));
    for _ in 1..TOKENS {
        assert_eq!(client.leave(&entered), Step::Left(Ok(())));
        entered = only(client.acquire("k", attempt).1);
    }
    client.leave(&entered);
    let call = client.queue("k", attempt);
    client.tick(10);
    let renew = client.renewal();
    assert!(!client.is_woken(call));
    client.renewed(&renew, 10, Some(held(false, FENCE + 1)));
    assert!(client.is_woken(call));
    assert_eq!(only(client.poll(call)).token, (FENCE + 1) * TOKENS);
}

#[test]
fn an_attempt_is_refused_when_the_tokens_that_it_waits_for_do_not_come() {
    let (mut client, call, _) = out_of_tokens();
    let attempt = client.queue("k", with(|terms| terms.wait = Wait::Never));
    client.tick(1_000);
    // The other call asks, and the attempt waits for that.
    let request = client.next(call);
    assert!(!client.is_woken(attempt));
    only(client.grant(request, FENCE + 1));
    assert!(client.is_woken(attempt));
    assert_taken(&client.poll(attempt));
}

#[test]
fn a_lock_without_calls_is_released_when_its_tokens_arrive() {
    let (mut client, call, renew) = out_of_tokens();
    client.on(Input::Cancel(call));
    client.renewed(&renew, 10, Some(held(false, FENCE + 1)));
    assert_eq!(client.sent().len(), 1);
}

#[test]
fn a_call_that_is_polled_when_its_wait_for_tokens_has_ended_gets_the_turn_and_is_woken() {
    let (mut client, call, _) = out_of_tokens();
    client.now = 1_000;
    assert!(client.poll(call) == Step::Wait && client.is_woken(call));
    asked(client.poll(call));
}
