//! Once per tick: decides which instance of a service runs a job for a scheduled time. [`LockClient::once`] begins here.
//!
//! A *tick* is a time for which a schedule runs a job, and it is the same on all instances, whatever their clocks show.
//! The lock of a tick is also its record: while a call runs the tick, the lock has a holder, and then
//! [`min_hold`](crate::Lock::min_hold) keeps it without a holder, which means that the tick is done. A lock that is free
//! after the window means that no call has run the tick.
//!
//! An instance runs a tick only while its own clock shows at most a *window* after the tick, and the tick stays locked
//! until two windows after it, or longer. So no two instances run the same tick if their clocks differ by less than a window, even if
//! one of them comes late. `rlock once`, the command, uses the same locks.
//!
//! | what happens to the run | by default | with [`retry`](Job::retry) |
//! | --- | --- | --- |
//! | it returns a value, or `Ok` | done | done |
//! | it returns `Err`, panics or is cancelled | done: it may have done a part | free at once for another instance |
//! | its process dies or is cut off | taken until its lease ends, at the earliest two windows after the tick, then missed | free when the [lease](Job::lease) ends |
//! | its lock is [lost](crate::LockError::Lost) in another way | free | free |
//!
//! A tick that is free can run again on another instance within the window, and is missed after that. No lock can prove
//! *exactly once*, because a run that is killed may have done its work before. So check the
//! [fencing token](crate::fencing) where the job writes, or let its transaction insert the tick into a unique column.

mod call;
mod schedule;

use std::{
    future::{Future, ready},
    time::{Duration, SystemTime},
};

use futures_util::TryFutureExt;
use rlock_proto::key::escape;

use self::{
    call::{Call, NotRun},
    schedule::Schedule,
};
use crate::{
    client::LockClient, engine::shell::AcquiredFor, error::LockError, guard::LockGuard,
    info::LockInfo, lock::Lock, observe::label,
};

impl LockClient {
    /// Returns a handle to one tick of a job, which one instance of a service runs once.
    ///
    /// All instances pass the same name and the same scheduled time, which comes from the schedule and not from their
    /// clocks. Fractions of a second are ignored. The time types of `chrono`, `jiff` and `time` convert into a
    /// `SystemTime`, so their times can be passed as they are. Metrics, spans and inspection show the name as the label of the
    /// lock, unless the client [redacts](crate::LockClientBuilder::redact_keys) keys.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use rlock_core::{LockClient, once::Once};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// # let tick = SystemTime::now();
    /// let client = LockClient::in_memory();
    /// let report = client.once("report", tick).window(Duration::from_secs(600));
    /// for instance in ["first", "second"] {
    ///     match report.run(async { 6 * 7 }).await? {
    ///         Once::Ran(value) => assert_eq!((instance, value), ("first", 42)),
    ///         Once::Done | Once::Taken(_) => assert_eq!(instance, "second"),
    ///         Once::Missed => unreachable!("an alert: no instance has run the tick"),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn once(&self, name: impl Into<String>, tick: impl Into<SystemTime>) -> Job {
        let schedule = Schedule::new(tick.into());
        let name = escape(name.into()).to_string();
        // A retained lock would keep a tick that a failed run has freed.
        let lock = self.lock(format!("{name}:{schedule}"));
        let mut lock = lock.retain(Duration::ZERO);
        if self.key(lock.key()).is_ok_and(|key| !key.is_hidden()) {
            lock = lock.label(label(&name));
        }
        Job {
            lock,
            client: self.clone(),
            schedule,
            retry: false,
            again: false,
        }
    }
}

/// A handle to one tick of a job, from [`LockClient::once`]. It holds nothing.
#[derive(Clone, Debug)]
#[must_use = "a job does nothing until it runs"]
pub struct Job {
    client: LockClient,
    lock: Lock,
    schedule: Schedule,
    retry: bool,
    again: bool,
}

/// The outcome of a tick, from [`Job::run`].
#[derive(Debug)]
#[must_use = "a tick may be missed"]
pub enum Once<T> {
    /// This call ran the tick, and the body returned this value.
    Ran(T),
    /// Another call has run the tick. The record does not say which one.
    Done,
    /// Another call has the tick, and runs it now, unless its process has died.
    Taken(Box<LockInfo>),
    /// The window of the tick has ended, and the store has no record of a run: because no instance has run it, because
    /// its run failed with [`retry`](Job::retry), or because this call comes after the record has ended.
    Missed,
}

/// Whether a call is the one to run a tick, from [`Job::acquire`].
#[derive(Debug)]
#[must_use = "if unused, the tick counts as done"]
pub enum Claim {
    /// This call runs the tick, for as long as it has the guard.
    Granted(LockGuard),
    /// Same as [`Once::Done`].
    Done,
    /// Same as [`Once::Taken`].
    Taken(Box<LockInfo>),
    /// Same as [`Once::Missed`].
    Missed,
}

