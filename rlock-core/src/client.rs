//! A client: one connection to a store, and the handles that share it.

mod builder;
mod closing;

use std::{
    fmt,
    future::Future,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use smallvec::smallvec;
use tokio::time::{Instant, sleep};

pub use self::{builder::LockClientBuilder, closing::Drained};
use crate::{
    engine::{call_chain::Scope, core::Core, driver::ClientHandle},
    error::LockError,
    key::Key,
    lock::Lock,
    multi_lock::MultiLock,
    options::Site,
    store::{AT_LEAST_OWNER, SendOptions, StoreError},
    wait::Backoff,
};

/// A client of one store. Clones are cheap, and share one connection and one background.
///
/// The background ends after the last clone and the last guard are dropped, once it has released
/// the dropped locks.
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

    /// Returns a builder of a client.
    pub fn builder() -> LockClientBuilder {
        LockClientBuilder::default()
    }

    /// Connects to a store with the default options, as [`LockClientBuilder::connect`], which lists
    /// the URLs.
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

    /// Makes a client with the default options, without waiting for its servers, as
    /// [`LockClientBuilder::connect_lazy`].
    ///
    /// # Errors
    ///
    /// As [`LockClientBuilder::connect_lazy`].
    pub fn connect_lazy(url: &str) -> Result<Self, LockError> {
        Self::builder().connect_lazy(url)
    }

    /// Connects from synchronous code, as [`connect`](Self::connect). Blocks the thread until the
    /// client is connected.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect), and [`LockError::WouldBlock`] inside an async task.
    pub fn connect_blocking(url: &str) -> Result<Self, LockError> {
        Self::builder().connect_blocking(url)
    }

    /// Connects to a quorum of independent servers with the default options. A lock is granted if a
    /// majority of the servers grants it. This is the algorithm that Redis calls [Redlock].
    ///
    /// Each URL names one server or Sentinel service, as listed at [`LockClientBuilder::connect`].
    /// All clients must name the same servers in the same order. Three servers tolerate the failure
    /// of one, five that of two. An even number tolerates no more than the odd number below it. The
    /// servers must fail independently: other machines, other disks, no replication between them.
    ///
    /// A server with two addresses in the list would vote twice. The client therefore compares the
    /// `run_id` in the servers' `INFO`. It refuses such a list, and does not count a duplicate that it
    /// detects later. A server that hides its `run_id` is not checked.
    ///
    /// - **An acquire** asks all servers at once. The lease counts from before the first request,
    ///   less 1 % and 2 ms for clocks that run at different speeds. After a majority has granted the
    ///   lock, the client waits only for the server that keeps the wait queue. It waits for ten times
    ///   as long as the majority took, at least 20 and at most 250 ms. Grants of a minority are
    ///   released.
    /// - **A release** goes to all servers. Unreachable servers are retried for up to 30 seconds.
    /// - **A server that restarts** takes part again as soon as it is reachable. The next renewal
    ///   writes the held locks to it, after a third of the lease at the latest. Servers can
    ///   therefore be restarted one after another.
    /// - **Waiters** queue at the first server that replies, so that they do not split the votes. If
    ///   it fails, they move to the next one, and their order may be lost.
    /// - **Fencing tokens** are the highest of a majority, and a majority knows them before the lock
    ///   is used. They grow from hold to hold, regardless of the majority that grants it.
    ///
    /// # Limits
    ///
    /// A quorum costs one request per server, and tolerates the failure of a minority. It does not
    /// make a lock safer than a lease can be:
    ///
    /// - A process that is paused for longer than its lease acts once more when it resumes. That is
    ///   the core of [Martin Kleppmann's critique][critique]. Storage that checks the
    ///   [fencing token](crate::LockGuard::fencing_token) refuses the late write.
    /// - The clocks must run at about the same speed. A server whose clock jumps forward ends its
    ///   leases early. A majority of such servers admits a second holder. [Antirez' reply][reply]
    ///   argues that this can be prevented. The client cannot detect it.
    /// - **A server that restarts without its data votes again.** Servers 1, 2 and 3 grant a lock. 3
    ///   restarts empty, and 1 and 2 become unreachable before a renewal restores the lock on 3. Then
    ///   3, 4 and 5 can grant it a second time. Let servers keep their data (`appendonly yes`,
    ///   `appendfsync always`), or keep a crashed server down for longer than the longest lease. The
    ///   tokens of the two holders still differ and grow if a majority keeps its data. A server
    ///   without its data starts from its clock.
    ///
    /// [Redlock]: https://redis.io/docs/latest/develop/use/patterns/distributed-locks/
    /// [critique]: https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html
    /// [reply]: http://antirez.com/news/101
    ///
    /// # Errors
    ///
    /// - [`LockError::InvalidOption`] for an invalid URL, and for a list that is empty, has more than
    ///   32 URLs or names a server twice.
    /// - [`LockError::Unavailable`] if no majority replies within the connect time-out. The text
    ///   names each missing server. Servers that are still unreachable join later.
    /// - [`LockError::Store`] if so many servers refuse the client that no majority is left.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the attempt.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn connect() -> Result<(), rlock_core::LockError> {
    /// use rlock_core::LockClient;
    ///
    /// let client = LockClient::quorum([
    ///     "redis://one.example.com/",
    ///     "redis://two.example.com/",
    ///     "redis://three.example.com/",
    /// ])
    /// .await?;
    /// client.lock("order:42").run(async { /* one at a time */ }).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn quorum<I>(urls: I) -> Result<Self, LockError>
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        Self::builder().quorum(urls).await
    }

    /// Makes a client of a new embedded store with the default options: no server, the same
    /// semantics within this process.
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

    /// Makes this the client of annotated functions in the whole process. Replaces the client that
    /// was installed before.
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
    pub async fn scope<F: Future>(&self, future: F) -> F::Output {
        let scope = Scope::current().with_client(self.handle.clone());
        scope.around(future).await
    }

    /// Returns a handle to the lock of this key, with the client's default options.
    ///
    /// This method sends nothing. An acquire checks the key. The key is taken verbatim: put values
    /// into it through [`escape`](crate::escape), as the attribute does.
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
    /// # Examples
    ///
    /// ```
    /// use rlock_core::{LockClient, escape};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = LockClient::in_memory();
    /// let cart = [7, 42, 7];
    /// let locks = client.lock_all(cart.iter().map(|item| format!("item:{}", escape(item))));
    /// let reserved = locks.run(async { "both" }).await?;
    /// assert_eq!(reserved, "both");
    /// # Ok(())
    /// # }
    /// ```
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

    /// Removes the lock of this key from the embedded store and hands it off to the next waiter.
    /// Returns `true` if the lock was held. For tests of a service that loses a lock.
    ///
    /// The holder loses the lock with [`LostCause::Removed`](crate::LostCause::Removed), as if its
    /// key had been deleted on a server.
    ///
    /// # Errors
    ///
    /// [`LockError::InvalidKey`] for an invalid key, [`LockError::Closed`] after shutdown.
    /// [`LockError::Store`] if the store is not the embedded one: delete the key on the server
    /// instead.
    ///
    /// # Examples
    ///
    /// ```
    /// use rlock_core::{LockClient, LockError};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = LockClient::in_memory();
    /// let lock = client.lock("order:42");
    /// let body = lock.run(async {
    ///     assert!(client.revoke("order:42").expect("the embedded store"));
    ///     std::future::pending::<()>().await;
    /// });
    /// assert!(matches!(body.await, Err(LockError::Lost { .. })));
    /// # Ok(())
    /// # }
    /// ```
    pub fn revoke(&self, key: &str) -> Result<bool, LockError> {
        let key = self.key(key)?;
        let core = self.core();
        let action = format!("revoke lock `{key}`");
        if core.is_closed() {
            return Err(LockError::Closed { action });
        }
        let revoked = core.store.revoke(&key);
        revoked.map_err(|error| error.into_lock_error(action, Duration::ZERO))
    }

    /// Returns the current state of the lock of this key, or `None` if the lock is free.
    ///
    /// # Errors
    ///
    /// [`LockError::InvalidKey`], [`LockError::Unavailable`] or [`LockError::Store`].
    /// [`LockError::Closed`] after shutdown.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
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
        let key = self.key(key)?;
        let core = self.core();
        let timeout = core.options.response_timeout;
        let request = core.store.inspect(&key, SendOptions::background(timeout));
        let request = async { request.await.map_err(|error| error.hide([&key])) };
        let entry = self.ask(timeout * 2, request, || format!("inspect lock `{key}`"));
        let Some(entry) = entry.await? else {
            return Ok(None);
        };
        let own = core.queues.owned(&key);
        let own = own.filter(|hold| hold.owner.to_string() == entry.owner);
        Ok(Some(LockInfo {
            retained: own.as_ref().is_some_and(|hold| hold.is_retained()),
            token: own.map(|hold| hold.token()).or(entry.token),
            owner: entry.owner,
            count: entry.count,
            ttl: entry.ttl,
        }))
    }

    fn key(&self, key: &str) -> Result<Key, LockError> {
        Key::parse_hidden(key, self.core().options.redact_keys, Site::default())
    }

    /// Checks that the store replies, for a readiness probe. The check covers the server, the
    /// master of a Sentinel service, all masters of a cluster, or a majority of a quorum. The
    /// embedded store always replies.
    ///
    /// The check sends one `PING` to each of these servers in parallel, over the background
    /// connections. It takes at most the [response
    /// time-out](LockClientBuilder::response_timeout), including the wait of a client that is not
    /// connected yet. A reply does not prove that locks can be acquired: a server without free
    /// memory replies, too.
    ///
    /// # Errors
    ///
    /// [`LockError::Unavailable`] if a server does not reply, or cannot serve now because it loads
    /// its data, for example. [`LockError::Store`] if a server refuses this client,
    /// [`LockError::Closed`] after shutdown.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn ping(&self) -> Result<(), LockError> {
        let core = self.core();
        let timeout = core.options.response_timeout;
        let action = || format!("ping {}", core.store.place());
        self.ask(timeout * 2, core.store.ping(timeout), action)
            .await
    }

    /// Waits until the store replies. Returns an error at once if the store refuses this client.
    pub(crate) async fn until_ready(&self, wait: Duration) -> Result<(), LockError> {
        let core = self.core();
        let limit = wait + core.options.response_timeout;
        let ready = async {
            let until = Instant::now() + wait;
            let mut backoff = Backoff::default();
            loop {
                let left = until.saturating_duration_since(Instant::now());
                let pause = backoff.next();
                match core.store.ping(left).await {
                    Err(error) if error.transient && pause < left => sleep(pause).await,
                    answer => return answer,
                }
            }
        };
        self.ask(limit, ready, || {
            format!("connect to {}", core.store.place())
        })
        .await
    }

    /// Awaits a reply of the store, for `limit` at most.
    async fn ask<T>(
        &self,
        limit: Duration,
        reply: impl Future<Output = Result<T, StoreError>>,
        action: impl Fn() -> String,
    ) -> Result<T, LockError> {
        let core = self.core();
        if core.is_closed() {
            return Err(LockError::Closed { action: action() });
        }
        let started = core.clock.now();
        let reply = core.in_runtime_within(Some(limit), reply).await;
        let reply = reply.unwrap_or_else(|| Err(StoreError::stands_still()));
        reply.map_err(|error| error.into_lock_error(action(), core.clock.now().since(started)))
    }
}

