//! A hold as the machine sees it: its token, its entries, and what observers see of it.

use std::time::Duration;

use smallvec::SmallVec;

use super::{
    Entry,
    output::{By, Entered},
};
use crate::{
    lease::Time,
    mode::LockMode,
    options::{LockOptions, Site},
};

/// A hold of an ownership, from its first entry on. The ownership remembers it until the next one begins.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hold {
    /// The fencing token.
    pub token: u64,
    /// The mode of its entries: a shared hold may use an exclusive lock.
    pub used: LockMode,
    /// Where it began.
    pub site: Site,
    /// When it began.
    pub since: Time,
    /// How often the lease was renewed since.
    pub renewals: u32,
    /// When another client revoked the lock, or took it.
    pub revoked_at: Option<Time>,
    /// When it began, or was downgraded: shared calls that waited by then join it before other clients.
    pub(super) open_since: Time,
    /// The end by its `max_hold`.
    pub(super) until: Time,
    /// Until when the lock stays taken after the last entry, because of the entries that have succeeded.
    pub(super) min_hold_until: Option<Time>,
    /// How long the ownership is retained after the last entry.
    pub(super) retain: Duration,
    entries: SmallVec<[Present; 2]>,
    /// The number of the next entry.
    next: u32,
}

/// An entry that has not left.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Present {
    number: u32,
    /// The first entry of its hold. In a shared ownership, each call that joins has a hold of its own.
    first: u32,
    /// Whether it wants renewals.
    renewed: bool,
    /// Whether a body runs inside, which a loss stops.
    in_body: bool,
    /// Until when the lock stays taken if the entry succeeds.
    min_hold_until: Option<Time>,
}

impl Hold {
    /// Makes a hold without entries. Their numbers follow those of the hold before.
    pub(super) fn new(options: &LockOptions, token: u64, before: Option<&Self>, now: Time) -> Self {
        Self {
            token,
            used: options.mode,
            site: options.site,
            since: now,
            renewals: 0,
            revoked_at: None,
            open_since: now,
            until: end(options, now),
            min_hold_until: None,
            retain: Duration::ZERO,
            entries: SmallVec::new(),
            next: before.map_or(0, |before| before.next),
        }
    }

    /// Adds an entry: the first one of a hold, or one in the same hold as this entry. Returns its number.
    pub(super) fn add(
        &mut self,
        options: &LockOptions,
        joined: Option<u32>,
        runs_body: bool,
        now: Time,
    ) -> u32 {
        self.retain = self.retain.max(options.retain);
        // That entry may have left. All entries of an exclusive lock are in one hold.
        let of_any = || Some(self.entries.first()?.first);
        let first = joined.and_then(|number| match self.first(number) {
            None if self.used == LockMode::Exclusive => of_any(),
            first => first,
        });
        let min_hold_until = options.min_hold.map(|least| now + least);
        self.add_entry(first, options.watchdog, runs_body, min_hold_until)
    }

    fn add_entry(
        &mut self,
        first: Option<u32>,
        renewed: bool,
        in_body: bool,
        min_hold_until: Option<Time>,
    ) -> u32 {
        let number = self.next;
        self.next += 1;
        self.entries.push(Present {
            number,
            first: first.unwrap_or(number),
            renewed,
            in_body,
            min_hold_until,
        });
        number
    }

    /// Adds the first entry of a call that joins a shared hold, which then ends by the latest `max_hold`.
    pub(super) fn join(&mut self, options: &LockOptions, runs_body: bool, now: Time) -> u32 {
        self.until = self.until.max(end(options, now));
        self.add(options, None, runs_body, now)
    }

    /// Adds an entry with the renewal of a present one, for work that a loss does not stop. Returns `None` if that entry
    /// has left.
    pub(super) fn keep(&mut self, number: u32) -> Option<u32> {
        let entry = self.entry(number)?;
        let (first, renewed) = (entry.first, entry.renewed);
        Some(self.add_entry(Some(first), renewed, true, None))
    }

    /// Removes an entry, whose `min_hold` counts if it has succeeded. Returns the first one of its hold, if that has no
    /// other entry.
    pub(super) fn remove(&mut self, number: u32, has_succeeded: bool) -> Option<u32> {
        let mut entries = self.entries.iter();
        let index = entries.position(|entry| entry.number == number)?;
        let Present {
            first,
            min_hold_until,
            ..
        } = self.entries.remove(index);
        if has_succeeded {
            self.min_hold_until = self.min_hold_until.max(min_hold_until);
        }
        let is_last = self.entries.iter().all(|entry| entry.first != first);
        is_last.then_some(first)
    }

    /// Begins the renewals that an entry wants, because its call was polled.
    pub(super) fn pick_up(&mut self, number: u32, renewed: bool) {
        if let Some(entry) = self.entry_mut(number) {
            entry.renewed = renewed;
        }
    }

    /// Makes a loss stop the body that runs inside an entry.
    pub(super) fn runs_body(&mut self, number: u32) {
        if let Some(entry) = self.entry_mut(number) {
            entry.in_body = true;
        }
    }

    fn entry(&self, number: u32) -> Option<&Present> {
        self.entries.iter().find(|entry| entry.number == number)
    }

    fn entry_mut(&mut self, number: u32) -> Option<&mut Present> {
        let mut entries = self.entries.iter_mut();
        entries.find(|entry| entry.number == number)
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn entries(&self) -> u32 {
        u32::try_from(self.entries.len()).unwrap_or(u32::MAX)
    }

    /// Returns the numbers of the entries.
    pub(super) fn numbers(&self) -> Vec<u32> {
        self.entries.iter().map(|entry| entry.number).collect()
    }

    /// Returns whether an entry has not left.
    #[must_use]
    pub fn has(&self, number: u32) -> bool {
        self.entry(number).is_some()
    }

    /// Returns whether a body runs inside.
    #[must_use]
    pub fn has_body(&self) -> bool {
        self.entries.iter().any(|entry| entry.in_body)
    }

    pub(super) fn wants_renewals(&self) -> bool {
        self.entries.iter().any(|entry| entry.renewed)
    }

    /// Returns what the call learns that has this entry in an ownership with this mode.
    pub(super) fn entered(&self, entry: Entry, mode: LockMode, began: Option<By>) -> Entered {
        let first = self.first(entry.number).unwrap_or(entry.number);
        // If that entry of a shared ownership has left, a new hold begins.
        let began = began.or((first == entry.number).then_some(By::Local));
        Entered {
            first,
            token: self.token,
            entry,
            mode,
            began,
        }
    }

    /// Returns the first entry of the hold that this entry is in.
    pub(super) fn first(&self, number: u32) -> Option<u32> {
        Some(self.entry(number)?.first)
    }

    /// Returns the first entries of all holds.
    pub(super) fn firsts(&self) -> SmallVec<[u32; 1]> {
        let mut firsts: SmallVec<[u32; 1]> = self.entries.iter().map(|entry| entry.first).collect();
        firsts.sort_unstable();
        firsts.dedup();
        firsts
    }

    /// Panics if an entry has no number of its own.
    pub(super) fn check(&self) {
        let are_sorted = self.entries.is_sorted_by_key(|entry| entry.number);
        assert!(are_sorted, "each entry has a number: {self:#?}");
    }
}

/// Returns the end of a hold that begins at this time with these options.
fn end(options: &LockOptions, now: Time) -> Time {
    options.max_hold.map_or(Time::NEVER, |most| now + most)
}
