//! Nothing stays locked for longer than its lease after its owner died or left.
//!
//! An observer sees the locks on the store. A request on its way when its owner ends may run after
//! any delay, and its lease counts from then. A request of a waiter may join the queue again, so the lock is
//! handed off to the owner once more, and its client returns it within the grace period.
//!
//! Several holds may have one owner, in turn or together. The last one to end counts.
//!
//! An owner without an entry stands for a call that retries until its wait ends. So it may own the
//! lock for its wait and a lease more without noticing.
//!
//! The next local waiter continues with the same owner. So a request of an abandoned call with a
//! longer lease may have been on its way, too. The longest lease counts.
//!
//! Each member of a quorum is observed by itself. A member that an owner has left may still have the owner in its
//! queue, if the lock was lost there before. That member grants it the lock for a moment, which is a vote and not the
//! lock.

use super::{Findings, Property};
use crate::histories::{
    clock::ms,
    history::{GRACE, History, Hold, Lock},
    record::{Fault, Sighting, client_of},
};

/// The longest lease in a run.
pub(in crate::histories) const LONGEST_LEASE: u64 = 2_000_000_000;
/// The longest wait in a run.
pub(in crate::histories) const LONGEST_WAIT: u64 = 3_000_000_000;
/// The longest retention in a run.
pub(in crate::histories) const LONGEST_RETAIN: u64 = 300_000_000;
/// The delay of a busy machine.
const SLACK: u64 = 1_500_000_000;
/// A fault that starts within this time after the end of an owner may still delay its last request.
const ON_ITS_WAY: u64 = 200_000_000;

pub(super) fn check(history: &History, findings: &mut Findings) {
    let mut delays: Vec<&Fault> = history
        .faults
        .iter()
        .filter(|fault| fault.kind.holds_up())
        .collect();
    delays.sort_by_key(|fault| fault.start);
    for (key, lock) in &history.locks {
        for sighting in &lock.sightings {
            let Some((ended, lease)) = end_of(history, lock, sighting) else {
                continue;
            };
            let process = history.process_of(&sighting.owner);
            let arrived = held_up(&delays, process, sighting.server, ended);
            let mut bound = arrived + lease + SLACK;
            let may_be_queued = sighting.server.is_some() || arrived > ended;
            if may_be_queued && sighting.first > ended {
                bound = bound.max(sighting.first + GRACE + SLACK);
            }
            if sighting.last > bound {
                let what = format!(
                    "{key}: still locked for {} at {} ms, though it ended at {} ms and its lease is {} ms",
                    sighting.owner,
                    ms(sighting.last),
                    ms(ended),
                    ms(lease)
                );
                findings.breaks(Property::NothingStaysLocked, what);
            }
        }
    }
}

/// Returns the end of the owner and its lease; `None` if it has not ended.
fn end_of(history: &History, lock: &Lock, sighting: &Sighting) -> Option<(u64, u64)> {
    let died = history.dead.get(client_of(&sighting.owner)).copied();
    let mut holds = lock.holds_of(&sighting.owner).peekable();
    if holds.peek().is_none() {
        let gave_up = sighting.first + LONGEST_WAIT;
        let died = died.map_or(gave_up, |died| died.max(sighting.first));
        return Some((gave_up.min(died), LONGEST_LEASE));
    }
    holds.try_fold((0, 0), |(latest, longest), hold| {
        // A killed owner did not leave.
        let ended = hold.left.into_iter().chain(died).min()?;
        let lease = lease_of(lock, hold);
        Some((latest.max(ended + hold.retain), longest.max(lease)))
    })
}

/// Returns the longest lease that calls of this owner asked for, by the entry of this hold.
fn lease_of(lock: &Lock, hold: &Hold) -> u64 {
    let given_up = lock.given_up.iter().filter(|call| {
        let before = call.at + LONGEST_WAIT >= hold.invoke && call.at <= hold.granted;
        before && call.process == hold.process
    });
    let asked_before = given_up.map(|call| call.lease).max();
    hold.lease.max(asked_before.unwrap_or(0))
}

/// Returns the latest arrival of a request that was on its way at this time.
fn held_up(delays: &[&Fault], process: Option<u32>, server: Option<usize>, mut at: u64) -> u64 {
    for delay in delays {
        let concerns = (delay.process.is_none() || process.is_none() || delay.process == process)
            && (delay.server.is_none() || server.is_none() || delay.server == server);
        if concerns && delay.start <= at + ON_ITS_WAY && delay.end > at {
            at = delay.end;
        }
    }
    at
}
