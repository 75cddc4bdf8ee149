//! A handle to one lock, with its options.

use std::{future::Future, sync::OnceLock, time::Duration};

use smallvec::smallvec;

use crate::{
    acquire::{self, Refused, Request},
    blocking::block_on,
    client::LockClient,
    error::LockError,
    few::Few,
    guard::LockGuard,
    key::Key,
    limits,
    options::Wait,
    run::{Inside, OnLost, Run, Session},
};

/// A lock that can be taken, with the options to take it by. Made by [`LockClient::lock`]; holds
/// nothing itself, and can be used any number of times.
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
///     None => println!("another process is at it"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "a lock does nothing until it is acquired"]
pub struct Lock {
    client: LockClient,
    keys: Few<Name>,
    lease: Duration,
    wait: Wait,
    watchdog: bool,
    max_hold: Option<Duration>,
    at_least: Option<Duration>,
    retain: Duration,
}

/// A key as it was given, and as it was checked once it was used.
#[derive(Debug, Clone)]
struct Name {
    given: String,
    checked: OnceLock<Key>,
}

impl Name {
    fn key(&self) -> Result<Key, LockError> {
        if let Some(key) = self.checked.get() {
            return Ok(key.clone());
        }
        let key = Key::parse(&self.given)?;
        Ok(self.checked.get_or_init(|| key).clone())
    }
}

impl From<String> for Name {
    fn from(given: String) -> Self {
        Self {
            given,
            checked: OnceLock::new(),
        }
    }
}

impl Lock {
    pub(crate) fn new(client: LockClient, keys: Few<String>) -> Self {
        let options = &client.core().options;
        Self {
            keys: keys.into_iter().map(Name::from).collect(),
            lease: options.lease,
            wait: options.wait,
            watchdog: options.watchdog,
            max_hold: None,
            at_least: None,
            retain: options.retain,
            client,
        }
    }

    /// The key, as it was given.
    #[must_use]
    pub fn key(&self) -> &str {
        self.keys.first().map_or("", |name| &name.given)
    }

    /// The keys, as given.
    pub(crate) fn keys(&self) -> impl ExactSizeIterator<Item = &str> {
        self.keys.iter().map(|name| name.given.as_str())
    }

