//! The intervals in which owners could rely on a lock never overlap.
//!
//! An owner relies on its lock from its entry to the first of these events: it leaves, its reported
//! validity ends, the loss is reported, its process is killed, or its client shuts down. A renewal
//! may have extended the lock since the owner last checked. So the real interval may be longer, and
//! no false overlap is reported.
//!
//! No owner may rely on its lock for longer than the longest lease of its hold, because the next renewal sets the TTL to
//! that lease.
//!
//! A lock with `at_least` stays taken after its release. No client may rely on it in that interval.

use super::{Findings, Property};
use crate::histories::{
    clock::ms,
    history::{History, Hold},
};

struct Interval<'a> {
    hold: &'a Hold,
    /// What takes the lock in this interval.
    by: &'static str,
    begin: u64,
    end: u64,
    /// The earliest time of the grant.
    earliest: u64,
}

pub(super) fn check(history: &History, findings: &mut Findings) {
    for (key, lock) in &history.locks {
        for hold in lock.holds.iter().filter(|hold| hold.valid_for > hold.lease) {
            let (owner, valid_for, lease) = (&hold.owner, ms(hold.valid_for), ms(hold.lease));
            let what =
                format!("{key}: {owner} is valid for {valid_for} ms, its lease is {lease} ms");
            findings.breaks(Property::OneHolder, what);
        }
        let reliances = lock.holds.iter().map(|hold| reliance(history, hold));
        let keepings = lock.holds.iter().filter_map(keeping);
        let mut intervals: Vec<Interval<'_>> = reliances
            .chain(keepings)
            .filter(|interval| interval.begin < interval.end)
            .collect();
        intervals.sort_by_key(|interval| interval.begin);
        findings.beliefs += intervals.len() as u64;
        let mut present: Vec<&Interval<'_>> = Vec::new();
        for next in &intervals {
            present.retain(|before| before.end > next.begin);
            for before in &present {
                if before.hold.owner != next.hold.owner {
                    overlap(history, key, before, next, findings);
                }
            }
            present.push(next);
        }
    }
}

/// Returns the interval in which the holder could rely on its lock.
fn reliance<'a>(history: &History, hold: &'a Hold) -> Interval<'a> {
    Interval {
        hold,
        by: "held",
        begin: hold.granted,
        end: history.reliance_end(hold),
        earliest: hold.earliest,
    }
}

/// Returns the interval in which `at_least` keeps the lock. The store may round to milliseconds,
/// and its clock may differ by 1 %. The holder may be delayed between its grant and its clock
/// reading.
fn keeping(hold: &Hold) -> Option<Interval<'_>> {
    let (least, left) = (hold.at_least?, hold.left?);
    let margin = least / 100 + 2_000_000;
    hold.released.then(|| Interval {
        hold,
        by: "kept by `at_least`",
        begin: left,
        end: hold.earliest + least.saturating_sub(margin),
        earliest: hold.earliest,
    })
}

fn overlap(
    history: &History,
    key: &str,
    before: &Interval<'_>,
    next: &Interval<'_>,
    findings: &mut Findings,
) {
    let end = before.end.min(next.end);
    // The store forgot the first lock during its hold, or the second one before its late
    // notification.
    let by_nature = history.forgotten(key, before.earliest, next.begin)
        || history.forgotten(key, next.earliest, before.begin);
    if by_nature {
        findings.overlaps_by_nature += 1;
        let lasted = ms(end - next.begin);
        findings.longest_by_nature_ms = findings.longest_by_nature_ms.max(lasted);
        return;
    }
    let told = |interval: &Interval<'_>| {
        format!(
            "{} ({}, process {}, token {}, {} to {} ms)",
            interval.hold.owner,
            interval.by,
            interval.hold.process,
            interval.hold.token,
            ms(interval.begin),
            ms(interval.end)
        )
    };
    let what = format!(
        "{key}: {} and {} for {} µs",
        told(before),
        told(next),
        (end - next.begin) / 1_000
    );
    findings.breaks(Property::OneHolder, what);
}

#[cfg(test)]
mod tests {
    use super::{
        super::sample::{MS, Sample, broken},
        Property,
    };

    #[test]
    fn holds_one_after_the_other_do_not_overlap() {
        let mut sample = Sample::default();
        sample.hold("a:1", 1).called(0, 5, 100).left(20);
        sample.hold("b:1", 2).called(0, 20, 120).left(30);
        assert_eq!(sample.violations(), []);
        assert_eq!(sample.findings().beliefs, 2);
    }

    #[test]
    fn a_hold_inside_another_is_found() {
        let mut sample = Sample::default();
        sample.hold("a:1", 1).called(0, 5, 100).left(40);
        sample.hold("b:1", 2).called(0, 20, 120).left(30);
        assert_eq!(broken(&sample), [Property::OneHolder]);
    }

    #[test]
    fn a_hold_that_never_ended_lasts_as_long_as_it_is_valid() {
        let mut sample = Sample::default();
        sample.hold("a:1", 1).called(0, 5, 100);
        sample.hold("b:1", 2).called(0, 99, 190).left(130);
        assert_eq!(broken(&sample), [Property::OneHolder]);
        let mut sample = Sample::default();
        sample.hold("a:1", 1).called(0, 5, 100);
        sample.hold("b:1", 2).called(0, 100, 190).left(130);
        assert_eq!(sample.violations(), []);
    }

