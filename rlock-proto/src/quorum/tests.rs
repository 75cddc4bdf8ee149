//! Tests of what a majority decides.

use std::time::Duration;

use uuid::Uuid;

use super::decisions::{OF_ONE_HOLD, *};
use crate::{
    few::one,
    key::Key,
    lease::Time,
    mode::LockMode,
    owner::OwnerId,
    store::{
        AcquireRequest, Acquired, Applied, Asks, Claim, Notification, QueuePlace, Renewal,
        RenewalOutcome, Renewed, TakenBy,
    },
};

const LEASE: Duration = Duration::from_secs(30);

fn owner(number: u64) -> OwnerId {
    OwnerId::new(Uuid::nil(), number, LockMode::Exclusive)
}

fn granted(fence: u64, wanted: bool) -> Acquired {
    Acquired::Granted {
        fences: one(fence),
        wanted,
        sent_at: Time::default(),
    }
}

fn taken(by: TakenBy) -> Acquired {
    refused(None, None, by)
}

fn refused(ttl: Option<Duration>, queued: Option<QueuePlace>, by: TakenBy) -> Acquired {
    Acquired::Taken {
        claim: 0,
        ttl,
        queued,
        sent_at: Time::default(),
        past_fences: one(Some(0)),
        retired: false,
        by,
    }
}

fn renewal(number: u64) -> Renewal {
    Renewal::of(Claim {
        key: Key::parse("k").expect("valid"),
        owner: owner(number),
    })
}

/// Returns the outcome of an acquire after these replies of some of the members.
fn outcome(members: usize, replies: &[Acquired], in_doubt: bool) -> Option<Acquired> {
    let request = AcquireRequest {
        claims: one(renewal(9).claim),
        lease: LEASE,
        waits: false,
    };
    let replies = replies.iter().collect();
    acquired(
        &request,
        &Votes { members, replies },
        in_doubt,
        Time::default(),
        || 0.5,
    )
}

#[test]
fn a_member_restores_the_locks_that_it_lacks_once_a_majority_confirms_them() {
    const HELD: RenewalOutcome = RenewalOutcome::Held {
        wanted: false,
        fence: 0,
    };
    use RenewalOutcome::{Lost, Unknown};
    let asked: Vec<Renewal> = (0..5)
        .map(|number| Renewal {
            last_fence: 8,
            count: 3,
            ..renewal(number)
        })
        .collect();
    let renewed = |kept: [RenewalOutcome; 5]| Renewed {
        kept: kept.into(),
        sent_at: Time::default(),
    };
    let raised = RenewalOutcome::Held {
        wanted: true,
        fence: 9,
    };
    let outcome = renewed([HELD, HELD, Lost, Unknown, raised]);
    let by_member = renewed([HELD, Lost, Lost, Lost, Lost]);
    let restored = to_restore(&asked, &outcome, &by_member);
    let of = |renewal: &Renewal| (renewal.claim.owner.sequence(), renewal.last_fence);
    assert_eq!(
        restored.iter().map(of).collect::<Vec<_>>(),
        [(1, 8), (4, 9)]
    );
    assert!(restored.iter().all(|renewal| renewal.count == 3));
}

/// Returns who has the lock of which an acquire was refused, after these replies of some of the members.
fn refused_by(members: usize, replies: &[Acquired]) -> TakenBy {
    match outcome(members, replies, false) {
        Some(Acquired::Taken { by, .. }) => by,
        outcome => panic!("{outcome:?}"),
    }
}

#[test]
fn a_lease_is_extended_by_a_majority_only() {
    use Applied::{Done, NotHeld};
    let outcome = |replies: &[Applied], extends| {
        let replies = replies.iter().collect();
        let members = 3;
        applied(&Votes { members, replies }, extends)
    };
    assert_eq!(outcome(&[Done, Done], true), Some(Done));
    assert_eq!(outcome(&[Done, NotHeld], true), None);
    assert_eq!(outcome(&[Done, NotHeld], false), Some(Done), "a release");
    assert_eq!(outcome(&[NotHeld, NotHeld], true), Some(NotHeld));
    assert_eq!(outcome(&[Done], false), None);
}

#[test]
fn a_fence_that_a_member_did_not_renew_belongs_to_an_earlier_hold() {
    let (earlier, new) = (5000, 5000 + 2 * OF_ONE_HOLD);
    assert_eq!(
        fences_of_hold(vec![earlier, new + 2, new], 3),
        [new + 2, new]
    );
    // The member was the last one to grant the lock, so that the client does not know its fence.
    assert_eq!(fences_of_hold(vec![new, earlier + 16], 3), [new]);
    assert_eq!(
        fences_of_hold(vec![earlier + OF_ONE_HOLD, earlier, 1], 3),
        [earlier + OF_ONE_HOLD]
    );
    assert_eq!(
        fences_of_hold(vec![earlier + OF_ONE_HOLD - 1, earlier, 1], 3).len(),
        2
    );
    assert_eq!(fences_of_hold(vec![4, 7, 5], 3), [7, 5]);
    assert!(fences_of_hold(Vec::new(), 3).is_empty());
}

#[test]
fn a_fence_above_which_a_majority_lies_is_not_that_of_the_token() {
    // A member whose clock is behind may have reached the fence of an earlier hold just now.
    let earlier = 4;
    assert_eq!(fences_of_hold(vec![earlier, 7, 9], 3), [9, 7]);
    assert_eq!(fences_of_hold(vec![earlier, 7], 3), [7]);
    assert_eq!(fences_of_hold(vec![3, earlier, 7, 8, 9], 5), [9, 8, 7]);
}

