//! The entries of one call, one for each of its keys, which end together.

use std::ops::Deref;

use futures_util::future::join_all;
use rlock_proto::{
    few::{self, Few},
    machine::HoldEnd,
};

use crate::{
    engine::entry::{EntryGuard, EntryHandle},
    error::LockError,
};

/// The entries of one call, in the order in which its keys were given. Dropping them removes each of them.
pub(crate) struct Entries(Few<EntryGuard>);

impl Entries {
    /// Keeps these entries, of which there is at least one.
    pub(crate) fn new(entries: Few<EntryGuard>) -> Self {
        Self(entries)
    }

    /// Keeps these entries, which end for this reason unless they are released.
    pub(crate) fn of(entries: Few<EntryHandle>, end: Option<HoldEnd>) -> Self {
        let guard = |entry| EntryGuard::of(entry, end);
        Self(few::collect(entries.into_iter().map(guard)))
    }

    /// Makes all entries end for this reason unless they are released. An earlier reason stays.
    pub(crate) fn ends_by(&mut self, end: HoldEnd) {
        let end = self.end().or(Some(end));
        self.0.iter_mut().for_each(|entry| entry.ends_by(end));
    }

    /// Lets `min_hold` keep the locks, even if the work fails, panics or is cancelled.
    pub(crate) fn keep_anyway(&mut self) {
        self.ends_by(HoldEnd::Released);
    }

    /// Returns why the entries end if they are not released.
    pub(crate) fn end(&self) -> Option<HoldEnd> {
        self.first().and_then(EntryGuard::end)
    }

    /// Returns handles on the entries for the code inside, which keep none of them.
    pub(crate) fn handles(&self) -> Few<EntryHandle> {
        few::collect(self.iter().map(|entry| EntryHandle::clone(entry)))
    }

    /// Hands the entries to a guard, which keeps them from now on.
    pub(crate) fn into_handles(self) -> Few<EntryHandle> {
        few::collect(self.0.into_iter().map(EntryGuard::into_entry))
    }

    /// Ends all entries in parallel, even if one of the releases fails. Returns the first error.
    pub(crate) async fn release(self) -> Result<(), LockError> {
        let mut entries = self.0;
        match entries.pop() {
            Some(only) if entries.is_empty() => only.release().await,
            last => {
                let each = entries.into_iter().chain(last);
                // Boxed, so that the futures of callers stay small.
                let released = Box::pin(join_all(each.map(EntryGuard::release))).await;
                released.into_iter().collect()
            }
        }
    }
}

impl Deref for Entries {
    type Target = [EntryGuard];

    fn deref(&self) -> &[EntryGuard] {
        &self.0
    }
}
