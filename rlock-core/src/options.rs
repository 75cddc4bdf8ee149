//! The setters of a lock's options, which `Lock` and the attribute share, and the options of clients.

use std::{
    fmt,
    sync::{Arc, LazyLock},
    time::Duration,
};

use rlock_proto::options::LockOptions;

/// Where nested entries are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Reentry {
    /// Shows the number of nested entries on the store. The background sends it, so no call waits for that. Entries that leave
    /// within 20 ms are not sent.
    #[default]
    Counted,
    /// Counts nested entries in this process only. The store's count is 1.
    Local,
}

#[derive(Clone)]
pub(crate) struct Options {
    /// The options of locks that set none.
    pub(crate) lock: LockOptions,
    pub(crate) reentry: Reentry,
    /// How many local waiters are served in a row while other clients wait.
    pub(crate) max_local_handovers: usize,
    pub(crate) response_timeout: Duration,
    /// How long a server keeps a fence after the lease of its grant.
    pub(crate) fence_retention: Duration,
    pub(crate) replicas: Option<Replicas>,
    pub(crate) redact_keys: bool,
    pub(crate) identity: Identity,
    /// Whether the client replies to other clients that ask who holds a lock.
    pub(crate) inspectable: bool,
    pub(crate) trace_id: Option<TraceId>,
}

/// What other clients learn about a client.
#[derive(Clone, Default)]
pub(crate) struct Identity {
    pub(crate) service: Option<String>,
    pub(crate) version: Option<String>,
}

impl Identity {
    pub(crate) fn host() -> &'static str {
        static HOST: LazyLock<String> = LazyLock::new(host_name);
        &HOST
    }
}

/// Writes `` `billing` on `node-3` (pid 4711) ``.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(service) = &self.service {
            write!(f, "`{service}` on ")?;
        }
        write!(f, "`{}` (pid {})", Self::host(), std::process::id())
    }
}

#[cfg(unix)]
fn host_name() -> String {
    let system = rustix::system::uname();
    system.nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_else(|_| "unknown".to_owned())
}

/// Returns the trace of the present call.
#[derive(Clone)]
pub(crate) struct TraceId(pub(crate) Arc<dyn Fn() -> Option<String> + Send + Sync>);

/// The number of replicas that must have a lock before it counts as granted, and the time for that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Replicas {
    pub(crate) least: usize,
    pub(crate) within: Duration,
}

