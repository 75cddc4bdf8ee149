//! The client: one connection to a store, one background, any number of handles.

use std::{
    fmt,
    future::Future,
    panic::{RefUnwindSafe, UnwindSafe},
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
    multi_lock::MultiLock,
    scope::Scope,
    store::{KEPT, StoreError},
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

    /// Connects to several servers that know nothing of each other, with the default options: what more
    /// than half of them grant is granted. As long as fewer than half are down, nobody notices. This is the
    /// algorithm that Redis calls [Redlock].
    ///
    /// Each URL is one that [`LockClientBuilder::connect`] takes for a server: `redis://`, `rediss://`,
    /// `unix://`, `redis-sentinel://`, `rediss-sentinel://`. All clients name the same servers, in the
    /// same order. Three servers bear the loss of one, five that of two. An even number bears no more
    /// than the odd one below it: four bear the loss of one. They are to fail independently: other
    /// machines, other disks, no replication between them. One that is named by two addresses would vote
    /// twice: that is refused here, and one that comes to be so later is not counted (and logged as an
    /// error). The servers tell by the `run_id` in their `INFO`; one that hides it is not checked.
    ///
    /// - **Taking a lock** asks all servers at once. The lease counts from before the first was asked, less
    ///   one percent and two milliseconds for clocks that run at different speeds. Once a majority has
    ///   granted the lock, servers that do not answer are not waited for, but for the one that keeps the line of
    ///   those who wait: for ten times as long as the majority took, 20 to 250 ms, unless it was silent before.
    ///   What a minority granted is given back, and every release goes to all servers; one that was away is
    ///   told for up to 30 seconds.
    /// - **A server that was restarted** takes part again as soon as it can be reached, and is given the
    ///   locks that are held at the next renewal. So servers may be restarted one after another, if each
    ///   has time to be given them (a third of the lease at the most).
    /// - **Waiters** stand in line at the first server that answers, so that the votes are not split. If it
    ///   fails, they turn to the next, and the order of the line may be lost.
    /// - **Fencing tokens** are the highest of a majority, and a majority knows them before the lock is
    ///   used. So they grow from hold to hold, whichever majority grants it.
    /// - **Errors** tell who is in the way: [`LockError::Timeout`] if another holds the lock,
    ///   [`LockError::Unavailable`] if too few servers answer; its text says how many answered, how many
    ///   are needed, and what is wrong with each of the others.
    ///
    /// # Limits
    ///
    /// A quorum is worth its price (as many requests as there are servers) where one server must not be
    /// the reason that work stops. It does not make a lock safer than a lease can be:
    ///
    /// - A process that stands still for longer than its lease acts once more when it wakes up. That is the
    ///   core of [Martin Kleppmann's critique][critique], and no lock with a lease avoids it. What writes
    ///   to storage passes its [fencing token](crate::LockGuard::fencing_token) along, so that the storage
    ///   can refuse the late one.
    /// - It relies on clocks that run at about the same speed. A server whose clock jumps forward ends its
    ///   leases early. One such server does no harm; a majority of them lets a second holder in.
    ///   [Antirez' reply][reply] argues that this can be prevented; it cannot be detected from here.
    /// - **A server that restarts without its data votes anew.** If servers 1, 2 and 3 granted a lock, 3
    ///   restarts empty, and 1 and 2 cannot be reached before 3 was given the lock again, then 3, 4 and 5
    ///   can grant it to somebody else. Let servers keep their data (`appendonly yes`,
    ///   `appendfsync always`), or leave a server that crashed down for longer than the longest lease. The
    ///   tokens of the two holders still differ, and grow, as long as a majority keeps its data; a server
    ///   that lost its own begins again at the time of its clock.
    ///
    /// [Redlock]: https://redis.io/docs/latest/develop/use/patterns/distributed-locks/
    /// [critique]: https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html
    /// [reply]: http://antirez.com/news/101
    ///
    /// # Errors
    ///
    /// [`LockError::InvalidOption`] for a list that is empty, too long (32) or names a server twice, by whatever
    /// addresses, or a URL that makes no sense; [`LockError::Unavailable`] if no majority answers within the connect
    /// time-out, [`LockError::Store`] if so many refuse. Servers that cannot be reached yet join later.
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

    /// Returns a handle to the locks of several keys, with the client's default options. The number
    /// of keys may be known only at run time. The locks are acquired atomically: all or none.
    ///
    /// This method sends nothing. An acquire checks the keys. The keys are taken verbatim, as by
    /// [`lock`](Self::lock).
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
        MultiLock::new(Lock::new(self.clone(), keys))
    }

    /// Takes the lock of this key from its holder and hands it to the next waiter. For tests of a
    /// service that loses a lock.
    ///
    /// The holder loses the lock with [`LostCause::Removed`](crate::LostCause::Removed), as if its
    /// key had been deleted on a server. Returns `true` if the lock was held.
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
        let key = Key::parse(key)?;
        let core = self.core();
        let action = format!("revoke lock `{key}`");
        if core.is_closed() {
            return Err(LockError::Closed { action });
        }
        let revoked = core.store.revoke(&key);
        revoked.map_err(|error| error.into_lock_error(action, Duration::ZERO))
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
        let timeout = core.options.response_timeout;
        let request = core.store.inspect(&key, timeout);
        let answer = core.in_runtime_within(Some(timeout * 2), request).await;
        let answer = answer.unwrap_or_else(|| Err(StoreError::stands_still()));
        let entry = answer.map_err(|error| {
            error.into_lock_error(
                format!("inspect lock `{key}`"),
                core.clock.now().since(started),
            )
        })?;
        let own = core.watchdog.hold(&key);
        Ok(entry.map(|entry| {
            let own = own.filter(|hold| hold.owner.to_string() == entry.owner);
            LockInfo {
                retained: own.as_ref().is_some_and(|hold| hold.is_retained()),
                token: own.map(|hold| hold.token()).or(entry.token),
                owner: entry.owner,
                count: entry.count,
                ttl: entry.ttl,
            }
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
        let limit = Some(core.options.response_timeout);
        let ended = core.in_runtime_within(limit, core.background_ended()).await;
        let error = match ended {
            Some(()) if released => return Ok(()),
            Some(()) => StoreError::not_given_back(),
            None => StoreError::stands_still(),
        };
        let action = "give back every lock at shutdown".to_owned();
        Err(error.into_lock_error(action, core.clock.now().since(started)))
    }

    /// Waits until the client's locks are released, then shuts the client down. For a service that
    /// stops.
    ///
    /// From now on, a call outside of this client's locks fails with [`LockError::Draining`], even
    /// if it already waits. Existing holds continue: bodies run and leases are renewed. Calls
    /// inside of a body, or of [`LockGuard::scope`](crate::LockGuard::scope), may acquire further
    /// locks.
    ///
    /// When no lock is held, or after `within`, the client [shuts down](Self::shutdown). The
    /// shutdown stops the remaining bodies.
    ///
    /// # Errors
    ///
    /// As [`shutdown`](Self::shutdown).
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the client stays in its current state: it grants no new locks, and
    /// existing holds continue. Call `drain` or `shutdown` again to shut it down.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use rlock_core::{Drained, LockClient};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = LockClient::in_memory();
    /// let lock = client.lock("order:42");
    /// let job = tokio::spawn(async move {
    ///     lock.run(tokio::time::sleep(Duration::from_millis(50))).await
    /// });
    /// tokio::task::yield_now().await;
    /// // The server accepts no more requests. Requests in progress have 20 seconds.
    /// let drained = client.drain(Duration::from_secs(20)).await?;
    /// assert_eq!(drained, Drained::Completed);
    /// job.await.expect("no panic")?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn drain(&self, within: Duration) -> Result<Drained, LockError> {
        let core = self.core();
        core.drain();
        core.queues.end_retentions();
        let until = core.clock.now() + within;
        let in_time = core.in_runtime(async {
            tokio::select! {
                biased;
                () = core.drained() => true,
                () = core.background_ended() => false,
                () = core.clock.sleep_until(until) => false,
            }
        });
        let drained = match (in_time.await, core.watchdog.count()) {
            (true, _) | (false, 0) => Drained::Completed,
            (false, locks) => Drained::Interrupted { locks },
        };
        self.shutdown().await?;
        Ok(drained)
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

// A panic leaves no partial change: no foreign code runs while a client's state changes.
impl UnwindSafe for LockClient {}
impl RefUnwindSafe for LockClient {}

/// The result of [`LockClient::drain`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Drained {
    /// The holders released all locks.
    Completed,
    /// The time ran out. The shutdown took the remaining locks from their holders, whose bodies
    /// stop with [`LockError::Lost`].
    Interrupted {
        /// The number of locks that were still held.
        locks: usize,
    },
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
    /// The owner as text, `<client uuid>:<sequence>`, or the word `kept` if there is none. See
    /// [`holder`](Self::holder).
    pub owner: String,
    /// How many nested entries the owner has; 1 for a lock that is not nested. 0 on a quorum while the
    /// lock goes to the owner that is first in line.
    pub count: u32,
    /// How long the store keeps the lock without renewal; `None` if without an end.
    pub ttl: Option<Duration>,
    /// The fencing token of the present hold, if this client holds the lock. Otherwise the largest token that the
    /// store has reserved for the owner, if the store still knows it.
    pub token: Option<u64>,
    /// Whether this client [retains](crate::Lock::retain) the lock: nobody holds it, and the next call of this
    /// client acquires it without a request. A lock that another client retains shows as held by that client.
    pub retained: bool,
}

impl LockInfo {
    /// Returns the owner that holds the lock. Returns `None` if the holder has released the lock
    /// and only [`at_least`](crate::Lock::at_least) keeps it taken.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// use std::time::Duration;
    ///
    /// let client = rlock_core::LockClient::in_memory();
    /// let lock = client.lock("night").at_least(Duration::from_secs(60));
    /// let guard = lock.acquire().await?;
    /// let info = client.inspect("night").await?.expect("held");
    /// assert_eq!(info.holder(), Some(guard.owner().to_string().as_str()));
    /// guard.release().await?;
    /// let info = client.inspect("night").await?.expect("taken for a minute");
    /// assert_eq!(info.holder(), None);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn holder(&self) -> Option<&str> {
        (self.owner != KEPT).then_some(self.owner.as_str())
    }
}
