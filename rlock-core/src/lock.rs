//! `Lock`: locks one key or several, with options, by a guard or around a body.

mod keys;
mod request;

use std::{
    fmt,
    future::Future,
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures_util::{FutureExt, TryFutureExt};
use rlock_proto::{
    few::Few,
    mode::LockMode,
    options::{LockOptions, Wait},
};

pub(crate) use self::keys::NamedKey;
use self::keys::{in_order, unique};
use crate::{
    blocking::block_on,
    engine::{
        acquire::{self, CheckedLock},
        driver::ClientHandle,
        entries::Entries,
        shell::AcquiredFor,
    },
    error::LockError,
    guard::LockGuard,
    options::lock_option_setters,
    run::{BlockingBody, OnLost, Run, Session, has_failed},
};

/// A handle to a lock, with the options to acquire it, from [`LockClient::lock`](crate::LockClient::lock). The handle
/// itself holds nothing, so it can be kept and used any number of times.
///
/// [`LockClient::lock_all`](crate::LockClient::lock_all) makes a lock of several keys, which are acquired together. The
/// options then apply to each key, and [`wait`](Self::wait) to all of them together.
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
/// let lock = client.lock("report:daily").lease(Duration::from_secs(5)).wait(Duration::ZERO);
/// match lock.try_acquire().await? {
///     Some(guard) => guard.release().await?,
///     None => println!("another process creates the report"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct Lock {
    client: ClientHandle,
    /// The keys in the order in which they were given, each once.
    keys: Few<NamedKey>,
    /// The keys and options, checked when the lock is first acquired.
    checked: OnceLock<Arc<CheckedLock>>,
    pub(crate) options: LockOptions,
}

impl Lock {
    pub(crate) fn new(client: ClientHandle, keys: Few<NamedKey>, options: LockOptions) -> Self {
        Self {
            client,
            keys: unique(keys),
            checked: OnceLock::new(),
            options,
        }
    }

    /// Returns the key. With several [keys](Self::keys), returns the one that was given first.
    #[must_use]
    pub fn key(&self) -> &str {
        self.keys.first().map_or("", NamedKey::text)
    }

    /// Returns the keys in the order in which they were given, each once, like [`Hold::keys`](crate::Hold::keys).
    #[must_use]
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &str> {
        self.keys.iter().map(NamedKey::text)
    }