impl Job {
    /// Sets how long after the tick an instance may still begin to run it, by its own clock: 10 minutes by default.
    ///
    /// The window must exceed the difference between the clocks of any two instances, and be the same on all of them. It
    /// is between a second and 8 hours.
    pub fn window(mut self, window: Duration) -> Self {
        self.schedule.window = window;
        self
    }

    /// Sets the [lease](Lock::lease): with [`retry`](Self::retry), the time until another instance replaces one that has
    /// died. Without it, the store keeps the lock at least until two windows after the tick.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lock = self.lock.lease(lease);
        self
    }

    /// Lets another instance run the tick if its run fails, panics or is cancelled, or if its process dies. The run must
    /// be safe to repeat.
    ///
    /// Each call then waits until the tick is done or its window has ended, and an outage of the store is part of the
    /// wait. All instances have to make the same choice, and the lease has to be shorter than the window.
    pub fn retry(mut self) -> Self {
        self.retry = true;
        self
    }

    /// Runs the tick by hand, even if it is done or its window has ended, but not while another call runs it. It does not
    /// wait, even with [`retry`](Self::retry).
    pub fn again(mut self) -> Self {
        self.again = true;
        self
    }

    /// Returns the key of the tick's lock: the name, percent-encoded, and the tick, as in `report:2026-11-27T02:00:00Z`.
    #[must_use]
    pub fn key(&self) -> &str {
        self.lock.key()
    }

    /// Returns how long the store remembers a run: until 24 windows after the tick, but for 24 hours at most. If an
    /// instance asks later, it reports a tick as missed although it was run.
    #[must_use]
    pub fn memory(&self) -> Duration {
        self.schedule.memory()
    }

    /// Runs the future if this call is the first for its tick, with the lock of the tick as in [`Lock::run`]. Otherwise
    /// drops the future, and returns why it has not run.
    ///
    /// The [module](self) lists the outcomes of a run that fails. The returned future borrows only what `future`
    /// borrows, so it can be spawned.
    ///
    /// # Errors
    ///
    /// - [`LockError::Lost`] if the lock was lost: the future was dropped at its next await, or may have done its work
    ///   while another instance ran the tick.
    /// - [`LockError::Unavailable`] or [`LockError::Refused`] if the store did not reply, or refused the request; with
    ///   [`retry`](Self::retry), after the window.
    /// - [`LockError::InvalidOption`] for a window or a lease out of bounds, and for a tick that is more than its window
    ///   ahead or more than a year ago: it is a mistake, or this clock is wrong. [`LockError::InvalidKey`] for a name that
    ///   is too long. No request is sent.
    /// - [`LockError::Draining`] and [`LockError::Closed`] when the client drains or is shut down.
    ///
    /// # Panics
    ///
    /// Resumes a panic of the future after the lock is released.
    ///
    /// # Cancel safety
    ///
    /// Dropping the returned future before the run begins leaves the tick to other instances. After that, it drops the
    /// inner future, and the tick counts as done unless [`retry`](Self::retry) frees it.
    pub fn run<F: Future>(
        &self,
        future: F,
    ) -> impl Future<Output = Result<Once<F::Output>, LockError>> + use<F> {
        let claim = Call::claim(self.clone(), AcquiredFor::Body);
        async move {
            let entries = match claim.await? {
                Ok(entries) => entries,
                Err(NotRun::Done) => return Ok(Once::Done),
                Err(NotRun::Taken(info)) => return Ok(Once::Taken(info)),
                Err(NotRun::Missed) => return Ok(Once::Missed),
            };
            let ran = Lock::run_after(ready(Ok(entries)), future);
            ran.await.map(Once::Ran)
        }
    }

    /// Acquires the lock of the tick for work that is not a future, such as a program. The run ends with the guard.
    ///
    /// Without [`retry`](Self::retry), the tick then counts as done, even if the guard is
    /// [marked as failed](LockGuard::mark_failed).
    ///
    /// # Errors
    ///
    /// Same as [`run`](Self::run), except `Lost`, which [`LockGuard::release`] returns.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the tick to other instances.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::SystemTime;
    /// use rlock_core::{LockClient, once::Claim};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = LockClient::in_memory();
    /// let report = client.once("report", SystemTime::now()).retry();
    /// if let Claim::Granted(mut guard) = report.acquire().await? {
    ///     guard.mark_failed(); // the work has failed
    ///     guard.release().await?;
    /// }
    /// let next = report.acquire().await?;
    /// assert!(matches!(next, Claim::Granted(_)), "another instance may run it");
    /// # Ok(())
    /// # }
    /// ```
    pub fn acquire(&self) -> impl Future<Output = Result<Claim, LockError>> + Send + use<> {
        let claim = Call::claim(self.clone(), AcquiredFor::Guard);
        claim.map_ok(|claimed| match claimed {
            Ok(entries) => Claim::Granted(LockGuard::new(entries)),
            Err(NotRun::Done) => Claim::Done,
            Err(NotRun::Taken(info)) => Claim::Taken(info),
            Err(NotRun::Missed) => Claim::Missed,
        })
    }
}
