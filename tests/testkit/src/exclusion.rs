//! Witnesses mutual exclusion within a process.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Two or more inside at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// The owner that entered.
    pub entered: String,
    /// The owners that were already inside.
    pub inside: Vec<String>,
}

impl fmt::Display for Overlap {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} entered while {} was inside",
            self.entered,
            self.inside.join(", ")
        )
    }
}

/// Counts the owners inside, within this process. Clones share the count.
#[derive(Clone, Debug, Default)]
pub struct Exclusion(Arc<Mutex<Count>>);

#[derive(Debug, Default)]
struct Count {
    inside: Vec<(u64, String)>,
    entries: u64,
    max_inside: usize,
    overlaps: Vec<Overlap>,
}

impl Exclusion {
    /// Creates a witness without entries.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Records that `who` is inside until the returned guard is dropped.
    #[must_use = "`who` leaves when this is dropped"]
    pub fn enter(&self, who: impl Into<String>) -> Inside {
        let who = who.into();
        let mut count = self.count();
        count.entries += 1;
        let number = count.entries;
        if !count.inside.is_empty() {
            let inside = count.inside.iter().map(|(_, name)| name.clone()).collect();
            count.overlaps.push(Overlap {
                entered: who.clone(),
                inside,
            });
        }
        count.inside.push((number, who));
        count.max_inside = count.max_inside.max(count.inside.len());
        Inside {
            witness: self.clone(),
            number,
        }
    }

    /// Returns the number of owners inside now.
    #[must_use]
    pub fn inside(&self) -> usize {
        self.count().inside.len()
    }

    /// Returns the number of entries so far.
    #[must_use]
    pub fn entries(&self) -> u64 {
        self.count().entries
    }

    /// Returns the largest number of owners that were inside at once.
    #[must_use]
    pub fn max_inside(&self) -> usize {
        self.count().max_inside
    }

    /// Every entry that found another holder inside.
    #[must_use]
    pub fn overlaps(&self) -> Vec<Overlap> {
        self.count().overlaps.clone()
    }

    /// Panics with the details if two owners were ever inside at once, or if no owner entered.
    pub fn assert_held(&self) {
        let (overlaps, entries) = (self.overlaps(), self.entries());
        assert!(
            entries > 0,
            "no owner entered, so the witness proves nothing"
        );
        let details: Vec<String> = overlaps.iter().take(10).map(ToString::to_string).collect();
        assert!(
            overlaps.is_empty(),
            "{} of {entries} entries overlapped: {}",
            overlaps.len(),
            details.join("; ")
        );
    }

    fn count(&self) -> MutexGuard<'_, Count> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An owner inside an [`Exclusion`]. Dropping it leaves.
#[derive(Debug)]
pub struct Inside {
    witness: Exclusion,
    number: u64,
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.witness
            .count()
            .inside
            .retain(|(number, _)| *number != self.number);
    }
}
