//! `LockGuard`: holds locks until it is released or dropped, can be downgraded, and tells when a lock is lost.

use std::{fmt, future::Future, ops::Deref};

use rlock_proto::machine::HoldEnd;

use crate::{
    blocking::block_on,
    engine::{call_chain::Scope, entries::Entries, entry::EntryHandle},
    error::LockError,
    hold::Hold,
    token::Token,
};

/// A guard, which holds its lock until it is released or dropped.
///
/// A guard dereferences to its [`Hold`], which has the key, the fencing token and the validity. The guard of
/// [`lock_all`](crate::LockClient::lock_all) holds the locks of all its [keys](Hold::keys).
///
/// A guard alone is not re-entrant: an acquire of the same key waits for it, even in the same task, unless it runs in the
/// guard's [`scope`](Self::scope). [`Lock::run`](crate::Lock::run) and the attribute put their bodies inside the lock.
///
/// As long as the guard lives, the watchdog renews the lease. Dropping the guard releases the lock in the background
/// and works anywhere: outside a runtime, while a panic unwinds, in a thread's destructor. Only
/// [`release`](Self::release) waits for the store's reply and reports a loss.
///
/// The lock of a leaked guard (from `mem::forget`, for example) is renewed until the process ends or its client is
/// [shut down](crate::LockClient::shutdown), unless [`max_hold`](crate::Lock::max_hold) limits that. To leave a lock to another
/// request or process, use [`detach`](Self::detach), which ends the renewals.
///
/// # Examples
///
/// Give the guard a name. `let _ = lock.acquire().await?` releases the lock at once, because `_` keeps no value, and the
/// compiler accepts that, as it does for a guard of Tokio's `Mutex`. clippy's `let_underscore_lock` knows only the guards of
/// the standard library and of `parking_lot`, so let rustc report it with `let_underscore_drop = "warn"` in `[lints.rust]` of
/// your `Cargo.toml`, or `#![warn(let_underscore_drop)]`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), rlock_core::LockError> {
/// let client = rlock_core::LockClient::in_memory();
/// let lock = client.lock("order:42");
/// let _guard = lock.acquire().await?; // held until the end of the block
/// assert!(lock.try_acquire().await?.is_none());
/// # Ok(())
/// # }
/// ```
#[must_use = "if unused, the lock is released at once: bind the guard to a name, as in `let _guard = …`, and not to `_`"]
pub struct LockGuard {
    hold: Hold,
    /// Why the hold is about to end, if it is not released.
    end: Option<HoldEnd>,
}

impl LockGuard {
    pub(crate) fn new(entries: Entries) -> Self {
        Self {
            end: entries.end(),
            hold: Hold::new(entries.into_handles()),
        }
    }

    /// Takes the entries from a guard that ends.
    fn take(&mut self) -> Entries {
        Entries::of(self.hold.take(), self.end)
    }

    /// Runs a future inside this hold, so that acquires of the same key in it re-enter the lock.
    ///
    /// # Cancel safety
    ///
    /// Dropping the returned future drops the inner future. The guard still holds the lock.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = rlock_core::LockClient::in_memory();
    /// let lock = client.lock("order:42");
    /// let guard = lock.acquire().await?;
    /// let depth = guard.scope(async {
    ///     let nested = lock.acquire().await?; // re-enters, so it does not wait for `guard`
    ///     let depth = nested.depth();
    ///     nested.release().await?;
    ///     Ok::<_, rlock_core::LockError>(depth)
    /// });
    /// assert_eq!(depth.await?, 2);
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn scope<F: Future>(&self, future: F) -> F::Output {
        let entries = self.entries().clone();
        Scope::current().inside(entries).around(future).await
    }

    /// Turns the exclusive lock into a [shared](crate::Lock::shared) one and lets in the readers that wait. The
    /// change is atomic, so no other client gets the lock exclusively in between. The token and the lease stay the
    /// same.
    ///
    /// Readers of this client can join at once, and those of other clients as soon as the background has informed the
    /// store. Has no effect on a shared lock or a permit.
    ///
    /// Only the guard of an acquire can be downgraded. A guard from [`current`](crate::current) cannot, because the
    /// body of [`Lock::run`](crate::Lock::run) or of an annotated function counts as an entry of its own.
    ///
    /// With several keys, first checks that all locks can be downgraded, and then downgrades one after the other.
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`] if the lock is lost. [`LockError::InvalidOption`] while other entries of the hold remain,
    /// because they rely on the exclusive lock.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = rlock_core::LockClient::in_memory();
    /// let config = client.lock("config");
    /// let guard = config.acquire().await?;
    /// // … writes …
    /// guard.downgrade()?;
    /// let other = config.shared().try_acquire().await?;
    /// assert!(other.is_some(), "both read");
    /// # Ok(())
    /// # }
    /// ```
    pub fn downgrade(&self) -> Result<(), LockError> {
        let mut entries = self.entries().iter();
        entries.clone().try_for_each(EntryHandle::check_downgrade)?;
        entries.try_for_each(EntryHandle::downgrade)
    }

