//! The options of locks and clients.

use std::{
    fmt,
    sync::{Arc, LazyLock},
    time::Duration,
};

pub(crate) use rlock_proto::options::{LockOptions, Site, Wait};

/// Where nested entries are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Reentry {
    /// Counts each nested entry on the store, which costs one round trip each.
    #[default]
    Counted,
    /// Counts nested entries in this process only, without a round trip. The store's count is 1.
    Local,
}

#[derive(Clone)]
pub(crate) struct Options {
    /// The options of locks that set none.
    pub(crate) lock: LockOptions,
    pub(crate) reentry: Reentry,
    /// How many local waiters are served in a row while other clients wait.
    pub(crate) local_calls_in_a_row: usize,
    pub(crate) response_timeout: Duration,
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
        /// Sets the name of the lock in metrics, in spans and for [inspection](crate::Holder::lock).
        /// The attribute sets its key template. A lock without a name is called `unnamed` there.
        ///
        /// A name stands for many keys, such as `order:<id>` for `order:42`: metrics have one series
        /// for each name.
        pub fn name(mut self, name: &'static str) -> Self {
            self.options().site = Site::new(name);
            self
        }

        /// Shares the lock with other shared holders. Use it for readers; an exclusive holder writes alone.
        /// Replaces [`permits`](crate::Lock::permits), if that was set before.
        ///
        /// Except on a quorum, waiters of all modes are served in the order in which they came, so a reader
        /// that comes after a waiting writer waits for it. Readers that wait together are let in together.
        ///
        /// To the store, all calls of a client that share a lock are one holder. While no call waits for the
        /// lock, further calls with one key join without a request, if they ask for the same
        /// [`lease`](crate::Lock::lease) with the [watchdog](crate::Lock::watchdog), with or without a
        /// [`max_hold`](crate::Lock::max_hold) like the others. The lock is released after the last one. The
        /// latest `max_hold` counts for all.
        ///
        /// A shared call inside a shared or an exclusive hold of the same key enters it. An exclusive call
        /// inside a shared hold fails with [`LockError::Upgrade`](crate::LockError::Upgrade).
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
            self.options().mode = Mode::Shared;
            self
        }

        /// Takes one of this many permits: at most this many calls of the fleet hold the lock at once.
        /// Replaces [`shared`](crate::Lock::shared), if that was set before.
        ///
        /// Each call has a permit of its own, with a lease of its own. A permit whose process died is free
        /// when its lease ends. Waiters are served in the order in which they came. If calls ask for
        /// different numbers, each is let in while fewer than its own number of permits are taken.
        ///
        /// The fencing tokens of permits identify holds. Several are valid at once, so the tokens have no
        /// order.
        ///
        /// A permit is not [retained](crate::Lock::retain): the client's default does not apply.
        ///
        /// # Errors
        ///
        /// An acquire returns [`LockError::InvalidOption`](crate::LockError::InvalidOption) for zero, and with
        /// a `retain` that is set after this option. It also returns it on a quorum, where several holders
        /// could each have a majority.
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
            (options.mode, options.retain) = (Mode::Permits(permits), Duration::ZERO);
            self
        }

        /// Sets the lease: how long the store keeps the lock without renewal, after a crash for
        /// example. Accepts 10 milliseconds to 24 hours.
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
        /// Zero asks once and never waits for a holder. If the store does not reply, the acquire ends
        /// after the client's [`response_timeout`](crate::LockClientBuilder::response_timeout), 2
        /// seconds by default.
        ///
        /// # Errors
        ///
        /// An acquire returns [`LockError::InvalidOption`](crate::LockError::InvalidOption)
        /// for a longer wait.
        pub fn wait(mut self, wait: Duration) -> Self {
            self.options().wait = Wait::For(wait);
            self
        }

        /// Lets an acquire wait without a limit.
        pub fn wait_forever(mut self) -> Self {
            self.options().wait = Wait::Forever;
            self
        }

        /// Enables or disables renewal of the lease while the lock is held. Without renewal, the
        /// hold is lost when its lease ends.
        pub fn watchdog(mut self, renew: bool) -> Self {
            self.options().watchdog = renew;
            self
        }

        /// Sets how long the lock may be held. After that time the hold is lost, so work that hangs
        /// does not hold its lock forever. Unlimited by default.
        ///
        /// The client then drops a body at its next await, and releases the lock. It does not renew the lease any
        /// more, so a guard, or a body that blocks its thread, keeps the lock until the lease ends.
        ///
        /// The option counts for the call that acquires the lock. Nested calls share that call's limit, and
        /// their own option is ignored.
        ///
        /// # Errors
        ///
        /// An acquire returns [`LockError::InvalidOption`](crate::LockError::InvalidOption)
        /// for zero, and for less than `min_hold`.
        pub fn max_hold(mut self, max_hold: Duration) -> Self {
            self.options().max_hold = Some(max_hold);
            self
        }

        /// Keeps the lock for at least this long, even if it is released earlier. A quick scheduled job
        /// then does not run twice on machines whose clocks differ. Zero has no effect. At most 24 hours.
        ///
        /// The release does not wait: the store keeps the lock until this time has passed since the
        /// acquire. Only a success keeps it, so that another process can try at once after a failure:
        ///
        /// - A body fails if it returns `Err`, panics, is cancelled or loses its lock. This counts for the attribute,
        ///   for [`Lock::run`](crate::Lock::run) and for [`Lock::run_blocking`](crate::Lock::run_blocking). An output that
        ///   is no `Result` is a success.
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

        /// Keeps the lock for this long after its last hold, for this client's next call. That call
        /// costs no request if it asks for the same [`lease`](crate::Lock::lease) with the
        /// [watchdog](crate::Lock::watchdog). Otherwise the client releases the lock and acquires it
        /// again. Zero releases the lock after its last hold. At most 24 hours.
        ///
        /// Retention suits keys with affinity, such as a tenant whose jobs mostly run on one node.
        /// Another client that waits for the lock sends a message, which ends the retention at once. If
        /// the message is lost, the retention ends after this time and one second at the latest. A call
        /// that does not wait, such as [`try_acquire`](crate::Lock::try_acquire), finds a retained lock
        /// taken. It ends the retention as well, so a later attempt can succeed. The
        /// client also releases the lock when it drains, shuts down or is dropped. If its process is
        /// killed, the lock ends with its lease.
        ///
        /// If a call is cancelled, or fails to acquire several keys, the client releases the retained
        /// locks of its keys.
        ///
        /// A release that leads to a retention or to a local hand-over sends no request. It fails only
        /// if the lease has ended or the store has reported a loss. The option has no effect with
        /// [`wait_for_replicas`](crate::LockClientBuilder::wait_for_replicas), where each hold is confirmed.
        ///
        /// # Errors
        ///
        /// An acquire returns [`LockError::InvalidOption`](crate::LockError::InvalidOption)
        /// for more than 24 hours.
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
