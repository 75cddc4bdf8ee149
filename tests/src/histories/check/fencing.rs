//! A resource that checks tokens accepts no stale access, and refuses no fresh one.
//!
//! A stale write comes after an access of a later holder, and a stale read after a write of one. The
//! check of that ignores tokens.

use std::collections::HashMap;

use super::{Findings, Property};
use crate::histories::{
    clock::ms,
    history::{History, Lock},
    record::{Access, AccessKind},
};

pub(super) fn check(history: &History, findings: &mut Findings) {
    for (key, lock) in &history.locks {
        accepted(key, lock, findings);
        refused(history, key, lock, findings);
    }
}

/// The newest holder and the highest token.
#[derive(Clone, Copy, Default)]
struct Latest {
    holder: usize,
    token: u64,
}

impl Latest {
    fn add(&mut self, holder: usize, token: u64) {
        self.holder = self.holder.max(holder);
        self.token = self.token.max(token);
    }
}

fn description(access: &Access) -> String {
    let Access {
        kind,
        owner,
        token,
        at,
        ..
    } = access;
    format!("a {kind} of {owner} (token {token}, {} ms)", ms(*at))
}

fn accepted(key: &str, lock: &Lock, findings: &mut Findings) {
    let mut holders: HashMap<&str, usize> = HashMap::new();
    let (mut written, mut accessed) = (Latest::default(), Latest::default());
    for access in lock.accesses.iter().filter(|access| access.accepted) {
        let next = holders.len() + 1;
        let holder = *holders.entry(&access.owner).or_insert(next);
        let latest = match access.kind {
            AccessKind::Write => accessed,
            AccessKind::Read => written,
        };
        let stale = if holder < latest.holder {
            "after a later holder's"
        } else if access.token < latest.token {
            "with a smaller token than another before"
        } else {
            accessed.add(holder, access.token);
            if access.kind == AccessKind::Write {
                written.add(holder, access.token);
            }
            continue;
        };
        let what = format!("{key}: {} was accepted {stale}", description(access));
        findings.breaks(Property::NoStaleWrite, what);
    }
}

/// Checks that no access is refused. A refusal requires an earlier access with a larger token. While
/// a holder relies on its lock, no other owner should have one, unless two masters granted it at once.
fn refused(history: &History, key: &str, lock: &Lock, findings: &mut Findings) {
    for access in lock.accesses.iter().filter(|access| !access.accepted) {
        let Some(hold) = lock.hold(&access.owner) else {
            continue;
        };
        let end = history.reliance_end(hold);
        if access.at < hold.granted || access.at >= end {
            continue;
        }
        let mut before = lock.accesses.iter().filter(|before| {
            let refuses = AccessKind::Write == before.kind || AccessKind::Write == access.kind;
            refuses && before.accepted && before.at <= access.at && before.token > access.token
        });
        let is_of_another_master = before.any(|before| {
            let other = lock.hold(&before.owner);
            other.is_some_and(|other| history.led_by_two(hold, other))
        });
        let is_excused = history.forgotten(key, hold.earliest, access.at) || is_of_another_master;
        let access = description(access);
        let what = format!("{key}: {access} was refused while it relied on its lock");
        if is_excused {
            findings.other_by_nature(Property::NoStaleWrite, what);
        } else {
            findings.breaks(Property::NoStaleWrite, what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::sample::{Sample, broken},
        Property,
    };

    #[test]
    fn a_stale_write_that_is_accepted_is_found_whatever_its_token() {
        let mut sample = Sample::default();
        sample.hold("a:1", 3).called(0, 5, 100).left(20);
        sample.hold("b:1", 4).called(0, 25, 120).left(40);
        sample.wrote("a:1", 3, 10, true);
        sample.wrote("b:1", 4, 30, true);
        sample.wrote("a:1", 5, 35, true);
        assert_eq!(broken(&sample), [Property::NoStaleWrite]);
    }

    #[test]
    fn a_smaller_token_that_is_accepted_is_found_even_at_its_first_write() {
        let mut sample = Sample::default();
        sample.wrote("b:1", 4, 30, true);
        sample.wrote("a:1", 3, 35, true);
        assert_eq!(broken(&sample), [Property::NoStaleWrite]);
    }

    #[test]
    fn a_write_that_is_refused_while_its_holder_relies_on_the_lock_is_found() {
        let mut sample = Sample::default();
        sample.hold("a:1", 3).called(0, 5, 100).left(20);
        sample.wrote("a:1", 3, 10, false);
        assert_eq!(broken(&sample), [Property::NoStaleWrite]);
    }

    #[test]
    fn a_write_that_is_refused_after_a_grant_of_another_master_is_by_nature() {
        for (until, is_broken) in [(12, false), (5, true)] {
            let mut sample = Sample::default();
            sample.two_masters(2, until);
            sample.hold("b:1", 4).called(6, 10, 60).left(15);
            sample.hold("a:1", 3).called(7, 20, 119).left(40);
            sample.wrote("b:1", 4, 12, true);
            sample.wrote("a:1", 3, 30, false);
            let is_found = broken(&sample).contains(&Property::NoStaleWrite);
            assert_eq!(is_found, is_broken);
        }
    }

    #[test]
    fn a_write_that_is_refused_after_the_lock_was_forgotten_is_by_nature() {
        let mut sample = Sample::default();
        sample.hold("a:1", 3).called(0, 5, 100).left(20);
        sample.flushed(8, 9);
        sample.wrote("a:1", 3, 10, false);
        assert_eq!(sample.violations(), []);
        assert_eq!(sample.findings().others_by_nature, 1);
    }

    #[test]
    fn a_stale_read_that_is_accepted_is_found() {
        let mut sample = Sample::default();
        sample.read("a:1s/3/0", 3, 10, true);
        sample.wrote("b:1", 4, 20, true);
        sample.read("a:1s/3/0", 3, 30, true);
        assert_eq!(broken(&sample), [Property::NoStaleWrite]);
        let mut sample = Sample::default();
        sample.wrote("b:1", 4, 20, true);
        sample.read("a:1s/3/0", 3, 30, true);
        assert_eq!(broken(&sample), [Property::NoStaleWrite]);
    }

    #[test]
    fn a_write_that_is_accepted_after_a_read_of_a_later_holder_is_found() {
        let mut sample = Sample::default();
        sample.wrote("a:1", 3, 10, true);
        sample.read("b:1s/4/0", 4, 20, true);
        sample.wrote("a:1", 3, 30, true);
        assert_eq!(broken(&sample), [Property::NoStaleWrite]);
    }

    #[test]
    fn a_read_that_is_refused_while_its_holder_relies_on_the_lock_is_found() {
        for (at, is_broken) in [(19, true), (20, false)] {
            let mut sample = Sample::default();
            sample
                .hold("a:1s/3/0", 3)
                .called(0, 5, 100)
                .shares()
                .left(20);
            sample.read("a:1s/3/0", 3, at, false);
            assert_eq!(!broken(&sample).is_empty(), is_broken);
        }
    }
}
