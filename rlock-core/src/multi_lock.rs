//! The locks of several keys, acquired together.

use std::{fmt, future::Future, time::Duration};

use futures_util::future::select_all;

use crate::{
    error::{LockError, LostCause},
    few::Few,
    guard::LockGuard,
    lock::Lock,
    run,
    scope::Scope,
};

/// A handle to the locks of several keys, and the options to acquire them with.
/// [`LockClient::lock_all`](crate::LockClient::lock_all) makes it. It holds no lock itself, and can
/// be used any number of times.
///
/// The locks are acquired atomically: all or none. While one of them is taken, the call waits for
/// that one and holds none of the others. Calls that name the same keys in another order therefore
/// do not deadlock.
///
/// A key that is named more than once is locked once. A call inside of one of the locks re-enters
/// that lock. A list of keys in the attribute has the same semantics.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use rlock_core::LockClient;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), rlock_core::LockError> {
/// let client = LockClient::in_memory();
/// let accounts = vec!["account:1", "account:2"];
/// let locks = client.lock_all(accounts).wait(Duration::from_secs(2));
///
/// let guard = locks.acquire().await?;
/// for held in guard.guards() {
///     println!("{} by token {}", held.key(), held.fencing_token());
/// }
/// guard.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "locks do nothing until they are acquired"]
pub struct MultiLock(Lock);

impl MultiLock {
    pub(crate) fn new(lock: Lock) -> Self {
        Self(lock)
    }

    /// Returns the keys, as given.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.keys()
    }

    /// Sets the lease of each lock, as [`Lock::lease`].
    pub fn lease(self, lease: Duration) -> Self {
        Self(self.0.lease(lease))
    }

    /// Sets how long an acquire of all locks may take, as [`Lock::wait`].
    pub fn wait(self, wait: Duration) -> Self {
        Self(self.0.wait(wait))
    }

    /// Lets an acquire wait without a limit.
    pub fn wait_forever(self) -> Self {
        Self(self.0.wait_forever())
    }

    /// Enables or disables renewal of the leases while the locks are held, as [`Lock::watchdog`].
    pub fn watchdog(self, renew: bool) -> Self {
        Self(self.0.watchdog(renew))
    }

    /// Sets how long the locks may be held, as [`Lock::max_hold`].
    pub fn max_hold(self, max_hold: Duration) -> Self {
        Self(self.0.max_hold(max_hold))
    }

    /// Keeps the locks for at least this long, as [`Lock::at_least`].
    pub fn at_least(self, at_least: Duration) -> Self {
        Self(self.0.at_least(at_least))
    }

    /// Keeps the locks for the next call of this client, as [`Lock::retain`].
    pub fn retain(self, retain: Duration) -> Self {
        Self(self.0.retain(retain))
    }

    /// Acquires all locks, waiting for those that are taken.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`], and no lock is held then. [`LockError::Timeout`] names the key that
    /// was still taken. [`LockError::InvalidKey`] for an empty list, [`LockError::InvalidOption`]
    /// for more than 1,000 keys.
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::acquire`].
    pub async fn acquire(&self) -> Result<MultiLockGuard, LockError> {
        self.0.acquire_all().await.map(MultiLockGuard)
    }

    /// Acquires all locks if all are free, without waiting for a holder. Returns `None` if one is
    /// taken.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), except `Timeout`.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = rlock_core::LockClient::in_memory();
    /// let taken = client.lock("account:1").acquire().await?;
    /// let locks = client.lock_all(["account:1", "account:2"]);
    /// assert!(locks.try_acquire().await?.is_none());
    /// # drop(taken);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn try_acquire(&self) -> Result<Option<MultiLockGuard>, LockError> {
        let guards = self.0.try_acquire_all().await?;
        Ok(guards.map(MultiLockGuard))
    }

    /// Acquires all locks, runs the future inside of them, and releases them, as [`Lock::run`].
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and the future did not start then. [`LockError::Lost`] if one
    /// of the locks was lost; the future was dropped at its next await.
    ///
    /// # Panics
    ///
    /// If the future panics, the panic resumes after the locks are released.
    ///
    /// # Cancel safety
    ///
    /// Dropping the returned future drops the inner future, then releases the locks in the
    /// background.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = rlock_core::LockClient::in_memory();
    /// let locks = client.lock_all(["account:1", "account:2"]);
    /// let moved = locks.run(async { 100 }).await?;
    /// assert_eq!(moved, 100);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run<F: Future>(&self, future: F) -> Result<F::Output, LockError> {
        self.0.run(future).await
    }

    /// Acquires all locks from synchronous code. Blocks the calling thread.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and [`LockError::WouldBlock`] inside an async task.
    pub fn acquire_blocking(&self) -> Result<MultiLockGuard, LockError> {
        self.0.acquire_all_blocking().map(MultiLockGuard)
    }

    /// Acquires all locks from synchronous code if all are free, as
    /// [`try_acquire`](Self::try_acquire).
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire), and [`LockError::WouldBlock`] inside an async task.
    pub fn try_acquire_blocking(&self) -> Result<Option<MultiLockGuard>, LockError> {
        let guards = self.0.try_acquire_all_blocking()?;
        Ok(guards.map(MultiLockGuard))
    }

    /// Runs a closure inside of all locks from synchronous code, as [`Lock::run_blocking`].
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run), and [`LockError::WouldBlock`] inside an async task.
    ///
    /// # Panics
    ///
    /// If the closure panics, the panic resumes after the locks are released.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), rlock_core::LockError> {
    /// let client = rlock_core::LockClient::in_memory();
    /// let locks = client.lock_all(["account:1", "account:2"]);
    /// let moved = locks.run_blocking(|| 100)?;
    /// assert_eq!(moved, 100);
    /// # Ok(())
    /// # }
    /// ```
    pub fn run_blocking<T>(&self, body: impl FnOnce() -> T) -> Result<T, LockError> {
        self.0.run_blocking(body)
    }
}