    #[test]
    fn a_renewal_that_was_seen_counts() {
        let mut sample = Sample::default();
        sample
            .hold("a:1", 1)
            .called(0, 5, 100)
            .looked(60, Some(160));
        sample.hold("b:1", 2).called(0, 110, 190).left(130);
        assert_eq!(broken(&sample), [Property::OneHolder]);
    }

    #[test]
    fn a_validity_beyond_the_lease_is_found() {
        for (until, is_broken) in [(160, false), (161, true)] {
            let mut sample = Sample::default();
            sample
                .hold("a:1", 1)
                .called(0, 5, 100)
                .looked(60, Some(until));
            assert_eq!(!broken(&sample).is_empty(), is_broken);
        }
    }

    #[test]
    fn a_loss_that_was_noticed_ends_the_reliance() {
        let mut sample = Sample::default();
        sample.hold("a:1", 1).called(0, 5, 100).looked(60, None);
        sample.hold("b:1", 2).called(0, 70, 160).left(80);
        assert_eq!(sample.violations(), []);
    }

    #[test]
    fn a_process_that_was_killed_relies_on_nothing() {
        let mut sample = Sample::default();
        sample.hold("a:1", 1).called(0, 5, 100);
        sample.killed("a", 60);
        sample.hold("b:1", 2).called(0, 70, 160).left(80);
        assert_eq!(sample.violations(), []);
    }

    #[test]
    fn a_guard_of_a_client_that_is_shut_down_is_not_relied_on_and_a_body_is() {
        let mut sample = Sample::default();
        sample.hold("a:1", 1).called(0, 5, 100);
        sample.closed("a", 60);
        sample.hold("b:1", 2).called(0, 70, 160).left(80);
        assert_eq!(sample.violations(), []);
        let mut sample = Sample::default();
        sample.hold("a:1", 1).called(0, 5, 100).runs();
        sample.closed("a", 60);
        sample.hold("b:1", 2).called(0, 70, 160).left(80);
        assert_eq!(broken(&sample), [Property::OneHolder]);
    }

    #[test]
    fn an_overlap_after_a_flush_is_counted_apart() {
        let mut sample = Sample::default();
        sample.hold("a:1", 1).called(0, 5, 100);
        sample.flushed(50, 51);
        sample.hold("b:1", 2).called(0, 60, 150).left(90);
        assert_eq!(sample.violations(), []);
        let findings = sample.findings();
        assert_eq!(findings.overlaps_by_nature, 1);
        assert_eq!(findings.longest_by_nature_ms, 30);
    }

    #[test]
    fn a_flush_before_both_or_after_both_excuses_nothing() {
        for at in [2, 61] {
            let mut sample = Sample::default();
            sample.hold("a:1", 1).called(3, 5, 103);
            sample.flushed(at, at);
            sample.hold("b:1", 2).called(55, 60, 160).left(90);
            assert_eq!(broken(&sample), [Property::OneHolder], "flushed at {at}");
        }
    }

    #[test]
    fn the_loss_of_another_lock_excuses_nothing() {
        let mut sample = Sample::default();
        sample.hold("a:1", 1).called(0, 5, 100);
        sample.deleted("another key", 50);
        sample.hold("b:1", 2).called(0, 60, 150).left(90);
        assert_eq!(broken(&sample), [Property::OneHolder]);
    }

    #[test]
    fn faults_that_lose_no_data_excuse_nothing() {
        let mut sample = Sample::default();
        sample.hold("a:1", 1).called(0, 5, 100);
        sample.server_paused(40, 55);
        sample.hold("b:1", 2).called(0, 60, 150).left(90);
        assert_eq!(broken(&sample), [Property::OneHolder]);
    }

    #[test]
    fn a_reply_that_arrives_after_the_lock_was_forgotten_is_by_nature_too() {
        let mut sample = Sample::default();
        // b was granted the lock before the flush, and is notified after a came in.
        sample.flushed(52, 53);
        sample.hold("a:1", 2).called(50, 55, 155);
        sample.hold("b:1", 1).called(0, 60, 148).left(70);
        assert_eq!(sample.violations(), []);
        assert_eq!(sample.findings().overlaps_by_nature, 1);
    }

    #[test]
    fn a_lock_that_is_to_stay_taken_and_is_given_is_found() {
        let mut sample = Sample::default();
        sample.hold("a:1", 1).called(0, 5, 100).keeps(50).left(10);
        sample.released("a:1");
        sample.hold("b:1", 2).called(0, 40, 140).left(50);
        assert_eq!(broken(&sample), [Property::OneHolder]);
        let mut sample = Sample::default();
        sample.hold("a:1", 1).called(0, 5, 100).keeps(50).left(10);
        sample.released("a:1");
        sample.hold("b:1", 2).called(0, 55, 140).left(60);
        assert_eq!(sample.violations(), []);
    }

    #[test]
    fn a_moment_is_enough() {
        let mut sample = Sample::default();
        sample.hold("a:1", 1).called(0, 5, 100).left(20);
        sample.hold("b:1", 2).called(0, 20, 120).left(30);
        sample.shift_last_grant(-1);
        assert_eq!(broken(&sample), [Property::OneHolder]);
        assert_eq!(MS, 1_000_000);
    }
}
