//! `Hold`: what a guard, the code inside a lock and a leader can ask of their hold: its token, validity and depth.

mod notices;

use std::{fmt, time::Duration};

use futures_util::future::join_all;

use crate::{
    blocking::block_on,
    engine::entry::EntryHandle,
    error::LockError,
    fencing::{self, Fence},
    limits,
    token::Token,
};
use rlock_proto::{few::Few, mode::LockMode};

/// A hold of one lock, or of several that were acquired together.
///
/// A [`LockGuard`](crate::LockGuard), a [`CurrentHold`](crate::CurrentHold) and a [`Term`](crate::election::Term)
/// dereference to it, so these methods answer the same question on each of them. A hold of several [keys](Self::keys)
/// has a [token](Self::token_of) for each of them, and is valid as long as all of its locks are.
pub struct Hold {
    /// One entry for each key, in the order in which the keys were given.
    entries: Few<EntryHandle>,
}

impl Hold {
    /// Makes the hold of at least one entry.
    pub(crate) fn new(entries: Few<EntryHandle>) -> Self {
        Self { entries }
    }

    pub(crate) fn entries(&self) -> &Few<EntryHandle> {
        &self.entries
    }

    /// Takes the entries from a hold that ends.
    pub(crate) fn take(&mut self) -> Few<EntryHandle> {
        std::mem::take(&mut self.entries)
    }

    /// Returns another handle on the same entries.
    pub(crate) fn share(&self) -> Self {
        Self::new(self.entries.clone())
    }

    /// Returns the entry of the first key.
    pub(crate) fn first(&self) -> &EntryHandle {
        self.entries.first().expect("a hold has a lock")
    }

    fn entry_of(&self, key: &str) -> Option<&EntryHandle> {
        self.entries.iter().find(|entry| entry.key() == key)
    }

    /// Returns the key, like [`Lock::key`](crate::Lock::key). With several [keys](Self::keys), returns the one that was
    /// given first.
    #[must_use]
    pub fn key(&self) -> &str {
        self.first().key()
    }

    /// Returns the keys in the order in which they were given, each once, like [`Lock::keys`](crate::Lock::keys). Keys
    /// of callers are not included.
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
    ///         println!("{key} by token {:?}", hold.token_of(key));
    ///     }
    /// };
    /// client.lock_all(["account:2", "account:1"]).run(body).await
    /// # }
    /// ```
    #[must_use]
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &str> {
        self.entries.iter().map(EntryHandle::key)
    }

    /// Returns the owner under which the store records the lock, such as `813f2136-40d7-4cf3-8d9f-2d569a552f6e:1`; with
    /// several keys, the owner of [`key`](Self::key). Nested entries have the same owner, and so may successive holds
    /// of this client, because a local hand-over keeps it. Only the [token](Self::token) identifies a hold.
    #[must_use]
    pub fn owner(&self) -> String {
        self.first().owner().to_string()
    }

    /// Returns the [owner](Self::owner) of one of the keys, or `None` for any other key.
    #[must_use]
    pub fn owner_of(&self, key: &str) -> Option<String> {
        let entry = self.entry_of(key)?;
        Some(entry.owner().to_string())
    }

    /// Returns the mode in which the lock is held; with several keys, that of [`key`](Self::key).
    #[must_use]
    pub fn mode(&self) -> LockMode {
        self.first().owner().mode()
    }

    /// Returns the fencing token, which is the same for nested entries.
    ///
    /// # Panics
    ///
    /// Panics if the hold has several keys, because a write must carry the token of the key that protects it: use
    /// [`token_of`](Self::token_of). A list of keys such as `"account:<ids[]>"` may have one key in one call and
    /// several in the next.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = rlock_core::LockClient::in_memory();
    /// let guard = client.lock("order:42").acquire().await?;
    /// let token = guard.token().as_i64(); // for a BIGINT column
    /// // UPDATE orders SET …, token = $token WHERE id = 42 AND token <= $token
    /// # assert!(token > 0);
    /// # guard.release().await
    /// # }
    /// ```
    #[must_use]
    #[track_caller]
    pub fn token(&self) -> Token {
        match &self.entries[..] {
            [entry] => entry.token(),
            entries => panic!(
                "there are {} keys, each with a fencing token of its own: ask for one of them with `token_of(key)`",
                entries.len()
            ),
        }
    }

    /// Returns the [token](Self::token) of one of the keys, or `None` for any other key.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = rlock_core::LockClient::in_memory();
    /// let guard = client.lock_all(["account:1", "account:2"]).acquire().await?;
    /// let debit = guard.token_of("account:1"); // for the write to the row of account 1
    /// let credit = guard.token_of("account:2");
    /// assert!(debit.is_some() && credit.is_some());
    /// assert_eq!(guard.token_of("account:3"), None);
    /// # guard.release().await
    /// # }
    /// ```
    #[must_use]
    pub fn token_of(&self, key: &str) -> Option<Token> {
        self.entry_of(key).map(EntryHandle::token)
    }

    /// Returns the key and the token of the exclusive lock, for a database that refuses stale writers, as
    /// [`fencing`](crate::fencing) describes. A nested call has the same fence as the hold that it re-entered.
    ///
    /// # Panics
    ///
    /// Panics like [`token`](Self::token) if there are several exclusive locks: use [`fences`](Self::fences). Also
    /// panics if there is none: a [shared lock](crate::Lock::shared) or a [permit](crate::Lock::permits) has no fence,
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
    /// // Begin a transaction, and run `fencing::postgres::GUARD` with `fence.key()` and `fence.token().as_i64()`.
    /// # let returned = Some(fence.token().as_i64());
    /// fence.check(returned)?; // the token that the statement returned
    /// // Write, and commit.
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    #[track_caller]
    pub fn fence(&self) -> Fence {
        fencing::only_fence(self.entries.iter())
    }

