//! Judges who is inside a lock within this process, by the rules that the simulator and the histories use.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use rlock_core::{Hold, LockMode};
use rlock_model::witness::{Holder, Tokens, excluded, takes_too_many};

/// A witness of the calls inside one lock. Clones share what it has seen.
#[derive(Clone, Debug, Default)]
pub struct Witness(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    inside: Vec<(u64, Entry)>,
    tokens: Tokens<Entry>,
    entries: u64,
    most_inside: usize,
    broken: Vec<String>,
}

/// A call inside. It counts as long as its hold was valid when it entered, so that a call whose lease has ended is no overlap.
#[derive(Clone, Debug)]
struct Entry {
    who: String,
    mode: LockMode,
    /// `None` for a call that has its lock from elsewhere.
    token: Option<u64>,
    valid_until: Option<Instant>,
}

impl Holder for Entry {
    fn mode(&self) -> LockMode {
        self.mode
    }

    fn token(&self) -> u64 {
        self.token.unwrap_or_default()
    }

    fn is_same(&self, other: &Self) -> bool {
        self.token.is_some() && (&self.who, self.token) == (&other.who, other.token)
    }

    fn may_share_token(&self, other: &Self) -> bool {
        (self.mode, other.mode) == (LockMode::Shared, LockMode::Shared)
    }
}

impl Witness {
    /// Creates a witness without entries.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Records that `who` is inside alone until the returned guard is dropped.
    #[must_use = "`who` leaves when this is dropped"]
    pub fn enter(&self, who: impl Into<String>) -> Inside {
        self.add(Entry {
            who: who.into(),
            mode: LockMode::Exclusive,
            token: None,
            valid_until: None,
        })
    }

    /// Records that a hold is inside in its mode, until the returned guard is dropped or its present lease ends.
    #[must_use = "the hold leaves when this is dropped"]
    pub fn hold(&self, hold: &Hold) -> Inside {
        // Read before the lease, so that a pause in between ends the entry too early, never too late.
        let now = Instant::now();
        self.add(Entry {
            who: hold.owner(),
            mode: hold.mode(),
            token: Some(hold.token().as_u64()),
            valid_until: Some(now + hold.valid_for()),
        })
    }

    fn add(&self, entry: Entry) -> Inside {
        let mut seen = self.seen();
        let Seen {
            inside,
            tokens,
            broken,
            ..
        } = &mut *seen;
        let relies = |entry: &Entry| entry.valid_until.is_none_or(|end| end > Instant::now());
        inside.retain(|(_, other)| relies(other));
        let others = || inside.iter().map(|(_, other)| other);
        let mut met: Vec<&Entry> = excluded(&entry, others()).collect();
        if met.is_empty() && takes_too_many(&entry, others()) {
            met.extend(others());
        }
        if !met.is_empty() {
            let met: Vec<&str> = met.iter().map(|other| &*other.who).collect();
            let met = met.join(", ");
            broken.push(format!("{} entered while {met} was inside", entry.who));
        }
        if entry.token.is_some() && relies(&entry) {
            if let Some(before) = tokens.not_below(&entry).or(tokens.same(&entry)) {
                let (who, token, before) = (&entry.who, entry.token(), before.token());
                broken.push(format!("{who} entered with {token} after {before}"));
            }
            tokens.add(&entry);
        }
        seen.entries += 1;
        let number = seen.entries;
        seen.inside.push((number, entry));
        seen.most_inside = seen.most_inside.max(seen.inside.len());
        let witness = self.clone();
        Inside { witness, number }
    }

    /// Returns the number of entries so far.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.seen().entries
    }

    /// Returns the largest number of calls that were inside at once.
    #[must_use]
    pub fn most_inside(&self) -> usize {
        self.seen().most_inside
    }

    /// Returns what each entry that broke a rule found.
    #[must_use]
    pub fn broken(&self) -> Vec<String> {
        self.seen().broken.clone()
    }

    /// Panics if an entry broke a rule, or if there was none.
    pub fn assert_held(&self) {
        let (broken, entries) = (self.broken(), self.entries());
        assert!(
            entries > 0,
            "no call entered, so the witness proves nothing"
        );
        assert!(
            broken.is_empty(),
            "{} of {entries} entries broke a rule: {}",
            broken.len(),
            broken[..broken.len().min(10)].join("; ")
        );
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call inside a lock that has a [`Witness`]. Dropping it leaves.
#[derive(Debug)]
pub struct Inside {
    witness: Witness,
    number: u64,
}

impl Drop for Inside {
    fn drop(&mut self) {
        let mut seen = self.witness.seen();
        seen.inside.retain(|(number, _)| *number != self.number);
    }
}