/// Defines the setters of [`LockOptions`] for a type with a method `options`.
macro_rules! lock_option_setters {
    () => {
        /// Sets the label of the lock in metrics, in spans and for [inspection](crate::inspect::Holder::label). The
        /// attribute uses its key template as the label. A lock without one appears as `unnamed`.
        ///
        /// Choose one label for many keys, such as `order:<id>` for `order:42`, because metrics have one series for
        /// each label.
        pub fn label(mut self, label: &'static str) -> Self {
            self.options().site = rlock_proto::options::Site::new(label);
            self
        }

        /// Shares the lock with other shared holders. Use it for readers that may run at the same time, while a
        /// writer that holds the lock exclusively runs alone. Replaces [`permits`](crate::Lock::permits), if that was
        /// set before.
        ///
        /// Waiters of all modes are served in the order in which they came, except on a quorum. So a reader that
        /// comes after a waiting writer waits for it, and readers that wait next to each other are let in together.
        ///
        /// To the store, all calls of a client that share a lock are one holder. As long as no call waits for the
        /// lock, a further call with one key joins without a request, provided that it asks for the same
        /// [`lease`](crate::Lock::lease) with the [watchdog](crate::Lock::watchdog), and sets a
        /// [`max_hold`](crate::Lock::max_hold) if and only if the others do. The lock is released after the last of
        /// them, and the latest `max_hold` applies to all.
        ///
        /// A shared call inside a shared or an exclusive hold of the same key re-enters it. An exclusive call inside
        /// a shared hold fails with [`LockError::Upgrade`](crate::LockError::Upgrade).
        ///
        /// # Examples
        ///
        /// ```
        /// # #[tokio::main(flavor = "current_thread")]
        /// # async fn main() -> Result<(), rlock_core::LockError> {
        /// let client = rlock_core::LockClient::in_memory();
        /// let config = client.lock("config");
        /// let one = config.clone().shared().acquire().await?;
        /// let other = config.clone().shared().acquire().await?;
        /// assert!(config.try_acquire().await?.is_none(), "readers are inside");
        /// # Ok(())
        /// # }
        /// ```
        pub fn shared(mut self) -> Self {
            self.options().mode = LockMode::Shared;
            self
        }

        /// Takes one of this many permits, or several with [`take`](crate::Lock::take), so that at most this many calls
        /// hold the lock at once, in all processes together. Replaces [`shared`](crate::Lock::shared), if that was set
        /// before.
        ///
        /// Each call has a permit of its own, with a lease of its own, so the permit of a process that died becomes
        /// free when its lease ends. Waiters are served in the order in which they came. If calls name different
        /// numbers, as during a deployment that changes it, a call enters if no more permits are then taken than its
        /// own number. While it waits, a larger number that a call behind it has named counts instead.
        ///
        /// The fencing token of a permit identifies its hold, but several holds are valid at once, so the tokens have
        /// no order.
        ///
        /// Permits are not [retained](crate::Lock::retain), even if the client's default says so.
        ///
        /// # Errors
        ///
        /// An acquire returns [`LockError::InvalidOption`](crate::LockError::InvalidOption) for zero permits, for a
        /// `retain` that is set after this option, and on a quorum, where each of several holders could have a
        /// majority.
        ///
        /// # Examples
        ///
        /// ```
        /// # #[tokio::main(flavor = "current_thread")]
        /// # async fn main() -> Result<(), rlock_core::LockError> {
        /// let client = rlock_core::LockClient::in_memory();
        /// let exports = client.lock("exports:tenant-7").permits(2);
        /// let one = exports.acquire().await?;
        /// let other = exports.acquire().await?;
        /// assert!(exports.try_acquire().await?.is_none(), "both are taken");
        /// # Ok(())
        /// # }
        /// ```
        pub fn permits(mut self, permits: u32) -> Self {
            let options = self.options();
            let (take, _) = options.mode.permits().unwrap_or((1, 0));
            let mode = LockMode::Permits { take, of: permits };
            (options.mode, options.retain) = (mode, Duration::ZERO);
            self
        }

        /// Takes this many of the [`permits`](crate::Lock::permits) instead of one, all or none, for a call that needs
        /// more of what they limit, such as connections or memory. Replaces [`shared`](crate::Lock::shared), if that
        /// was set before.
        ///
        /// Calls that take many permits are not starved by those that take few, because waiters are served in the order
        /// in which they came: while a call waits for its permits, later ones wait behind it, even if enough permits are
        /// free for them. A nested call enters its caller's hold if that has taken at least as many.
        ///
        /// # Errors
        ///
        /// An acquire returns [`LockError::InvalidOption`](crate::LockError::InvalidOption) for zero, for more permits
        /// than there are, and without [`permits`](crate::Lock::permits).
        ///
        /// # Examples
        ///
        /// ```
        /// # #[tokio::main(flavor = "current_thread")]
        /// # async fn main() -> Result<(), rlock_core::LockError> {
        /// let client = rlock_core::LockClient::in_memory();
        /// let connections = client.lock("connections:reports").permits(8);
        /// let bulk = connections.clone().take(6).acquire().await?;
        /// let one = connections.acquire().await?;
        /// assert!(connections.take(2).try_acquire().await?.is_none(), "one is left");
        /// # Ok(())
        /// # }
        /// ```
        pub fn take(mut self, permits: u32) -> Self {
            let options = self.options();
            let (_, of) = options.mode.permits().unwrap_or_default();
            options.mode = LockMode::Permits { take: permits, of };
            self
        }

        /// Sets the lease: how long the store keeps the lock without a renewal, for example after a crash. Accepts 10
        /// milliseconds to 24 hours.
        ///
        /// Nested calls share the lease of the hold that they enter, and their own option is ignored.
        ///
        /// # Errors
        ///
        /// An acquire returns [`LockError::InvalidOption`](crate::LockError::InvalidOption)
        /// for a lease out of these bounds.
        pub fn lease(mut self, lease: Duration) -> Self {
            self.options().lease = lease;
            self
        }

        /// Sets how long an acquire may take in total. At most 366 days.
        ///
        /// With zero, the acquire asks once and never waits for a holder. However short the wait is, the acquire waits
        /// for the reply to its first request, so it takes a free lock even if a round trip is longer than the wait. If that
        /// reply is late or missing, the acquire therefore ends later than its wait, by at most the client's
        /// [`response_timeout`](crate::LockClientBuilder::response_timeout), 2 seconds by default. If the reply to a
        /// release of this client is missing, too, it ends later by at most one and a half times that time-out. If it has
        /// waited for the reply to another call of this client, it ends later by at most twice that time-out.
        ///
        /// # Errors
        ///
        /// An acquire returns [`LockError::InvalidOption`](crate::LockError::InvalidOption)
        /// for a longer wait.
        pub fn wait(mut self, wait: Duration) -> Self {
            self.options().wait = rlock_proto::options::Wait::For(wait);
            self
        }

        /// Lets an acquire wait without a limit.
        pub fn wait_forever(mut self) -> Self {
            self.options().wait = rlock_proto::options::Wait::Forever;
            self
        }

        /// Enables or disables the watchdog, which renews the lease while the lock is held. Without it, the hold is
        /// lost when its lease ends, and the lock is not [retained](crate::Lock::retain), even if the client's default
        /// says so.
        pub fn watchdog(mut self, renew: bool) -> Self {
            let options = self.options();
            options.watchdog = renew;
            if !renew {
                options.retain = Duration::ZERO;
            }
            self
        }

        /// Sets how long the lock may be held before the hold counts as lost, so that work that hangs does not keep
        /// its lock forever. Unlimited by default.
        ///
        /// After that time, the client drops the body at its next await and releases the lock. It also stops renewing
        /// the lease, so a guard, or a body that blocks its thread, keeps the lock only until the lease ends.
        ///
        /// The call that acquires the lock sets the limit. Nested calls share it, and their own option is ignored.
        ///
        /// # Errors
        ///
        /// An acquire returns [`LockError::InvalidOption`](crate::LockError::InvalidOption)
        /// for zero, and for less than `min_hold`.
        pub fn max_hold(mut self, max_hold: Duration) -> Self {
            self.options().max_hold = Some(max_hold);
            self
        }

        /// Keeps the lock for at least this long, even if it is released earlier, so that a quick scheduled job does
        /// not run twice on machines whose clocks differ. Zero has no effect. At most 24 hours.
        ///
        /// The release does not wait: the store keeps the lock until this time has passed since the
        /// acquire. Only a success keeps it, so that another process can try at once after a failure:
        ///
        /// - A body fails if it returns `Err`, panics, is cancelled or loses its lock. This applies to the attribute,
        ///   [`Lock::run`](crate::Lock::run) and [`Lock::run_blocking`](crate::Lock::run_blocking). An output that is
        ///   not a `Result` is a success.
        /// - A guard does not know the outcome, so its end counts as a success unless its thread panics, its lock was
        ///   lost, or it was [marked as failed](crate::LockGuard::mark_failed).
        ///
        /// Each nested call counts by itself: if it succeeds, its `min_hold` keeps the lock.
        ///
        /// # Errors
        ///
        /// An acquire returns [`LockError::InvalidOption`](crate::LockError::InvalidOption)
        /// for more than 24 hours.
        pub fn min_hold(mut self, min_hold: Duration) -> Self {
            self.options().min_hold = Some(min_hold);
            self
        }

        /// Keeps the lock for this long after its last hold, so that this client's next call for it sends no request.
        /// If that call does not ask for the same [`lease`](crate::Lock::lease) with the
        /// [watchdog](crate::Lock::watchdog), the client releases the lock and acquires it again. With zero, the lock
        /// is released after its last hold. At most 24 hours.
        ///
        /// Retention suits keys that one process uses most of the time, such as a tenant whose jobs mostly run on one
        /// node.
        ///
        /// Another client that waits for the lock sends a message, which ends the retention at once. If the message
        /// is lost, the retention ends at the latest after this time and one second. A call that does not wait, such
        /// as [`try_acquire`](crate::Lock::try_acquire), finds a retained lock taken, but ends the retention as well,
        /// so a later attempt can succeed. The client also releases the lock when it drains, shuts down or is
        /// dropped. If its process is killed, the lock ends with its lease.
        ///
        /// If a call is cancelled, or fails to acquire several keys, the client releases the retained
        /// locks of its keys.
        ///
        /// A release sends no request if the client retains the lock or passes it to its own next call, so it fails
        /// only if the lease has ended or the store has reported a loss. The option has no effect with
        /// [`wait_for_replicas`](crate::LockClientBuilder::wait_for_replicas), where each hold has to be confirmed.
        ///
        /// # Errors
        ///
        /// An acquire returns [`LockError::InvalidOption`](crate::LockError::InvalidOption)
        /// for more than 24 hours, and for any time but zero without the [`watchdog`](Self::watchdog), which renews a
        /// retained lock.
        ///
        /// # Examples
        ///
        /// ```
        /// use std::time::Duration;
        ///
        /// # #[tokio::main(flavor = "current_thread")]
        /// # async fn main() -> Result<(), rlock_core::LockError> {
        /// let client = rlock_core::LockClient::in_memory();
        /// let tenant = client.lock("tenant:7").retain(Duration::from_secs(10));
        /// for _ in 0..3 {
        ///     tenant.run(async { /* only the first call asks the store */ }).await?;
        /// }
        /// let info = client.inspect("tenant:7").await?.expect("kept for the next call");
        /// assert!(info.retained);
        /// # Ok(())
        /// # }
        /// ```
        pub fn retain(mut self, retain: Duration) -> Self {
            self.options().retain = retain;
            self
        }
    };
}
pub(crate) use lock_option_setters;
