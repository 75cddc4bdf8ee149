//! The public view of the current call's scope: its innermost hold, and how to carry the scope into a task.

use std::{future::Future, sync::Arc, time::Duration};

use crate::{
    engine::{
        call_chain::{ChainLink, Scope, innermost},
        entry::{self, Entry, EntryGuard},
    },
    error::{LockError, LostCause},
    fencing::{self, Fence},
    few::Few,
    guard::{LockGuard, only_token, token_of},
    owner::OwnerId,
};

/// Carries the current chain of locks, and the client of the current scope, into another task.
///
/// A spawned task is not inside the locks of the task that spawned it: both run at the same time, so
/// a shared lock would not exclude them from each other. A body that waits for the task carries its
/// locks over on purpose with this trait. The trait does not keep a lock beyond the end of the body.
/// A [guard](CurrentHold::guard) that moves into the task does.
pub trait InCurrentScope: Future + Sized {
    /// Returns this future inside the caller's locks.
    ///
    /// A nested acquire there re-enters for as long as the hold lasts. After that, it acquires the
    /// lock anew. [`current`] returns the caller's hold, which becomes invalid when the caller's own
    /// call ends.
    ///
    /// # Cancel safety
    ///
    /// As that of this future.
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

/// Returns the innermost hold that the current call is inside, or `None` outside of any body.
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

/// The hold that a body runs in, from [`current`]. A handle does not keep the hold; a [guard](Self::guard) does.
///
/// The hold of a call with several keys has all of its [keys](Self::keys), and each key has a [token](Self::token) of
/// its own. Such a hold is valid while all of its locks are.
///
/// A handle can outlive the body, and can be sent to another task. It follows the call or guard
/// that it was obtained in. When that call or guard ends or starts its release,
/// [`is_valid`](Self::is_valid) returns `false` and [`lost`](Self::lost) resolves. This holds even
/// if an outer call still holds the key.
#[derive(Clone)]
pub struct CurrentHold(Arc<ChainLink>);

impl CurrentHold {
    /// Returns the entry of the last key.
    pub(crate) fn entry(&self) -> &Entry {
        self.0.entries.last().expect("a call has a lock")
    }

    /// Returns the key. Of several keys, returns the last one in ascending order; see [`keys`](Self::keys).
    #[must_use]
    pub fn key(&self) -> &str {
        self.entry().key()
    }

    /// Returns the keys of the call in ascending order, each once. Those of its callers are not among them.
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
        self.0.entries.iter().map(Entry::key)
    }

    /// Returns the owner that has the lock, of several locks that of [`key`](Self::key).
    #[must_use]
    pub fn owner(&self) -> OwnerId {
        self.entry().owner()
    }

    /// Returns the fencing token. It is larger than that of every earlier hold of this key. A shared
    /// hold may have the token of another reader, and tokens of permits are not ordered. Storage that
    /// refuses tokens below the largest it has seen refuses writers that lost the lock.
    ///
    /// A token is an integer below 2^53 until the year 2112, so a `BIGINT` column, a
    /// JSON number and a Lua number hold it exactly. Only tokens of the same key can be compared.
    ///
    /// # Panics
    ///
    /// If the call has several keys, because a write must carry the token of the key that protects it. Use
    /// [`token`](Self::token) there. A list of keys such as `"account:<ids[]>"` may have one key or several.
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
    /// As [`fencing_token`](Self::fencing_token).
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

    /// Returns the key and the token of the exclusive lock, for a database that refuses stale writers: see [`fencing`](crate::fencing).
    /// A nested call has the fence of its hold.
    ///
    /// # Panics
    ///
    /// If the call has several exclusive locks, because each has a fence of its own: see [`fences`](Self::fences). Or if it has
    /// none, because a [shared lock](crate::Lock::shared) or a [permit](crate::Lock::permits) has no fence: a later one may have a
    /// smaller token.
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

    /// Returns the [fence](Self::fence) of each exclusive lock, in ascending order of the keys. Check all of them in one
    /// transaction, in this order, so that transactions do not wait for each other in a circle. A shared lock and a permit have
    /// none, so a write under such a lock alone is not guarded.
    #[must_use]
    pub fn fences(&self) -> Vec<Fence> {
        fencing::fences(self.0.entries.iter())
    }

    /// Returns the number of nested entries of the hold, of several locks that of [`key`](Self::key).
    #[must_use]
    pub fn count(&self) -> u32 {
        self.entry().count()
    }

    /// Returns how long the hold remains valid without renewal. Returns zero once the hold is
    /// invalid or its call has ended. Of several locks, the one that ends first counts.
    #[must_use]
    pub fn valid_for(&self) -> Duration {
        let valid_for = |entry: &Entry| match entry.left() {
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

    /// Returns a guard that keeps the hold, for work that a body starts elsewhere: in `spawn_blocking`, in a thread, in
    /// a spawned task.
    ///
    /// If the caller of a locked call goes away, the body is dropped and its lock is released. Work that the body
    /// started elsewhere continues. Move a guard into that work: the lock is released when the call has ended and each
    /// of its guards is released or dropped. This method sends no request.
    ///
    /// The guard keeps the locks of all keys of this call. [`guards`](Self::guards) also keeps those of its callers.
    ///
    /// - **A loss** stops the body, but not the work. Check [`is_valid`](LockGuard::is_valid) there, or await
    ///   [`lost`](LockGuard::lost).
    /// - **[`max_hold`](crate::Lock::max_hold)** counts from the acquire of the call, and so does a lease without
    ///   [`watchdog`](crate::Lock::watchdog).
    /// - **Re-entry**: the work is not inside the lock, so an acquire of its key there waits for the guard. A task
    ///   enters the hold in [`LockGuard::scope`].
    /// - **At the end of the client**, [`drain`](crate::LockClient::drain) waits for guards, and
    ///   [`shutdown`](crate::LockClient::shutdown) treats them as bodies.
    ///
    /// The other way is to spawn the whole locked call and to await its handle, as [`Lock::run`](crate::Lock::run)
    /// shows. Then the body is not dropped either.
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`] if the hold was lost, or has ended. If it has ended, the cause is [`LostCause::Released`]:
    /// take the guard in the body, before the work starts.
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
            self.0.entries.iter().map(Entry::keep).collect();
        kept.map(LockGuard::new)
    }

    /// Returns a guard that keeps every lock of the call chain, of any client: all keys of this call, and the locks of
    /// its callers. Otherwise as [`guard`](Self::guard).
    ///
    /// The locks of callers that have ended are left out. If calls of two clients lock the same key inside each other, the
    /// guard names that key twice, and its [`token`](LockGuard::token) is that of the inner call. [`LockGuard::iter`] has
    /// both.
    ///
    /// # Errors
    ///
    /// As [`guard`](Self::guard), for each lock. No lock is kept then.
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
    /// let body = async { current().expect("inside a lock").guards() };
    /// let guard = accounts.run(body).await??; // the call has ended, and the guard keeps both locks
    /// assert!(accounts.try_acquire().await?.is_none());
    /// guard.release().await
    /// # }
    /// ```
    pub fn guards(&self) -> Result<LockGuard, LockError> {
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

    /// Resolves to the cause when the hold is lost. Resolves to [`LostCause::Released`] when the
    /// hold is released. Of several locks, the first one that ends counts.
    ///
    /// The first event counts: a hold that was lost before its release resolves to the cause of the
    /// loss.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect. If the hold has ended meanwhile, a later call resolves at
    /// once.
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
