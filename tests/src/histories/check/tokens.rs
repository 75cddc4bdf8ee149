//! Tokens grow with each grant, and agree with real time.
//!
//! Tokens of readers have no order among themselves, nor have those of permits. A writer has a larger token than all
//! readers before it, and each reader after it has a larger one. Readers of one client may have the same token. So may
//! all readers on a quorum: a token is the largest fence of a majority, and each member counts by its own clock.
//!
//! Two masters exist when a replica replaces a running master, until that one is demoted. Neither
//! knows the other's tokens. So of two grants in that time, the later call may have the smaller
//! token, or both have the same. Such pairs are counted separately.
//!
//! A local hand-over sends no request. The server may have forgotten the ownership just before,
//! without closing connections. Then the hold may begin before the report arrives, beside the next
//! owner and with a smaller token. It is counted separately, too. A reader that joins a hold of its client needs no
//! request either. No server reports a change of a shared lock, so it may join until the next renewal.

use super::{Findings, Property};
use crate::histories::{
    clock::ms,
    history::{History, Hold, Lock},
};

pub(super) fn check(history: &History, findings: &mut Findings) {
    for (key, lock) in &history.locks {
        each_owner_has_its_own(history, key, lock, findings);
        later_calls_get_larger_ones(history, key, lock, findings);
        later_reliance_has_larger_ones(history, key, lock, findings);
        nested_entries_share_one(key, lock, findings);
    }
}

fn description(key: &str, one: &Hold, other: &Hold, why: &str) -> String {
    let of_hold = |hold: &Hold| {
        format!(
            "{} (token {}, called {} ms, inside {} ms)",
            hold.owner,
            hold.token,
            ms(hold.invoke),
            ms(hold.granted)
        )
    };
    format!("{key}: {} and {}: {why}", of_hold(one), of_hold(other))
}

fn each_owner_has_its_own(history: &History, key: &str, lock: &Lock, findings: &mut Findings) {
    let mut holds: Vec<&Hold> = lock.holds.iter().collect();
    holds.sort_by_key(|hold| hold.token);
    for same in holds.chunk_by(|one, other| one.token == other.token) {
        let first = same[0];
        for other in &same[1..] {
            let are_readers = first.is_reader() && other.is_reader();
            if first.may_share(other) || are_readers && history.is_of_quorum() {
                continue;
            }
            let what = description(key, first, other, "the same token");
            if history.led_by_two(first, other) {
                findings.other_by_nature(Property::TokensGrow, what);
            } else {
                findings.breaks(Property::TokensGrow, what);
            }
        }
    }
}

/// The holds with the largest tokens so far.
#[derive(Default)]
struct Largest<'a> {
    exclusive: Option<&'a Hold>,
    any: Option<&'a Hold>,
}

impl<'a> Largest<'a> {
    fn add(&mut self, hold: &'a Hold) {
        let is_larger = |largest: &Hold| hold.token > largest.token;
        if self.any.is_none_or(is_larger) {
            self.any = Some(hold);
        }
        if hold.mode.is_exclusive() && self.exclusive.is_none_or(is_larger) {
            self.exclusive = Some(hold);
        }
    }

    /// Returns the hold whose token this later hold should exceed, but does not.
    fn not_below(&self, hold: &Hold) -> Option<&'a Hold> {
        let before = if hold.mode.is_exclusive() {
            self.any
        } else {
            self.exclusive
        };
        let joins = |before: &Hold| before.token == hold.token && before.may_share(hold);
        before.filter(|before| before.token >= hold.token && !joins(before))
    }
}

