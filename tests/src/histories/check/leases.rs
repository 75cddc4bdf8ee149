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
    history::{GRACE, History, Hold, Lock, Sighting},
    record::{Fault, client_of},
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

#[cfg(test)]
mod tests {
    use super::super::sample::check_cases;

    const CASES: &str = "
        # the lock of a dead owner that lasts longer is found: a lease and 1.5 s after its end
        hold a:1 1 0 5 100; killed a 50; seen a:1 10 1651
        => NothingStaysLocked
        # the lease of a call that gave up in the same queue counts
        gave-up a 400 5005; hold a:1 1 5000 5010 5100; killed a 5050; seen a:1 5010 6950
        => nothing
        # that of another client does not
        gave-up b 400 5005; hold a:1 1 5000 5010 5100; killed a 5050; seen a:1 5010 6950
        => NothingStaysLocked
        # nor that of a call long before
        gave-up a 400 1999; hold a:1 1 5000 5010 5100; killed a 5050; seen a:1 5010 6950
        => NothingStaysLocked
        # nor that of a call after the grant
        gave-up a 400 5011; hold a:1 1 5000 5010 5100; killed a 5050; seen a:1 5010 6950
        => NothingStaysLocked
        # the lock of an owner that left and is renewed forever is found
        hold a:1 1 0 5 100 left 20; seen a:1 10 1621
        => NothingStaysLocked
        # a lock without a holder is found if it lasts
        seen a:1 10 6510
        => nothing
        seen a:2 10 6511
        => NothingStaysLocked
        # what a paused server executes late counts from then
        hold a:1 1 0 5 100; killed a 50; paused 40 1000; seen a:1 10 2600
        => nothing
        seen a:1 10 2601
        => NothingStaysLocked
        # what another server executes late does not count
        hold a:1 1 0 5 100; killed a 50; paused 40 1000 on 0; seen a:1 10 2600 on 0
        => nothing
        seen a:1 10 1651 on 1
        => NothingStaysLocked
        # one of several servers may keep a lock for an owner that left for a moment
        hold a:1 1 0 5 100 left 20; seen a:1 5000 7500 on 1
        => nothing
        seen a:1 9000 11501 on 1
        => NothingStaysLocked
        # a single server may not do this
        hold a:1 1 0 5 100 left 20; seen a:1 5000 5001
        => NothingStaysLocked
        # a request that was held up may join the queue again
        hold a:1 1 0 5 100 left 20; paused 15 1000; seen a:1 5000 7500
        => nothing
        seen a:1 9000 11501
        => NothingStaysLocked
        # not if the lock was seen all along
        hold a:1 1 0 5 100 left 20; paused 15 1000; seen a:1 10 2601
        => NothingStaysLocked
        # the last of several readers of one owner counts
        hold a:1s/1/0 1 0 5 100 shares left 60; hold a:1s/1/1 1 6 7 100 shares left 20; seen a:1s 10 1660
        => nothing
        seen a:1s 10 1661
        => NothingStaysLocked
        # one of them has not left
        hold a:1s/1/0 1 0 5 100 shares; hold a:1s/1/1 1 6 7 100 shares left 20; seen a:1s 10 1000000
        => nothing
        # each of several owners has its own end
        hold a:1.3p 1 0 5 100 permits 3 left 20; hold b:1.3p 2 0 5 100 permits 3 left 900; seen b:1.3p 10 2500
        seen a:1.3p 10 1620
        => nothing
        seen a:1.3p 10 1621
        => NothingStaysLocked
        # a writer that shares its lock is the same owner
        hold a:1/1 1 0 5 100 downgraded 10 left 20; seen a:1s 10 1620
        => nothing
        seen a:1s 10 1621
        => NothingStaysLocked
        # whatever is left at the end is found
        left-over subscription
        => NothingStaysLocked
        # a refusal is found
        refused
        => NothingIsRefused
    ";

    #[test]
    fn a_lock_that_stays_taken_or_is_refused_is_found() {
        check_cases(CASES);
    }
}
