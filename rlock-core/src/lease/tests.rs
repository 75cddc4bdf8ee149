use std::sync::Arc;

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::{
    clock::ClientClock,
    engine::ownership::{LocalQueues, Ownership},
    key::Key,
    options::LockOptions,
    owner::OwnerId,
    store::Grant,
};

/// Generates any accepted lease, short ones as often as long ones.
fn lease() -> impl Strategy<Value = Duration> {
    let (shortest, longest) = (nanos(MIN_LEASE), nanos(MAX_LEASE));
    let near = |lease: u64| Just(lease.clamp(shortest, longest));
    let any = (0_u32..24).prop_flat_map(move |doubled| {
        let from = (shortest << doubled).min(longest);
        from..=(from * 2).min(longest)
    });
    prop_oneof![
        8 => any,
        1 => near(shortest),
        1 => near(longest),
    ]
    .prop_map(Duration::from_nanos)
}

/// Generates a point in time within a century of the clock's start.
fn moment() -> impl Strategy<Value = Time> {
    let century = 100 * 366 * nanos(MAX_LEASE);
    (0..century).prop_map(Time::from_nanos)
}

/// Returns this many thousandths of a duration.
fn thousandths(of: Duration, parts: u64) -> Duration {
    let part = of.as_nanos() * u128::from(parts) / 1000;
    Duration::from_nanos(u64::try_from(part).expect("leases are short"))
}

/// Returns the shortest time for which the server keeps a lock. The server counts whole milliseconds,
/// from the beginning of the current one.
fn kept(lease: Duration) -> Duration {
    let millis = u64::try_from(lease.as_millis()).expect("leases are short");
    Duration::from_millis(millis - 1)
}

/// Returns when the server expires a lock that it granted at this moment, on the client's clock.
/// `speed` is that clock's speed in thousandths of the server's.
fn dropped(taken: Time, lease: Duration, speed: u64) -> Time {
    taken + thousandths(kept(lease), speed)
}

/// Generates the speed of a clock that is off by at most 1 %, and often by exactly that.
fn speed() -> impl Strategy<Value = u64> {
    prop_oneof![Just(990), 990..=1010_u64]
}

/// Generates the delay of a request in thousandths of the lease, often zero.
fn under_way() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 0..900_u64]
}

