//! Failed attempts at renewals, which are logged when they happen, not when the lease ends.

use std::{sync::Arc, time::Duration};

use super::Watchdog;
use crate::{
    hold::Hold,
    lease::{Time, renewal_attempt},
    store::StoreError,
};

/// Holds whose renewal failed, for the same reason.
pub(super) struct Failure {
    pub(super) holds: Vec<Arc<Hold>>,
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

/// Logs one line for all of these failures, with the hold whose lease ends first. Logs nothing for holds
/// that are not held any more, because a loss is the last log line of a hold.
pub(super) fn report(watchdog: &Watchdog, failures: &[Failure]) {
    let (mut count, mut first) = (0, None::<(Time, &Hold, &Failure)>);
    for failure in failures {
        let holds = failure.holds.iter();
        for hold in holds.filter(|hold| hold.is_held() && hold.broken().is_none()) {
            count += 1;
            let end = hold.valid_until();
            if first.is_none_or(|(earliest, ..)| end < earliest) {
                first = Some((end, hold, failure));
            }
        }
    }
    let Some((end, hold, Failure { attempt, error, .. })) = first else {
        return;
    };
    let remaining = end.since(watchdog.clock.now());
    tracing::warn!(key = %hold.key, owner = %hold.owner, holds = count, attempt, ?remaining, %error,
        "renewal failed, it will be tried again");
}
