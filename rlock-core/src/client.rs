//! A client: its connections to a store, and the handles that share them.

mod builder;
mod closing;
mod connect;
mod inspect;
mod list;
mod ping;
mod revoke;

use std::{
    fmt,
    future::Future,
    sync::{Arc, PoisonError, RwLock},
};

use smallvec::smallvec;

pub use self::{builder::LockClientBuilder, closing::Drained, list::LockList};
use crate::{
    engine::{call_chain::Scope, core::Core, driver::ClientHandle},
    lock::Lock,
    multi_lock::MultiLock,
};

/// A client of one store. Clones are cheap, and share connections and background.
///
/// The background ends after the last clone, lock and guard are dropped, once it has released the
/// dropped locks. An [installed](LockClient::install) client is never dropped: shut it down.
#[derive(Clone)]
pub struct LockClient {
    handle: ClientHandle,
}

static INSTALLED: RwLock<Option<LockClient>> = RwLock::new(None);

impl LockClient {
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
    /// Spawned tasks inherit it only by
    /// [`in_current_scope`](crate::InCurrentScope::in_current_scope). The closures of
    /// `spawn_blocking` do not inherit it.
    ///
    /// # Cancel safety
    ///
    /// As that of `future`.
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
    /// This method sends nothing. The key is taken verbatim: `client.lock("order:{id}")` without
    /// `format!` locks that text for every order. Put values into the key through
    /// [`escape`](crate::escape), as the attribute does.
    ///
    /// # Errors
    ///
    /// An acquire returns [`LockError::InvalidKey`](crate::LockError::InvalidKey) if the key is
    /// empty, longer than 1,024 bytes, or has braces that mark no hash tag.
    ///
    /// # Examples
    ///
    /// ```
    /// use rlock_core::{LockClient, escape};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = LockClient::in_memory();
    /// let name = "a:b"; // from a request
    /// let lock = client.lock(format!("user:{}", escape(name)));
    /// assert_eq!(lock.run(async { 6 * 7 }).await?, 42);
    /// # Ok(())
    /// # }
    /// ```
    pub fn lock(&self, key: impl Into<String>) -> Lock {
        Lock::new(
            self.handle.clone(),
            smallvec![key.into()],
            self.core().options.lock,
        )
    }

    /// Returns a handle to the locks of several keys, as [`lock`](Self::lock). The locks are
    /// acquired atomically: all or none.
    ///
    /// # Errors
    ///
    /// An acquire returns [`LockError::InvalidKey`](crate::LockError::InvalidKey) for an invalid key
    /// or an empty list, and [`LockError::InvalidOption`](crate::LockError::InvalidOption) for more than
    /// 1,000 different keys.
    pub fn lock_all<I>(&self, keys: I) -> MultiLock
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        let keys = keys.into_iter().map(Into::into).collect();
        MultiLock::new(Lock::new(
            self.handle.clone(),
            keys,
            self.core().options.lock,
        ))
    }
}

impl fmt::Debug for LockClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.fmt(f)
    }
}
