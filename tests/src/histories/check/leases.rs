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
//! Each member of a quorum is observed by itself. A member that an owner has left may still have it
//! queued, if it was lost meanwhile. That member grants it the lock for a moment, which is a vote
//! and not the lock.

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
    use super::{
        super::sample::{Sample, broken},
        Property,
    };

    const AFTER_LEASE: u64 = 100 + 1_500;

    #[test]
    fn the_lock_of_a_dead_owner_that_lasts_longer_is_found() {
        let mut sample = Sample::default();
        sample.hold("a:1", 1).called(0, 5, 100);
        sample.killed("a", 50);
        sample.seen("a:1", 10, 51 + AFTER_LEASE);
        assert_eq!(broken(&sample), [Property::NothingStaysLocked]);
    }

    #[test]
    fn the_lease_of_a_call_that_gave_up_in_the_same_queue_counts_and_no_other_s() {
        let sample = |process: &str, at: u64| {
            let mut sample = Sample::default();
            sample.gave_up(process, 400, at);
            sample.hold("a:1", 1).called(5_000, 5_010, 5_100);
            sample.killed("a", 5_050);
            sample.seen("a:1", 5_010, 5_050 + 400 + 1_500);
            sample
        };
        assert_eq!(sample("a", 5_005).violations(), []);
        for other in [sample("b", 5_005), sample("a", 1_999), sample("a", 5_011)] {
            assert_eq!(broken(&other), [Property::NothingStaysLocked]);
        }
    }

    #[test]
    fn the_lock_of_an_owner_that_left_and_is_renewed_for_ever_is_found() {
        let mut sample = Sample::default();
        sample.hold("a:1", 1).called(0, 5, 100).left(20);
        sample.seen("a:1", 10, 21 + AFTER_LEASE);
        assert_eq!(broken(&sample), [Property::NothingStaysLocked]);
    }

    #[test]
    fn a_lock_without_a_holder_is_found_if_it_lasts() {
        let mut sample = Sample::default();
        let longest = 3_000 + 2_000 + 1_500;
        sample.seen("a:1", 10, 10 + longest);
        assert_eq!(sample.violations(), []);
        sample.seen("a:2", 10, 11 + longest);
        assert_eq!(broken(&sample), [Property::NothingStaysLocked]);
    }

    #[test]
    fn what_a_paused_server_executes_late_counts_from_then() {
        let mut sample = Sample::default();
        sample.hold("a:1", 1).called(0, 5, 100);
        sample.killed("a", 50);
        sample.server_paused(40, 1_000);
        sample.seen("a:1", 10, 1_000 + AFTER_LEASE);
        assert_eq!(sample.violations(), []);
        sample.seen("a:1", 10, 1_001 + AFTER_LEASE);
        assert_eq!(broken(&sample), [Property::NothingStaysLocked]);
    }

    #[test]
    fn what_another_server_executes_late_does_not_count() {
        let mut sample = Sample::default();
        sample.hold("a:1", 1).called(0, 5, 100);
        sample.killed("a", 50);
        sample.server_paused(40, 1_000).at(0);
        sample.seen("a:1", 10, 1_000 + AFTER_LEASE).at(0);
        assert_eq!(sample.violations(), []);
        sample.seen("a:1", 10, 51 + AFTER_LEASE).at(1);
        assert_eq!(broken(&sample), [Property::NothingStaysLocked]);
    }

    #[test]
    fn one_of_several_servers_may_keep_a_lock_for_an_owner_that_left_for_a_moment() {
        let moment = 1_000 + 1_500;
        let mut sample = Sample::default();
        sample.hold("a:1", 1).called(0, 5, 100).left(20);
        sample.seen("a:1", 5_000, 5_000 + moment).at(1);
        assert_eq!(sample.violations(), []);
        sample.seen("a:1", 9_000, 9_001 + moment).at(1);
        assert_eq!(broken(&sample), [Property::NothingStaysLocked]);
        // A single server may not do this.
        let mut sample = Sample::default();
        sample.hold("a:1", 1).called(0, 5, 100).left(20);
        sample.seen("a:1", 5_000, 5_001);
        assert_eq!(broken(&sample), [Property::NothingStaysLocked]);
    }

    #[test]
    fn a_request_that_was_held_up_may_join_the_queue_again() {
        let moment = 1_000 + 1_500;
        let mut sample = Sample::default();
        sample.hold("a:1", 1).called(0, 5, 100).left(20);
        sample.server_paused(15, 1_000);
        sample.seen("a:1", 5_000, 5_000 + moment);
        assert_eq!(sample.violations(), []);
        sample.seen("a:1", 9_000, 9_001 + moment);
        assert_eq!(broken(&sample), [Property::NothingStaysLocked]);
        // Not if the lock was seen all along.
        let mut sample = Sample::default();
        sample.hold("a:1", 1).called(0, 5, 100).left(20);
        sample.server_paused(15, 1_000);
        sample.seen("a:1", 10, 1_001 + AFTER_LEASE);
        assert_eq!(broken(&sample), [Property::NothingStaysLocked]);
    }

    #[test]
    fn the_last_of_several_readers_of_one_owner_counts() {
        let mut sample = Sample::default();
        sample
            .hold("a:1s/1/0", 1)
            .called(0, 5, 100)
            .shares()
            .left(60);
        sample
            .hold("a:1s/1/1", 1)
            .called(6, 7, 100)
            .shares()
            .left(20);
        sample.seen("a:1s", 10, 60 + AFTER_LEASE);
        assert_eq!(sample.violations(), []);
        sample.seen("a:1s", 10, 61 + AFTER_LEASE);
        assert_eq!(broken(&sample), [Property::NothingStaysLocked]);
        let mut sample = Sample::default();
        sample.hold("a:1s/1/0", 1).called(0, 5, 100).shares();
        sample
            .hold("a:1s/1/1", 1)
            .called(6, 7, 100)
            .shares()
            .left(20);
        sample.seen("a:1s", 10, 1_000_000);
        assert_eq!(sample.violations(), []);
    }

    #[test]
    fn each_of_several_owners_has_its_own_end() {
        let mut sample = Sample::default();
        sample
            .hold("a:1.3p", 1)
            .called(0, 5, 100)
            .permit_of(3)
            .left(20);
        sample
            .hold("b:1.3p", 2)
            .called(0, 5, 100)
            .permit_of(3)
            .left(900);
        sample.seen("b:1.3p", 10, 900 + AFTER_LEASE);
        sample.seen("a:1.3p", 10, 20 + AFTER_LEASE);
        assert_eq!(sample.violations(), []);
        sample.seen("a:1.3p", 10, 21 + AFTER_LEASE);
        assert_eq!(broken(&sample), [Property::NothingStaysLocked]);
    }

    #[test]
    fn a_writer_that_shares_its_lock_is_the_same_owner() {
        let mut sample = Sample::default();
        let writer = sample.hold("a:1/1", 1).called(0, 5, 100);
        writer.downgraded(10).left(20);
        sample.seen("a:1s", 10, 20 + AFTER_LEASE);
        assert_eq!(sample.violations(), []);
        sample.seen("a:1s", 10, 21 + AFTER_LEASE);
        assert_eq!(broken(&sample), [Property::NothingStaysLocked]);
    }

    #[test]
    fn whatever_is_left_at_the_end_is_found() {
        let mut sample = Sample::default();
        sample.left_over("a subscription");
        assert_eq!(broken(&sample), [Property::NothingStaysLocked]);
    }

    #[test]
    fn a_refusal_is_found() {
        let mut sample = Sample::default();
        sample.refused();
        assert_eq!(broken(&sample), [Property::NothingIsRefused]);
    }
}
