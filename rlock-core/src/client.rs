//! `LockClient`: connects to a store, and makes the handles of locks and elections.

mod builder;
mod closing;
mod extend;
mod inspect;
mod list;
mod probe;
mod revoke;

use std::{
    fmt,
    future::Future,
    sync::{Arc, PoisonError, RwLock},
};

use rlock_proto::few::{self, Few};

#[cfg(feature = "testing")]
pub(crate) use self::builder::ClockOption;
pub use self::{builder::LockClientBuilder, closing::DrainOutcome, list::LockList};
use crate::{
    engine::{call_chain::Scope, core::Core, driver::ClientHandle},
    error::LockError,
    lock::{Lock, NamedKey},
    store_url::StoreUrl,
};

/// A client of one store. Clones are cheap, because they share the connections and the background thread.
///
/// The background thread ends when the last clone, lock and guard have been dropped and their locks are released. An
/// [installed](LockClient::install) client is never dropped, so [drain](LockClient::drain) it or [shut it
/// down](LockClient::shutdown) before the process ends.
#[derive(Clone)]
pub struct LockClient {
    handle: ClientHandle,
}

static INSTALLED: RwLock<Option<LockClient>> = RwLock::new(None);

impl LockClient {
    /// Returns a builder of a client.
    pub fn builder() -> LockClientBuilder {
        LockClientBuilder::default()
    }

