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
//! A local hand-over sends no request. The server may have forgotten the ownership just before, without closing
//! connections. Then the hold may begin before the report arrives, at the same time as the next owner's and with a
//! smaller token. It is counted separately, too. A reader that joins a hold of its client needs no request either. No
//! server reports a change of a shared lock, so it may join until the next renewal.

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
/// the server had forgotten its ownership, or was no longer a master. If another fault closes the
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
            // A client notices that it has to leave a former master.
            (fault.kind.leaves_connections() || fault.kind.leaves_two_masters())
                && fault.loses_until() >= hold.earliest
                && fault.start <= hold.granted
                && hold.granted <= fault.loses_until() + REPORT
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
    use super::super::sample::check_cases;

    const CASES: &str = "
        # a token that two owners have is found
        hold a:1 10 0 5 100 left 20; hold b:1 10 6 25 120 left 30
        => TokensGrow
        # a later call with a smaller token is found even after a flush
        hold a:1 10 0 5 100 left 20; flushed 21 22; hold b:1 9 23 25 120 left 30
        => also TokensGrow
        # a hold that is handed over just after a flush may have a smaller token
        hold b:1/8 8 0 5 100 left 20; flushed 21 21; hold a:1/10 10 21 22 120 left 23; hold b:1/9 9 24 25 115 left 26
        => nothing others 2
        # one of another owner may not
        hold b:1/8 8 0 5 100 left 20; flushed 21 21; hold a:1/10 10 21 22 120 left 23; hold b:2/9 9 24 25 115 left 26
        => also TokensGrow
        # one that is handed over later may not
        hold b:1/8 8 0 5 100 left 20; flushed 21 21; hold a:1/10 10 21 22 120 left 23; hold b:1/9 9 1030 1031 115 left 1032
        => also TokensGrow
        # a hold that is handed over just after a demotion may have a smaller token
        masters 3 21; hold b:1/8 8 4 5 100 left 20; hold a:1/10 10 6 7 105 left 8; hold b:1/9 9 24 25 115 left 26
        => nothing others 2
        # one that is handed over later may not
        masters 3 21; hold b:1/8 8 4 5 100 left 20; hold a:1/10 10 6 7 105 left 8; hold b:1/9 9 1030 1031 115 left 1032
        => also TokensGrow
        # a later holder with a smaller token is found though both called at once
        hold a:1 10 0 5 100 left 20; hold b:1 9 0 25 120 left 30
        => TokensGrow
        # a reply after the lock was forgotten may have a smaller token
        flushed 4 4; hold a:1 10 0 5 100 left 20; hold b:1 9 0 25 102 left 30
        => nothing others 1
        # two masters at once excuse tokens that both granted at that time
        masters 12 40; hold a:1 10 10 15 110 left 20; hold b:1 9 23 35 130 left 40
        => nothing others 2
        # not if the first was granted before
        masters 16 40; hold a:1 10 10 15 110 left 20; hold b:1 9 23 35 130 left 40
        => also TokensGrow
        # not if the second was called after
        masters 12 22; hold a:1 10 10 15 110 left 20; hold b:1 9 23 35 130 left 40
        => also TokensGrow
        # two masters at once may grant one token
        masters 12 40; hold a:1 10 10 15 110 left 20; hold b:1 10 23 35 130 left 40
        => nothing
        # not if the first was granted before
        masters 16 40; hold a:1 10 10 15 110 left 20; hold b:1 10 23 35 130 left 40
        => also TokensGrow
        # a former master that is not demoted yet excuses them until all clients have left it
        replaced 12 5000 named 40; hold a:1 10 1000 1015 1110 left 1020; hold b:1 9 1039 1045 1145 left 1050
        => nothing others 2
        # but not if the second call began after that
        replaced 12 5000 named 40; hold a:1 10 1000 1015 1110 left 1020; hold b:1 9 1041 1045 1145 left 1050
        => also TokensGrow
        # a nested entry with another token is found
        hold a:1 10 0 5 100 left 20; entered a:1 10
        => nothing
        entered a:1 11
        => TokensGrow
        # a nested entry of an owner that was never outside is found
        entered a:1 10
        => TokensGrow
        # readers of one owner may have one token
        hold a:1s/10/0 10 0 5 100 shares left 20; hold a:1s/10/1 10 6 7 100 shares left 30
        => nothing
        # readers of two clients may not
        hold a:1s/10/0 10 0 5 100 shares left 20; hold b:1s/10/1 10 6 7 100 shares left 30
        => TokensGrow
        # two owners of one client may not
        hold a:1s/10/0 10 0 5 100 shares left 20; hold a:2s/10/1 10 6 7 100 shares left 30
        => TokensGrow
        # readers of two clients of a quorum may have one token
        hold a:1s/10/0 10 0 5 100 shares left 20; hold b:1s/10/1 10 6 7 100 shares left 30; quorum
        => nothing
        # a writer of a quorum may not have the token of readers
        hold a:1s/10/0 10 0 5 100 shares left 20; hold a:1s/10/1 10 6 7 100 shares left 30; quorum
        hold b:1/10 10 31 32 130 left 40
        => also TokensGrow
        # a reader may have the token of a writer that shares its lock
        hold a:1/10 10 0 5 100 downgraded 10 left 20; hold a:1s/10/0 10 6 12 100 shares left 30
        => nothing
        # and of no other
        hold a:1/10 10 0 5 100 left 10; hold a:1/10/0 10 6 12 100 shares left 30
        => also TokensGrow
        # readers have no order
        hold a:1s/10/0 10 0 5 100 shares left 20; hold b:1s/8/0 8 6 7 100 shares left 30
        => nothing
        # nor have permits, which have different tokens
        hold a:1.3p 10 0 5 100 permits 3 left 20; hold b:1.3p 8 6 7 100 permits 3 left 30
        => nothing
        hold c:1.3p 8 6 7 100 permits 3 left 30
        => TokensGrow
        # a writer after readers has a larger token than all of them
        hold a:1s/10/0 10 0 5 100 shares left 20; hold b:1s/8/0 8 6 7 100 shares left 30; hold c:1 11 0 35 130 left 40
        => nothing
        # a writer with a token between those of readers is found
        hold a:1s/10/0 10 0 5 100 shares left 20; hold b:1s/8/0 8 6 7 100 shares left 30; hold c:1 9 0 35 130 left 40
        => TokensGrow
        # a reader after a writer has a larger token
        hold a:1 10 0 5 100 left 20; hold b:1s/11/0 11 6 25 120 shares left 30
        => nothing
        # a reader with a smaller token than a writer before is found
        hold a:1 10 0 5 100 left 20; hold b:1s/9/0 9 6 25 120 shares left 30
        => TokensGrow
        # a reader may join a hold that was forgotten until its next renewal
        hold a:1s/8/0 8 0 5 100 shares; flushed 20 20; hold b:1 10 21 22 120 left 23; hold a:1s/8/1 8 24 25 100 shares left 30
        => nothing others 2
        # and not after it
        hold a:1s/8/0 8 0 5 100 shares; flushed 20 20; hold b:1 10 21 22 120 left 23; hold a:1s/8/1 8 24 25 121 shares left 30
        => also TokensGrow
    ";

    #[test]
    fn tokens_out_of_order_are_found() {
        check_cases(CASES);
    }
}
