//! A clock that jumps, so that renewals are due and leases end without waiting.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use rlock_core::{__private::Clock, LockClient, LockClientBuilder};

use crate::common::LONG;

/// A lease that outlasts every limit of a test, so only a jump of the clock makes a renewal due or
/// ends the lease.
pub(crate) const HOUR: Duration = Duration::from_secs(60 * 60);

/// The clock of a machine that sleeps: its time jumps, while timers stand still.
pub(crate) struct Sleepy {
    started: Instant,
    jumped: AtomicU64,
}

impl Sleepy {
    /// Connects a client with a clock of its own, which the client reads once a second.
    pub(crate) async fn connect(url: &str) -> (Arc<Self>, LockClient) {
        Self::connect_as(crate::common::builder(), url).await
    }

    pub(crate) async fn connect_as(
        builder: LockClientBuilder,
        url: &str,
    ) -> (Arc<Self>, LockClient) {
        let clock = Arc::new(Self {
            started: Instant::now(),
            jumped: AtomicU64::new(0),
        });
        let builder = builder
            .clock(Arc::clone(&clock) as Arc<dyn Clock>)
            .connect_timeout(LONG)
            .default_lease(HOUR)
            .default_wait(LONG);
        let client = builder.connect(url).await;
        (clock, client.expect("the store is there"))
    }

    pub(crate) fn jump(&self, by: Duration) {
        let by = u64::try_from(by.as_nanos()).expect("less than centuries");
        self.jumped.fetch_add(by, Ordering::SeqCst);
    }
}

impl Clock for Sleepy {
    fn elapsed(&self) -> Duration {
        self.started.elapsed() + Duration::from_nanos(self.jumped.load(Ordering::SeqCst))
    }
}
