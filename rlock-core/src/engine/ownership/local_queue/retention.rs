//! Retained ownerships, and the clients that want them.

use std::sync::Arc;

use super::{LocalQueue, LocalQueues, QueueState};
use crate::{key::Key, owner::OwnerId, sync::atomic::Ordering};

impl LocalQueues {
    /// Notes that other clients wait for the lock of this owner.
    pub(crate) fn wanted(&self, key: &Key, owner: OwnerId) {
        let Some(queue) = self.queue(key) else {
            return;
        };
        let retained = {
            let mut state = queue.state();
            if state.current.as_ref().is_none_or(|own| own.owner != owner) {
                return;
            }
            state.wanted = true;
            state.take_retained()
        };
        if let Some(ownership) = retained {
            ownership.end_retention();
        }
    }

    /// Checks an ownership after it was retained or its extension ended. Local callers or other clients may have asked
    /// for it just before.
    pub(crate) fn check_retained(&self, key: &Key) {
        let Some(queue) = self.queue(key) else {
            return;
        };
        let (retained, ends) = {
            let mut state = queue.state();
            let ends = self.ends_retention(&state);
            if state.waiting.is_empty() && !ends {
                return;
            }
            (state.take_retained(), ends)
        };
        match retained {
            Some(ownership) if ends => {
                ownership.end_retention();
            }
            Some(ownership) => drop(ownership.resume()),
            None => {}
        }
    }

    /// Returns whether the ownership of this queue is not retained: other clients wait for its lock, or the client
    /// drains.
    pub(super) fn ends_retention(&self, state: &QueueState) -> bool {
        state.wanted || self.is_draining()
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// Ends all retentions, and retains nothing any more. The ownerships are released in the background.
    pub(crate) fn drain(&self) {
        // The flag comes first: an ownership that is retained later is checked against it. Flag and count of calls are
        // sequentially consistent: a call sees the flag, or the end of the drain waits for that call.
        self.draining.store(true, Ordering::SeqCst);
        let queues: Vec<_> = self.queues().values().cloned().collect();
        let take = |queue: &Arc<LocalQueue>| queue.state().take_retained();
        for ownership in queues.iter().filter_map(take) {
            ownership.end_retention();
        }
    }
}
