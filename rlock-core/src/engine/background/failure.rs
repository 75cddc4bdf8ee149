//! Logs a renewal that fails when it happens, not only when the lease ends.

use std::sync::Arc;

use rlock_proto::{
    escape_control::escape_control,
    lease::{Time, renewal_retry},
    machine::Renew,
};

use crate::{
    engine::{core::Core, hold_record::HoldRecord, shell::RenewalFailure},
    wording::shown,
};

/// Returns the number of an attempt. The first one starts after a quarter of the lease at the earliest.
fn attempt_number(renew: &Renew) -> u128 {
    let lease = renew.confirmed;
    let passed = lease.saturating_sub(renew.rest).saturating_sub(lease / 4);
    1 + passed.as_nanos() / renewal_retry(lease).as_nanos().max(1)
}

/// Returns a hold and until when it is valid. Locks that are no longer held have none: a loss is the last log line of a
/// hold.
pub(super) fn present(core: &Core, renew: &Renew) -> Option<(Time, Arc<HoldRecord>)> {
    let until = core.shell.read(|machine, now| {
        let own = machine.own(&renew.key, renew.owner)?;
        own.valid_until(now).ok()
    })?;
    Some((until, core.shell.hold(renew.owner)?))
}

/// Logs one line for all of these failures, with the hold whose lease ends first.
pub(super) fn report(core: &Core, failures: &[RenewalFailure]) {
    let each = failures.iter().flat_map(|failure| {
        let holds = failure.batch.iter();
        holds.filter_map(move |renew| Some((present(core, renew)?, renew, failure)))
    });
    let holds: Vec<_> = each.collect();
    let count = holds.len();
    let Some(((until, hold), renew, failure)) =
        holds.into_iter().min_by_key(|((until, _), ..)| *until)
    else {
        return;
    };
    let remaining = until.since(core.clock.now());
    let keys = failure.batch.iter().map(|renew| &renew.key);
    let (attempt, error) = (attempt_number(renew), failure.error.clone().hide(keys));
    hold.in_span(|| {
        let key = escape_control(hold.key.shown());
        let owner = core.owner_id(hold.owner, hold.mode);
        tracing::warn!(%key, %owner, holds = count, attempt, remaining = %shown(remaining), %error,
            "renewal failed, it will be tried again");
    });
}
