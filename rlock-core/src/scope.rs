//! `current()`, `CurrentHold` and `in_current_scope()`: the innermost hold of a call, and how a spawned task inherits
//! its locks.

use std::{fmt, future::Future, ops::Deref, sync::Arc};

use rlock_proto::{few::Few, lost::LostCause};

use crate::{
    engine::{
        call_chain::{ChainLink, Scope, innermost},
        entries::Entries,
        entry::{EntryGuard, EntryHandle},
    },
    error::LockError,
    guard::LockGuard,
    hold::Hold,
};

/// Carries the current chain of locks, and the client of the current scope, into another task.
///
/// A spawned task is not inside the locks of the task that spawned it, because both run at the same time and their
/// common lock would not keep them apart. A body that waits for the task can carry its locks over with this trait.
/// That does not keep a lock beyond the end of the body; a [guard](CurrentHold::guard) that moves into the task does.
pub trait InCurrentScope: Future + Sized {
    /// Returns this future inside the caller's locks.
    ///
    /// In the future, a nested acquire re-enters the hold as long as that lasts, and afterwards acquires the lock
    /// itself. [`current`] returns the caller's hold, which becomes invalid when the caller's own call ends.
    ///
    /// # Cancel safety
    ///
    /// Same as the wrapped future.
    ///
    /// # Examples
    ///
    /// ```
    /// use rlock_core::{InCurrentScope, LockClient};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = LockClient::in_memory();
    /// let lock = client.lock("order:42");
    /// lock.run(async {
    ///     let nested = client.lock("order:42");
    ///     let child = async move { nested.run(async { "inside twice" }).await };
    ///     tokio::spawn(child.in_current_scope()).await.expect("no panic")
    /// })
    /// .await??;
    /// # Ok(())
    /// # }
    /// ```
    fn in_current_scope(self) -> impl Future<Output = Self::Output>;
}

impl<F: Future> InCurrentScope for F {
    fn in_current_scope(self) -> impl Future<Output = F::Output> {
        Scope::carried().around(self)
    }
}

/// Returns the innermost hold that the calling code is inside, or `None` outside of any locked body.
///
/// # Examples
///
/// ```
/// use rlock_core::LockClient;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), rlock_core::LockError> {
/// let client = LockClient::in_memory();
/// let lock = client.lock("order:42");
/// let body = async {
///     let hold = rlock_core::current().expect("inside a lock");
///     assert_eq!(hold.key(), "order:42");
///     hold.token()
/// };
/// println!("worked with token {}", lock.run(body).await?);
/// assert!(rlock_core::current().is_none());
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn current() -> Option<CurrentHold> {
    innermost().map(CurrentHold::new)
}

/// The hold that a body runs in, from [`current`]. The handle does not keep the lock; a [guard](Self::guard) does.
///
/// The handle dereferences to its [`Hold`], which has the key, the fencing token and the validity.
///
/// It can be sent to another task and can outlive the body. It belongs to the call or guard in which it was obtained:
/// as soon as that ends or starts its release, [`is_valid`](Hold::is_valid) returns `false` and [`lost`](Hold::lost)
/// resolves, even if an outer call still holds the key.
pub struct CurrentHold {
    hold: Hold,
    chain: Arc<ChainLink>,
}

impl CurrentHold {
    fn new(chain: Arc<ChainLink>) -> Self {
        let hold = Hold::new(chain.entries.clone());
        Self { hold, chain }
    }

    /// Returns a guard that keeps the lock, for work that a body starts elsewhere: in `spawn_blocking`, in a thread,
    /// in a spawned task.
    ///
    /// When a locked call is cancelled, its body is dropped and its lock is released, but work that the body has
    /// started elsewhere continues. Move a guard into that work, and the lock stays until the call has ended and each
    /// of its guards is released or dropped. This method sends no request.
    ///
    /// The guard keeps the locks of all keys of this call. A guard from [`guard_all`](Self::guard_all) also keeps those
    /// of its callers.
    ///
    /// - **A loss** stops the body, but not the work, which has to check [`is_valid`](Hold::is_valid) or await
    ///   [`lost`](Hold::lost).
    /// - **[`max_hold`](crate::Lock::max_hold)** counts from the acquire of the call, and so does a lease without
    ///   [`watchdog`](crate::Lock::watchdog).
    /// - **Re-entry**: the work is not inside the lock, so an acquire of the same key there waits for the guard,
    ///   unless it runs in [`LockGuard::scope`].
    /// - **Shutdown**: [`drain`](crate::LockClient::drain) waits for guards, and
    ///   [`shutdown`](crate::LockClient::shutdown) treats them like bodies.
    ///
    /// Alternatively, spawn the whole locked call and await its handle, as [`Lock::run`](crate::Lock::run) shows.
    /// Then nothing drops the body early.
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`] if the hold was lost or has ended. If it has ended, the cause is [`LostCause::Released`];
    /// to avoid that, take the guard in the body, before the work starts.
    ///
    /// # Examples
    ///
    /// ```
    /// use rlock_core::{LockClient, LockError, current};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), LockError> {
    /// let client = LockClient::in_memory();
    /// let lock = client.lock("report:daily");
    /// let body = async {
    ///     let guard = current().expect("inside a lock").guard()?;
    ///     let work = tokio::task::spawn_blocking(move || {
    ///         let _guard = guard; // dropped when the work ends, even if the body is gone
    ///         42 // for example a transaction
    ///     });
    ///     Ok::<_, LockError>(work.await.expect("no panic"))
    /// };
    /// assert_eq!(lock.run(body).await??, 42);
    /// # Ok(())
    /// # }
    /// ```
    pub fn guard(&self) -> Result<LockGuard, LockError> {
        let kept: Result<Few<EntryGuard>, LockError> =
            self.entries().iter().map(EntryHandle::keep).collect();
        kept.map(|kept| LockGuard::new(Entries::new(kept)))
    }

    /// Returns a guard that keeps every lock of the call chain, of any client: all keys of this call, and the locks
    /// of its callers. Otherwise it is like [`guard`](Self::guard).
    ///
    /// The keys of this call come first, then those of its callers, without the locks of callers that have ended. If
    /// nested calls lock the same key through two clients, the guard has that key twice, and
    /// [`token_of`](Hold::token_of) returns the token of the inner call.
    ///
    /// # Errors
    ///
    /// Same as [`guard`](Self::guard), for each lock. If one fails, no lock is kept.
    ///
    /// # Examples
    ///
    /// ```
    /// use rlock_core::{LockClient, LockError, current};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), LockError> {
    /// let client = LockClient::in_memory();
    /// let accounts = client.lock_all(["account:1", "account:2"]);
    /// let body = async { current().expect("inside a lock").guard_all() };
    /// let guard = accounts.run(body).await??; // the call has ended, and the guard keeps both locks
    /// assert!(accounts.try_acquire().await?.is_none());
    /// guard.release().await
    /// # }
    /// ```
    pub fn guard_all(&self) -> Result<LockGuard, LockError> {
        let own = self.entries().len();
        let mut kept = Few::new();
        for (at, entry) in self.chain.locks().into_iter().flatten().enumerate() {
            match entry.keep() {
                Err(LockError::Lost { cause, .. }) if cause == LostCause::Released && at >= own => {
                }
                entry => kept.push(entry?),
            }
        }
        Ok(LockGuard::new(Entries::new(kept)))
    }
}

impl Clone for CurrentHold {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.chain))
    }
}

impl Deref for CurrentHold {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.hold
    }
}

impl fmt::Debug for CurrentHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.hold.debug("CurrentHold", f)
    }
}
