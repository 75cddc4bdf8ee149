//! The guard of a lock.

use std::{fmt, future::Future, slice, time::Duration};

use futures_util::future::join_all;

use crate::{
    blocking::block_on,
    engine::{
        call_chain::Scope,
        entry::{self, Entry, EntryGuard},
    },
    error::{LockError, LostCause},
    fencing::{self, Fence},
    few::Few,
    observe::HoldEnd,
    owner::OwnerId,
};

/// A guard of a lock, which is held until the guard is released or dropped.
///
/// The guard of [`lock_all`](crate::LockClient::lock_all) has all of its [keys](Self::keys), and each key has a
/// [token](Self::token) of its own. Such a guard is valid while all of its locks are.
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

    /// Returns the key. Of several keys, returns the last one in ascending order; see [`keys`](Self::keys).
    #[must_use]
    pub fn key(&self) -> &str {
        self.entry().key()
    }

    /// Returns the keys in ascending order.
    #[must_use]
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &str> {
        self.each().map(Entry::key)
    }

    /// Iterates over a guard of each lock, in ascending order of the keys. A guard of one lock yields itself.
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

    /// Returns the owner that has the lock, of several locks that of [`key`](Self::key). Nested entries share it.
    /// Successive holds of this client may share it, too, because a local hand-over keeps the owner. Only the
    /// [fencing token](Self::fencing_token) identifies a hold.
    #[must_use]
    pub fn owner(&self) -> OwnerId {
        self.entry().owner()
    }

    /// Returns the fencing token. It is larger than that of every earlier hold of this key, and the
    /// same for nested entries. A shared hold may have the token of another reader, and tokens of
    /// permits are not ordered. Storage that refuses tokens below the largest it has seen refuses
    /// writers that lost the lock.
    ///
    /// A token is an integer below 2^53 until the year 2112, so a `BIGINT` column, a
    /// JSON number and a Lua number hold it exactly. Only tokens of the same key can be compared.
    ///
    /// # Panics
    ///
    /// If the guard has several keys, because a write must carry the token of the key that protects it. Use
    /// [`token`](Self::token) there. A list of keys such as `"account:<ids[]>"` may have one key or several.
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
    /// As [`fencing_token`](Self::fencing_token).
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

    /// Returns the key and the token of the exclusive lock, for a database that refuses stale writers: see [`fencing`](crate::fencing).
    /// A nested guard has the fence of its hold.
    ///
    /// # Panics
    ///
    /// If the guard has several exclusive locks, because each has a fence of its own: see [`fences`](Self::fences). Or if it has
    /// none, because a [shared lock](crate::Lock::shared) or a [permit](crate::Lock::permits) has no fence: a later one may have a
    /// smaller token.
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

    /// Returns the [fence](Self::fence) of each exclusive lock, in ascending order of the keys. Check all of them in one
    /// transaction, in this order, so that transactions do not wait for each other in a circle. A shared lock and a permit have
    /// none, so a write under such a lock alone is not guarded.
    #[must_use]
    pub fn fences(&self) -> Vec<Fence> {
        fencing::fences(self.each())
    }

    /// Returns the number of nested entries of the hold, which is 1 without nesting. Of several locks, returns that of
    /// [`key`](Self::key).
    #[must_use]
    pub fn count(&self) -> u32 {
        self.entry().count()
    }

    /// Returns how long the hold remains valid without renewal. Returns zero once it is invalid. The
    /// time counts from before the request was sent, less a margin for clock drift. Of several locks, the one that ends
    /// first counts.
    #[must_use]
    pub fn valid_for(&self) -> Duration {
        self.each().map(Entry::valid_for).min().unwrap_or_default()
    }

    /// Returns whether the hold is valid now. Reads the clock, so the result is right even after a
    /// pause of the whole process.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.valid_for().is_zero()
    }

    /// Resolves to the cause when the hold is lost. Never resolves otherwise. Of several locks, the first one that is
    /// lost counts; [`lost_key`](Self::lost_key) names it.
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
        match &self.0 {
            GuardedLocks::One(entry) => entry.lost().await,
            GuardedLocks::Several(_) => self.lost_key().await.1,
        }
    }

    /// Resolves to the key and the cause when one of the locks is lost, as [`lost`](Self::lost).
    ///
    /// # Cancel safety
    ///
    /// As [`lost`](Self::lost).
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
        Scope::current().inside(self.entries()).around(future).await
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
    /// A guard of several locks first checks that all can be downgraded, and then downgrades one after the other.
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
        self.each().try_for_each(Entry::check_downgrade)?;
        self.each().try_for_each(Entry::downgrade)
    }

    /// Releases the lock and waits for the store's reply. Releases several locks in parallel, even if one release fails,
    /// and returns the first error.
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

    /// Releases the lock from synchronous code, as [`release`](Self::release). Blocks the calling thread until the store
    /// has replied.
    ///
    /// # Errors
    ///
    /// As [`release`](Self::release), and [`LockError::BlockingInAsync`] on a thread that runs Tokio tasks. The lock is then
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
    /// [`min_hold`](crate::Lock::min_hold), and another process may try.
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
    pub(crate) fn entry(&self) -> &Entry {
        match &self.0 {
            GuardedLocks::One(entry) => entry,
            GuardedLocks::Several(guards) => guards.last().expect("a guard has a lock").entry(),
        }
    }

    /// Returns the entry of each lock, in ascending order of the keys.
    pub(crate) fn each(&self) -> impl ExactSizeIterator<Item = &Entry> {
        self.iter().map(Self::entry)
    }

    pub(crate) fn entries(&self) -> Few<Entry> {
        self.each().cloned().collect()
    }
}

/// Returns the token of the only lock.
#[track_caller]
pub(crate) fn only_token<'a>(mut entries: impl ExactSizeIterator<Item = &'a Entry>) -> u64 {
    match (entries.next(), entries.len()) {
        (Some(entry), 0) => entry.token(),
        (_, others) => panic!(
            "there are {} keys, each with a fencing token of its own: ask for one of them with `token(key)`",
            others + 1
        ),
    }
}

/// Returns the token of this key.
pub(crate) fn token_of<'a>(mut entries: impl Iterator<Item = &'a Entry>, key: &str) -> Option<u64> {
    entries.find(|entry| entry.key() == key).map(Entry::token)
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
            .field("count", &self.count())
            .field("valid_for", &self.valid_for())
            .finish()
    }
}
