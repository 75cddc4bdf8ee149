//! The terms in which this process leads.

use std::fmt;

use crate::{
    engine::{elections::Office, entry::EntryHandle},
    error::{LockError, LostCause},
    fencing::{Fence, only_fence},
    guard::LockGuard,
    limits::MAX_VALUE,
};

/// A leadership, from [`Election::campaign`](crate::election::Election::campaign). Dropping it resigns in the background, so
/// `let _ = election.campaign().await?` resigns at once, as [`LockGuard`](LockGuard#examples) explains.
#[must_use = "if unused, the process resigns at once: bind the leadership to a name, and not to `_`"]
pub struct LeaderGuard {
    pub(super) term: Term,
    pub(super) guard: LockGuard,
}

impl LeaderGuard {
    /// Returns the term in which this process leads.
    #[must_use]
    pub fn term(&self) -> &Term {
        &self.term
    }

    /// Returns the guard of the lock by which this process leads.
    pub fn guard(&self) -> &LockGuard {
        &self.guard
    }

    /// Resolves to the cause when the leadership is lost, like [`LockGuard::lost`].
    pub async fn lost(&self) -> LostCause {
        self.guard.lost().await
    }

    /// Resigns, so that the next candidate leads.
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`] if the leadership was lost before. Otherwise as [`LockGuard::release`].
    ///
    /// # Cancel safety
    ///
    /// Same as [`LockGuard::release`].
    pub async fn resign(self) -> Result<(), LockError> {
        self.guard.release().await
    }
}

impl fmt::Debug for LeaderGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LeaderGuard").field(&self.guard).finish()
    }
}

/// A term in which this process leads. The handle can be sent to other tasks, and does not prolong the term.
#[derive(Clone)]
pub struct Term(EntryHandle);

impl Term {
    /// Begins a term of this client, and announces it.
    pub(super) fn begin(entry: EntryHandle) -> Self {
        let term = Self(entry);
        term.office();
        // If the hold ended before this office existed, its end could not close the office.
        if term.0.left().or_else(|| term.0.broken()).is_some() {
            term.office().ends();
        }
        term.0.core().shell.elections.announce(&term.0.hold);
        term
    }

    fn office(&self) -> &Office {
        self.0
            .hold
            .office
            .get_or_init(|| Box::new(Office::new(self.0.hold.site)))
    }

    /// Returns the number of the term: its fencing token.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.0.token()
    }

    /// Returns the fence, with which a database can refuse the writes of a former leader, as
    /// [`fencing`](crate::fencing) describes.
    #[must_use]
    pub fn fence(&self) -> Fence {
        only_fence([&self.0].into_iter())
    }

    /// Returns whether this process still leads. Reads the clock, so the result is right even after a pause of the whole
    /// process.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.0.left().is_none() && !self.0.valid_for().is_zero()
    }

    /// Resolves to the cause when the term has ended: [`LostCause::Released`] after the process has resigned.
    pub async fn lost(&self) -> LostCause {
        self.0.lost().await
    }

    /// Announces a value of at most 1,024 bytes, such as the address of this process, to all observers of the
    /// election. The value belongs to the term. A later value replaces it, and an empty one withdraws it.
    ///
    /// # Errors
    ///
    /// [`LockError::InvalidOption`] if the value is too long. [`LockError::Lost`] if the term has ended.
    pub fn announce(&self, value: impl Into<String>) -> Result<(), LockError> {
        let value = value.into();
        if value.len() > MAX_VALUE {
            let length = format!("of {} bytes", value.len());
            let reason = "a leader announces at most 1,024 bytes: announce an address, and serve the rest there";
            return Err(LockError::invalid_option("announce", length, reason));
        }
        if let Some(cause) = self.0.left().or_else(|| self.0.broken()) {
            return Err(self.0.lost_error(cause));
        }
        self.office().announce(value);
        self.0.core().shell.elections.announce(&self.0.hold);
        Ok(())
    }

    /// Resolves when another client has [asked](crate::election::Election::request_resign) this leader to resign, or its own client
    /// [drains](crate::LockClient::drain). Finish the current work, then return from the body, or call
    /// [`LeaderGuard::resign`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect, because once the leader is asked to resign, each later call resolves at
    /// once.
    pub async fn resign_requested(&self) {
        tokio::select! {
            () = self.office().resign.wait() => {}
            () = self.0.core().until_draining() => {}
        }
    }
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Term").field(&self.token()).finish()
    }
}
