//! The properties that every history must have: exclusion, tokens, leases and reads.
//!
//! 1. [`tokens`]: the tokens of a key grow with each grant, and agree with real time. Readers have no
//!    order among themselves, nor have permits.
//! 2. [`exclusion`]: the intervals in which owners could rely on a lock overlap only if their modes allow that.
//! 3. [`fencing`]: a resource that checks tokens accepts no stale write or read, and refuses no fresh one.
//! 4. [`reads`]: nothing is written while a reader relies on its lock.
//! 5. [`leases`]: nothing stays locked for longer than its lease after its owner died or left.
//!
//! The order of waiters is not a property. Under faults a waiter may lose its place for many reasons, so no bound of a wait
//! is certain.
//!
//! A store that forgets a lock violates the second and the fourth property until the former holder notices. Such
//! overlaps are counted separately.
//!
//! They only count as excused if a fault made the store forget that very lock during one of the two
//! holds: a restart without data, a flush, a deletion, or an unplanned failover. Nothing else is
//! excused: no ordered failover, and no kill of a master whose locks require a replica.

mod cases;
mod exclusion;
mod fencing;
mod leases;
mod reads;
mod tokens;

pub(super) use self::{
    cases::{check_cases, has_cases},
    leases::{LONGEST_LEASE, LONGEST_RETAIN, LONGEST_WAIT},
};

use super::history::History;

/// A property of histories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Property {
    TokensGrow,
    OneHolder,
    NoExtraPermit,
    NoStaleWrite,
    NoTornRead,
    NothingStaysLocked,
    /// The store refused a valid request.
    NothingIsRefused,
}

impl Property {
    pub(super) const ALL: [Self; 7] = [
        Self::TokensGrow,
        Self::OneHolder,
        Self::NoExtraPermit,
        Self::NoStaleWrite,
        Self::NoTornRead,
        Self::NothingStaysLocked,
        Self::NothingIsRefused,
    ];
}

/// A violation of a property at one place of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Violation {
    pub(super) property: Property,
    pub(super) what: String,
}

/// The results of all checks.
#[derive(Clone, Debug, Default)]
pub(super) struct Findings {
    /// The number of compared intervals of reliance.
    pub(super) beliefs: u64,
    /// Overlaps after a fault made the store forget the lock.
    pub(super) overlaps_by_nature: u64,
    /// The longest of these overlaps, in milliseconds.
    pub(super) longest_by_nature_ms: u64,
    /// Tokens out of order, fresh accesses refused and torn reads, for the same reason, or because two masters granted the lock.
    pub(super) others_by_nature: u64,
    /// The cases that `overlaps_by_nature` and `others_by_nature` count.
    pub(super) excused: Vec<Violation>,
    pub(super) violations: Vec<Violation>,
}

impl Findings {
    fn overlap_by_nature(&mut self, lasted_ms: u64, property: Property, what: String) {
        self.overlaps_by_nature += 1;
        self.longest_by_nature_ms = self.longest_by_nature_ms.max(lasted_ms);
        self.excused.push(Violation { property, what });
    }

    /// Adds a case that is no overlap of holds.
    fn other(&mut self, is_excused: bool, property: Property, what: String) {
        if !is_excused {
            return self.breaks(property, what);
        }
        self.others_by_nature += 1;
        self.excused.push(Violation { property, what });
    }

    fn breaks(&mut self, property: Property, what: String) {
        self.violations.push(Violation { property, what });
    }
}

/// Checks all properties.
pub(super) fn check(history: &History) -> Findings {
    let mut findings = Findings::default();
    tokens::check(history, &mut findings);
    exclusion::check(history, &mut findings);
    fencing::check(history, &mut findings);
    reads::check(history, &mut findings);
    leases::check(history, &mut findings);
    for what in &history.leftovers {
        findings.breaks(Property::NothingStaysLocked, what.clone());
    }
    if let [first, ..] = &history.refusals[..] {
        let what = format!("{} calls were refused: {first}", history.refusals.len());
        findings.breaks(Property::NothingIsRefused, what);
    }
    findings
}