    /// Releases the lock and waits for the store's reply. Releases several locks in parallel, even if one release fails,
    /// and returns the first error.
    ///
    /// No request is sent if the lock goes to the next call of this client or is [retained](crate::Lock::retain).
    /// Then the lease and the store's reports decide whether the hold was lost.
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`] if the lock was lost before, so another holder may have worked at the same time since
    /// then. A lock that was held beyond its `max_hold` counts as lost, and is released. [`LockError::Unavailable`]
    /// or [`LockError::Refused`] if the store did not confirm the release. The client then retries in the background,
    /// and the lock ends with its lease at the latest.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the lock is released in the background. As long as the future is neither polled nor
    /// dropped, other calls of this client keep waiting for the lock.
    ///
    /// # Examples
    ///
    /// ```
    /// use rlock_core::{LockClient, LockError};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = LockClient::in_memory();
    /// let guard = client.lock("order:42").acquire().await?;
    /// match guard.release().await {
    ///     Ok(()) => println!("no other call was inside"),
    ///     Err(LockError::Lost { key, cause, .. }) => println!("{key} was lost: {cause}"),
    ///     Err(error) => println!("the lease ends the lock: {error}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn release(mut self) -> Result<(), LockError> {
        self.take().release().await
    }

    /// Releases the lock from synchronous code, like [`release`](Self::release). Blocks the calling thread until the store
    /// has replied.
    ///
    /// # Errors
    ///
    /// Same as [`release`](Self::release), and [`LockError::BlockingInAsync`] on a thread that runs Tokio tasks. The lock is then
    /// released in the background.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), rlock_core::LockError> {
    /// let client = rlock_core::LockClient::in_memory();
    /// let guard = client.lock("ledger").acquire_blocking()?;
    /// guard.release_blocking()?; // an error shows that the lock was lost
    /// # Ok(())
    /// # }
    /// ```
    pub fn release_blocking(self) -> Result<(), LockError> {
        let action = format!("release lock `{}`", self.first().shown());
        block_on(|| action, self.release())?
    }

    /// Detaches the guard from its lock, which stays taken for the rest of its lease without a renewal. Returns the token, with
    /// which another request or process can [release](crate::LockClient::release_if) or
    /// [extend](crate::LockClient::extend_if) the lock. It is larger than [`token`](Hold::token) was if a renewal has
    /// brought a new fence since the lock was acquired.
    ///
    /// From then on, this client has no hold of the lock: its calls for the key wait like those of other clients, a
    /// [drain](crate::LockClient::drain) or [shutdown](crate::LockClient::shutdown) does not release the lock, and the client
    /// reports no loss when the lease ends. [`min_hold`](crate::Lock::min_hold) does not apply.
    ///
    /// Sends no request. Unless it is extended, the lock becomes free when its lease ends, which counts from the last renewal. So
    /// acquire it with a [lease](crate::Lock::lease) that is long enough, or [extend](Hold::extend) it first.
    ///
    /// The lease starts again if the store executes a request of this client late: a renewal that was on its way, or a first attempt
    /// to acquire that was repeated because no reply came. Such an attempt takes the lock again even if its lease has ended or
    /// [`release_if`](crate::LockClient::release_if) has released it.
    ///
    /// # Errors
    ///
    /// In each case, the guard is dropped, so the client releases its lock in the background. [`LockError::Lost`] if the lock is lost.
    /// [`LockError::InvalidOption`] for a [shared](crate::Lock::shared) lock or a [permit](crate::Lock::permits), whose holders
    /// the store does not know by their tokens; while other entries of the hold remain; and for several keys, because each has
    /// a token of its own.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use rlock_core::{LockClient, LockError};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), LockError> {
    /// let client = LockClient::in_memory();
    /// let lock = client.lock("upload:7").lease(Duration::from_secs(15 * 60));
    /// let token = lock.acquire().await?.detach()?; // the request that begins the upload returns the token
    ///
    /// assert!(lock.try_acquire().await?.is_none(), "the upload goes on");
    /// assert!(client.release_if("upload:7", token).await?); // the request that completes it
    /// # Ok(())
    /// # }
    /// ```
    pub fn detach(mut self) -> Result<Token, LockError> {
        let [entry] = &self.entries()[..] else {
            let value = format!("with {} keys", self.entries().len());
            let reason = "each key has a token of its own: acquire and detach them one by one";
            let error = LockError::invalid_option("detach", value, reason);
            return Err(error.of_lock(self.first().shown()));
        };
        let token = entry.detach()?;
        self.take().into_handles();
        Ok(token)
    }

    /// Marks the work under the lock as failed, so that the lock becomes free at the end of the hold despite
    /// [`min_hold`](crate::Lock::min_hold) and another process can try.
    ///
    /// A guard does not know the outcome of the work, so one that is released or dropped without this mark keeps the lock
    /// for its `min_hold`, unless its thread panics. The end of a marked hold is `failed` in spans and metrics.
    ///
    /// # Examples
    ///
    /// ```
    /// # use std::time::Duration;
    /// # fn report() -> Result<(), std::io::Error> { Err(std::io::ErrorKind::NotFound.into()) }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = rlock_core::LockClient::in_memory();
    /// let lock = client.lock("report").min_hold(Duration::from_secs(60));
    /// let mut guard = lock.acquire().await?;
    /// if report().is_err() {
    ///     guard.mark_failed();
    /// }
    /// guard.release().await?;
    /// assert!(client.inspect("report").await?.is_none(), "another process may try");
    /// # Ok(())
    /// # }
    /// ```
    pub fn mark_failed(&mut self) {
        self.end.get_or_insert(HoldEnd::Failed);
    }
}

impl Deref for LockGuard {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.hold
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if !self.entries().is_empty() {
            drop(self.take());
        }
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.hold.debug("LockGuard", f)
    }
}
