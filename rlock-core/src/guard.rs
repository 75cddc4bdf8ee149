//! The guard of a lock.

use std::{fmt, future::Future, slice, time::Duration};

use futures_util::future::join_all;

use crate::{
    blocking::block_on,
    engine::{
        call_chain::Scope,
        entry::{self, EntryGuard, EntryHandle},
    },
    error::{LockError, LostCause},
    fencing::{self, Fence},
    few::Few,
    observe::HoldEnd,
    owner::OwnerId,
};

/// A guard, which holds its lock until it is released or dropped.
///
/// A guard of [`lock_all`](crate::LockClient::lock_all) holds the locks of all its [keys](Self::keys), each with a
/// [token](Self::token) of its own. It is valid as long as all of these locks are.
///
/// A guard alone is not re-entrant: an acquire of the same key waits for it, even in the same task, unless it runs in the
/// guard's [`scope`](Self::scope). [`Lock::run`](crate::Lock::run) and the attribute put their bodies inside the lock.
///
/// As long as the guard lives, the watchdog renews the lease. Dropping the guard releases the lock in the background
/// and works anywhere: outside a runtime, while a panic unwinds, in a thread's destructor. Only
/// [`release`](Self::release) waits for the store's reply and reports a loss.
///
/// The lock of a leaked guard (from `mem::forget`, for example) is renewed until the process ends or its client is
/// [shut down](crate::LockClient::shutdown), unless [`max_hold`](crate::Lock::max_hold) limits that.
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
pub struct LockGuard(GuardedLocks);

enum GuardedLocks {
    One(EntryGuard),
    /// In ascending order of their keys, each of one lock.
    Several(Vec<LockGuard>),
}

impl LockGuard {
    /// Makes a guard of at least one lock.
    pub(crate) fn new(mut entries: Few<EntryGuard>) -> Self {
        if entries.len() == 1 {
            return Self(GuardedLocks::One(entries.remove(0)));
        }
        entries.sort_by(|one, other| one.key().cmp(other.key()));
        let guards = entries.into_iter().map(GuardedLocks::One).map(Self);
        Self(GuardedLocks::Several(guards.collect()))
    }

    /// Returns the key. With several [keys](Self::keys), returns the last one in ascending order.
    #[must_use]
    pub fn key(&self) -> &str {
        self.entry().key()
    }

    /// Returns the keys in ascending order.
    #[must_use]
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &str> {
        self.each().map(EntryHandle::key)
    }

