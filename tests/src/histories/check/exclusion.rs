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

use rlock_core::LockMode;
use rlock_model::witness::{Holder, excluded, may_enter, takes_too_many};

use super::{Findings, Property};
use crate::histories::{
    clock::ms,
    history::{History, Hold, Lock},
};

struct Interval<'a> {
    hold: &'a Hold,
    mode: LockMode,
    /// What takes the lock in this interval.
    by: &'static str,
    begin: u64,
    end: u64,
    /// The earliest time of the grant.
    earliest: u64,
}

impl Holder for Interval<'_> {
    fn mode(&self) -> LockMode {
        self.mode
    }

    fn token(&self) -> u64 {
        self.hold.token
    }

    fn is_same(&self, other: &Self) -> bool {
        self.hold.owner == other.hold.owner
    }
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
            for before in excluded(next, present.iter().copied()) {
                overlap(history, key, before, next, findings);
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
        let mode = if is_shared {
            LockMode::Shared
        } else {
            outer.mode
        };
        if !may_enter(nested.mode, mode) {
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
        part(LockMode::Shared, shared_at, end),
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
    let all = present
        .iter()
        .copied()
        .filter(|before| !before.is_same(next));
    let (forgotten, counted): (Vec<&Interval<'_>>, Vec<&Interval<'_>>) =
        all.partition(|before| is_by_nature(history, key, before, next));
    let all = [counted.clone(), forgotten.clone()].concat();
    if !takes_too_many(next, all.iter().copied()) {
        return;
    }
    let others: Vec<String> = all.iter().map(|other| description(other)).collect();
    let what = format!("{key}: {} with {}", description(next), others.join(", "));
    if takes_too_many(next, counted) {
        findings.breaks(Property::NoExtraPermit, what);
    } else {
        let ends = forgotten.iter().map(|before| before.end.min(next.end));
        let lasted = ends.max().map_or(0, |end| end - next.begin);
        findings.overlap_by_nature(ms(lasted), Property::NoExtraPermit, what);
    }
}
