//! The locks of several keys, acquired together.

use std::{fmt, future::Future, time::Duration};

use futures_util::{TryFutureExt, future::select_all};

use crate::{
    engine::call_chain::Scope,
    error::{LockError, LostCause},
    few::Few,
    guard::LockGuard,
    lock::Lock,
    mode::Mode,
    options::{LockOptions, Site, Wait, lock_option_setters},
    run,
};

/// A handle to the locks of several keys, and the options to acquire them with.
/// [`LockClient::lock_all`](crate::LockClient::lock_all) makes it. It holds no lock itself, and can
/// be used any number of times.
///
/// The locks are acquired atomically: all or none. While one of them is taken, the call waits for
/// that one and holds none of the others. Calls that name the same keys in another order therefore
/// do not deadlock. A key that is named twice is locked once. A call inside one of the locks
/// re-enters that lock.
///
/// The options apply to each lock, and `wait` to all of them together.
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
/// let locks = client.lock_all(["account:1", "account:2"]).wait(Duration::from_secs(2));
///
/// let guard = locks.acquire().await?;
/// assert!(locks.try_acquire().await?.is_none());
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
    #[must_use]
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.keys()
    }

    fn options(&mut self) -> &mut LockOptions {
        self.0.options()
    }

    /// Adds keys whose locks are [shared](Self::shared), whatever the mode of the others.
    ///
    /// A key that is also among the others is not shared.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = rlock_core::LockClient::in_memory();
    /// let order = |id| client.lock_all([id]).and_shared(["tenant:7"]);
    /// let one = order("order:1").acquire().await?;
    /// let other = order("order:2").acquire().await?;
    /// assert!(client.lock("tenant:7").try_acquire().await?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn and_shared<I>(mut self, keys: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        for key in keys {
            self.0.add_shared(key.into());
        }
        self
    }

    lock_option_setters!();

    /// Acquires all locks, waiting for those that are taken. The returned future borrows nothing.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`], and no lock is held then. [`LockError::Timeout`] names the key that
    /// was still taken. [`LockError::InvalidKey`] for an empty list, [`LockError::InvalidOption`]
    /// for more than 1,000 different keys.
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::acquire`].
    pub fn acquire(
        &self,
    ) -> impl Future<Output = Result<MultiLockGuard, LockError>> + Send + use<> {
        self.0.acquire_all().map_ok(MultiLockGuard)
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
    pub fn try_acquire(
        &self,
    ) -> impl Future<Output = Result<Option<MultiLockGuard>, LockError>> + Send + use<> {
        let acquiring = self.0.try_acquire_all();
        acquiring.map_ok(|guards| guards.map(MultiLockGuard))
    }

    /// Acquires all locks, runs the future inside them, and releases them.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and the future did not start then. [`LockError::Lost`] if one
    /// of the locks was lost; the future was dropped at its next await.
    ///
    /// # Panics
    ///
    /// As [`Lock::run`].
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::run`].
    pub fn run<F: Future>(
        &self,
        future: F,
    ) -> impl Future<Output = Result<F::Output, LockError>> + use<F> {
        self.0.run(future)
    }

    /// Acquires all locks from synchronous code. Blocks the calling thread.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and [`LockError::WouldBlock`] on a thread that runs Tokio tasks.
    pub fn acquire_blocking(&self) -> Result<MultiLockGuard, LockError> {
        self.0.blocking(self.acquire())
    }

    /// Acquires all locks from synchronous code if all are free, as
    /// [`try_acquire`](Self::try_acquire).
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire), and [`LockError::WouldBlock`] on a thread that runs Tokio tasks.
    pub fn try_acquire_blocking(&self) -> Result<Option<MultiLockGuard>, LockError> {
        self.0.blocking(self.try_acquire())
    }

    /// Runs a closure inside all locks from synchronous code, as [`Lock::run_blocking`].
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run), and [`LockError::WouldBlock`] on a thread that runs Tokio tasks.
    ///
    /// # Panics
    ///
    /// As [`Lock::run_blocking`].
    pub fn run_blocking<T>(&self, body: impl FnOnce() -> T) -> Result<T, LockError> {
        self.0.run_blocking(body)
    }
}

/// A guard of several locks, which are held until it is released or dropped. Each lock has a
/// [`LockGuard`] of its own, in ascending order of the keys.
///
/// Give the guard a name, as in `let _guard = locks.acquire().await?`: `let _ = …` releases the locks at once.
#[must_use = "if unused, the locks are released at once: bind the guard to a name, as in `let _guard = …`, and not to `_`"]
pub struct MultiLockGuard(Few<LockGuard>);

impl MultiLockGuard {
    /// Makes a guard of these locks, in ascending order of their keys.
    pub(crate) fn new(mut guards: Few<LockGuard>) -> Self {
        guards.sort_by(|one, other| one.key().cmp(other.key()));
        Self(guards)
    }

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
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = rlock_core::LockClient::in_memory();
    /// let guard = client.lock_all(["account:1", "account:2"]).acquire().await?;
    /// client.revoke("account:2")?; // as if the key had been deleted on a server
    /// let (key, cause) = guard.lost().await;
    /// println!("{key} was lost: {cause}");
    /// # assert_eq!(key, "account:2");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lost(&self) -> (&str, LostCause) {
        let losses = self
            .0
            .iter()
            .map(|guard| Box::pin(async move { (guard.key(), guard.lost().await) }));
        select_all(losses).await.0
    }

    /// Runs a future inside all locks. Acquires of their keys re-enter there.
    ///
    /// # Cancel safety
    ///
    /// Dropping the returned future drops the inner future. The guard still holds the locks.
    pub async fn scope<F: Future>(&self, future: F) -> F::Output {
        let inside = |scope: Scope, guard: &LockGuard| scope.inside(guard.entry().clone());
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
        run::release_all(self.0).await
    }
}

impl fmt::Debug for MultiLockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.0).finish()
    }
}