    /// Connects to a store with the default options. [`StoreUrl`] lists the URLs.
    ///
    /// # Errors
    ///
    /// Same as [`LockClientBuilder::connect`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the attempt.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use rlock_core::{LockClient, LockError};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = match LockClient::connect("redis://127.0.0.1:6379/").await {
    ///     Err(LockError::Unavailable { source, .. }) => panic!("start the server first: {source}"),
    ///     connected => connected?,
    /// };
    /// client.lock("order:42").acquire().await?.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect(store: impl Into<StoreUrl>) -> Result<Self, LockError> {
        Self::builder().connect_to(store.into()).await
    }

    /// Makes a client with the default options, without waiting for its servers. See
    /// [`LockClientBuilder::connect_lazy`].
    ///
    /// # Errors
    ///
    /// Same as [`LockClientBuilder::connect_lazy`].
    ///
    /// # Examples
    ///
    /// ```
    /// use rlock_core::{LockClient, LockError};
    ///
    /// # fn main() -> Result<(), LockError> {
    /// // The server may start later.
    /// let client = LockClient::connect_lazy("redis://127.0.0.1:6379/")?;
    /// let invalid = LockClient::connect_lazy("http://127.0.0.1/");
    /// assert!(matches!(invalid, Err(LockError::InvalidOption { .. })));
    /// # drop(client);
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect_lazy(store: impl Into<StoreUrl>) -> Result<Self, LockError> {
        Self::builder().connect_lazy(store)
    }

    /// Connects from synchronous code, like [`connect`](Self::connect). Blocks the thread until the
    /// client is connected.
    ///
    /// # Errors
    ///
    /// Same as [`connect`](Self::connect), and [`LockError::BlockingInAsync`] on a thread that runs Tokio tasks.
    pub fn connect_blocking(store: impl Into<StoreUrl>) -> Result<Self, LockError> {
        Self::builder().connect_blocking(store)
    }

    /// Makes a client of a new embedded store with the default options. It needs no server, and its locks have the
    /// same semantics, but only within this process.
    ///
    /// # Panics
    ///
    /// Panics if the system cannot start a thread. [`LockClientBuilder::in_memory`] returns an error
    /// instead.
    #[must_use]
    pub fn in_memory() -> Self {
        match Self::builder().in_memory() {
            Ok(client) => client,
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) fn new(handle: ClientHandle) -> Self {
        Self { handle }
    }

    pub(crate) fn handle(&self) -> &ClientHandle {
        &self.handle
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        self.handle.core()
    }

    /// Makes this the client of annotated functions in the whole process. Replaces the client that
    /// was installed before.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// // At start-up, before the first call of a function with `#[distributed_lock]`.
    /// let client = rlock_core::LockClient::connect("redis://127.0.0.1:6379/").await?;
    /// client.install();
    /// # Ok(())
    /// # }
    /// ```
    pub fn install(&self) {
        *INSTALLED.write().unwrap_or_else(PoisonError::into_inner) = Some(self.clone());
    }

    pub(crate) fn installed() -> Option<Self> {
        let installed = INSTALLED.read().unwrap_or_else(PoisonError::into_inner);
        installed.clone()
    }

    /// Makes this the client of annotated functions within `future`, instead of the installed one.
    ///
    /// Spawned tasks inherit it only through [`in_current_scope`](crate::InCurrentScope::in_current_scope), and
    /// closures of `spawn_blocking` never do.
    ///
    /// # Cancel safety
    ///
    /// Same as the wrapped future.
    ///
    /// # Examples
    ///
    /// ```
    /// # async fn pay(order: u64) -> u64 { order } // in place of a function with the attribute
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// // A test with a client of its own. `pay` has the attribute `#[distributed_lock]`.
    /// let client = rlock_core::LockClient::in_memory();
    /// assert_eq!(client.scope(pay(42)).await, 42);
    /// # }
    /// ```
    pub async fn scope<F: Future>(&self, future: F) -> F::Output {
        let scope = Scope::current().with_client(self.handle.clone());
        scope.around(future).await
    }

    /// Returns a handle to the lock of this key, with the client's default options.
    ///
    /// This method sends no request. It takes the key verbatim, so `client.lock("order:{id}")` without `format!`
    /// locks that one text for every order. Put values into the key with [`key!`](macro@crate::key), which encodes
    /// them as the attribute does, or with [`escape`](crate::escape) if the parts of the key are known only at run
    /// time.
    ///
    /// # Errors
    ///
    /// An acquire returns [`LockError::InvalidKey`](crate::LockError::InvalidKey) if the key is empty, longer than
    /// 1,024 bytes, or has braces that do not mark a hash tag.
    ///
    /// # Examples
    ///
    #[cfg_attr(feature = "macros", doc = "```")]
    #[cfg_attr(not(feature = "macros"), doc = "```ignore")]
    /// use rlock_core::{LockClient, key};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = LockClient::in_memory();
    /// let name = "a:b"; // from a request
    /// let lock = client.lock(key!("user:<name>"));
    /// assert_eq!(lock.run(async { 6 * 7 }).await?, 42);
    /// # Ok(())
    /// # }
    /// ```
    pub fn lock(&self, key: impl Into<String>) -> Lock {
        self.lock_of(few::one(NamedKey::new(key)))
    }

    /// Returns a handle to a lock of several keys, which are acquired together and have one guard.
    ///
    /// A call acquires all keys or none: while one of them is taken, it waits for that one and keeps none of the
    /// others for longer than 10 ms, as long as its future is polled. Calls that name the same keys in another order
    /// therefore cannot deadlock. A key that is named twice is locked once, and a call inside a lock of one of the keys
    /// re-enters that lock.
    ///
    /// On a Redis Cluster, the client acquires keys of different hash slots one after the other. If one of them is taken,
    /// or its master does not reply, the client releases the others in the background. Until then, another
    /// [`try_acquire`](crate::Lock::try_acquire) finds them taken, and if the process ends before then, they stay taken
    /// until their leases end. [`shutdown`](Self::shutdown) waits for the releases. Keys with the same hash tag, as in
    /// `{tenant}:order`, are acquired in one step.
    ///
    /// # Errors
    ///
    /// An acquire returns [`LockError::InvalidKey`](crate::LockError::InvalidKey) for an invalid key
    /// or an empty list, and [`LockError::InvalidOption`](crate::LockError::InvalidOption) for more than
    /// 1,000 different keys.
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
    /// let lock = client.lock_all(["account:2", "account:1"]).wait(Duration::from_secs(2));
    ///
    /// let guard = lock.acquire().await?;
    /// assert!(lock.try_acquire().await?.is_none());
    /// assert!(guard.keys().eq(["account:2", "account:1"]));
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn lock_all<I>(&self, keys: I) -> Lock
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        self.lock_of(keys.into_iter().map(NamedKey::new).collect())
    }

    fn lock_of(&self, keys: Few<NamedKey>) -> Lock {
        Lock::new(self.handle.clone(), keys, self.core().options.lock)
    }
}

impl fmt::Debug for LockClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.fmt(f)
    }
}
