//! The clock by which a client counts leases and waits: the system's, Tokio's, or one that a test advances.

#[cfg(feature = "testing")]
mod ahead;

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};
#[cfg(feature = "testing")]
use std::{sync::LazyLock, time::Instant};

use rlock_proto::lease::Time;
#[cfg(feature = "testing")]
use tokio::runtime::Handle;

#[cfg(feature = "testing")]
pub use self::ahead::Clock;

/// The longest sleep. Timers stand still while the computer sleeps, leases do not.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// The clock of a client: the system's, unless a test gave it another.
#[derive(Clone, Default)]
pub(crate) struct ClientClock(Option<Arc<GivenClock>>);

/// A clock that a test controls. Boxed, because every hold has the clock, and a thin pointer keeps holds small.
pub(crate) enum GivenClock {
    /// The clock of a Tokio runtime, which `tokio::time::pause` and `tokio::time::advance` control.
    #[cfg(feature = "testing")]
    Tokio(Handle),
    #[cfg(feature = "testing")]
    Ahead(Clock),
    /// The clock of a Tokio runtime, and the seconds for which the computer slept while the timers stood still.
    #[cfg(test)]
    Slept(Handle, Arc<std::sync::atomic::AtomicU64>),
}

impl GivenClock {
    fn now(&self) -> Time {
        match *self {
            #[cfg(feature = "testing")]
            Self::Tokio(ref runtime) => Time::from(of_runtime(runtime)),
            #[cfg(feature = "testing")]
            Self::Ahead(ref clock) => clock.now(),
            #[cfg(test)]
            Self::Slept(ref runtime, ref slept) => {
                let slept = slept.load(std::sync::atomic::Ordering::SeqCst);
                Time::from(of_runtime(runtime) + Duration::from_secs(slept))
            }
        }
    }

    /// Returns what [`now`](Self::now) would return if no test had moved this clock.
    fn unmoved(&self) -> Time {
        match *self {
            #[cfg(feature = "testing")]
            Self::Tokio(_) => Time::from(START.elapsed()),
            #[cfg(feature = "testing")]
            Self::Ahead(_) => system(),
            #[cfg(test)]
            Self::Slept(..) => Time::from(START.elapsed()),
        }
    }
}

impl ClientClock {
    #[cfg(feature = "testing")]
    pub(crate) fn of_test(clock: GivenClock) -> Self {
        Self(Some(Arc::new(clock)))
    }

    pub(crate) fn now(&self) -> Time {
        self.0.as_ref().map_or_else(system, |clock| clock.now())
    }

    /// Returns the time of day: the system's, moved by as much as a test has moved this clock.
    pub(crate) fn time_of_day(&self) -> SystemTime {
        let Some(clock) = &self.0 else {
            return SystemTime::now();
        };
        let (now, unmoved) = (clock.now(), clock.unmoved());
        SystemTime::now() + now.since(unmoved) - unmoved.since(now)
    }

    /// Resolves at `end`.
    pub(crate) async fn sleep_until(&self, end: Time) {
        while self.now() < end {
            self.sleep_towards(end).await;
        }
    }

    /// Resolves at `end` or earlier: after the longest sleep, or when a test has moved the clock.
    pub(crate) async fn sleep_towards(&self, end: Time) {
        #[cfg(feature = "testing")]
        if let Some(GivenClock::Ahead(clock)) = self.0.as_deref() {
            return clock.sleep_towards(end).await;
        }
        tokio::time::sleep(end.since(self.now()).min(LONGEST_SLEEP)).await;
    }

    /// Returns whether times of both clocks can be compared.
    #[cfg(feature = "testing")]
    pub(crate) fn is_comparable_to(&self, other: &Self) -> bool {
        use GivenClock::{Ahead, Tokio};
        match (self.0.as_deref(), other.0.as_deref()) {
            (None, None) | (Some(Tokio(_)), Some(Tokio(_))) => true,
            (Some(Ahead(one)), Some(Ahead(other))) => one.is(other),
            (Some(one), Some(other)) => std::ptr::eq(one, other),
            _ => false,
        }
    }
}

/// A day before this process read its first clock, because a paused runtime may show an earlier time.
#[cfg(feature = "testing")]
static START: LazyLock<Instant> = LazyLock::new(|| {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    let now = Instant::now();
    now.checked_sub(DAY).unwrap_or(now)
});

/// Returns the time of a runtime since the same moment for all runtimes, because clients of one store compare theirs.
#[cfg(feature = "testing")]
fn of_runtime(runtime: &Handle) -> Duration {
    let start = *START;
    let _entered = runtime.enter();
    let now = tokio::time::Instant::now().into_std();
    now.saturating_duration_since(start)
}

/// Returns the microseconds since the epoch: the lower bound of fencing tokens without a server.
pub(crate) fn wall_clock_micros() -> u64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |elapsed| {
            u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX)
        })
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
    use std::{sync::OnceLock, time::Instant};
    static START: OnceLock<Instant> = OnceLock::new();
    Time::from(START.get_or_init(Instant::now).elapsed())
}
