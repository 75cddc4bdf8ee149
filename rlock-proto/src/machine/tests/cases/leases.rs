//! Leases of any length, whose replies come at any time.

use std::time::Duration;

use proptest::prelude::*;

use super::super::super::ownership::{Due, Ownership};
use crate::{
    lease::{
        Time,
        tests::{dropped, lease, moment, speed, thousandths, under_way},
        valid_until,
    },
    lost::LostCause,
    options::LockOptions,
    store::{Grant, TOKENS},
};

fn terms(lease: Duration) -> LockOptions {
    LockOptions {
        lease,
        ..LockOptions::default()
    }
}

/// Returns an ownership with a hold, granted to a request that was sent at this moment.
fn held(since: Time, lease: Duration) -> Ownership {
    let mut own = Ownership::new(1, crate::mode::LockMode::Exclusive, lease, TOKENS);
    let grant = Grant {
        fence: 1,
        since,
        ttl: lease,
        wanted: false,
    };
    own.begin(&terms(lease), false, grant, since)
        .expect("a token is left");
    own
}

proptest! {
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
        let mut own = held(granted_at, lease);
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
            own.confirmed(sent_at, lease, 0, now);
            // A reply before the end extends the lease from the time of its request.
            if now < expected {
                expected = expected.max(valid_until(sent_at, lease));
            }
            prop_assert_eq!(own.time_limit().0, expected);
            prop_assert!(own.time_limit().0 <= kept_until);
        }
    }

    #[test]
    fn a_hold_whose_validity_is_over_is_lost_and_not_renewed(lease in lease(), since in moment()) {
        let own = held(since, lease);
        let end = own.time_limit().0;
        prop_assert_eq!(own.due_for(end), Due::Lost(LostCause::Expired));
        let before = Time::from_nanos(end.nanos() - 1);
        prop_assert_eq!(own.due_for(before), Due::Renewal(lease));
    }
}