/// Checks that the later of two consecutive calls has the larger token, unless there are two
/// masters.
fn later_calls_get_larger_ones(history: &History, key: &str, lock: &Lock, findings: &mut Findings) {
    let mut by_return: Vec<&Hold> = lock.holds.iter().collect();
    let mut by_call = by_return.clone();
    by_return.sort_by_key(|hold| hold.granted);
    by_call.sort_by_key(|hold| hold.invoke);
    let mut returned = by_return.into_iter().peekable();
    let mut largest = Largest::default();
    for hold in by_call {
        while let Some(before) = returned.next_if(|before| before.granted < hold.invoke) {
            largest.add(before);
        }
        if let Some(before) = largest.not_below(hold) {
            let is_smaller = before.token > hold.token;
            let is_excused = history.led_by_two(before, hold)
                || is_smaller && before_notice(history, key, lock, hold);
            let mut losses: Vec<_> = history.data_losses(key).collect();
            losses.retain(|fault| fault.start <= hold.granted);
            let latest = losses.iter().max_by_key(|fault| fault.start);
            let after = latest.map_or_else(String::new, |fault| {
                let (start, end) = (ms(fault.start), ms(fault.end));
                format!(", after {:?} from {start} to {end} ms", fault.kind)
            });
            let why = format!("the later call has no larger token{after}");
            let what = description(key, before, hold, &why);
            if is_excused {
                findings.other_by_nature(Property::TokensGrow, what);
            } else {
                findings.breaks(Property::TokensGrow, what);
            }
        }
    }
}

/// The longest time for a report on an open connection to reach a process on a busy machine.
const REPORT: u64 = 1_000_000_000;

/// Returns whether a process handed this hold over, or let a reader join it, before it noticed that
/// the server had forgotten its ownership, or was no master any more. If another fault closes the
/// connection, the process notices by itself.
fn before_notice(history: &History, key: &str, lock: &Lock, hold: &Hold) -> bool {
    let is_before = |other: &Hold| other.token < hold.token || hold.may_share(other);
    let mut others = lock.holds_of(&hold.owner);
    if !others.any(|other| other.owner != hold.owner && is_before(other)) {
        return false;
    }
    let joins = hold.is_reader() && history.forgotten(key, hold.earliest, hold.granted);
    let mut losses = history.data_losses(key);
    joins
        || losses.any(|fault| {
            // A former master closes its connections when it is demoted.
            (fault.kind.leaves_connections() || fault.kind.leaves_two_masters())
                && fault.end >= hold.earliest
                && fault.start <= hold.granted
                && hold.granted <= fault.end + REPORT
        })
}

/// Checks the order of valid holds. Each of them had the lock in turn, unless the store forgot the
/// lock of the second.
fn later_reliance_has_larger_ones(
    history: &History,
    key: &str,
    lock: &Lock,
    findings: &mut Findings,
) {
    let rightful = |hold: &&Hold| hold.first_valid_until > hold.granted;
    let mut holds: Vec<&Hold> = lock.holds.iter().filter(rightful).collect();
    holds.sort_by_key(|hold| hold.granted);
    let mut largest = Largest::default();
    for hold in holds {
        let Some(before) = largest.not_below(hold) else {
            largest.add(hold);
            continue;
        };
        let why = "who was inside later has no larger token";
        let what = description(key, before, hold, why);
        if history.forgotten(key, hold.earliest, hold.granted) || history.led_by_two(before, hold) {
            findings.other_by_nature(Property::TokensGrow, what);
        } else {
            findings.breaks(Property::TokensGrow, what);
        }
    }
}