    /// Adds keys whose locks are [shared](Self::shared), whatever the mode of the others.
    ///
    /// They come after the other keys. A key that is also one of those is not shared.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = rlock_core::LockClient::in_memory();
    /// let order = |id| client.lock(id).and_shared(["tenant:7"]);
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
        self.keys.extend(keys.into_iter().map(NamedKey::shared));
        self.keys = unique(self.keys);
        self.checked = OnceLock::new();
        self
    }

    fn options(&mut self) -> &mut LockOptions {
        self.checked = OnceLock::new();
        &mut self.options
    }

    lock_option_setters!();

    /// Acquires the locks of all keys, or none. `wait` replaces the lock's own option.
    fn call(
        &self,
        wait: Wait,
        purpose: AcquiredFor,
    ) -> impl Future<Output = Result<Entries, LockError>> + Send + use<> {
        let (client, request) = (self.client.clone(), self.request(wait, purpose));
        async move {
            // Borrowed, because moving the value doubles the size of the future.
            let request = request.as_ref().map_err(LockError::clone)?;
            // Boxed, because each caller's future would otherwise be as large as this one.
            let entries = Box::pin(acquire::acquire(&client, request)).await?;
            let order = request.lock.order.as_deref();
            Ok(Entries::new(in_order(entries, order)))
        }
    }

    /// Returns the keys for an error, or what takes their place.
    fn shown_keys(&self) -> String {
        let is_hidden = self.client.core().options.redact_keys;
        let shown = |key: &NamedKey| {
            if is_hidden {
                key.instead(self.options.site).to_owned()
            } else {
                key.text().to_owned()
            }
        };
        let mut keys: Vec<String> = self.keys.iter().map(shown).collect();
        keys.dedup();
        keys.join("`, `")
    }

    /// Blocks the thread until this call of the lock has ended.
    fn blocking<T: Send>(
        &self,
        call: impl Future<Output = Result<T, LockError>> + Send,
    ) -> Result<T, LockError> {
        let action = || format!("acquire lock `{}`", self.shown_keys());
        block_on(action, call)?
    }

    /// Acquires the lock, and waits while another call holds it in a mode that excludes this one. Inside a body that
    /// already holds the same key through this client or a clone of it, re-enters that hold instead.
    ///
    /// With several keys, acquires all locks or none, and waits for those that are taken.
    ///
    /// Give the guard a name, even if it is `_guard`, because `let _ = lock.acquire().await?` releases the lock at once.
    /// [`LockGuard`](crate::LockGuard#examples) names a lint that reports it.
    ///
    /// The returned future borrows nothing: it can be kept, or spawned as a task.
    ///
    /// # Errors
    ///
    /// - [`LockError::Taken`] if the lock stayed taken for the whole wait. With several keys, it names the one that
    ///   was still taken.
    /// - [`LockError::Unavailable`] or [`LockError::Refused`] if the store did not grant it.
    /// - [`LockError::Lost`] if the hold that the call re-enters is lost.
    /// - [`LockError::Upgrade`] inside a hold of the same key whose mode does not admit this call.
    /// - [`LockError::InvalidKey`] and [`LockError::InvalidOption`], before any request is sent.
    /// - [`LockError::Draining`] if the client was already draining before the call, [`LockError::Closed`] after
    ///   shutdown.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the place in the queue. If the lock has been granted by then, the client releases
    /// it in the background.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use rlock_core::{LockClient, LockError};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = LockClient::in_memory();
    /// let guard = client.lock("order:42").acquire().await?;
    ///
    /// let second = client.lock("order:42").wait(Duration::from_millis(20));
    /// match second.acquire().await {
    ///     Err(LockError::Taken { key, waited, .. }) => println!("{key} is taken after {waited:?}"),
    ///     outcome => unreachable!("the first guard holds the lock: {outcome:?}"),
    /// }
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn acquire(&self) -> impl Future<Output = Result<LockGuard, LockError>> + Send + use<> {
        self.acquire_for(AcquiredFor::Guard).map_ok(LockGuard::new)
    }

    /// Acquires the lock, like [`acquire`](Self::acquire), for a guard or a body that keeps the entries.
    pub(crate) fn acquire_for(
        &self,
        purpose: AcquiredFor,
    ) -> impl Future<Output = Result<Entries, LockError>> + Send + use<> {
        self.call(self.options.wait, purpose)
    }

    /// Acquires the lock if it is free or, with several keys, if all are. Returns `None` if another call holds it, or
    /// if a call of this client already waits for it. Also returns `None` if another client [retains](Self::retain)
    /// it, but that client then releases it, so a later attempt can succeed.
    ///
    /// Never waits for a holder, regardless of [`wait`](Self::wait). If the store does not reply, the
    /// call ends after the client's
    /// [`response_timeout`](crate::LockClientBuilder::response_timeout), 2 seconds by default.
    ///
    /// If another call of this client has a request for this key in flight, the call first waits for that reply, for at most
    /// the response time-out. Depending on the reply, it then returns `None`, joins the other call in a
    /// [shared](Self::shared) lock, or sends a request of its own, which may take another response time-out.
    ///
    /// On a [quorum](crate::StoreUrl::quorum), calls that begin at the same time may each get some of the
    /// servers, but none of them a majority. The lock is not taken then, so the call asks again until one of them has
    /// a majority.
    ///
    /// # Errors
    ///
    /// Same as [`acquire`](Self::acquire), except `Taken`. [`LockError::Unavailable`](crate::LockError::Unavailable) if
    /// no call gets a majority of a quorum within the response time-out.
    ///
    /// # Cancel safety
    ///
    /// Same as [`acquire`](Self::acquire).
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = rlock_core::LockClient::in_memory();
    /// let lock = client.lock("report:daily");
    /// if let Some(guard) = lock.try_acquire().await? {
    ///     assert!(lock.try_acquire().await?.is_none());
    ///     guard.release().await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn try_acquire(
        &self,
    ) -> impl Future<Output = Result<Option<LockGuard>, LockError>> + Send + use<> {
        self.call(Wait::Never, AcquiredFor::Guard)
            .map(|acquired| match acquired {
                Ok(entries) => Ok(Some(LockGuard::new(entries))),
                Err(LockError::Taken { .. }) => Ok(None),
                Err(error) => Err(error),
            })
    }

    /// Acquires the lock, runs the future inside it, and releases the lock, as the attribute does
    /// with the body of a function.
    ///
    /// Inside the future, acquires of the same key re-enter the lock. If the lock is lost, the future is dropped at
    /// its next await. When the future has ended, its values are dropped first, then the lock is released, and only
    /// then does this method return or a panic resume. If the store does not confirm the release, this method still
    /// returns the output, and the client logs a warning and repeats the release in the background.
    ///
    /// The returned future borrows only what `future` borrows, so it can be spawned. A spawned call continues under
    /// the lock even if its caller goes away:
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// # let client = rlock_core::LockClient::in_memory();
    /// let call = tokio::spawn(client.lock("order:42").run(async { /* … */ }));
    /// call.await.expect("no panic")?; // dropping the handle does not cancel the call
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Same as [`acquire`](Self::acquire), in which case the future has not started. [`LockError::Lost`] if the lock
    /// was lost: the future may have done part or all of its work while another call held the lock.
    ///
    /// # Panics
    ///
    /// Resumes a panic of the future after the lock is released.
    ///
    /// # Cancel safety
    ///
    /// Dropping the returned future drops the inner future, then releases the lock in the background. Work that the
    /// inner future has started elsewhere, for example in `spawn_blocking`, continues without the lock, unless it has
    /// a [guard](crate::CurrentHold::guard).
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = rlock_core::LockClient::in_memory();
    /// let lock = client.lock("order:42");
    /// let nested = lock.run(async { lock.run(async { "inside twice" }).await });
    /// assert_eq!(nested.await??, "inside twice");
    /// # Ok(())
    /// # }
    /// ```
    pub fn run<F: Future>(
        &self,
        future: F,
    ) -> impl Future<Output = Result<F::Output, LockError>> + use<F> {
        Self::run_after(self.acquire_for(AcquiredFor::Body), future)
    }

    /// Runs the future inside the locks that were acquired for a body, like [`run`](Self::run).
    pub(crate) fn run_after<F: Future>(
        acquire: impl Future<Output = Result<Entries, LockError>> + Send + 'static,
        future: F,
    ) -> impl Future<Output = Result<F::Output, LockError>> {
        let session = Session::new(OnLost::Cancel, acquire);
        let has_failed =
            |output: &Result<F::Output, LockError>| output.as_ref().is_ok_and(has_failed);
        Run::new(session, Box::pin(future.map(Ok)), has_failed, Err)
    }

    /// Acquires the lock from synchronous code, like [`acquire`](Self::acquire). Blocks the calling
    /// thread.
    ///
    /// # Errors
    ///
    /// Same as [`acquire`](Self::acquire), and [`LockError::BlockingInAsync`] on a thread that runs Tokio tasks.
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

    /// Acquires the lock from synchronous code if it is free, like [`try_acquire`](Self::try_acquire). Blocks the calling
    /// thread until the store has replied.
    ///
    /// # Errors
    ///
    /// Same as [`try_acquire`](Self::try_acquire), and [`LockError::BlockingInAsync`] on a thread that runs Tokio tasks.
    pub fn try_acquire_blocking(&self) -> Result<Option<LockGuard>, LockError> {
        self.blocking(self.try_acquire())
    }

    /// Runs a closure inside the lock from synchronous code, like [`run`](Self::run). Nested calls
    /// on the same thread re-enter.
    ///
    /// The closure cannot be stopped from outside, so a long one should check the hold that
    /// [`current`](crate::current) returns.
    ///
    /// # Errors
    ///
    /// Same as [`run`](Self::run), and [`LockError::BlockingInAsync`] on a thread that runs Tokio tasks.
    ///
    /// # Panics
    ///
    /// Resumes a panic of the closure after the lock is released.
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
        self.enter(OnLost::Cancel)?.leave(body())
    }

    /// Acquires the locks for a body of this thread, and enters them.
    pub(crate) fn enter(&self, on_lost: OnLost) -> Result<BlockingBody, LockError> {
        let entries = self.blocking(self.acquire_for(AcquiredFor::Body))?;
        Ok(BlockingBody::enter(entries, on_lost))
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock")
            .field("client", &self.client)
            .field("keys", &self.shown_keys())
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use crate::LockClient;

    #[test]
    fn the_futures_of_calls_are_small() {
        let lock = LockClient::in_memory().lock("k");
        let large = std::future::ready([0_u8; 4096]);
        let sizes = [
            size_of_val(&lock.acquire()),
            size_of_val(&lock.try_acquire()),
            size_of_val(&lock.run(async { large.await[0] })),
        ];
        assert!(sizes.iter().all(|size| *size <= 232), "{sizes:?} bytes");
    }
}
