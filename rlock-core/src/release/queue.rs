//! What the background has to give back.

use std::{collections::VecDeque, pin::pin, sync::Arc};

use crate::{
    hold::Hold,
    sync::{Mutex, MutexGuard, Notify, PoisonError, atomic::Ordering},
};

/// The holds whose count at the store may differ from the one that is wanted. As long as the
/// number of holds at most: each stands here once.
#[derive(Default)]
pub(crate) struct ReleaseQueue {
    state: Mutex<State>,
    pub(crate) wake: Notify,
    idle: Notify,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Arc<Hold>>,
    under_way: usize,
    /// Nobody works the queue any more.
    closed: bool,
}

impl State {
    fn is_idle(&self) -> bool {
        self.closed || self.under_way == 0 && self.waiting.is_empty()
    }
}

impl ReleaseQueue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the store's count for this hold set right in the background. Never blocks.
    pub(crate) fn push(&self, hold: Arc<Hold>) {
        if hold.queued.swap(true, Ordering::AcqRel) {
            return;
        }
        {
            let mut state = self.state();
            if state.closed {
                return;
            }
            state.waiting.push_back(hold);
        }
        self.wake.notify_one();
    }

    /// Leaves to its lease what is not released by now, or from now on.
    pub(crate) fn close(&self) {
        let left = {
            let mut state = self.state();
            state.closed = true;
            std::mem::take(&mut state.waiting)
        };
        drop(left);
        self.idle.notify_waiters();
    }

    pub(crate) fn take(&self, room: usize) -> Vec<Arc<Hold>> {
        let mut state = self.state();
        let n = room.min(state.waiting.len());
        state.under_way += n;
        let taken: Vec<_> = state.waiting.drain(..n).collect();
        for hold in &taken {
            // From here on a new push means another look, after this one.
            hold.queued.store(false, Ordering::Release);
        }
        taken
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

    /// Resolves when nothing is left to release.
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

/// Counts a background release as done, even if it panics.
pub(super) struct Done<'a>(pub(super) &'a ReleaseQueue);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.done();
    }
}
