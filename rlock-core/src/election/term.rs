//! A term in which this process leads: how it begins, and what a leader does in it.

use std::{fmt, ops::Deref, sync::Arc};

use rlock_proto::options::Site;

use super::announce::Office;
use crate::{error::LockError, guard::LockGuard, hold::Hold, limits::MAX_VALUE};

/// A guard by which this process leads, from [`Election::campaign`](crate::election::Election::campaign). It
/// dereferences to its [`Term`].
///
/// Dropping it resigns in the background, so `let _ = election.campaign().await?` resigns at once, as
/// [`LockGuard`](LockGuard#examples) explains.
#[must_use = "if unused, the process resigns at once: bind the guard to a name, and not to `_`"]
pub struct LeaderGuard {
    pub(super) term: Term,
    pub(super) guard: LockGuard,
}

impl LeaderGuard {
    /// Returns the term in which this process leads, which can be cloned for other tasks.
    #[must_use]
    pub fn term(&self) -> &Term {
        &self.term
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

impl Deref for LeaderGuard {
    type Target = Term;

    fn deref(&self) -> &Term {
        &self.term
    }
}

impl fmt::Debug for LeaderGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LeaderGuard").field(&self.guard).finish()
    }
}

/// A term in which this process leads. The handle can be sent to other tasks, and does not prolong the term.
///
/// It dereferences to the [`Hold`] by which this process leads: its [token](Hold::token) is the number of the term, its
/// [fence](Hold::fence) makes a database refuse the writes of a former leader,
/// [`release_requested`](Hold::release_requested) resolves when another client asks this process to resign, and
/// [`lost`](Hold::lost) resolves when the term has ended, to [`LostCause::Released`](crate::LostCause::Released) after
/// the process has resigned.
pub struct Term {
    hold: Hold,
    office: Arc<Office>,
}

impl Term {
    /// Begins a term by this hold at this site, and announces it.
    pub(super) fn begin(hold: &Hold, site: Site) -> Self {
        let entry = hold.first();
        let office = entry.carry(|| Office::begin(site));
        entry.announce();
        let hold = hold.share();
        Self { hold, office }
    }

    /// Returns whether other clients wait to lead.
    pub(super) fn is_wanted(&self) -> bool {
        self.hold.first().is_wanted()
    }

    /// Asks this leader to resign.
    pub(super) fn ask_to_resign(&self) {
        self.hold.first().request_release();
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
        self.hold.check()?;
        self.office.announce(value);
        self.hold.first().announce();
        Ok(())
    }
}

impl Clone for Term {
    fn clone(&self) -> Self {
        Self {
            hold: self.hold.share(),
            office: Arc::clone(&self.office),
        }
    }
}

impl Deref for Term {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.hold
    }
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.hold.debug("Term", f)
    }
}
