//! Tokens grow with each grant, and agree with real time.
//!
//! Readers of one client may have the same token. So may all readers on a quorum: a token is the largest fence of a majority, and
//! each member counts by its own clock.
//!
//! Two masters exist when a replica replaces a running master, until that one is demoted. Neither
//! knows the other's tokens. So of two grants in that time, the later call may have the smaller
//! token, or both have the same. Such pairs are counted separately.
//!
//! A local hand-over sends no request. The server may have forgotten the ownership just before, without closing
//! connections. Then the hold may begin before the report arrives, at the same time as the next owner's and with a
//! smaller token. It is counted separately, too. A reader that joins a hold of its client needs no request either. No
//! server reports a change of a shared lock, so it may join until the next renewal.

use rlock_core::LockMode;
use rlock_model::witness::{Holder, Tokens};

use super::{Findings, Property};
use crate::histories::{
    clock::ms,
    history::{History, Hold, Lock},
};

/// A hold, to the rules about tokens.
#[derive(Clone, Copy)]
struct Known<'a> {
    hold: &'a Hold,
    is_of_quorum: bool,
}

impl Holder for Known<'_> {
    fn mode(&self) -> LockMode {
        self.hold.mode
    }

    fn token(&self) -> u64 {
        self.hold.token
    }

    fn is_same(&self, other: &Self) -> bool {
        self.hold.owner == other.hold.owner
    }

    fn may_share_token(&self, other: &Self) -> bool {
        let are_readers = self.hold.is_reader() && other.hold.is_reader();
        self.hold.may_share(other.hold) || self.is_of_quorum && are_readers
    }
}

/// The holds of a key.
struct Place<'a> {
    history: &'a History,
    key: &'a str,
    lock: &'a Lock,
}

pub(super) fn check(history: &History, findings: &mut Findings) {
    for (key, lock) in &history.locks {
        let place = Place { history, key, lock };
        place.each_owner_has_its_own(findings);
        place.later_calls_get_larger_ones(findings);
        place.later_reliance_has_larger_ones(findings);
        place.nested_entries_share_one(findings);
    }
}

impl<'a> Place<'a> {
    fn sorted_by<K: Ord>(&self, key: impl Fn(&Hold) -> K) -> Vec<Known<'a>> {
        let mut holds: Vec<&Hold> = self.lock.holds.iter().collect();
        holds.sort_by_key(|hold| key(hold));
        let is_of_quorum = self.history.is_of_quorum();
        let known = |hold| Known { hold, is_of_quorum };
        holds.into_iter().map(known).collect()
    }

    fn finds(&self, findings: &mut Findings, pair: [Known<'_>; 2], is_excused: bool, why: &str) {
        let [one, other] = pair.map(|Known { hold, .. }| {
            let (called, inside) = (ms(hold.invoke), ms(hold.granted));
            let (owner, token) = (&hold.owner, hold.token);
            format!("{owner} (token {token}, called {called} ms, inside {inside} ms)")
        });
        let what = format!("{}: {one} and {other}: {why}", self.key);
        findings.other(is_excused, Property::TokensGrow, what);
    }

    fn each_owner_has_its_own(&self, findings: &mut Findings) {
        let mut tokens = Tokens::default();
        for hold in self.sorted_by(|hold| hold.token) {
            if let Some(first) = tokens.same(&hold).copied() {
                let is_excused = self.history.led_by_two(first.hold, hold.hold);
                self.finds(findings, [first, hold], is_excused, "the same token");
            }
            tokens.add(&hold);
        }
    }

    /// Checks that the later of two consecutive calls has the larger token, unless there are two
    /// masters.
    fn later_calls_get_larger_ones(&self, findings: &mut Findings) {
        let mut returned = self.sorted_by(|hold| hold.granted).into_iter().peekable();
        let mut tokens = Tokens::default();
        for hold in self.sorted_by(|hold| hold.invoke) {
            while let Some(before) = returned.next_if(|it| it.hold.granted < hold.hold.invoke) {
                tokens.add(&before);
            }
            let Some(before) = tokens.not_below(&hold).copied() else {
                continue;
            };
            let is_excused = self.history.led_by_two(before.hold, hold.hold)
                || before.token() > hold.token() && self.before_notice(hold.hold);
            let losses = self.history.data_losses(self.key);
            let losses = losses.filter(|fault| fault.start <= hold.hold.granted);
            let after = losses
                .max_by_key(|fault| fault.start)
                .map_or_else(String::new, |fault| {
                    let (start, end) = (ms(fault.start), ms(fault.end));
                    format!(", after {:?} from {start} to {end} ms", fault.kind)
                });
            let why = format!("the later call has no larger token{after}");
            self.finds(findings, [before, hold], is_excused, &why);
        }
    }

    /// Returns whether a process handed this hold over, or let a reader join it, before it noticed that
    /// the server had forgotten its ownership, or was no longer a master. If another fault closes the
    /// connection, the process notices by itself.
    fn before_notice(&self, hold: &Hold) -> bool {
        let is_before = |other: &Hold| other.token < hold.token || hold.may_share(other);
        let mut others = self.lock.holds_of(&hold.owner);
        if !others.any(|other| other.owner != hold.owner && is_before(other)) {
            return false;
        }
        let (earliest, granted) = (hold.earliest, hold.granted);
        let joins = hold.is_reader() && self.history.forgotten(self.key, earliest, granted);
        let mut losses = self.history.data_losses(self.key);
        joins
            || losses.any(|fault| {
                // A client notices that it has to leave a former master.
                (fault.kind.leaves_connections() || fault.kind.leaves_two_masters())
                    && fault.loses_until() >= earliest
                    && fault.start <= granted
                    && granted <= fault.loses_until() + REPORT
            })
    }

    /// Checks the order of valid holds. Each of them had the lock in turn, unless the store forgot the
    /// lock of the second.
    fn later_reliance_has_larger_ones(&self, findings: &mut Findings) {
        let mut tokens = Tokens::default();
        let holds = self.sorted_by(|hold| hold.granted).into_iter();
        for known in holds.filter(|known| known.hold.first_valid_until > known.hold.granted) {
            let Some(before) = tokens.not_below(&known).copied() else {
                tokens.add(&known);
                continue;
            };
            let Known { hold, .. } = known;
            let forgotten = (self.history).forgotten(self.key, hold.earliest, hold.granted);
            let is_excused = forgotten || self.history.led_by_two(before.hold, hold);
            let why = "who was inside later has no larger token";
            self.finds(findings, [before, known], is_excused, why);
        }
    }

    fn nested_entries_share_one(&self, findings: &mut Findings) {
        for nested in &self.lock.nested {
            let outer = self.lock.hold(&nested.owner).map(|hold| hold.token);
            if outer != Some(nested.token) {
                let (key, owner, token) = (self.key, &nested.owner, nested.token);
                let what = format!(
                    "{key}: {owner} entered once more with token {token}, outside with {outer:?}"
                );
                findings.breaks(Property::TokensGrow, what);
            }
        }
    }
}

/// The longest time for a report on an open connection to reach a process on a busy machine.
const REPORT: u64 = 1_000_000_000;
