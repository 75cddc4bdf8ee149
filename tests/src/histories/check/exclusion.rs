//! The intervals in which owners could rely on a lock overlap only if their modes allow that.
//!
//! An exclusive hold overlaps no other hold. Shared holds overlap each other, and so do permits, but
//! never more of them than their number. A hold that its owner downgrades is exclusive until
//! then. No nested call enters a hold whose mode does not allow it.
//!
//! An owner relies on its lock from its entry to the first of these events: it leaves, its reported
//! validity ends, the loss is reported, its process is killed, or its client shuts down. A renewal
//! may have extended the lock since the owner last checked. So the real interval may be longer, and
//! no false overlap is reported.
//!
//! No owner may rely on its lock for longer than the longest lease of its hold, because the next renewal sets the TTL to
//! that lease.
//!
//! A lock with `min_hold` stays taken after its release. No client may rely on it in that interval, unless the mode of
//! the released hold allows that. The store does not confirm the release of a call that shared its hold, so that interval
//! does not count.

use super::{Findings, Property};
use crate::histories::{
    clock::ms,
    history::{History, Hold, Lock},
    mode::Mode,
};

struct Interval<'a> {
    hold: &'a Hold,
    mode: Mode,
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
        nested(key, lock, findings);
        let reliances = lock.holds.iter().flat_map(|hold| reliance(history, hold));
        let keepings = lock.holds.iter().filter_map(|hold| keeping(lock, hold));
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
                let is_other = before.hold.owner != next.hold.owner;
                if is_other && !before.mode.tolerates(next.mode) {
                    overlap(history, key, before, next, findings);
                }
            }
            permits(history, key, &present, next, findings);
            present.push(next);
        }
    }
}

/// Checks that each nested call may enter the hold around it.
fn nested(key: &str, lock: &Lock, findings: &mut Findings) {
    for nested in &lock.nested {
        let Some(outer) = lock.hold(&nested.owner) else {
            continue;
        };
        let is_shared = outer.downgraded.is_some_and(|at| at < nested.called);
        let mode = if is_shared { Mode::Shared } else { outer.mode };
        if !nested.mode.may_enter(mode) {
            let (owner, inner) = (&nested.owner, nested.mode);
            let what = format!("{key}: a nested call ({inner}) entered {owner} ({mode})");
            findings.breaks(Property::OneHolder, what);
        }
    }
}

/// Returns the interval in which the holder could rely on its lock, and the one in which it shared it.
fn reliance<'a>(history: &History, hold: &'a Hold) -> [Interval<'a>; 2] {
    let end = history.reliance_end(hold);
    let shared_at = hold.downgraded.map_or(end, |at| at.min(end));
    let part = |mode, begin, end| Interval {
        hold,
        mode,
        by: "held",
        begin,
        end,
        earliest: hold.earliest,
    };
    [
        part(hold.mode, hold.granted, shared_at),
        part(Mode::Shared, shared_at, end),
    ]
}

/// Returns the interval in which `min_hold` keeps the lock. The store may round to milliseconds,
/// and its clock may differ by 1 %. The holder may be delayed between its grant and its clock
/// reading.
fn keeping<'a>(lock: &Lock, hold: &'a Hold) -> Option<Interval<'a>> {
    let (least, left) = (hold.kept_for?, hold.left?);
    let mut others = lock.holds_of(&hold.owner);
    let is_alone = !hold.is_reader() || others.all(|other| other.owner == hold.owner);
    let margin = least / 100 + 2_000_000;
    (hold.released && is_alone).then(|| Interval {
        hold,
        mode: hold.last_mode(),
        by: "kept by `min_hold`",
        begin: left,
        end: hold.earliest + least.saturating_sub(margin),
        earliest: hold.earliest,
    })
}

/// Returns whether the store forgot the first lock during its hold, or the second one before its
/// late notification.
fn is_by_nature(history: &History, key: &str, before: &Interval<'_>, next: &Interval<'_>) -> bool {
    history.forgotten(key, before.earliest, next.begin)
        || history.forgotten(key, next.earliest, before.begin)
}