proptest! {
    #[test]
    fn a_hold_is_not_valid_for_longer_than_the_server_keeps_it(
        lease in lease(), sent_at in moment(), under_way in under_way(), speed in speed(),
    ) {
        let taken = sent_at + thousandths(lease, under_way);
        prop_assert!(valid_until(sent_at, lease) <= dropped(taken, lease, speed));
    }

    #[test]
    fn a_lease_is_valid_for_most_of_its_length(lease in lease(), sent_at in moment()) {
        let valid = valid_until(sent_at, lease).since(sent_at);
        prop_assert!(valid >= lease * 3 / 4, "{valid:?}");
        prop_assert!(valid < lease, "{valid:?}");
    }

    #[test]
    fn attempts_to_renew_follow_each_other_within_the_validity(
        lease in lease(), sent_at in moment(),
    ) {
        let due = renewal_due(sent_at, lease);
        prop_assert!(due >= sent_at + lease / 4 && due <= sent_at + lease / 3);
        let attempts = [0, 1, 2, 3].map(|n| due + renewal_attempt(lease) * n);
        prop_assert!(attempts.is_sorted_by(|one, next| one < next));
        let until = valid_until(sent_at, lease);
        prop_assert!(attempts[2] < until);
        // The shortest leases end before the last attempt, because of the margin.
        prop_assert!(attempts[3] < until || lease < Duration::from_millis(13));
    }

    /// Ownerships with the same lease that were granted at about the same time share their renewals.
    #[test]
    fn leases_of_about_the_same_age_come_due_in_few_moments(
        lease in lease(), sent_at in moment(), apart in 0..=1000_u64,
    ) {
        let others = sent_at + thousandths(lease / 12, apart);
        let (one, other) = (renewal_due(sent_at, lease), renewal_due(others, lease));
        let grid = lease / 12;
        prop_assert!(one == other || other == one + grid, "{one:?} {other:?}");
    }

    /// Requests may be sent late by less than one step of the grid.
    #[test]
    fn leases_that_came_due_together_are_renewed_every_third_and_no_sooner(
        lease in lease(), sent_at in moment(), late in 0..1000_u64,
    ) {
        let grid = lease / 12;
        let due = renewal_due(sent_at, lease);
        prop_assert_eq!(renewal_due(due + thousandths(grid, late), lease), due + grid * 4);
    }

    #[test]
    fn nothing_overflows_and_nothing_runs_backwards_at_any_extreme(
        seconds in prop_oneof![any::<u64>(), Just(0), Just(u64::MAX)],
        nanos in 0..1_000_000_000_u32,
        start in prop_oneof![any::<u64>(), Just(0), Just(u64::MAX)],
        other in any::<u64>(),
    ) {
        let (lease, sent_at) = (Duration::new(seconds, nanos), Time::from_nanos(start));
        let until = valid_until(sent_at, lease);
        prop_assert!(sent_at <= until && until <= sent_at + lease);
        let due = renewal_due(sent_at, lease);
        prop_assert!(sent_at <= due && due <= (sent_at + lease / 3).max(sent_at + lease / 4));
        prop_assert!(renewal_attempt(lease) <= lease);
        let other = Time::from_nanos(other);
        let apart = sent_at.since(other).max(other.since(sent_at));
        prop_assert_eq!(sent_at.min(other) + apart, sent_at.max(other));
        prop_assert_eq!(Time::NEVER + lease, Time::NEVER);
        prop_assert_eq!(Time::from(Duration::MAX), Time::NEVER);
    }

    /// Renewals are sent one after another. Each may reach the server late, each reply may be late or
    /// lost, and one may overtake another.
    #[test]
    fn a_hold_is_valid_only_while_the_server_keeps_it_however_late_anything_comes(
        lease in lease(),
        granted_at in moment(),
        speed in speed(),
        under_way in under_way(),
        renewals in prop::collection::vec((1..700_u64, under_way(), prop::option::of(0..1500_u64)), 0..12),
    ) {
        let hold = held(granted_at, lease);
        let mut kept_until = dropped(granted_at + thousandths(lease, under_way), lease, speed);
        let mut sent_at = granted_at;
        let mut executed = Vec::new();
        for (pause, late, answer) in renewals {
            sent_at = sent_at + thousandths(lease, pause);
            executed.push((sent_at + thousandths(lease, late), sent_at, answer));
        }
        executed.sort_unstable();
        let mut answers = Vec::new();
        for (at, sent_at, answer) in executed {
            // The server renews a lock only while it keeps it.
            if at < kept_until {
                kept_until = dropped(at, lease, speed);
                let answered = answer.map(|late| (at + thousandths(lease, late), sent_at));
                answers.extend(answered);
            }
        }
        answers.sort_unstable();
        let mut expected = valid_until(granted_at, lease);
        for (now, sent_at) in answers {
            hold.renewed(sent_at, (lease, 0), now);
            // A reply before the end extends the lease from the time of its request.
            if now < expected {
                expected = expected.max(valid_until(sent_at, lease));
            }
            prop_assert_eq!(hold.valid_until(), expected);
            prop_assert!(hold.valid_until() <= kept_until);
        }
    }

    /// A nested entry with another lease never shortens the confirmed lease, and is renewed in time.
    #[test]
    fn a_confirmation_of_any_lease_never_shortens_the_validity_and_is_renewed_within_it(
        (long, short) in (lease(), lease()), granted_at in moment(), later in 0..1000_u64,
    ) {
        let (hold, now) = (held(granted_at, long), granted_at + thousandths(long, later));
        let before = hold.valid_until();
        prop_assume!(now < before);
        hold.enter(&options(short), now, hold.settled_renewals(), now).expect("it is held");
        prop_assert!(hold.valid_until() >= before);
        prop_assert!(hold.valid_until() >= valid_until(now, short));
        let due = hold.missing_deadline(now).expect("no check is scheduled");
        prop_assert!(due <= hold.valid_until());
    }
}

fn options(lease: Duration) -> LockOptions {
    LockOptions {
        lease,
        ..LockOptions::default()
    }
}

/// Returns an ownership with a hold, granted to a request that was sent at this moment.
fn held(since: Time, lease: Duration) -> Arc<Ownership> {
    let key = Key::parse("k").expect("valid");
    let turn = Arc::new(LocalQueues::new(16, ClientClock::default()))
        .try_turn(&key)
        .expect("free");
    let owner = OwnerId::new(Uuid::nil(), 1);
    let hold = Ownership::new(ClientClock::default(), key, owner, lease);
    let grant = Grant {
        fence: 1,
        since,
        ttl: lease,
        wanted: false,
    };
    hold.begin(&options(lease), grant, turn, since)
        .expect("it is not lost");
    hold
}

/// A renewal may be sent long after it was due.
#[test]
fn a_hold_whose_validity_is_over_is_not_renewed() {
    let hold = held(Time::from_nanos(7), MAX_LEASE);
    let end = hold.valid_until();
    let before = Time::from_nanos(end.nanos() - 1);
    assert!(hold.begin_renewal(MAX_LEASE, before).is_some());
    assert!(hold.begin_renewal(MAX_LEASE, end).is_none());
}

#[test]
fn a_lease_that_is_shorter_than_its_margin_is_never_valid() {
    let now = Time::from_nanos(7);
    assert_eq!(valid_until(now, Duration::from_millis(1)), now);
    assert_eq!(valid_until(now, Duration::ZERO), now);
}
