//! A clock that a test advances, and the waits that this ends.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use rlock_proto::lease::Time;
use tokio::{sync::watch, time::sleep};

use super::{LONGEST_SLEEP, system};

/// A clock that goes on like the system's, and that a test can advance. [`use_clock`](crate::testing::use_clock) gives
/// it to a client.
///
/// Leases, waits, renewals, `min_hold`, `max_hold` and the windows of [ticks](crate::once) go by this clock, on any runtime
/// and for blocking calls, too.
/// What guards against a server that does not reply goes by the timers of the system: the time-outs of connections and
/// requests, and the pauses before another attempt to connect.
///
/// Clones are the same clock.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use rlock_core::{LockClient, LostCause, testing};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), rlock_core::LockError> {
/// let clock = testing::Clock::new();
/// let client = testing::use_clock(LockClient::builder(), &clock).in_memory()?;
/// let lock = client.lock("order:42").lease(Duration::from_secs(30));
///
/// let first = lock.acquire().await?;
/// clock.advance(Duration::from_secs(30));
/// assert!(!first.is_valid());
/// assert_eq!(first.lost().await, LostCause::Expired);
///
/// let second = lock.acquire().await?;
/// assert!(second.is_valid());
/// # second.release().await
/// # }
/// ```
#[derive(Clone)]
pub struct Clock(Arc<Shared>);

struct Shared {
    /// By how many nanoseconds it is ahead of the system's clock.
    ahead: AtomicU64,
    advanced: watch::Sender<()>,
}

impl Clock {
    /// Makes a clock that shows the system's time.
    #[must_use]
    pub fn new() -> Self {
        Self(Arc::new(Shared {
            ahead: AtomicU64::new(0),
            advanced: watch::Sender::new(()),
        }))
    }

    /// Moves the clock forward, and wakes the clients that have it.
    ///
    /// The time passes in one jump, as it does for a process that was paused for so long. So a lock whose lease is not
    /// longer ends with [`LostCause::Expired`](crate::LostCause::Expired), even one that the client would have renewed.
    /// After a shorter jump, the client renews the lock if that has become due.
    ///
    /// The clients act in the background, so wait for what they do: for [`lost`](crate::Hold::lost), or
    /// for the result of the call.
    pub fn advance(&self, by: Duration) {
        self.suspend(by);
        self.0.advanced.send_replace(());
    }

    /// Moves the clock forward like a computer that sleeps, without waking the clients. They notice when their timers
    /// fire, which takes up to a second.
    ///
    /// Until then, a lock whose lease has ended is not [valid](crate::Hold::is_valid), but the loss is not
    /// reported. Use it to test code that checks the validity before it writes.
    pub fn suspend(&self, by: Duration) {
        let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        let add = |ahead: u64| Some(ahead.saturating_add(by));
        let _ = (self.0.ahead).fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
    }

    pub(super) fn now(&self) -> Time {
        system() + Duration::from_nanos(self.0.ahead.load(Ordering::Acquire))
    }

    /// Returns whether both are the same clock.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Resolves at `end`, when the clock advances, or after the longest sleep of a timer.
    pub(super) async fn sleep_towards(&self, end: Time) {
        let mut advanced = self.0.advanced.subscribe();
        // Read after the subscription, so that no advance in between goes unnoticed.
        let remaining = end.since(self.now());
        tokio::select! {
            _ = advanced.changed() => {}
            () = sleep(remaining.min(LONGEST_SLEEP)) => {}
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tokio::{join, task::yield_now, time::Instant};

    use super::*;
    use crate::clock::{ClientClock, GivenClock};

    const HOUR: Duration = Duration::from_secs(60 * 60);

    /// Returns how much time of the timers passes until an hour of the clock has passed.
    async fn slept(moves: impl FnOnce(&Clock)) -> Duration {
        let clock = Clock::new();
        let of_client = ClientClock::of_test(GivenClock::Ahead(clock.clone()));
        let started = Instant::now();
        let sleeping = of_client.sleep_until(of_client.now() + HOUR);
        let moving = async {
            yield_now().await;
            moves(&clock);
        };
        join!(sleeping, moving);
        started.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn an_advance_wakes_at_once_and_a_suspend_when_the_timer_fires() {
        assert_eq!(slept(|clock| clock.advance(HOUR)).await, Duration::ZERO);
        assert_eq!(slept(|clock| clock.suspend(HOUR)).await, LONGEST_SLEEP);
    }
}