    /// Iterates over one guard for each lock, in ascending order of the keys. A guard of one lock yields itself.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = rlock_core::LockClient::in_memory();
    /// let guard = client.lock_all(["account:1", "account:2"]).acquire().await?;
    /// for held in &guard {
    ///     println!("{} by token {}", held.key(), held.fencing_token());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn iter(&self) -> slice::Iter<'_, Self> {
        match &self.0 {
            GuardedLocks::One(_) => slice::from_ref(self).iter(),
            GuardedLocks::Several(guards) => guards.iter(),
        }
    }

    /// Returns the owner under which the store records the lock; with several keys, the owner of [`key`](Self::key).
    /// Nested entries have the same owner, and so may successive holds of this client, because a local hand-over
    /// keeps it. Only the [fencing token](Self::fencing_token) identifies a hold.
    #[must_use]
    pub fn owner(&self) -> OwnerId {
        self.entry().owner()
    }

    /// Returns the fencing token, which is larger than that of every earlier hold of this key, and the same for
    /// nested entries. Storage that refuses tokens below the largest it has seen therefore refuses writers that have
    /// lost the lock. That needs an exclusive lock, because a shared hold may have the token of another reader, and
    /// tokens of permits are not ordered.
    ///
    /// A token fits a `BIGINT` column, a JSON number and a Lua number exactly, because it stays below 2^53 until the
    /// year 2112. Only tokens of the same key can be compared.
    ///
    /// # Panics
    ///
    /// If the guard has several keys, because a write must carry the token of the key that protects it: use
    /// [`token`](Self::token) instead. A list of keys such as `"account:<ids[]>"` may have one key in one call and
    /// several in the next.
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
    #[track_caller]
    pub fn fencing_token(&self) -> u64 {
        only_token(self.each())
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

    /// Returns the [fencing token](Self::fencing_token) of one of the keys, or `None` if this guard does not have the
    /// key.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = rlock_core::LockClient::in_memory();
    /// let guard = client.lock_all(["account:1", "account:2"]).acquire().await?;
    /// let debit = guard.token("account:1"); // for the write to the row of account 1
    /// let credit = guard.token("account:2");
    /// assert!(debit.is_some() && credit.is_some());
    /// assert_eq!(guard.token("account:3"), None);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn token(&self, key: &str) -> Option<u64> {
        token_of(self.each(), key)
    }

    /// Returns the [token](Self::token) of one of the keys for storage whose integers are signed.
    #[must_use]
    pub fn token_i64(&self, key: &str) -> Option<i64> {
        self.token(key).map(u64::cast_signed)
    }

    /// Returns the key and the token of the exclusive lock, for a database that refuses stale writers, as
    /// [`fencing`](crate::fencing) describes. A nested guard has the same fence as the hold that it re-entered.
    ///
    /// # Panics
    ///
    /// If the guard has several exclusive locks, because each has a fence of its own: use [`fences`](Self::fences).
    /// Also if it has none: a [shared lock](crate::Lock::shared) or a [permit](crate::Lock::permits) has no fence,
    /// because a later hold may have a smaller token.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = rlock_core::LockClient::in_memory();
    /// let guard = client.lock("order:42").acquire().await?;
    /// let fence = guard.fence();
    /// // Begin a transaction, and run `fencing::postgres::GUARD` with `fence.key()` and `fence.token_i64()`.
    /// # let returned = Some(fence.token_i64());
    /// fence.check(returned)?; // the token that the statement returned
    /// // Write, and commit.
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    #[track_caller]
    pub fn fence(&self) -> Fence {
        fencing::only_fence(self.each())
    }

    /// Returns the [fence](Self::fence) of each exclusive lock, in ascending order of the keys. Check all of them in
    /// one transaction, in this order, so that transactions do not deadlock. Shared locks and permits have no fence,
    /// so a write that only such a lock protects is not checked.
    #[must_use]
    pub fn fences(&self) -> Vec<Fence> {
        fencing::fences(self.each())
    }

    /// Returns the number of entries of the hold, which is 1 without nested calls. With several keys, returns that of
    /// [`key`](Self::key).
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.entry().depth()
    }

    /// Returns how long the hold remains valid without a renewal, or zero once it is invalid. The time counts from
    /// before the request was sent, less a margin for clock drift. With several keys, the lock that ends first
    /// decides.
    #[must_use]
    pub fn valid_for(&self) -> Duration {
        self.each()
            .map(EntryHandle::valid_for)
            .min()
            .unwrap_or_default()
    }

    /// Returns whether the hold is valid now. Reads the clock, so the result is right even after a
    /// pause of the whole process.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.valid_for().is_zero()
    }

    /// Resolves to the cause when the hold is lost, and never resolves otherwise. With several keys, the first loss
    /// decides, and [`lost_key`](Self::lost_key) also returns its key.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect. If the hold is lost before the next call, that call resolves at once.
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
        match &self.0 {
            GuardedLocks::One(entry) => entry.lost().await,
            GuardedLocks::Several(_) => self.lost_key().await.1,
        }
    }

    /// Resolves to the key and the cause when one of the locks is lost, like [`lost`](Self::lost).
    ///
    /// # Cancel safety
    ///
    /// Same as [`lost`](Self::lost).
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = rlock_core::LockClient::in_memory();
    /// let guard = client.lock_all(["account:1", "account:2"]).acquire().await?;
    /// client.simulate_loss("account:2")?; // as if the key had been deleted on a server
    /// let (key, cause) = guard.lost_key().await;
    /// println!("{key} was lost: {cause}");
    /// # assert_eq!(key, "account:2");
    /// # Ok(())
    /// # }
    /// ```
    pub async fn lost_key(&self) -> (&str, LostCause) {
        let (entry, cause) = entry::first_lost(self.each()).await;
        (entry.key(), cause)
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
        Scope::current().inside(self.entries()).around(future).await
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
        self.each().try_for_each(EntryHandle::check_downgrade)?;
        self.each().try_for_each(EntryHandle::downgrade)
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
    pub async fn release(self) -> Result<(), LockError> {
        match self.0 {
            GuardedLocks::One(entry) => entry.release().await,
            GuardedLocks::Several(guards) => {
                let entries = guards.into_iter().filter_map(Self::into_one);
                // Boxed, so that the futures of callers stay small.
                let released = Box::pin(join_all(entries.map(EntryGuard::release)));
                released.await.into_iter().collect()
            }
        }
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
        let action = format!("release lock `{}`", self.entry().shown());
        block_on(|| action, self.release())?
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
        self.ends_by(HoldEnd::Failed);
    }

    /// Returns the entry of a guard of one lock.
    fn into_one(self) -> Option<EntryGuard> {
        match self.0 {
            GuardedLocks::One(entry) => Some(entry),
            GuardedLocks::Several(_) => None,
        }
    }

    /// Notes why the locks are about to end.
    pub(crate) fn ends_by(&mut self, end: HoldEnd) {
        match &mut self.0 {
            GuardedLocks::One(entry) => entry.ends_by(end),
            GuardedLocks::Several(guards) => guards.iter_mut().for_each(|guard| guard.ends_by(end)),
        }
    }

    /// Returns the entry of the last key.
    pub(crate) fn entry(&self) -> &EntryHandle {
        match &self.0 {
            GuardedLocks::One(entry) => entry,
            GuardedLocks::Several(guards) => guards.last().expect("a guard has a lock").entry(),
        }
    }

    /// Returns the entry of each lock, in ascending order of the keys.
    pub(crate) fn each(&self) -> impl ExactSizeIterator<Item = &EntryHandle> {
        self.iter().map(Self::entry)
    }

    pub(crate) fn entries(&self) -> Few<EntryHandle> {
        self.each().cloned().collect()
    }
}

/// Returns the token of the only lock.
#[track_caller]
pub(crate) fn only_token<'a>(mut entries: impl ExactSizeIterator<Item = &'a EntryHandle>) -> u64 {
    match (entries.next(), entries.len()) {
        (Some(entry), 0) => entry.token(),
        (_, others) => panic!(
            "there are {} keys, each with a fencing token of its own: ask for one of them with `token(key)`",
            others + 1
        ),
    }
}

/// Returns the token of this key.
pub(crate) fn token_of<'a>(
    mut entries: impl Iterator<Item = &'a EntryHandle>,
    key: &str,
) -> Option<u64> {
    entries
        .find(|entry| entry.key() == key)
        .map(EntryHandle::token)
}

impl<'a> IntoIterator for &'a LockGuard {
    type Item = &'a LockGuard;
    type IntoIter = slice::Iter<'a, LockGuard>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let GuardedLocks::Several(guards) = &self.0 {
            return f.debug_list().entries(guards).finish();
        }
        f.debug_struct("LockGuard")
            .field("key", &self.entry().shown())
            .field("owner", &self.owner())
            .field("fencing_token", &self.fencing_token())
            .field("depth", &self.depth())
            .field("valid_for", &self.valid_for())
            .finish()
    }
}
