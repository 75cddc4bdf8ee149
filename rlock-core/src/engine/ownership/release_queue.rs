//! The release queue: releases that the background sends.

use std::{collections::VecDeque, pin::pin, sync::Arc};

use super::Ownership;
use crate::metrics::PendingRelease;
use crate::sync::{Mutex, MutexGuard, Notify, PoisonError, atomic::Ordering};

/// A queue of ownerships whose count on the store may be wrong. Each ownership is queued at most once.
#[derive(Default)]
pub(crate) struct ReleaseQueue {
    state: Mutex<ReleaseQueueState>,
    pub(crate) wake: Notify,
    idle: Notify,
}

/// An ownership in the queue.
pub(crate) type Queued = (Arc<Ownership>, PendingRelease);

#[derive(Default)]
struct ReleaseQueueState {
    waiting: VecDeque<Queued>,
    under_way: usize,
    /// The background has ended.
    closed: bool,
}

impl ReleaseQueueState {
    fn is_idle(&self) -> bool {
        self.closed || self.under_way == 0 && self.waiting.is_empty()
    }
}

impl ReleaseQueue {
    fn state(&self) -> MutexGuard<'_, ReleaseQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a correction of the store's count for this ownership. Never blocks.
    /// Returns `false` if the background has ended.
    pub(crate) fn settle(&self, ownership: Arc<Ownership>) -> bool {
        let is_new = !ownership.queued.swap(true, Ordering::AcqRel);
        {
            let mut state = self.state();
            if state.closed {
                return false;
            }
            if is_new {
                let pending = PendingRelease::begin();
                state.waiting.push_back((ownership, pending));
            }
        }
        self.wake.notify_one();
        true
    }

    /// Closes the queue. Ownerships that are not released by now end with their lease.
    pub(crate) fn close(&self) {
        let left = {
            let mut state = self.state();
            state.closed = true;
            std::mem::take(&mut state.waiting)
        };
        drop(left);
        self.idle.notify_waiters();
    }

    pub(crate) fn take(&self, room: usize) -> Vec<Queued> {
        let mut state = self.state();
        let n = room.min(state.waiting.len());
        state.under_way += n;
        state.waiting.drain(..n).collect()
    }

    fn done(&self) {
        let idle = {
            let mut state = self.state();
            state.under_way -= 1;
            state.is_idle()
        };
        if idle {
            self.idle.notify_waiters();
        }
    }

    /// Resolves when nothing is left to do.
    pub(crate) async fn idle(&self) {
        loop {
            let mut idle = pin!(self.idle.notified());
            idle.as_mut().enable();
            if self.state().is_idle() {
                return;
            }
            idle.await;
        }
    }
}

/// Counts background work as done, even if it panics.
pub(crate) struct Done<'a>(pub(crate) &'a ReleaseQueue);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.done();
    }
}
