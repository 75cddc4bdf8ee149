//! The guard of one lock.

use std::{fmt, future::Future, time::Duration};

use crate::{
    engine::{
        call_chain::Scope,
        entry::{Entry, EntryGuard},
    },
    error::{LockError, LostCause},
    observe::HoldEnd,
    owner::OwnerId,
};

/// A guard of one lock, which is held until the guard is released or dropped.
///
/// The watchdog renews the lease meanwhile. Dropping the guard releases the lock in the background,
/// from anywhere: outside a runtime, while unwinding, in a thread's destructor. Only
/// [`release`](Self::release) waits for the store's reply and reports a loss.
///
/// A leaked guard (`mem::forget`, for example) is renewed for as long as its process lives.
/// [`max_hold`](crate::Lock::max_hold) limits that.
///
/// # Examples
///
/// Give the guard a name. `let _ = lock.acquire().await?` releases the lock at once, because `_` keeps no value.
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
pub struct LockGuard(EntryGuard);

impl LockGuard {
    pub(crate) fn new(entry: EntryGuard) -> Self {
        Self(entry)
    }

    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &str {
        self.0.key()
    }

    /// Returns the owner that has the lock. Nested entries share it. Successive holds of this client may share it, too,
    /// because a local hand-over keeps the owner. Only the [fencing token](Self::fencing_token) identifies a hold.
    #[must_use]
    pub fn owner(&self) -> OwnerId {
        self.0.owner()
    }

    /// Returns the fencing token. It is larger than that of every earlier hold of this key, and the
    /// same for nested entries. A shared hold may have the token of another reader, and tokens of
    /// permits are not ordered. Storage that refuses tokens below the largest it has seen refuses
    /// writers that lost the lock.
    ///
    /// A token is an integer below 2^53 until the year 2112, so a `BIGINT` column, a
    /// JSON number and a Lua number hold it exactly. Only tokens of the same key can be compared.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = rlock_core::LockClient::in_memory();
    /// let lock = client.lock("order:42");
    ///
    /// let guard = lock.acquire().await?;
    /// let first = guard.fencing_token();
    /// // UPDATE orders SET …, token = $first WHERE id = 42 AND token <= $first
    /// guard.release().await?;
    ///
    /// let second = lock.acquire().await?.fencing_token();
    /// assert!(first < second);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn fencing_token(&self) -> u64 {
        self.0.token()
    }

    /// Returns the number of nested entries of the hold; 1 for a lock that is not nested.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.0.count()
    }

    /// Returns how long the hold remains valid without renewal. Returns zero once it is invalid. The
    /// time counts from before the request was sent, less a margin for clock drift.
    #[must_use]
    pub fn valid_for(&self) -> Duration {
        self.0.valid_for()
    }

    /// Returns whether the hold is valid now. Reads the clock, so the result is right even after a
    /// pause of the whole process.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.valid_for().is_zero()
    }

    /// Resolves to the cause when the hold is lost. Never resolves otherwise.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect. If the hold was lost meanwhile, a later call resolves at
    /// once.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use rlock_core::{LockClient, LostCause};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = LockClient::in_memory();
    /// let lock = client.lock("order:42").max_hold(Duration::from_millis(20));
    /// let guard = lock.acquire().await?;
    /// tokio::select! {
    ///     cause = guard.lost() => assert_eq!(cause, LostCause::MaxHold),
    ///     () = std::future::pending() => println!("the work is done"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lost(&self) -> LostCause {
        self.0.lost().await
    }

    /// Runs a future inside this hold. Acquires of the same key re-enter there.
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
    /// let count = guard.scope(async {
    ///     let nested = lock.acquire().await?; // re-enters, so it does not wait for `guard`
    ///     let count = nested.count();
    ///     nested.release().await?;
    ///     Ok::<_, rlock_core::LockError>(count)
    /// });
    /// assert_eq!(count.await?, 2);
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn scope<F: Future>(&self, future: F) -> F::Output {
        Scope::current()
            .inside(self.entry().clone())
            .around(future)
            .await
    }

    /// Makes the exclusive lock a [shared](crate::Lock::shared) one, atomically: no other client gets it exclusively in
    /// between. Lets in the readers that wait. The token and the lease stay as they are.
    ///
    /// Calls of this client may join at once. The background informs the store, which then admits readers of other
    /// clients. A shared lock and a permit stay what they are.
    ///
    /// Needs the guard of an acquire. In the body of [`Lock::run`](crate::Lock::run) or of an annotated function, the
    /// body counts as an entry, so a guard of [`current`](crate::current) cannot be downgraded.
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`] if the lock is lost. [`LockError::InvalidOption`] while other entries of the hold remain:
    /// they rely on the exclusive lock.
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
        self.0.downgrade()
    }

    /// Releases the lock and waits for the store's reply.
    ///
    /// A local hand-over and a [retention](crate::Lock::retain) send no request. The lease and the
    /// store's reports then decide whether the hold was lost.
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`] if the lock was lost before: work since then may have run beside another
    /// holder. A lock that was held beyond its `max_hold` counts as lost, and is released.
    /// [`LockError::Unavailable`] or [`LockError::Store`] if the store did not confirm the release.
    /// The background retries, and the lease ends the hold at the latest.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the lock is released in the background. While it is neither dropped nor polled, other
    /// calls of this client wait for the lock.
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
    pub async fn release(self) -> Result<(), LockError> {
        self.0.release().await
    }

    pub(crate) fn ends_by(&mut self, end: HoldEnd) {
        self.0.ends_by(end);
    }

    pub(crate) fn entry(&self) -> &Entry {
        &self.0
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockGuard")
            .field("key", &self.entry().shown())
            .field("owner", &self.owner())
            .field("fencing_token", &self.fencing_token())
            .field("count", &self.count())
            .field("valid_for", &self.valid_for())
            .finish()
    }
}
