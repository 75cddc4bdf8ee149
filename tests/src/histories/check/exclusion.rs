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

/// Checks that all holds together take no more permits than there are.
fn permits(
    history: &History,
    key: &str,
    present: &[&Interval<'_>],
    next: &Interval<'_>,
    findings: &mut Findings,
) {
    let Mode::Permits { take, of } = next.mode else {
        return;
    };
    let is_other = |before: &Interval<'_>| {
        before.mode.tolerates(next.mode) && before.hold.owner != next.hold.owner
    };
    let others = present.iter().filter(|before| is_other(before));
    let (forgotten, counted): (Vec<&Interval<'_>>, Vec<&Interval<'_>>) =
        others.partition(|before| is_by_nature(history, key, before, next));
    let taken =
        |others: &[&Interval<'_>]| -> u32 { others.iter().map(|other| other.mode.taken()).sum() };
    let overlap = |others: &[&Interval<'_>]| {
        let all: Vec<String> = others.iter().map(|other| description(other)).collect();
        let count = all.len();
        format!(
            "{key}: {} with {count} others: {}",
            description(next),
            all.join(", ")
        )
    };
    if take + taken(&counted) > of {
        findings.breaks(Property::NoExtraPermit, overlap(&counted));
    } else if take + taken(&counted) + taken(&forgotten) > of {
        let ends = forgotten.iter().map(|before| before.end.min(next.end));
        let lasted = ends.max().map_or(0, |end| end - next.begin);
        let what = overlap(&[counted, forgotten].concat());
        findings.overlap_by_nature(ms(lasted), Property::NoExtraPermit, what);
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::check_cases;

    const CASES: &str = "
        # a hold inside another is found
        hold a:1 1 0 5 100 left 40; hold b:1 2 0 20 120 left 30
        => OneHolder
        # a hold that never ended lasts as long as it is valid
        hold a:1 1 0 5 100; hold b:1 2 0 99 190 left 130
        => OneHolder
        # and no longer
        hold a:1 1 0 5 100; hold b:1 2 0 100 190 left 130
        => nothing
        # a renewal that was seen counts
        hold a:1 1 0 5 100 looked 60 160; hold b:1 2 0 110 190 left 130
        => OneHolder
        # a validity beyond the lease is found
        hold a:1 1 0 5 100 looked 60 161
        => OneHolder
        # a validity until the end of the lease is none
        hold a:1 1 0 5 100 looked 60 160
        => nothing
        # a guard of a client that is shut down is not relied on
        hold a:1 1 0 5 100; closed a 60; hold b:1 2 0 70 160 left 80
        => nothing
        # and a body is
        hold a:1 1 0 5 100 runs; closed a 60; hold b:1 2 0 70 160 left 80
        => OneHolder
        # an overlap after a flush is counted apart
        hold a:1 1 0 5 100; flushed 50 51; hold b:1 2 0 60 150 left 90
        => nothing overlaps 1 30
        # a flush before both excuses nothing
        hold a:1 1 3 5 103; flushed 2 2; hold b:1 2 55 60 160 left 90
        => OneHolder
        # a flush after both excuses nothing
        hold a:1 1 3 5 103; flushed 61 61; hold b:1 2 55 60 160 left 90
        => OneHolder
        # the loss of another lock excuses nothing
        hold a:1 1 0 5 100; deleted another 50; hold b:1 2 0 60 150 left 90
        => OneHolder
        # faults that lose no data excuse nothing
        hold a:1 1 0 5 100; paused 40 55; hold b:1 2 0 60 150 left 90
        => OneHolder
        # b was granted the lock before the flush, and is notified after a came in
        flushed 52 53; hold a:1 2 50 55 155; hold b:1 1 0 60 148 left 70
        => nothing overlaps 1 10
        # a lock that is to stay taken and is given is found
        hold a:1 1 0 5 100 keeps 50 left 10; released a:1; hold b:1 2 0 40 140 left 50
        => OneHolder
        # a lock that has stayed taken may be given
        hold a:1 1 0 5 100 keeps 50 left 10; released a:1; hold b:1 2 0 55 140 left 60
        => nothing
        # a moment is enough
        hold a:1 1 0 5 100 left 20; hold b:1 2 0 20 120 early left 30
        => OneHolder
        # readers overlap
        hold a:1s/7/0 7 0 5 100 shares left 30; hold b:1s/6/0 6 0 10 105 shares left 40; hold c:1/8 8 1 40 130 left 45
        => nothing
        # and a writer overlaps none
        hold a:1s/7/0 7 0 5 100 shares left 30; hold b:1s/6/0 6 0 10 105 shares left 40; hold c:1/8 8 1 39 130 left 44
        => OneHolder
        # a reader that overlaps a writer is found
        hold a:1 1 0 5 100 left 30; hold b:1s/2/0 2 0 20 115 shares left 40
        => OneHolder
        # a reader that overlaps a permit is found
        hold a:1.3p 1 0 5 100 permits 3 left 30; hold b:1s/2/0 2 0 20 115 shares left 40
        => OneHolder
        # a writer that shares its lock overlaps readers from then on, and no writers
        hold a:1/1 1 0 5 100 downgraded 20 left 40; hold b:1s/2/0 2 0 20 115 shares left 50
        => nothing
        hold c:1 3 0 39 130 left 60
        => OneHolder
        # and none before
        hold a:1/1 1 0 5 100 downgraded 21 left 40; hold b:1s/2/0 2 0 20 115 shares left 50
        => OneHolder
        hold c:1 3 0 39 130 left 60
        => OneHolder
        # as many permits as there are
        hold a:1.2p 1 0 5 100 permits 2 left 30; hold b:1.2p 2 0 5 100 permits 2 left 30; hold c:1.2p 3 0 30 125 permits 2 left 60
        => nothing
        # one permit too many is found
        hold a:1.2p 1 0 5 100 permits 2 left 30; hold b:1.2p 2 0 5 100 permits 2 left 30; hold c:1.2p 3 0 29 125 permits 2 left 60
        => NoExtraPermit
        # holds that take several permits
        hold a:1.3.8p 1 0 5 100 permits 8 takes 3 left 30; hold b:1.4.8p 2 0 5 100 permits 8 takes 4 left 30; hold c:1.8p 3 0 29 125 permits 8 left 60
        => nothing
        hold d:1.8p 4 0 29 125 permits 8 left 60
        => NoExtraPermit
        # a permit too many after a flush is counted apart
        hold a:1.2p 1 0 5 100 permits 2 left 80; hold b:1.2p 2 0 5 100 permits 2 left 80; flushed 20 21
        hold c:1.2p 3 30 35 130 permits 2 left 60
        => nothing overlaps 1 25
        hold d:1.2p 4 30 35 130 permits 2 left 60
        => nothing overlaps 2 25
        hold e:1.2p 5 30 35 130 permits 2 left 60
        => NoExtraPermit overlaps 2 25
        # a permit that is kept counts
        hold a:1.1p 1 0 5 100 permits 1 keeps 50 left 10; released a:1.1p; hold b:1.1p 2 0 40 140 permits 1 left 60
        => NoExtraPermit
        # a reader is kept from writers
        hold a:1s/1/0 1 0 5 100 shares keeps 50 left 10; released a:1s/1/0; hold b:1s/1/1 2 0 6 100 shares left 30
        hold c:1 3 0 40 140 left 50
        => OneHolder
        # unless another shared its hold
        hold a:1s/1/0 1 0 5 100 shares keeps 50 left 10; released a:1s/1/0; hold a:1s/1/1 1 0 6 100 shares left 30
        hold c:1 3 0 40 140 left 50
        => nothing
        # an exclusive call inside a hold that is still exclusive
        hold a:1/1 1 0 5 100 downgraded 20 left 40; entered a:1s/1 1 at 19
        => nothing
        # a shared call inside a shared hold
        hold a:1/1 1 0 5 100 downgraded 20 left 40; entered a:1s/1 1 at 21 shares
        => nothing
        # an exclusive call inside a shared hold is found
        hold a:1/1 1 0 5 100 downgraded 20 left 40; entered a:1s/1 1 at 21
        => OneHolder
        # a permit inside a shared hold is found
        hold a:1/1 1 0 5 100 downgraded 20 left 40; entered a:1s/1 1 at 21 permits 3
        => OneHolder
    ";

    #[test]
    fn overlaps_are_found_and_those_by_nature_counted_apart() {
        check_cases(CASES);
    }
}
