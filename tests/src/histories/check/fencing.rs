//! A resource that checks tokens accepts no stale write, and refuses no fresh one.
//!
//! The check of stale writes ignores tokens: a holder wrote after a write of a later holder.

use std::collections::HashMap;

use super::{Findings, Property};
use crate::histories::{
    clock::ms,
    history::{History, Lock},
};

pub(super) fn check(history: &History, findings: &mut Findings) {
    for (key, lock) in &history.locks {
        accepted(key, lock, findings);
        refused(history, key, lock, findings);
    }
}

fn accepted(key: &str, lock: &Lock, findings: &mut Findings) {
    let mut holders: HashMap<&str, usize> = HashMap::new();
    let (mut newest, mut highest) = (0, 0);
    for write in lock.writes.iter().filter(|write| write.accepted) {
        let next = holders.len() + 1;
        let holder = *holders.entry(&write.owner).or_insert(next);
        let stale = if holder < newest {
            "after a later holder's"
        } else if write.token < highest {
            "with a smaller token than another before"
        } else {
            newest = holder;
            highest = write.token;
            continue;
        };
        let what = format!(
            "{key}: a write of {} (token {}, {} ms) was accepted {stale}",
            write.owner,
            write.token,
            ms(write.at)
        );
        findings.breaks(Property::NoStaleWrite, what);
    }
}

/// Checks that no write is refused. A refusal requires an earlier write with a larger token. While
/// a holder relies on its lock, no other owner should have one, unless two masters granted it at once.
fn refused(history: &History, key: &str, lock: &Lock, findings: &mut Findings) {
    for write in lock.writes.iter().filter(|write| !write.accepted) {
        let Some(hold) = lock.hold(&write.owner) else {
            continue;
        };
        let end = history.reliance_end(hold);
        if write.at < hold.granted || write.at >= end {
            continue;
        }
        let mut before = lock.writes.iter().filter(|before| {
            before.accepted && before.at <= write.at && before.token > write.token
        });
        let is_of_another_master = before.any(|before| {
            let other = lock.hold(&before.owner);
            other.is_some_and(|other| history.led_by_two(hold, other))
        });
        if history.forgotten(key, hold.earliest, write.at) || is_of_another_master {
            findings.others_by_nature += 1;
        } else {
            let what = format!(
                "{key}: a write of {} (token {}, {} ms) was refused while it relied on its lock",
                write.owner,
                write.token,
                ms(write.at)
            );
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
    fn writes_in_turn_are_fresh() {
        let mut sample = Sample::default();
        sample.hold("a:1", 1).called(0, 5, 100).left(20);
        sample.hold("b:1", 2).called(0, 25, 120).left(40);
        sample.wrote("a:1", 1, 10, true);
        sample.wrote("a:1", 1, 15, true);
        sample.wrote("b:1", 2, 30, true);
        sample.wrote("a:1", 1, 35, false);
        assert_eq!(sample.violations(), []);
    }

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
}