fn nested_entries_share_one(key: &str, lock: &Lock, findings: &mut Findings) {
    for nested in &lock.nested {
        let outer = lock.hold(&nested.owner).map(|hold| hold.token);
        if outer != Some(nested.token) {
            let what = format!(
                "{key}: {} entered once more with token {}, outside with {outer:?}",
                nested.owner, nested.token
            );
            findings.breaks(Property::TokensGrow, what);
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
    fn a_token_that_two_owners_have_is_found() {
        let mut sample = Sample::default();
        sample.hold("a:1", 10).called(0, 5, 100).left(20);
        sample.hold("b:1", 10).called(6, 25, 120).left(30);
        assert_eq!(broken(&sample), [Property::TokensGrow]);
    }

    #[test]
    fn a_later_call_with_a_smaller_token_is_found_even_after_a_flush() {
        let mut sample = Sample::default();
        sample.hold("a:1", 10).called(0, 5, 100).left(20);
        sample.flushed(21, 22);
        sample.hold("b:1", 9).called(23, 25, 120).left(30);
        assert!(broken(&sample).contains(&Property::TokensGrow));
    }

    #[test]
    fn a_hold_that_is_handed_over_just_after_a_flush_may_have_a_smaller_token() {
        let handed_over = |owner: &str, called, granted| {
            let mut sample = Sample::default();
            sample.hold("b:1/8", 8).called(0, 5, 100).left(20);
            sample.flushed(21, 21);
            sample.hold("a:1/10", 10).called(21, 22, 120).left(23);
            sample
                .hold(owner, 9)
                .called(called, granted, 115)
                .left(granted + 1);
            sample
        };
        let sample = handed_over("b:1/9", 24, 25);
        assert_eq!(sample.violations(), []);
        assert!(sample.findings().others_by_nature > 0);
        assert!(broken(&handed_over("b:2/9", 24, 25)).contains(&Property::TokensGrow));
        assert!(broken(&handed_over("b:1/9", 1_030, 1_031)).contains(&Property::TokensGrow));
    }

    #[test]
    fn a_hold_that_is_handed_over_just_after_a_demotion_may_have_a_smaller_token() {
        let handed_over = |called, granted| {
            let mut sample = Sample::default();
            sample.two_masters(3, 21);
            sample.hold("b:1/8", 8).called(4, 5, 100).left(20);
            sample.hold("a:1/10", 10).called(6, 7, 105).left(8);
            sample
                .hold("b:1/9", 9)
                .called(called, granted, 115)
                .left(granted + 1);
            sample
        };
        let sample = handed_over(24, 25);
        assert_eq!(sample.violations(), []);
        assert!(sample.findings().others_by_nature > 0);
        assert!(broken(&handed_over(1_030, 1_031)).contains(&Property::TokensGrow));
    }

    #[test]
    fn a_later_holder_with_a_smaller_token_is_found_though_both_called_at_once() {
        let mut sample = Sample::default();
        sample.hold("a:1", 10).called(0, 5, 100).left(20);
        sample.hold("b:1", 9).called(0, 25, 120).left(30);
        assert_eq!(broken(&sample), [Property::TokensGrow]);
    }

    #[test]
    fn a_reply_after_the_lock_was_forgotten_may_have_a_smaller_token() {
        let mut sample = Sample::default();
        sample.flushed(4, 4);
        sample.hold("a:1", 10).called(0, 5, 100).left(20);
        sample.hold("b:1", 9).called(0, 25, 102).left(30);
        assert_eq!(sample.violations(), []);
        assert_eq!(sample.findings().others_by_nature, 1);
    }

    #[test]
    fn two_masters_at_once_excuse_tokens_that_both_granted_meanwhile_and_no_others() {
        let split = |from, to, tokens: [u64; 2]| {
            let mut sample = Sample::default();
            sample.two_masters(from, to);
            sample.hold("a:1", tokens[0]).called(10, 15, 110).left(20);
            sample.hold("b:1", tokens[1]).called(23, 35, 130).left(40);
            sample
        };
        let sample = split(12, 40, [10, 9]);
        assert_eq!(sample.violations(), []);
        assert!(sample.findings().others_by_nature > 0);
        assert!(broken(&split(16, 40, [10, 9])).contains(&Property::TokensGrow));
        assert!(broken(&split(12, 22, [10, 9])).contains(&Property::TokensGrow));
        assert_eq!(split(12, 40, [10, 10]).violations(), []);
        assert!(broken(&split(16, 40, [10, 10])).contains(&Property::TokensGrow));
    }

    #[test]
    fn a_nested_entry_with_another_token_is_found() {
        let mut sample = Sample::default();
        sample.hold("a:1", 10).called(0, 5, 100).left(20);
        sample.entered("a:1", 10);
        assert_eq!(sample.violations(), []);
        sample.entered("a:1", 11);
        assert_eq!(broken(&sample), [Property::TokensGrow]);
    }

    #[test]
    fn a_nested_entry_of_an_owner_that_was_never_outside_is_found() {
        let mut sample = Sample::default();
        sample.entered("a:1", 10);
        assert_eq!(broken(&sample), [Property::TokensGrow]);
    }

    #[test]
    fn readers_of_one_client_or_on_a_quorum_may_have_one_token_and_no_others() {
        let sample = |owner: &str| {
            let mut sample = Sample::default();
            sample
                .hold("a:1s/10/0", 10)
                .called(0, 5, 100)
                .shares()
                .left(20);
            sample.hold(owner, 10).called(6, 7, 100).shares().left(30);
            sample
        };
        assert_eq!(sample("a:1s/10/1").violations(), []);
        assert_eq!(broken(&sample("b:1s/10/1")), [Property::TokensGrow]);
        assert_eq!(broken(&sample("a:2s/10/1")), [Property::TokensGrow]);
        let of_quorum = |owner: &str| {
            let mut sample = sample(owner);
            sample.on_quorum();
            sample
        };
        assert_eq!(of_quorum("b:1s/10/1").violations(), []);
        let mut writer = sample("a:1s/10/1");
        writer.on_quorum();
        writer.hold("b:1/10", 10).called(31, 32, 130).left(40);
        assert!(broken(&writer).contains(&Property::TokensGrow));
    }

    #[test]
    fn a_reader_may_have_the_token_of_a_writer_that_shares_its_lock_and_of_no_other() {
        let mut sample = Sample::default();
        let writer = sample.hold("a:1/10", 10).called(0, 5, 100);
        writer.downgraded(10).left(20);
        sample
            .hold("a:1s/10/0", 10)
            .called(6, 12, 100)
            .shares()
            .left(30);
        assert_eq!(sample.violations(), []);
        let mut sample = Sample::default();
        sample.hold("a:1/10", 10).called(0, 5, 100).left(10);
        sample
            .hold("a:1/10/0", 10)
            .called(6, 12, 100)
            .shares()
            .left(30);
        assert!(broken(&sample).contains(&Property::TokensGrow));
    }

    /// Returns two readers, of which the later one has the smaller token.
    fn two_readers() -> Sample {
        let mut sample = Sample::default();
        sample
            .hold("a:1s/10/0", 10)
            .called(0, 5, 100)
            .shares()
            .left(20);
        sample
            .hold("b:1s/8/0", 8)
            .called(6, 7, 100)
            .shares()
            .left(30);
        sample
    }

    #[test]
    fn readers_have_no_order_nor_have_permits() {
        assert_eq!(two_readers().violations(), []);
        let mut sample = Sample::default();
        sample
            .hold("a:1.3p", 10)
            .called(0, 5, 100)
            .permit_of(3)
            .left(20);
        sample
            .hold("b:1.3p", 8)
            .called(6, 7, 100)
            .permit_of(3)
            .left(30);
        assert_eq!(sample.violations(), []);
        sample
            .hold("c:1.3p", 8)
            .called(6, 7, 100)
            .permit_of(3)
            .left(30);
        assert_eq!(broken(&sample), [Property::TokensGrow]);
    }

    #[test]
    fn a_writer_after_readers_has_a_larger_token_than_all_of_them() {
        for (token, is_broken) in [(11, false), (9, true)] {
            let mut sample = two_readers();
            sample.hold("c:1", token).called(0, 35, 130).left(40);
            assert_eq!(!broken(&sample).is_empty(), is_broken);
        }
    }

    #[test]
    fn a_reader_after_a_writer_has_a_larger_token() {
        for (token, is_broken) in [(11, false), (9, true)] {
            let mut sample = Sample::default();
            sample.hold("a:1", 10).called(0, 5, 100).left(20);
            let owner = format!("b:1s/{token}/0");
            sample
                .hold(&owner, token)
                .called(6, 25, 120)
                .shares()
                .left(30);
            assert_eq!(!broken(&sample).is_empty(), is_broken);
        }
    }

    #[test]
    fn a_reader_may_join_a_hold_that_was_forgotten_until_its_next_renewal() {
        let sample = |owner: &str, valid_until| {
            let mut sample = Sample::default();
            sample.hold("a:1s/8/0", 8).called(0, 5, 100).shares();
            sample.flushed(20, 20);
            sample.hold("b:1", 10).called(21, 22, 120).left(23);
            let joined = sample.hold(owner, 8).called(24, 25, valid_until);
            joined.shares().left(30);
            sample
        };
        let joined = sample("a:1s/8/1", 100);
        assert_eq!(joined.violations(), []);
        assert!(joined.findings().others_by_nature > 0);
        assert!(broken(&sample("a:1s/8/1", 121)).contains(&Property::TokensGrow));
    }
}
