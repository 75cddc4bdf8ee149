//! The guard: a lock that is held for as long as it lives.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use crate::{
    client::LockClient,
    error::{LockError, LostCause},
    hold::{EntryId, Hold, Terms},
    owner::OwnerId,
    release,
    scope::Scope,
    store::StoreError,
    view::View,
};

/// A lock that is held until the guard is released or dropped.
///
/// The watchdog renews the lease meanwhile. Dropping the guard gives the lock back in the
/// background, from anywhere: outside a runtime, while unwinding, in a thread's destructor. Only
/// [`release`](Self::release) waits for the answer and reports a loss.
///
/// A guard that is leaked, by `mem::forget` say, is renewed for as long as its process lives;
/// [`max_hold`](crate::Lock::max_hold) bounds that.
///
/// # Examples
///
/// ```
/// use rlock_core::LockClient;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), rlock_core::LockError> {
/// let client = LockClient::in_memory();
/// let guard = client.lock("order:42").acquire().await?;
/// // … work that only one may do at a time …
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "if unused, the lock is released at once"]
pub struct LockGuard {
    view: View,
    /// Whether the entry was taken out of its hold already.
    left: bool,
}

impl LockGuard {
    pub(crate) fn new(client: &LockClient, hold: &Arc<Hold>, entry: EntryId, terms: Terms) -> Self {
        Self {
            view: View::new(client, hold, entry, terms),
            left: false,
        }
    }

    /// The key that is locked.
    #[must_use]
    pub fn key(&self) -> &str {
        self.view.hold.key.as_str()
    }

    /// Returns the owner that holds it. Nested holds share it, and so do holds of this client that take the lock over
    /// from one another without a request. Tell holds apart by their [fencing token](Self::fencing_token).
    #[must_use]
    pub fn owner(&self) -> OwnerId {
        self.view.hold.owner
    }

    /// The fencing token: larger than that of every earlier hold of this key, and the same for
    /// nested entries. Storage that refuses tokens below the largest it has seen refuses writers
    /// that lost the lock.
    #[must_use]
    pub fn fencing_token(&self) -> u64 {
        self.view.hold.token()
    }

    /// How many nested entries the hold has now; 1 for a lock that is not nested.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.view.hold.count()
    }

    /// How long the hold may be relied on if it is not renewed; zero once it may not. Counted from
    /// before the request was sent, less a margin for clock drift.
    #[must_use]
    pub fn valid_for(&self) -> Duration {
        self.view.valid_for()
    }

    /// Whether the hold may be relied on now. Looks at the clock, so that it answers rightly even
    /// just after a pause of the whole process.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.valid_for().is_zero()
    }

    /// Resolves when the hold is lost, with the cause; never otherwise.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future costs nothing; a later call resolves at once if the hold was lost
    /// meanwhile.
    pub async fn lost(&self) -> LostCause {
        self.view.lost().await
    }

    /// Runs a future inside this hold, so that acquires of the same key in it re-enter.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the inner one; the lock stays held by the guard.
    pub async fn scope<F: Future>(&self, future: F) -> F::Output {
        Scope::current()
            .inside(self.view.clone())
            .around(future)
            .await
    }

    /// Gives the lock back, and waits for the store's answer.
    ///
    /// If another caller of this client waits for the lock, or the lock is [retained](crate::Lock::retain), this
    /// sends no request: the lease, and what the store has reported, decide whether the hold was lost.
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`] if the lock was lost before: what was done meanwhile may have run beside
    /// another holder. A lock that was held beyond its `max_hold` counts as lost, and is given back. [`LockError::Unavailable`] or [`LockError::Store`] if the store did not
    /// confirm; the background goes on trying, and the lease ends the hold at the latest.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the lock is given back in the background.
    pub async fn release(mut self) -> Result<(), LockError> {
        // A future that is never polled drops the guard as it is. From here on `leave` and
        // `give_back` answer for the entry.
        self.left = true;
        let View { client, hold, .. } = &self.view;
        let core = client.core();
        let _call = core.call();
        let broken = self.view.broken();
        if let Some(outcome) = release::leave(core, hold, self.view.entry(), broken) {
            return outcome;
        }
        // Boxed, so that the futures of callers stay small.
        let longest = core.options.response_timeout * 3;
        let released = release::give_back(core, hold, broken);
        let released = Box::pin(core.in_runtime_within(Some(longest), released)).await;
        released.unwrap_or_else(|| {
            let action = format!("release lock `{}`", hold.key);
            Err(StoreError::stands_still().into_lock_error(action, longest))
        })
    }

    pub(crate) fn view(&self) -> &View {
        &self.view
    }

    /// Marks that a body runs inside, which stops by itself when the hold is lost.
    pub(crate) fn runs_body(&self) {
        self.view.hold.runs_body(self.view.entry());
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if !self.left {
            // The last chance to notice a loss by the clock.
            let View { client, hold, .. } = &self.view;
            self.view.notice_at_drop();
            release::leave_in_background(client.core(), hold, self.view.entry());
        }
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("key", &self.key())
            .field("owner", &self.owner())
            .field("fencing_token", &self.fencing_token())
            .field("count", &self.count())
            .field("valid_for", &self.valid_for())
            .finish()
    }
}
