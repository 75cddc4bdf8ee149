//! Calls that have the turn and are not being polled. The background takes their turns back.

use std::{sync::Arc, time::Duration};

use super::{LocalQueue, LocalQueues, Ownership};
use crate::{key::Key, lease::Time, store::GRACE, sync::atomic::Ordering};

/// How long a call with the turn may take until its next request, including its pauses after failures.
pub(super) const IDLE: Duration = GRACE.saturating_mul(2);

impl LocalQueue {
    pub(super) fn acts_by(&self, at: Time) {
        self.acts_by.store(at.nanos(), Ordering::Relaxed);
    }

    pub(super) fn kept_until(&self, at: Time) {
        self.kept_until.store(at.nanos(), Ordering::Relaxed);
    }

    /// Returns the current ownership, and how long its lock is kept for a call that has the turn and is not being
    /// polled. Returns `None` without such a call.
    fn unpolled(&self, now: Time) -> Option<(Option<Arc<Ownership>>, Duration)> {
        if self.acts_by.load(Ordering::Relaxed) >= now.nanos() {
            return None;
        }
        let current = self.current();
        if current.as_ref().is_some_and(|current| current.has_turn()) {
            return None;
        }
        let kept_until = Time::from_nanos(self.kept_until.load(Ordering::Relaxed));
        let reserved = current.as_ref().and_then(|own| own.reserved_until());
        let kept_until = reserved.map_or(kept_until, |until| until.max(kept_until));
        Some((current, kept_until.since(now)))
    }
}

impl LocalQueues {
    /// Returns how long the lock of this key is kept for a call that is not being polled. Returns `None` without such a
    /// call.
    pub(crate) fn unpolled(&self, key: &Key) -> Option<Duration> {
        let (_, kept_for) = self.queue(key)?.unpolled(self.clock.now())?;
        Some(kept_for)
    }

    /// Takes the turns back from calls that are not polled, if other calls wait for them. Returns whether calls wait.
    pub(crate) fn take_back_turns(self: &Arc<Self>) -> bool {
        self.is_watched.store(false, Ordering::Release);
        let queues: Vec<_> = {
            let queues = self.queues();
            let is_waited_for = |queue: &&Arc<_>| !LocalQueue::state(queue).waiting.is_empty();
            queues.values().filter(is_waited_for).cloned().collect()
        };
        let now = self.clock.now();
        for queue in &queues {
            if let Some((current, Duration::ZERO)) = queue.unpolled(now) {
                self.member(queue).take_back(current);
            }
        }
        if !queues.is_empty() {
            self.is_watched.store(true, Ordering::Release);
        }
        !queues.is_empty()
    }
}
