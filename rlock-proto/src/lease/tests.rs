//! Tests when a lease ends and when it is renewed, with random clocks and delays.

use proptest::prelude::*;

use super::*;

/// Generates any accepted lease, short ones as often as long ones.
pub(crate) fn lease() -> impl Strategy<Value = Duration> {
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
pub(crate) fn moment() -> impl Strategy<Value = Time> {
    let century = 100 * 366 * nanos(MAX_LEASE);
    (0..century).prop_map(Time::from_nanos)
}

/// Returns this many thousandths of a duration.
pub(crate) fn thousandths(of: Duration, parts: u64) -> Duration {
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
pub(crate) fn dropped(taken: Time, lease: Duration, speed: u64) -> Time {
    taken + thousandths(kept(lease), speed)
}

/// Generates the speed of a clock that is off by at most 1 %, and often by exactly that.
pub(crate) fn speed() -> impl Strategy<Value = u64> {
    prop_oneof![Just(990), 990..=1010_u64]
}

/// Generates the delay of a request in thousandths of the lease, often zero.
pub(crate) fn under_way() -> impl Strategy<Value = u64> {
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
        let attempts = [0, 1, 2, 3].map(|n| due + renewal_retry(lease) * n);
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
        prop_assert!(renewal_retry(lease) <= lease);
        let other = Time::from_nanos(other);
        let apart = sent_at.since(other).max(other.since(sent_at));
        prop_assert_eq!(sent_at.min(other) + apart, sent_at.max(other));
        prop_assert_eq!(Time::NEVER + lease, Time::NEVER);
        prop_assert_eq!(Time::from(Duration::MAX), Time::NEVER);
    }
}
