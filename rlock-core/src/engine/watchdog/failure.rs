//! Failed attempts at renewals, which are logged when they happen, not when the lease ends.

use std::{sync::Arc, time::Duration};

use super::Watchdog;
use crate::{
    engine::ownership::Ownership, escape_control::escape_control, lease::renewal_attempt,
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
    let now = watchdog.clock.now();
    let each = failures.iter().flat_map(|failure| {
        let ownerships = failure.ownerships.iter();
        ownerships.map(move |hold| (hold, failure))
    });
    let holds = each.filter(|(hold, _)| hold.is_held() && hold.broken(now).is_none());
    let count = holds.clone().count();
    let Some((hold, failure)) = holds.min_by_key(|(hold, _)| hold.valid_until()) else {
        return;
    };
    let remaining = hold.valid_until().since(now);
    let keys = failure.ownerships.iter().map(|ownership| &ownership.key);
    let (attempt, error) = (failure.attempt, failure.error.clone().hide(keys));
    hold.in_span(|| {
        let key = escape_control(hold.shown());
        tracing::warn!(%key, owner = %hold.owner, holds = count, attempt, ?remaining, %error,
            "renewal failed, it will be tried again");
    });
}
