//! Tokens grow with each grant, and agree with real time.
//!
//! Two masters exist when a replica replaces a running master, until that one is demoted. Neither
//! knows the other's tokens. So of two grants in that time, the later call may have the smaller
//! token. Such pairs are counted separately, and their tokens must still differ.
//!
//! A local hand-over sends no request. The server may have forgotten the ownership just before,
//! without closing connections. Then the hold may begin before the report arrives, beside the next
//! owner and with a smaller token. It is counted separately, too.

use super::{Findings, Property};
use crate::histories::{
    clock::ms,
    history::{History, Hold, Lock},
};

pub(super) fn check(history: &History, findings: &mut Findings) {
    for (key, lock) in &history.locks {
        each_owner_has_its_own(key, lock, findings);
        later_calls_get_larger_ones(history, key, lock, findings);
        later_reliance_has_larger_ones(history, key, lock, findings);
        nested_entries_share_one(key, lock, findings);
    }
}

fn breaks(findings: &mut Findings, key: &str, one: &Hold, other: &Hold, why: &str) {
    let told = |hold: &Hold| {
        format!(
            "{} (token {}, called {} ms, inside {} ms)",
            hold.owner,
            hold.token,
            ms(hold.invoke),
            ms(hold.granted)
        )
    };
    let what = format!("{key}: {} and {}: {why}", told(one), told(other));
    findings.breaks(Property::TokensGrow, what);
}

fn each_owner_has_its_own(key: &str, lock: &Lock, findings: &mut Findings) {
    let mut holds: Vec<&Hold> = lock.holds.iter().collect();
    holds.sort_by_key(|hold| hold.token);
    for pair in holds.windows(2) {
        if pair[0].token == pair[1].token {
            breaks(findings, key, pair[0], pair[1], "the same token");
        }
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
    let mut largest: Option<&Hold> = None;
    for hold in by_call {
        while let Some(before) = returned.next_if(|before| before.granted < hold.invoke) {
            if largest.is_none_or(|largest| before.token > largest.token) {
                largest = Some(before);
            }
        }
        if let Some(before) = largest.filter(|before| before.token >= hold.token) {
            let may_be =
                history.led_by_two(before, hold) || before_report(history, key, lock, hold);
            if before.token > hold.token && may_be {
                findings.others_by_nature += 1;
                continue;
            }
            let mut losses: Vec<_> = history.data_losses(key).collect();
            losses.retain(|fault| fault.start <= hold.granted);
            let latest = losses.iter().max_by_key(|fault| fault.start);
            let after = latest.map_or_else(String::new, |fault| {
                let (start, end) = (ms(fault.start), ms(fault.end));
                format!(", after {:?} from {start} to {end} ms", fault.kind)
            });
            let why = format!("the later call has no larger token{after}");
            breaks(findings, key, before, hold, &why);
        }
    }
}

/// The longest time for a report on an open connection to reach a process on a busy machine.
const REPORT: u64 = 1_000_000_000;

/// Returns whether a process handed this hold over just after the server forgot its ownership. If
/// the fault closes the connection, the process notices by itself.
fn before_report(history: &History, key: &str, lock: &Lock, hold: &Hold) -> bool {
    let owner = |hold: &Hold| hold.owner.split('/').next().map(str::to_owned);
    let mut others = lock.holds.iter();
    let is_handed_over =
        others.any(|other| other.token < hold.token && owner(other) == owner(hold));
    let mut losses = history.data_losses(key);
    is_handed_over
        && losses.any(|fault| {
            fault.kind.leaves_connections()
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
    let mut largest: Option<&Hold> = None;
    for hold in holds {
        match largest {
            Some(before) if before.token >= hold.token => {
                if history.forgotten(key, hold.earliest, hold.granted)
                    || before.token > hold.token && history.led_by_two(before, hold)
                {
                    findings.others_by_nature += 1;
                } else {
                    let why = "who was inside later has no larger token";
                    breaks(findings, key, before, hold, why);
                }
            }
            _ => largest = Some(hold),
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
    fn growing_tokens_are_in_order() {
        let mut sample = Sample::default();
        sample.hold("a:1", 10).called(0, 5, 100).left(20);
        sample.hold("b:1", 12).called(1, 25, 120).left(30);
        sample.hold("a:2", 15).called(26, 35, 130).left(40);
        assert_eq!(sample.violations(), []);
    }

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
        assert!(broken(&split(12, 40, [10, 10])).contains(&Property::TokensGrow));
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
}
