//! Failed attempts at renewals, which are logged when they happen, not when the lease ends.

use std::{sync::Arc, time::Duration};

use super::Watchdog;
use crate::{
    engine::ownership::Ownership,
    escape_control::escape_control,
    lease::{Time, renewal_attempt},
    store::StoreError,
};

/// Ownerships whose renewal failed for the same reason.
pub(super) struct Failure {
    pub(super) ownerships: Vec<Arc<Ownership>>,
    /// The number of the attempt within the lease.
    pub(super) attempt: u128,
    pub(super) error: StoreError,
}

/// Returns the number of an attempt that is made when `left` of the lease remains. The first one
/// starts after a quarter of the lease at the earliest.
pub(super) fn attempt_number(lease: Duration, left: Duration) -> u128 {
    let passed = lease.saturating_sub(left).saturating_sub(lease / 4);
    1 + passed.as_nanos() / renewal_attempt(lease).as_nanos().max(1)
}

/// Logs one line for all of these failures, with the ownership whose lease ends first. Logs nothing for ownerships
/// that are no longer held, because a loss is the last log line of a hold.
pub(super) fn report(watchdog: &Watchdog, failures: &[Failure]) {
    let (mut count, mut first) = (0, None::<(Time, &Ownership, &Failure)>);
    for failure in failures {
        let ownerships = failure.ownerships.iter();
        for hold in
            ownerships.filter(|hold| hold.is_held() && hold.broken(watchdog.clock.now()).is_none())
        {
            count += 1;
            let end = hold.valid_until();
            if first.is_none_or(|(earliest, ..)| end < earliest) {
                first = Some((end, hold, failure));
            }
        }
    }
    let Some((
        end,
        hold,
        Failure {
            ownerships,
            attempt,
            error,
        },
    )) = first
    else {
        return;
    };
    let remaining = end.since(watchdog.clock.now());
    let error = error
        .clone()
        .hide(ownerships.iter().map(|ownership| &ownership.key));
    hold.in_span(|| {
        let key = escape_control(hold.shown());
        tracing::warn!(%key, owner = %hold.owner, holds = count, attempt, ?remaining, %error,
            "renewal failed, it will be tried again");
    });
}