/// A guard of several locks, which are held until it is released or dropped. Each lock has a
/// [`LockGuard`] of its own, in ascending order of the keys.
#[must_use = "if unused, the locks are released at once"]
pub struct MultiLockGuard(Few<LockGuard>);

impl MultiLockGuard {
    /// Returns the guard of each lock, with its key and fencing token, in ascending order of the keys.
    pub fn guards(&self) -> &[LockGuard] {
        &self.0
    }

    /// Returns how long all locks remain valid without renewal. Returns zero once one of them is
    /// invalid.
    #[must_use]
    pub fn valid_for(&self) -> Duration {
        let each = self.0.iter().map(LockGuard::valid_for);
        each.min().unwrap_or_default()
    }

    /// Returns whether all locks are valid now.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.0.iter().all(LockGuard::is_valid)
    }

    /// Resolves to the key and the cause when one of the locks is lost.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect. If a lock was lost meanwhile, a later call resolves at
    /// once.
    pub async fn lost(&self) -> (&str, LostCause) {
        let losses = self
            .0
            .iter()
            .map(|guard| Box::pin(async move { (guard.key(), guard.lost().await) }));
        select_all(losses).await.0
    }

    /// Runs a future inside of all locks. Acquires of their keys re-enter there.
    ///
    /// # Cancel safety
    ///
    /// Dropping the returned future drops the inner future. The guard still holds the locks.
    pub async fn scope<F: Future>(&self, future: F) -> F::Output {
        let inside = |scope: Scope, guard: &LockGuard| scope.inside(guard.view().clone());
        let scope = self.0.iter().fold(Scope::current(), inside);
        scope.around(future).await
    }

    /// Releases all locks and waits for the store's reply.
    ///
    /// # Errors
    ///
    /// As [`LockGuard::release`]. All locks are released, and the first error is returned.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the locks are released in the background.
    pub async fn release(self) -> Result<(), LockError> {
        run::give_back(self.0).await
    }
}

impl fmt::Debug for MultiLockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.0).finish()
    }
}
