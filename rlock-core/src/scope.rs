//! The public view of the current call's scope: its innermost hold, and how to carry the scope into a task.

use std::{future::Future, sync::Arc, time::Duration};

use crate::{
    engine::{
        call_chain::{ChainLink, Scope, innermost},
        entry::{self, EntryGuard, EntryHandle},
    },
    error::{LockError, LostCause},
    fencing::{self, Fence},
    few::Few,
    guard::{LockGuard, only_token, token_of},
    owner::OwnerId,
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
///     hold.fencing_token()
/// };
/// assert!(lock.run(body).await? > 0);
/// assert!(rlock_core::current().is_none());
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn current() -> Option<CurrentHold> {
    innermost().map(CurrentHold)
}

/// The hold that a body runs in, from [`current`]. The handle does not keep the lock; a [guard](Self::guard) does.
///
/// The hold of a call with several [keys](Self::keys) has a [token](Self::token) for each of them, and is valid as
/// long as all of its locks are.
///
/// The handle can be sent to another task and can outlive the body. It belongs to the call or guard in which it was
/// obtained: as soon as that ends or starts its release, [`is_valid`](Self::is_valid) returns `false` and
/// [`lost`](Self::lost) resolves, even if an outer call still holds the key.
#[derive(Clone)]
pub struct CurrentHold(Arc<ChainLink>);

impl CurrentHold {
    /// Returns the entry of the last key.
    pub(crate) fn entry(&self) -> &EntryHandle {
        self.0.entries.last().expect("a call has a lock")
    }

    /// Returns the key. With several [keys](Self::keys), returns the last one in ascending order.
    #[must_use]
    pub fn key(&self) -> &str {
        self.entry().key()
    }

    /// Returns the keys of the call in ascending order, each once. The keys of its callers are not included.
    ///
    /// # Examples
    ///
    /// ```
    /// use rlock_core::{LockClient, current};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = LockClient::in_memory();
    /// let body = async {
    ///     let hold = current().expect("inside a lock");
    ///     for key in hold.keys() {
    ///         println!("{key} by token {:?}", hold.token(key));
    ///     }
    /// };
    /// client.lock_all(["account:1", "account:2"]).run(body).await
    /// # }
    /// ```
    #[must_use]
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.entries.iter().map(EntryHandle::key)
    }

    /// Returns the owner under which the store records the lock; with several keys, the owner of [`key`](Self::key).
    #[must_use]
    pub fn owner(&self) -> OwnerId {
        self.entry().owner()
    }

    /// Returns the fencing token, which is larger than that of every earlier hold of this key. Storage that refuses
    /// tokens below the largest it has seen therefore refuses writers that have lost the lock. That needs an
    /// exclusive lock, because a shared hold may have the token of another reader, and tokens of permits are not
    /// ordered.
    ///
    /// A token fits a `BIGINT` column, a JSON number and a Lua number exactly, because it stays below 2^53 until the
    /// year 2112. Only tokens of the same key can be compared.
    ///
    /// # Panics
    ///
    /// If the call has several keys, because a write must carry the token of the key that protects it: use
    /// [`token`](Self::token) instead. A list of keys such as `"account:<ids[]>"` may have one key in one call and
    /// several in the next.
    #[must_use]
    #[track_caller]
    pub fn fencing_token(&self) -> u64 {
        only_token(self.0.entries.iter())
    }

    /// Returns the [fencing token](Self::fencing_token) for storage whose integers are signed, such as a `BIGINT`
    /// column. The conversion cannot fail, because tokens are below 2^53.
    ///
    /// # Panics
    ///
    /// Same as [`fencing_token`](Self::fencing_token).
    #[must_use]
    #[track_caller]
    pub fn fencing_token_i64(&self) -> i64 {
        self.fencing_token().cast_signed()
    }

    /// Returns the [fencing token](Self::fencing_token) of one of the [keys](Self::keys), or `None` for any other key.
    ///
    /// # Examples
    ///
    /// ```
    /// use rlock_core::{LockClient, current};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = LockClient::in_memory();
    /// let body = async {
    ///     let hold = current().expect("inside a lock");
    ///     let debit = hold.token("account:1"); // for the write to the row of account 1
    ///     let credit = hold.token("account:2");
    ///     assert!(debit.is_some() && credit.is_some());
    ///     assert_eq!(hold.token("account:3"), None);
    /// };
    /// client.lock_all(["account:1", "account:2"]).run(body).await
    /// # }
    /// ```
    #[must_use]
    pub fn token(&self, key: &str) -> Option<u64> {
        token_of(self.0.entries.iter(), key)
    }

    /// Returns the [token](Self::token) of one of the keys for storage whose integers are signed.
    #[must_use]
    pub fn token_i64(&self, key: &str) -> Option<i64> {
        self.token(key).map(u64::cast_signed)
    }

    /// Returns the key and the token of the exclusive lock, for a database that refuses stale writers, as
    /// [`fencing`](crate::fencing) describes. A nested call has the same fence as the hold that it re-entered.
    ///
    /// # Panics
    ///
    /// If the call has several exclusive locks, because each has a fence of its own: use [`fences`](Self::fences).
    /// Also if it has none: a [shared lock](crate::Lock::shared) or a [permit](crate::Lock::permits) has no fence,
    /// because a later hold may have a smaller token.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = rlock_core::LockClient::in_memory();
    /// let body = async {
    ///     let fence = rlock_core::current().expect("inside a lock").fence();
    ///     fence.to_string() // `order:42@3528710470123520`, for example for a header
    /// };
    /// let sent = client.lock("order:42").run(body).await?;
    /// assert!(sent.starts_with("order:42@"));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    #[track_caller]
    pub fn fence(&self) -> Fence {
        fencing::only_fence(self.0.entries.iter())
    }

    /// Returns the [fence](Self::fence) of each exclusive lock, in ascending order of the keys. Check all of them in
    /// one transaction, in this order, so that transactions do not deadlock. Shared locks and permits have no fence,
    /// so a write that only such a lock protects is not checked.
    #[must_use]
    pub fn fences(&self) -> Vec<Fence> {
        fencing::fences(self.0.entries.iter())
    }

    /// Returns the number of entries of the hold, which is 1 without nested calls. With several keys, returns that of
    /// [`key`](Self::key).
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.entry().depth()
    }

    /// Returns how long the hold remains valid without a renewal, or zero once it is invalid or its call has ended.
    /// With several keys, the lock that ends first decides.
    #[must_use]
    pub fn valid_for(&self) -> Duration {
        let valid_for = |entry: &EntryHandle| match entry.left() {
            Some(_) => Duration::ZERO,
            None => entry.valid_for(),
        };
        let each = self.0.entries.iter().map(valid_for);
        each.min().unwrap_or_default()
    }

    /// Returns whether the hold is valid now.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.valid_for().is_zero()
    }

    /// Returns a guard that keeps the lock, for work that a body starts elsewhere: in `spawn_blocking`, in a thread,
    /// in a spawned task.
    ///
    /// When a locked call is cancelled, its body is dropped and its lock is released, but work that the body has
    /// started elsewhere continues. Move a guard into that work, and the lock stays until the call has ended and each
    /// of its guards is released or dropped. This method sends no request.
    ///
    /// The guard keeps the locks of all keys of this call. A guard from [`guard_all`](Self::guard_all) also keeps those of
    /// its callers.
    ///
    /// - **A loss** stops the body, but not the work, which has to check [`is_valid`](LockGuard::is_valid) or await
    ///   [`lost`](LockGuard::lost).
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
            self.0.entries.iter().map(EntryHandle::keep).collect();
        kept.map(LockGuard::new)
    }

    /// Returns a guard that keeps every lock of the call chain, of any client: all keys of this call, and the locks
    /// of its callers. Otherwise it is like [`guard`](Self::guard).
    ///
    /// Leaves out the locks of callers that have ended. If nested calls lock the same key through two clients, the
    /// guard has that key twice: [`token`](LockGuard::token) returns the token of the inner call, and
    /// [`LockGuard::iter`] yields both.
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
        let own = self.0.entries.len();
        let mut kept = Few::new();
        for (at, entry) in self.0.locks().into_iter().flatten().enumerate() {
            match entry.keep() {
                Err(LockError::Lost { cause, .. }) if cause == LostCause::Released && at >= own => {
                }
                entry => kept.push(entry?),
            }
        }
        Ok(LockGuard::new(kept))
    }

    /// Resolves when the hold ends: to the cause if it was lost, or to [`LostCause::Released`] if it was released.
    /// With several keys, the lock that ends first decides.
    ///
    /// A hold that is lost before its release resolves to the cause of the loss.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect. If the hold ends before the next call, that call resolves at once.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// use rlock_core::{LockClient, LostCause, current};
    ///
    /// let client = LockClient::in_memory();
    /// let lock = client.lock("order:42");
    /// let hold = lock.run(async { current().expect("inside") }).await?;
    /// assert!(!hold.is_valid());
    /// assert_eq!(hold.lost().await, LostCause::Released);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lost(&self) -> LostCause {
        entry::first_lost(self.0.entries.iter()).await.1
    }
}

impl std::fmt::Debug for CurrentHold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut hold = f.debug_struct("CurrentHold");
        for entry in &self.0.entries {
            hold.field("key", &entry.shown())
                .field("owner", &entry.owner())
                .field("fencing_token", &entry.token());
        }
        hold.finish_non_exhaustive()
    }
}
