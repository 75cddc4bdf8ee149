//! The client: one connection to a store, one background, any number of handles.

use std::{
    fmt,
    future::Future,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use smallvec::smallvec;
use tokio::time::timeout;

use crate::{
    builder::LockClientBuilder,
    core::Core,
    driver::Stop,
    error::{LockError, LostCause},
    key::Key,
    lock::Lock,
    scope::Scope,
};

/// Takes locks on one store. Cheap to clone; all clones share one connection and one background.
///
/// The background lives until the last clone and the last guard are gone; what was dropped by then
/// is still given back.
///
/// # Examples
///
/// ```
/// use rlock_core::LockClient;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), rlock_core::LockError> {
/// let client = LockClient::in_memory(); // or LockClient::connect("redis://127.0.0.1/").await?
/// let answer = client.lock("order:42").run(async { 6 * 7 }).await?;
/// assert_eq!(answer, 42);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct LockClient {
    inner: Arc<Inner>,
}

struct Inner {
    core: Arc<Core>,
    stop: Stop,
}

static INSTALLED: RwLock<Option<LockClient>> = RwLock::new(None);

impl LockClient {
    pub(crate) fn new(core: Arc<Core>, stop: Stop) -> Self {
        Self {
            inner: Arc::new(Inner { core, stop }),
        }
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.inner.core
    }

    /// Connects to a store with the default options; see [`LockClientBuilder::connect`] for the
    /// URLs.
    ///
    /// # Errors
    ///
    /// As [`LockClientBuilder::connect`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the attempt.
    pub async fn connect(url: &str) -> Result<Self, LockError> {
        Self::builder().connect(url).await
    }

    /// A client of a new embedded store, with the default options: no server, the same semantics
    /// within this process.
    ///
    /// # Panics
    ///
    /// If the system grants no thread; [`LockClientBuilder::in_memory`] answers an error instead.
    #[must_use]
    pub fn in_memory() -> Self {
        match Self::builder().in_memory() {
            Ok(client) => client,
            Err(error) => panic!("{error}"),
        }
    }

    /// Sets up a client.
    pub fn builder() -> LockClientBuilder {
        LockClientBuilder::default()
    }

    /// Makes this the client of annotated functions in the whole process, in place of the one
    /// installed before.
    pub fn install(&self) {
        *INSTALLED.write().unwrap_or_else(PoisonError::into_inner) = Some(self.clone());
    }

    pub(crate) fn installed() -> Option<Self> {
        INSTALLED
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Makes this the client of annotated functions within `future`, rather than the installed one.
    /// Like the chain of locks, it is not inherited by spawned tasks, unless by
    /// [`in_current_scope`](crate::InCurrentScope::in_current_scope), nor by the closures of
    /// `spawn_blocking`.
    ///
    /// # Cancel safety
    ///
    /// As that of `future`.
    pub async fn scope<F: Future>(&self, future: F) -> F::Output {
        Scope::current()
            .with_client(self.clone())
            .around(future)
            .await
    }

    /// A handle to the lock of this key, with the client's default options. Nothing is sent, and
    /// the key is checked, when it is acquired.
    ///
    /// The key is taken verbatim: put values into it through [`escape`](crate::escape), as the
    /// attribute does.
    pub fn lock(&self, key: impl Into<String>) -> Lock {
        Lock::new(self.clone(), smallvec![key.into()])
    }

    /// Who holds the lock of this key now, if anybody.
    ///
    /// # Errors
    ///
    /// [`LockError::InvalidKey`], [`LockError::Unavailable`] or [`LockError::Store`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = rlock_core::LockClient::in_memory();
    /// assert!(client.inspect("order:42").await?.is_none());
    /// let guard = client.lock("order:42").acquire().await?;
    /// let info = client.inspect("order:42").await?.expect("held");
    /// assert_eq!(info.owner, guard.owner().to_string());
    /// assert_eq!(info.count, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn inspect(&self, key: &str) -> Result<Option<LockInfo>, LockError> {
        let key = Key::parse(key)?;
        let core = self.core();
        if core.is_closed() {
            return Err(LockError::Closed {
                action: format!("inspect lock `{key}`"),
            });
        }
        let started = core.clock.now();
        let request = core.store.inspect(&key, core.options.response_timeout);
        let entry = core.in_runtime(request).await.map_err(|error| {
            error.into_lock_error(
                format!("inspect lock `{key}`"),
                core.clock.now().since(started),
            )
        })?;
        Ok(entry.map(|entry| LockInfo {
            owner: entry.owner,
            count: entry.count,
            ttl: entry.ttl,
            token: entry.token,
        }))
    }

    /// Ends the client: acquires fail with [`LockError::Closed`] from here on, running bodies are
    /// told that their lock is lost and stop at their next await, and every lock is given back.
    ///
    /// # Errors
    ///
    /// [`LockError::Unavailable`] if a lock could not be given back within twice the response
    /// time-out: the store did not answer, or a body did not stop, and then its lock is left to its
    /// lease, because it is still in use.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped the client is closed all the same; call it again to wait.
    pub async fn shutdown(&self) -> Result<(), LockError> {
        let core = self.core();
        core.close();
        let started = core.clock.now();
        // Without a background nothing can be waited for, and nothing is given back any more.
        let released = core.in_runtime(async {
            tokio::select! {
                biased;
                () = core.background_ended() => core.watchdog.lose_all(LostCause::Closed).is_empty(),
                released = self.give_everything_back() => released,
            }
        });
        let released = released.await;
        self.inner.stop.stop();
        core.background_ended().await;
        if released {
            return Ok(());
        }
        Err(LockError::Unavailable {
            action: "give back every lock at shutdown".to_owned(),
            waited: core.clock.now().since(started),
            source: Arc::new(std::io::Error::from(std::io::ErrorKind::TimedOut)),
        })
    }

    async fn give_everything_back(&self) -> bool {
        let core = self.core();
        let patience = core.options.response_timeout;
        let holds = core.watchdog.lose_all(LostCause::Closed);
        let quiet = timeout(patience, core.quiet(&holds)).await.is_ok();
        // Once more, because a call that was at work may still have been granted a lock.
        for hold in core.watchdog.lose_all(LostCause::Closed) {
            // A lock whose body has not stopped is still in use.
            if !hold.has_body() {
                hold.abandon();
                core.watchdog.forget(&hold);
                core.releases().push(hold);
            }
        }
        let released = timeout(patience, core.releases().idle()).await.is_ok();
        quiet && released
    }
}

impl fmt::Debug for LockClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockClient")
            .field("id", &self.core().id)
            .finish_non_exhaustive()
    }
}

/// A lock as its store sees it, from [`LockClient::inspect`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInfo {
    /// The owner, as text: `<client uuid>:<sequence>`.
    pub owner: String,
    /// How many nested entries the owner has; 1 for a lock that is not nested.
    pub count: u32,
    /// How long the store keeps the lock without renewal; `None` if without an end.
    pub ttl: Option<Duration>,
    /// The fencing token of the present hold, if the store still knows it.
    pub token: Option<u64>,
}
