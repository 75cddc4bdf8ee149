//! The lease of holds that are renewed together. As long as nothing sets one of them apart, a renewal
//! is noted here once and not at each of them: thousands of holds lie too far apart in memory to be
//! visited every time.

use std::time::Duration;

use crate::{
    lease::{Time, valid_until},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

pub(crate) struct SharedLease {
    /// Names the group among those that are due at the same time.
    pub(crate) id: u64,
    pub(crate) lease: Duration,
    confirmed_at: AtomicU64,
    spoilt: AtomicBool,
    /// When the group is due; changed by the watchdog's agenda alone.
    due: AtomicU64,
}

impl SharedLease {
    /// A lease that was confirmed to a request sent at that time.
    pub(crate) fn new(id: u64, lease: Duration, confirmed_at: Time, due: Time) -> Self {
        Self {
            id,
            lease,
            confirmed_at: AtomicU64::new(confirmed_at.nanos()),
            spoilt: AtomicBool::new(false),
            due: AtomicU64::new(due.nanos()),
        }
    }

    pub(crate) fn confirmed_at(&self) -> Time {
        Time::from_nanos(self.confirmed_at.load(Ordering::Acquire))
    }

    pub(crate) fn valid_until(&self) -> Time {
        valid_until(self.confirmed_at(), self.lease)
    }

    /// The store confirmed the lease of all to a request sent at `sent_at`. One that has ended is not
    /// brought back; says whether it had not.
    pub(crate) fn confirm(&self, sent_at: Time, now: Time) -> bool {
        let in_time = now < self.valid_until();
        if in_time {
            self.confirmed_at
                .fetch_max(sent_at.nanos(), Ordering::AcqRel);
        }
        in_time
    }

    /// One of the holds changed: what all had in common need not be so any more.
    pub(crate) fn spoil(&self) {
        self.spoilt.store(true, Ordering::Release);
    }

    pub(crate) fn is_spoilt(&self) -> bool {
        self.spoilt.load(Ordering::Acquire)
    }

    pub(crate) fn due(&self) -> Time {
        Time::from_nanos(self.due.load(Ordering::Acquire))
    }

    pub(crate) fn set_due(&self, due: Time) {
        self.due.store(due.nanos(), Ordering::Release);
    }
}