#[test]
fn a_lock_is_taken_only_if_the_refusals_name_one_holder_on_a_majority() {
    let [one, other] = [1, 2].map(|number| taken(TakenBy::Owner(owner(number))));
    let kept = taken(TakenBy::Unnamed);
    let split = TakenBy::NoMajority;
    let is = |members, replies: &[&Acquired]| {
        let replies: Vec<Acquired> = replies.iter().map(|reply| (*reply).clone()).collect();
        refused_by(members, &replies)
    };
    let mine = granted(7, false);
    assert_eq!(is(3, &[&mine, &one, &other]), split, "a vote each");
    assert_eq!(is(3, &[&mine, &one, &one]), TakenBy::Owner(owner(1)));
    assert_eq!(
        is(3, &[&one, &one]),
        TakenBy::Owner(owner(1)),
        "one is silent"
    );
    assert_eq!(is(3, &[&mine, &one]), split, "the silent one decides");
    assert_eq!(is(3, &[&one, &kept, &kept]), TakenBy::Unnamed, "`min_hold`");
    assert_eq!(is(3, &[&one, &other, &kept]), split);
    assert_eq!(is(5, &[&one, &one, &other, &other, &mine]), split);
    assert_eq!(
        is(5, &[&one, &one, &one, &other, &other]),
        TakenBy::Owner(owner(1))
    );
}

#[test]
fn a_grant_of_a_majority_has_its_largest_fence_and_tells_that_others_wait() {
    for (replies, wanted) in [
        ([granted(7, false), granted(9, true)], true),
        ([granted(9, false), granted(7, false)], false),
    ] {
        assert_eq!(outcome(3, &replies, false), Some(granted(9, wanted)));
    }
    assert_eq!(
        outcome(3, &[granted(7, false)], false),
        None,
        "the others may refuse it"
    );
}

#[test]
fn a_refused_owner_is_used_again_only_if_no_member_has_granted_it() {
    let other = || taken(TakenBy::Unnamed);
    let retired = |replies: &[Acquired], in_doubt| match outcome(3, replies, in_doubt) {
        Some(Acquired::Taken { retired, .. }) => retired,
        outcome => panic!("{outcome:?}"),
    };
    assert!(!retired(&[other(), other()], false));
    assert!(
        retired(&[other(), other()], true),
        "a silent member may grant it"
    );
    assert!(retired(&[other(), granted(7, false), other()], false));
}

#[test]
fn a_refused_owner_asks_when_a_majority_is_free_by_the_ends_of_the_leases() {
    let ms = Duration::from_millis;
    let place = |first| QueuePlace {
        first,
        watched: false,
        asks: Asks::Late,
    };
    let refused = |ttl| refused(Some(ms(ttl)), Some(place(ttl == 200)), TakenBy::Unnamed);
    let when = |replies: &[Acquired]| match outcome(3, replies, false) {
        Some(Acquired::Taken { ttl, queued, .. }) => (ttl, queued),
        outcome => panic!("{outcome:?}"),
    };
    let asks = |ttl: u64, first| (Some(ms(ttl + 5)), Some(place(first)));
    assert_eq!(
        when(&[300, 100, 200].map(refused)),
        asks(200, true),
        "two are free by then"
    );
    assert_eq!(
        when(&[refused(300), refused(100), granted(7, false)]),
        asks(100, false),
        "one is enough"
    );
    assert_eq!(
        when(&[taken(TakenBy::Unnamed), taken(TakenBy::Unnamed)]).0,
        None
    );
}

#[test]
fn a_call_waits_for_silent_members_no_longer_than_is_worth_it() {
    let ms = Duration::from_millis;
    let least = ms(20);
    assert_eq!(
        [1, 10, 100].map(|took| rest(ms(took), least)),
        [20, 100, 250].map(ms)
    );
    assert_eq!(decisive(ms(500), LEASE), ms(500));
    assert_eq!(
        [800, 80].map(|lease| decisive(ms(500), ms(lease))),
        [100, 20].map(ms)
    );
}

#[test]
fn a_member_tells_a_waiter_to_ask_again_a_little_later_and_grants_nothing_by_itself() {
    let ms = Duration::from_millis;
    let Claim { key, owner } = renewal(9).claim;
    let retry = |after| Notification::Retry {
        key: key.clone(),
        owner,
        after,
    };
    for (random, after) in [(0.0, 110), (1.0, 100)] {
        assert_eq!(
            of_member(retry(ms(100)), 3, || random),
            Some(retry(ms(after)))
        );
    }
    assert_eq!(of_member(Notification::Disconnected, 3, || 0.0), None);
}

#[test]
fn a_majority_keeps_a_hold_and_a_new_fence() {
    let held = |wanted, fence| RenewalOutcome::Held { wanted, fence };
    let of = |outcomes: &[RenewalOutcome]| {
        let replies = outcomes.iter().map(|outcome| Renewed {
            kept: vec![*outcome],
            sent_at: Time::default(),
        });
        let replies: Vec<_> = replies.collect();
        renewed(
            &Votes {
                members: 3,
                replies: replies.iter().collect(),
            },
            0,
        )
    };
    assert_eq!(
        of(&[held(true, 8), held(false, 9)]),
        held(true, 8),
        "a majority has that one"
    );
    assert_eq!(
        of(&[held(false, 8), RenewalOutcome::Lost]),
        RenewalOutcome::Unknown
    );
    assert_eq!(of(&[RenewalOutcome::Lost; 2]), RenewalOutcome::Lost);
}
