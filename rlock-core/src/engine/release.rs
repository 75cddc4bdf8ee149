//! The end of an entry. A release is sent by its caller ([`settle`]), or by the release queue in the background
//! ([`background`]), which also takes over a release or an acquire whose future was dropped.

pub(crate) mod background;
mod settle;

use std::sync::Arc;

pub(crate) use self::settle::{ReleaseOnDrop, settle_now};
use crate::{
    engine::{
        core::Core,
        ownership::{AfterLeave, EntryId, Ownership},
    },
    error::{LockError, LostCause},
    lease::Time,
    observe::{EndedHold, HoldEnd},
};

/// Removes an entry. Returns whether the store's count has to change, and the hold that has ended.
fn remove(
    core: &Core,
    ownership: &Arc<Ownership>,
    (entry, end): (EntryId, HoldEnd),
    may_continue: bool,
    now: Time,
) -> (bool, Option<EndedHold>) {
    let (left, ended) = ownership.leave(entry, end, may_continue, core.counts_entries(), now);
    let concerns_store = match left {
        AfterLeave::Lower => core.counts_entries(),
        AfterLeave::Release => {
            // Renewal ends before the release is sent.
            core.watchdog.forget(ownership);
            true
        }
        AfterLeave::HandOver(turn) => {
            if ownership.runs_low() {
                core.watchdog.track(ownership, now);
            }
            drop(turn);
            false
        }
        AfterLeave::Retained => {
            ownership.runs_low();
            core.watchdog.track(ownership, now);
            core.queues.check_retained(&ownership.key);
            false
        }
    };
    core.ended();
    (concerns_store, ended)
}

/// Returns whether an ownership may continue after a hold that ends without a loss.
fn may_continue(core: &Core) -> bool {
    // Replicas confirm each hold.
    core.options.replicas.is_none() && !core.is_closed()
}

/// Removes an entry without waiting.
pub(crate) fn leave_in_background(
    core: &Core,
    ownership: &Arc<Ownership>,
    entry: (EntryId, HoldEnd),
) {
    // A drain that ends before the release is queued would leave the lock to its lease.
    let _call = core.call();
    let now = core.clock.now();
    let (concerns_store, ended) = remove(core, ownership, entry, may_continue(core), now);
    if concerns_store {
        core.releases().settle(Arc::clone(ownership));
    }
    if let Some(ended) = ended {
        core.watchdog.close_later(|| ended.close());
    }
}

/// Removes an entry, which may be `broken` already. Returns the outcome, or `None` if a request is necessary: see
/// [`settle_now`].
pub(crate) fn leave(
    core: &Core,
    ownership: &Arc<Ownership>,
    entry: (EntryId, HoldEnd),
    broken: Option<LostCause>,
    now: Time,
) -> Option<Result<(), LockError>> {
    // A hold that was revoked, or reached its `max_hold`, has kept its ownership, and releases it as any other.
    let keeps = |cause: &LostCause| {
        matches!(cause, LostCause::Revoked | LostCause::MaxHold) && ownership.is_owned()
    };
    let lost = broken.and_then(|_| ownership.broken(now));
    let lost = lost.filter(|cause| !keeps(cause));
    let unreported = lost.filter(|cause| core.watchdog.lose_unreported(ownership, *cause));
    let may_continue = broken.is_none() && may_continue(core);
    let (concerns_store, ended) = remove(core, ownership, entry, may_continue, now);
    // Releases the lock even if a subscriber panics below.
    let release_on_drop = concerns_store.then(|| ReleaseOnDrop::new(core, ownership));
    if let Some(cause) = unreported {
        core.watchdog.report(ownership, cause);
    }
    if let Some(ended) = ended {
        ended.close();
    }
    match release_on_drop {
        // The store, or some of its servers, may still have the lock.
        Some(release_on_drop) if lost.is_some() => drop(release_on_drop),
        Some(release_on_drop) => {
            release_on_drop.disarm();
            return None;
        }
        None => {}
    }
    let outcome = broken
        .or(lost)
        .map_or(Ok(()), |cause| Err(ownership.lost_error(cause)));
    Some(outcome)
}
