//! What a client takes the time from.

use std::{
    sync::{Arc, LazyLock},
    time::{Duration, Instant, SystemTime},
};

use tokio::runtime::Handle;

use crate::lease::Time;

/// The clock of a Tokio runtime, which `tokio::time::pause` and `tokio::time::advance` control.
pub(crate) struct RuntimeClock(pub(crate) Handle);

impl Clock for RuntimeClock {
    fn elapsed(&self) -> Duration {
        // Clients of one store compare their times. A paused runtime may show an earlier time.
        static START: LazyLock<Instant> = LazyLock::new(|| {
            const DAY: Duration = Duration::from_secs(24 * 60 * 60);
            let now = Instant::now();
            now.checked_sub(DAY).unwrap_or(now)
        });
        let start = *START;
        let _entered = self.0.enter();
        let now = tokio::time::Instant::now().into_std();
        now.saturating_duration_since(start)
    }
}

/// A clock that never goes back, and goes on while the machine sleeps. For tests, which make it jump.
pub trait Clock: Send + Sync {
    /// The time since a moment that stays the same.
    fn elapsed(&self) -> Duration;
}

/// Returns the microseconds since the epoch: the lower bound of fencing tokens without a server.
pub(crate) fn wall_clock_micros() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |elapsed| {
            u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX)
        })
}

/// The clock of a client: the system's, unless it was given another.
#[derive(Clone, Default)]
pub(crate) struct ClientClock(Option<Arc<GivenClock>>);

/// Boxed, because every hold has the clock, and a thin pointer keeps holds small.
struct GivenClock(Arc<dyn Clock>);

impl ClientClock {
    pub(crate) fn given(clock: Arc<dyn Clock>) -> Self {
        Self(Some(Arc::new(GivenClock(clock))))
    }

    /// Returns whether it is the system's clock.
    pub(crate) fn is_system(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn now(&self) -> Time {
        match &self.0 {
            None => system(),
            Some(given) => Time::from(given.0.elapsed()),
        }
    }

    /// Resolves at `end`. Checks the clock once a second, because timers stand still during suspend.
    pub(crate) async fn sleep_until(&self, end: Time) {
        const CHECK_INTERVAL: Duration = Duration::from_secs(1);
        loop {
            let left = end.since(self.now());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(CHECK_INTERVAL)).await;
        }
    }
}

/// `std::time::Instant` stops during suspend on Linux, so that a lease which ended hours ago would
/// still look valid. `CLOCK_BOOTTIME` goes on.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn system() -> Time {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
    Time::from_nanos(seconds * 1_000_000_000 + nanos)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn system() -> Time {
    use std::sync::OnceLock;
    static START: OnceLock<Instant> = OnceLock::new();
    Time::from(START.get_or_init(Instant::now).elapsed())
}