impl fmt::Debug for LockClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.fmt(f)
    }
}

/// The state of a lock on its store, from [`LockClient::inspect`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInfo {
    /// The owner as text, `<client uuid>:<sequence>`, or the word `kept` if there is none. See
    /// [`holder`](Self::holder).
    pub owner: String,
    /// The number of nested entries of the owner; 1 for a lock that is not nested. On a quorum, 0
    /// while the lock is handed to the first owner in the queue.
    pub count: u32,
    /// How long the store keeps the lock without renewal; `None` if it does not end.
    pub ttl: Option<Duration>,
    /// The fencing token of the current hold, if this client holds the lock. Otherwise the largest
    /// token that the store has reserved for the owner, if the store still knows it.
    pub token: Option<u64>,
    /// Whether this client [retains](Lock::retain) the lock: it is not held, and the next call of
    /// this client acquires it without a request. A lock that another client retains shows as held
    /// by that client.
    pub retained: bool,
}

impl LockInfo {
    /// Returns the owner that holds the lock. Returns `None` if the holder has released the lock
    /// and only [`at_least`](Lock::at_least) keeps it taken.
    #[must_use]
    pub fn holder(&self) -> Option<&str> {
        (self.owner != AT_LEAST_OWNER).then_some(self.owner.as_str())
    }
}
