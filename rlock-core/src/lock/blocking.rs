//! Locks from synchronous code.

use super::Lock;
use crate::{
    error::LockError,
    guard::LockGuard,
    run::{Inside, OnLost},
};

impl Lock {
    /// Acquires the lock from synchronous code, as [`acquire`](Self::acquire). Blocks the calling
    /// thread.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and [`LockError::WouldBlock`] on a thread that runs Tokio tasks.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), rlock_core::LockError> {
    /// let client = rlock_core::LockClient::in_memory();
    /// let guard = client.lock("ledger").acquire_blocking()?;
    /// drop(guard); // releases the lock in the background
    /// # Ok(())
    /// # }
    /// ```
    pub fn acquire_blocking(&self) -> Result<LockGuard, LockError> {
        self.blocking(self.acquire())
    }

    /// Acquires the lock from synchronous code if it is free, as
    /// [`try_acquire`](Self::try_acquire).
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire), and [`LockError::WouldBlock`] on a thread that runs Tokio tasks.
    pub fn try_acquire_blocking(&self) -> Result<Option<LockGuard>, LockError> {
        self.blocking(self.try_acquire())
    }

    /// Runs a closure inside of the lock from synchronous code, as [`run`](Self::run). Nested calls
    /// on the same thread re-enter.
    ///
    /// A closure cannot be stopped from outside. A long one should check
    /// [`current`](crate::current).
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run), and [`LockError::WouldBlock`] on a thread that runs Tokio tasks.
    ///
    /// # Panics
    ///
    /// If the closure panics, the panic resumes after the lock is released.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> Result<(), rlock_core::LockError> {
    /// let client = rlock_core::LockClient::in_memory();
    /// let sum = client.lock("ledger").run_blocking(|| 1 + 1)?;
    /// assert_eq!(sum, 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn run_blocking<T>(&self, body: impl FnOnce() -> T) -> Result<T, LockError> {
        let guards = self.blocking(self.acquire_all())?;
        Inside::enter(guards, OnLost::Cancel).leave(body())
    }
}