    /// Returns the [fence](Self::fence) of each exclusive lock, in ascending order of the keys. Check all of them in
    /// one transaction, in this order, so that transactions do not deadlock. Shared locks and permits have no fence,
    /// so a write that only such a lock protects is not checked.
    #[must_use]
    pub fn fences(&self) -> Vec<Fence> {
        fencing::fences(self.entries.iter())
    }

    /// Returns how deep calls are nested in the hold: 1 without nested calls. With several keys, returns that of
    /// [`key`](Self::key).
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.first().depth()
    }

    /// Returns how long the hold remains valid without a renewal, or zero once it is invalid or its call has ended. The
    /// time counts from before the request was sent, less a margin for clock drift. With several keys, the lock that
    /// ends first decides.
    #[must_use]
    pub fn valid_for(&self) -> Duration {
        let valid_for = |entry: &EntryHandle| match entry.left() {
            Some(_) => Duration::ZERO,
            None => entry.valid_for(),
        };
        let each = self.entries.iter().map(valid_for);
        each.min().unwrap_or_default()
    }

    /// Returns whether the hold is valid now. Reads the clock, so the result is right even after a pause of the whole
    /// process.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.valid_for().is_zero()
    }

    /// Extends the lock: sets its lease, which counts from now on and is not added to what is left, and waits until the store
    /// has confirmed it.
    ///
    /// With the watchdog, the renewals go on with this lease. With [`watchdog(false)`](crate::Lock::watchdog), nothing else
    /// renews the lock, so work that extends it after each step keeps it only as long as it makes progress.
    /// [`max_hold`](crate::Lock::max_hold) still limits the hold. Nested calls share the lease of their hold. The next hold
    /// has the lease of its own call.
    ///
    /// With a shorter lease, the hold ends sooner, even if the store does not reply. The store never shortens a lease, because a
    /// late copy of a request must not end a lock that its holder relies on. So if the process dies, the lock stays taken for
    /// the longest lease that the hold has had. A release frees it as usual.
    ///
    /// If several calls of this client [share](crate::Lock::shared) the lock, the lease only grows, because the others rely on
    /// it. With several keys, extends all locks in parallel.
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`] if the hold is lost or has ended, which an extension never revives. [`LockError::Unavailable`] if the
    /// store has not confirmed the lease within the client's
    /// [`response_timeout`](crate::LockClientBuilder::response_timeout), and [`LockError::Refused`] if it refuses. The hold is
    /// then [valid](Self::valid_for) for as long as was confirmed before, and the watchdog goes on requesting the new lease.
    /// [`LockError::InvalidOption`] for a lease that is not between 10 milliseconds and 24 hours.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the store may have extended the lock, but the hold relies only on what was confirmed.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use rlock_core::{LockClient, LockError};
    ///
    /// # async fn import(_chunk: u32) {}
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), LockError> {
    /// let client = LockClient::in_memory();
    /// let lease = Duration::from_secs(60);
    /// let guard = client.lock("import").lease(lease).watchdog(false).acquire().await?;
    /// for chunk in 0..3 {
    ///     import(chunk).await; // if a chunk hangs, the lock is free after a minute
    ///     guard.extend(lease).await?;
    /// }
    /// guard.release().await
    /// # }
    /// ```
    pub async fn extend(&self, lease: Duration) -> Result<(), LockError> {
        limits::lease("lease", lease)?;
        match &self.entries[..] {
            [entry] => entry.extend(lease).await,
            entries => {
                let each = entries.iter().map(|entry| entry.extend(lease));
                // Boxed, so that the futures of callers stay small.
                let extended = Box::pin(join_all(each)).await;
                extended.into_iter().collect()
            }
        }
    }

    /// Extends the lock from synchronous code, like [`extend`](Self::extend). Blocks the calling thread until the store has
    /// replied.
    ///
    /// # Errors
    ///
    /// Same as [`extend`](Self::extend), and [`LockError::BlockingInAsync`] on a thread that runs Tokio tasks.
    pub fn extend_blocking(&self, lease: Duration) -> Result<(), LockError> {
        let action = || format!("extend lock `{}`", self.first().shown());
        block_on(action, self.extend(lease))?
    }

    /// Returns an error if the hold is not valid now. For work that no loss stops, such as a long closure, between its
    /// steps.
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`] with the key and the cause, which is [`LostCause::Released`](crate::LostCause::Released) if the call has ended.
    ///
    /// # Examples
    ///
    /// ```
    /// use rlock_core::{LockClient, LockError};
    ///
    /// # fn main() -> Result<(), LockError> {
    /// let client = LockClient::in_memory();
    /// let guard = client.lock("report").acquire_blocking()?;
    /// let write = || {
    ///     for _page in 0..3 {
    ///         guard.check()?;
    ///         // write the page
    ///     }
    ///     Ok::<_, LockError>(())
    /// };
    /// write()?;
    /// guard.release_blocking()
    /// # }
    /// ```
    pub fn check(&self) -> Result<(), LockError> {
        self.entries.iter().try_for_each(|entry| {
            entry
                .ended()
                .map_or(Ok(()), |cause| Err(entry.lost_error(cause)))
        })
    }

    /// Shows the hold as a type of this name.
    pub(crate) fn debug(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct(name);
        for entry in &self.entries {
            shown
                .field("key", &entry.shown())
                .field("owner", &entry.owner())
                .field("token", &entry.token().as_u64());
        }
        shown
            .field("depth", &self.depth())
            .field("valid_for", &self.valid_for())
            .finish()
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.debug("Hold", f)
    }
}