    /// How long the server keeps the lock without renewal: after a crash, how long the others wait.
    /// From 10 milliseconds to 24 hours. A nested acquire never shortens the lease of the outer one.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How long an acquire may take, everything included. Zero asks once and does not wait.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait = Wait::For(wait);
        self
    }

    /// Lets an acquire wait without a bound.
    pub fn wait_forever(mut self) -> Self {
        self.wait = Wait::Forever;
        self
    }

    /// Whether the lease is renewed while the lock is held. Without renewal the hold is lost when
    /// its lease runs out.
    pub fn watchdog(mut self, renew: bool) -> Self {
        self.watchdog = renew;
        self
    }

    /// How long the lock may be held at the most; then the hold counts as lost and renewal stops.
    /// Keeps work that hangs from holding its lock for ever.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.max_hold = Some(max_hold);
        self
    }

    /// How long the lock stays taken at the least, even when it is released before: so that a quick
    /// scheduled job does not run twice on machines whose clocks differ. At most 24 hours. Nobody
    /// waits for it; the lock ends by its lease then.
    ///
    /// This applies however the hold ends, including after a body that returned `Err`, panicked or
    /// was cancelled. To retry a job sooner, use a key for each attempt, or no `at_least`.
    pub fn at_least(mut self, at_least: Duration) -> Self {
        self.at_least = Some(at_least);
        self
    }

    /// How long this client keeps a lock after its last hold, for its own next call. That call costs no
    /// request then. Zero gives it back at its release.
    ///
    /// For keys with affinity: the jobs of one tenant that mostly run on one node, a partition that one
    /// consumer works on. Another client that wants the lock sends one message and has it as soon as the lock is
    /// given back: at once when the message arrives, and after this time and a second at the latest. The lock is also
    /// given back when the client drains, shuts down or is dropped. A process that is killed leaves it to the lease.
    ///
    /// A release that is followed by a retention, or by another call of this client, sends no request. It fails
    /// only if the lease has ended or the store has reported a loss. From zero to 24 hours. Has no effect with
    /// [`replicas`](crate::LockClientBuilder::replicas), where each hold is confirmed.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = rlock_core::LockClient::in_memory();
    /// let tenant = client.lock("tenant:7").retain(Duration::from_millis(200));
    /// for _ in 0..3 {
    ///     tenant.run(async { /* only the first of these asks the store */ }).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn retain(mut self, retain: Duration) -> Self {
        self.retain = retain;
        self
    }

    fn request(&self, wait: Wait) -> Result<Request, LockError> {
        limits::keys(self.keys.len())?;
        let parsed: Result<Few<Key>, _> = self.keys.iter().map(Name::key).collect();
        let mut keys = parsed?;
        keys.sort_unstable();
        keys.dedup();
        Ok(Request {
            keys,
            lease: self.lease,
            wait,
            watchdog: self.watchdog,
            max_hold: self.max_hold,
            at_least: self.at_least,
            retain: self.retain,
        })
    }

    fn check(&self, wait: Wait) -> Result<(), LockError> {
        limits::lease("lease", self.lease)?;
        limits::wait("wait", wait)?;
        limits::max_hold(self.max_hold)?;
        limits::retain(self.retain)?;
        limits::at_least(self.at_least)
    }

    /// Enters the hold of the call chain, if it has one and that is a matter of this process alone.
    fn enter_at_once(&self) -> Option<Result<LockGuard, LockError>> {
        let [name] = &*self.keys else {
            return None;
        };
        let clock = &self.client.core().clock;
        let terms = acquire::terms(clock, self.lease, self.watchdog, self.max_hold, self.retain);
        acquire::enter_at_once(&self.client, &name.given, terms, self.at_least)
    }

    async fn take(&self, wait: Wait) -> Result<Few<LockGuard>, Refused> {
        self.check(wait)?;
        // A plain call: most of the rest is allocations that it can do without.
        if let Some(entered) = self.enter_at_once() {
            return Ok(smallvec![entered?]);
        }
        let request = self.request(wait)?;
        // Boxed, because it is large and every caller's future would be as large for its whole life.
        Box::pin(acquire::acquire(&self.client, &request)).await
    }

    /// Takes the locks of all keys, or none.
    pub(crate) async fn acquire_all(&self) -> Result<Few<LockGuard>, LockError> {
        let outcome = self.take(self.wait).await;
        outcome.map_err(|refused| match refused {
            Refused::Taken {
                key,
                waited,
                remaining,
            } => LockError::Timeout {
                key: key.as_str().to_owned(),
                waited,
                remaining,
            },
            Refused::Failed(error) => error,
        })
    }

    /// Takes the lock, waiting for it if need be. Inside a body that holds the same key, enters it
    /// once more.
    ///
    /// # Errors
    ///
    /// [`LockError::Timeout`] if it stayed taken for the whole wait, [`LockError::Unavailable`] or
    /// [`LockError::Store`] if the store did not grant it, [`LockError::Lost`] if it was to be
    /// entered once more and is lost, [`LockError::InvalidKey`] and [`LockError::InvalidOption`]
    /// before anything is sent, [`LockError::Draining`] while the client drains, [`LockError::Closed`] after
    /// shutdown.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses the place in the line. A lock that was granted meanwhile is given
    /// back in the background.
    pub async fn acquire(&self) -> Result<LockGuard, LockError> {
        self.acquire_all().await.map(only)
    }

    /// Takes the lock if nobody has it; `None` if somebody has, or waits for it in this process.
    /// Never waits for a holder, whatever [`wait`](Self::wait) says; a request that is not answered
    /// ends with the client's response time-out.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), but for `Timeout`.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(&self) -> Result<Option<LockGuard>, LockError> {
        Ok(self.try_acquire_all().await?.map(only))
    }

    /// Acquires the locks of all keys if all are free.
    pub(crate) async fn try_acquire_all(&self) -> Result<Option<Few<LockGuard>>, LockError> {
        match self.take(Wait::Never).await {
            Ok(guards) => Ok(Some(guards)),
            Err(Refused::Taken { .. }) => Ok(None),
            Err(Refused::Failed(error)) => Err(error),
        }
    }

    /// Takes the lock, runs the future inside it, and gives the lock back. This is what the
    /// attribute calls.
    ///
    /// Acquires of the same key inside the future re-enter. If the lock is lost, the future is
    /// dropped at its next await. Its values are dropped before the lock is given back, and the
    /// lock is given back before this returns, or before a panic goes on unwinding.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire); the future was not started then. [`LockError::Lost`] if the
    /// lock was lost: the future may have done a part of its work, or all of it, beside another
    /// holder.
    ///
    /// # Panics
    ///
    /// As the future does, after the lock was given back.
    ///
    /// # Cancel safety
    ///
    /// Dropping this drops the future, then gives the lock back in the background.
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
    pub async fn run<F: Future>(&self, future: F) -> Result<F::Output, LockError> {
        let lock = self.clone();
        let session = Session::new(OnLost::Cancel, async move { lock.acquire_all().await });
        let body = Box::pin(async move { Ok(future.await) });
        Run::new(session, body, Err).await
    }

    /// [`acquire_all`](Self::acquire_all) for synchronous code.
    pub(crate) fn acquire_all_blocking(&self) -> Result<Few<LockGuard>, LockError> {
        block_on(|| self.action(), self.acquire_all())?
    }

    /// [`acquire`](Self::acquire) for synchronous code: blocks the calling thread.
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire), and [`LockError::WouldBlock`] inside an async task.
    pub fn acquire_blocking(&self) -> Result<LockGuard, LockError> {
        self.acquire_all_blocking().map(only)
    }

    /// [`try_acquire`](Self::try_acquire) for synchronous code.
    ///
    /// # Errors
    ///
    /// As [`try_acquire`](Self::try_acquire), and [`LockError::WouldBlock`] inside an async task.
    pub fn try_acquire_blocking(&self) -> Result<Option<LockGuard>, LockError> {
        Ok(self.try_acquire_all_blocking()?.map(only))
    }

    /// Acquires from synchronous code, as [`try_acquire_all`](Self::try_acquire_all).
    pub(crate) fn try_acquire_all_blocking(&self) -> Result<Option<Few<LockGuard>>, LockError> {
        block_on(|| self.action(), self.try_acquire_all())?
    }

    /// [`run`](Self::run) for synchronous code. Nested calls on the same thread re-enter. A closure
    /// cannot be stopped from outside: ask [`current`](crate::current) in long ones.
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run), and [`LockError::WouldBlock`] inside an async task.
    ///
    /// # Panics
    ///
    /// As the closure does, after the lock was given back.
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
        let inside = Inside::enter(self.acquire_all_blocking()?, OnLost::Cancel);
        inside.leave(body())
    }

    fn action(&self) -> String {
        let keys: Vec<&str> = self.keys().collect();
        format!("acquire lock `{}`", keys.join("`, `"))
    }
}

/// The guard of a lock of one key.
fn only(mut guards: Few<LockGuard>) -> LockGuard {
    guards.swap_remove(0)
}