fn description(interval: &Interval<'_>) -> String {
    format!(
        "{} ({}, {}, process {}, token {}, {} to {} ms)",
        interval.hold.owner,
        interval.mode,
        interval.by,
        interval.hold.process,
        interval.hold.token,
        ms(interval.begin),
        ms(interval.end)
    )
}

fn overlap(
    history: &History,
    key: &str,
    before: &Interval<'_>,
    next: &Interval<'_>,
    findings: &mut Findings,
) {
    let end = before.end.min(next.end);
    let what = format!(
        "{key}: {} and {} for {} µs",
        description(before),
        description(next),
        (end - next.begin) / 1_000
    );
    if is_by_nature(history, key, before, next) {
        findings.overlap_by_nature(ms(end - next.begin), Property::OneHolder, what);
    } else {
        findings.breaks(Property::OneHolder, what);
    }
}

/// Checks that no more permits are held than their number.
fn permits(
    history: &History,
    key: &str,
    present: &[&Interval<'_>],
    next: &Interval<'_>,
    findings: &mut Findings,
) {
    let Mode::Permits(most) = next.mode else {
        return;
    };
    let is_other = |before: &Interval<'_>| {
        before.mode.tolerates(next.mode) && before.hold.owner != next.hold.owner
    };
    let others = present.iter().filter(|before| is_other(before));
    let (forgotten, counted): (Vec<&Interval<'_>>, Vec<&Interval<'_>>) =
        others.partition(|before| is_by_nature(history, key, before, next));
    let most = most as usize;
    let beside = |others: &[&Interval<'_>]| {
        let all: Vec<String> = others.iter().map(|other| description(other)).collect();
        let count = all.len();
        format!(
            "{key}: {} beside {count} others: {}",
            description(next),
            all.join(", ")
        )
    };
    if counted.len() >= most {
        findings.breaks(Property::NoExtraPermit, beside(&counted));
    } else if forgotten.len() + counted.len() >= most {
        let ends = forgotten.iter().map(|before| before.end.min(next.end));
        let lasted = ends.max().map_or(0, |end| end - next.begin);
        let what = beside(&[counted, forgotten].concat());
        findings.overlap_by_nature(ms(lasted), Property::NoExtraPermit, what);
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::sample::{MS, Sample, broken},
        Mode, Property,
    };

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

    #[test]
    fn readers_overlap_and_a_writer_overlaps_none() {
        for (granted, is_broken) in [(40, false), (39, true)] {
            let mut sample = Sample::default();
            sample
                .hold("a:1s/7/0", 7)
                .called(0, 5, 100)
                .shares()
                .left(30);
            sample
                .hold("b:1s/6/0", 6)
                .called(0, 10, 105)
                .shares()
                .left(40);
            sample
                .hold("c:1/8", 8)
                .called(1, granted, 130)
                .left(granted + 5);
            let expected: &[Property] = if is_broken {
                &[Property::OneHolder]
            } else {
                &[]
            };
            assert_eq!(broken(&sample), expected);
        }
    }

    #[test]
    fn a_reader_beside_a_writer_or_a_permit_is_found() {
        let mut sample = Sample::default();
        sample.hold("a:1", 1).called(0, 5, 100).left(30);
        sample
            .hold("b:1s/2/0", 2)
            .called(0, 20, 115)
            .shares()
            .left(40);
        assert_eq!(broken(&sample), [Property::OneHolder]);
        let mut sample = Sample::default();
        sample
            .hold("a:1.3p", 1)
            .called(0, 5, 100)
            .permit_of(3)
            .left(30);
        sample
            .hold("b:1s/2/0", 2)
            .called(0, 20, 115)
            .shares()
            .left(40);
        assert_eq!(broken(&sample), [Property::OneHolder]);
    }

    #[test]
    fn a_writer_that_shares_its_lock_overlaps_readers_from_then_on() {
        for (at, is_broken) in [(20, false), (21, true)] {
            let mut sample = Sample::default();
            let writer = sample.hold("a:1/1", 1).called(0, 5, 100);
            writer.downgraded(at).left(40);
            sample
                .hold("b:1s/2/0", 2)
                .called(0, 20, 115)
                .shares()
                .left(50);
            assert_eq!(!broken(&sample).is_empty(), is_broken);
            sample.hold("c:1", 3).called(0, 39, 130).left(60);
            assert_eq!(broken(&sample), [Property::OneHolder]);
        }
    }

    #[test]
    fn one_permit_too_many_is_found() {
        let sample = |granted| {
            let mut sample = Sample::default();
            for (client, token) in [("a", 1), ("b", 2)] {
                let permit = sample.hold(&format!("{client}:1.2p"), token);
                permit.called(0, 5, 100).permit_of(2).left(30);
            }
            let permit = sample.hold("c:1.2p", 3).called(0, granted, 125);
            permit.permit_of(2).left(60);
            sample
        };
        assert_eq!(sample(30).violations(), []);
        assert_eq!(broken(&sample(29)), [Property::NoExtraPermit]);
    }

    #[test]
    fn a_permit_too_many_after_a_flush_is_counted_apart() {
        let mut sample = Sample::default();
        for (client, token) in [("a", 1), ("b", 2)] {
            let permit = sample.hold(&format!("{client}:1.2p"), token);
            permit.called(0, 5, 100).permit_of(2).left(80);
        }
        sample.flushed(20, 21);
        for (client, token) in [("c", 3), ("d", 4), ("e", 5)] {
            let permit = sample.hold(&format!("{client}:1.2p"), token);
            permit.called(30, 35, 130).permit_of(2).left(60);
            let expected: &[Property] = if client == "e" {
                &[Property::NoExtraPermit]
            } else {
                &[]
            };
            assert_eq!(broken(&sample), expected);
            assert!(sample.findings().overlaps_by_nature > 0);
        }
    }

    #[test]
    fn a_permit_that_is_kept_counts() {
        let mut sample = Sample::default();
        let permit = sample.hold("a:1.1p", 1).called(0, 5, 100).permit_of(1);
        permit.keeps(50).left(10);
        sample.released("a:1.1p");
        sample
            .hold("b:1.1p", 2)
            .called(0, 40, 140)
            .permit_of(1)
            .left(60);
        assert_eq!(broken(&sample), [Property::NoExtraPermit]);
    }

    #[test]
    fn a_reader_is_kept_from_writers_unless_another_shared_its_hold() {
        for (shared_by, is_broken) in [("b:1s/1/1", true), ("a:1s/1/1", false)] {
            let mut sample = Sample::default();
            let reader = sample.hold("a:1s/1/0", 1).called(0, 5, 100).shares();
            reader.keeps(50).left(10);
            sample.released("a:1s/1/0");
            let token = if is_broken { 2 } else { 1 };
            sample
                .hold(shared_by, token)
                .called(0, 6, 100)
                .shares()
                .left(30);
            sample.hold("c:1", 3).called(0, 40, 140).left(50);
            assert_eq!(!broken(&sample).is_empty(), is_broken);
        }
    }

    #[test]
    fn an_exclusive_call_inside_a_shared_hold_is_found() {
        let sample = |mode, at| {
            let mut sample = Sample::default();
            let writer = sample.hold("a:1/1", 1).called(0, 5, 100);
            writer.downgraded(20).left(40);
            sample.entered_in(mode, "a:1s/1", 1, at);
            sample
        };
        assert_eq!(sample(Mode::Exclusive, 19).violations(), []);
        assert_eq!(sample(Mode::Shared, 21).violations(), []);
        assert_eq!(broken(&sample(Mode::Exclusive, 21)), [Property::OneHolder]);
        assert_eq!(broken(&sample(Mode::Permits(3), 21)), [Property::OneHolder]);
    }
}
