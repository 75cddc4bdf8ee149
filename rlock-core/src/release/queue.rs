//! What the background has to give back.

use std::{collections::VecDeque, pin::pin, sync::Arc};

use crate::{
    hold::Hold,
    sync::{Mutex, MutexGuard, Notify, PoisonError, atomic::Ordering},
};

/// The holds whose count at the store may differ from the one that is wanted, and those that need further
/// tokens. Each stands here once for either.
#[derive(Default)]
pub(crate) struct ReleaseQueue {
    state: Mutex<State>,
    pub(crate) wake: Notify,
    idle: Notify,
}

/// What the background has to do.
pub(crate) enum Work {
    /// Set the store's count right.
    Settle(Arc<Hold>),
    /// Reserve so many further tokens.
    Extend(Arc<Hold>, u64),
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Work>,
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
            state.waiting.push_back(Work::Settle(hold));
        }
        self.wake.notify_one();
    }

    /// Has further tokens reserved for an ownership in the background. Never blocks.
    pub(crate) fn extend(&self, hold: Arc<Hold>, tokens: u64) {
        {
            let mut state = self.state();
            if state.closed {
                return;
            }
            state.waiting.push_back(Work::Extend(hold, tokens));
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

    pub(crate) fn take(&self, room: usize) -> Vec<Work> {
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
