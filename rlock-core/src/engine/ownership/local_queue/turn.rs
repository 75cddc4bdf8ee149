//! The turn for a key, and how it goes from one caller to the next.

use std::{sync::Arc, time::Duration};

use super::{IDLE, LocalQueue, LocalQueues, Ownership, QueueState, Release};
use crate::{
    lease::Time,
    options::LockOptions,
    store::GRACE,
    sync::{MutexGuard, oneshot},
};

/// The right to ask the store for a key. Dropping it passes it to the next waiter, together with the current
/// ownership.
///
/// The turn of a call that is not polled is taken back. Such a turn has no effect.
pub(crate) struct Turn {
    member: Option<Member>,
    number: u64,
}

/// A caller's membership in a queue.
pub(super) struct Member {
    pub(super) queues: Arc<LocalQueues>,
    pub(super) queue: Arc<LocalQueue>,
}

impl Turn {
    fn member(&self) -> &Member {
        self.member
            .as_ref()
            .expect("only a turn that is dropped has no member")
    }

    pub(super) fn state(&self) -> MutexGuard<'_, QueueState> {
        self.member().queue.state()
    }

    /// Returns whether the turn was not taken back.
    pub(crate) fn is_current(&self) -> bool {
        self.state().turn == self.number
    }

    /// Notes that the current ownership was released, and that the turn is about to be passed on.
    pub(crate) fn mark_released(&self) {
        self.state().release = Release::Done;
    }

    /// Notes that the call with the turn waits for a report about this ownership.
    pub(crate) fn waits_for(&self, ownership: &Ownership) {
        let Member { queues, queue, .. } = self.member();
        if let Some(ask_at) = ownership.ask_at() {
            queue.acts_by(ask_at.max(queues.clock.now()) + IDLE);
        }
    }

    /// Notes that the call with the turn is being polled, and acts again within this time.
    pub(crate) fn acts_within(&self, time: Duration) {
        let Member { queues, queue, .. } = self.member();
        queue.acts_by(queues.clock.now() + time);
    }

    /// Notes that the call with the turn asks for the lock. If the call is not polled, a grant ends after the lease.
    pub(crate) fn asks(&self, timeout: Duration, lease: Duration) {
        self.acts_within(timeout + IDLE);
        let Member { queues, queue, .. } = self.member();
        queue.kept_until(queues.clock.now() + lease);
    }

    pub(crate) fn queues(&self) -> &Arc<LocalQueues> {
        &self.member().queues
    }

    /// Returns the ownership to use: the one that the caller before left, if it is usable, otherwise a fresh one.
    /// Returns `None` if the turn was taken back.
    pub(crate) fn ownership(
        &self,
        now: Time,
        fresh: impl FnOnce() -> Arc<Ownership>,
    ) -> Option<Arc<Ownership>> {
        self.acts_within(IDLE);
        // Only the caller with the turn replaces it.
        let present = self.state().current.clone();
        match present {
            Some(present) if !present.is_unusable(now) => self.is_current().then_some(present),
            unusable => {
                let fresh = fresh();
                let mut state = self.state();
                if state.turn != self.number {
                    return None;
                }
                state.current = Some(Arc::clone(&fresh));
                state.release = Release::None;
                // This belongs to the former ownership.
                state.wanted = false;
                drop(state);
                if let Some(unusable) = unusable
                    && unusable.give_up(|| true)
                {
                    self.queues().releases.settle(unusable);
                }
                Some(fresh)
            }
        }
    }

    /// Notes that this client received the lock from the store.
    pub(crate) fn arrived(&self, wanted: bool) {
        let most = self.queues().local_handovers;
        self.state().arrived(most, wanted);
    }

    /// Decides whether the next local waiter is served before other clients. Counts it if so.
    pub(crate) fn serves_next(&self, fits: impl FnOnce(&LockOptions) -> bool) -> bool {
        let mut state = self.state();
        let may = !state.wanted || state.handovers > 0;
        let serves = may
            && state
                .waiting
                .front()
                .is_some_and(|next| fits(&next.options));
        if serves {
            state.handovers = state.handovers.saturating_sub(1);
        }
        serves
    }

    /// Sets whether the ownership is retained.
    pub(crate) fn set_retained(&self, is_retained: bool) {
        self.state().is_retained = is_retained;
    }

    /// Returns whether nothing is retained: other clients wait for the lock, as far as is known, or the client drains.
    pub(crate) fn ends_retention(&self) -> bool {
        self.queues().ends_retention(&self.state())
    }

    /// Returns whether local callers wait for the lock.
    pub(crate) fn has_waiters(&self) -> bool {
        !self.state().waiting.is_empty()
    }

    /// Returns whether this is the current ownership.
    pub(crate) fn is_for(&self, ownership: &Ownership) -> bool {
        let state = self.state();
        let current = state.current.as_deref();
        current.is_some_and(|current| std::ptr::eq(current, ownership))
    }

    /// Replaces the ownership that is about to be released by the one to ask for on behalf of the next local waiter.
    /// Returns that one and the waiter's lease, or `None` without a waiter that may wait.
    pub(crate) fn next(
        &self,
        released: &Ownership,
        timeout: Duration,
        fresh: impl FnOnce(Duration) -> Arc<Ownership>,
    ) -> Option<(Arc<Ownership>, Duration)> {
        let mut state = self.state();
        let LockOptions { lease, wait, .. } = state.waiting.front()?.options;
        // The ownership of a turn that was taken back is another call's.
        if wait.is_none() || state.turn != self.number {
            return None;
        }
        let current = state.current.as_ref()?;
        if std::ptr::eq(&raw const **current, released) {
            state.current = Some(fresh(lease));
            // That waiter may leave, and an attempt still follows the release.
            state.release = Release::Done;
            // This belongs to the former ownership.
            state.wanted = false;
        }
        let next = state.current.clone()?;
        drop(state);
        // No turn is taken back during the request.
        self.acts_within(timeout + IDLE);
        Some((next, lease))
    }

    /// Passes the turn on after the current ownership has ended.
    pub(crate) fn ended(self) {
        // The ended ownership stays until the turn is passed on, because later calls follow its release.
        self.set_retained(false);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(member) = self.member.take() {
            member.pass_on(self.number);
        }
    }
}

impl Member {
    pub(super) fn turn(self, number: u64) -> Turn {
        Turn {
            number,
            member: Some(self),
        }
    }

    /// Takes the turn back from a call that is not polled. If that call has a lock that it does not use, the lock is
    /// released first.
    pub(super) fn take_back(self, current: Option<Arc<Ownership>>) {
        let (known, mut number) = (current.clone(), 0);
        let mut take = || {
            let mut state = self.queue.state();
            let is_same = match (&state.current, &known) {
                (Some(one), Some(other)) => Arc::ptr_eq(one, other),
                (None, None) => true,
                _ => false,
            };
            state.turn += u64::from(is_same);
            number = state.turn;
            is_same
        };
        let has_to_be_released = match &current {
            None => take().then_some(false),
            Some(current) => current.take_back(take),
        };
        match (has_to_be_released, current) {
            (Some(true), Some(current)) => self.pass_on_after_release(number, &current),
            (Some(_), _) => self.pass_on(number),
            (None, _) => {}
        }
    }

    /// Passes the turn on once this ownership, which was given up, is released.
    fn pass_on_after_release(self, number: u64, given_up: &Arc<Ownership>) {
        let queues = Arc::clone(&self.queues);
        given_up.keep_turn(self.turn(number));
        if !queues.releases.settle(Arc::clone(given_up)) {
            // The background has ended, and the lease ends the lock.
            drop(given_up.leave_turn());
        }
    }

    /// Passes the turn with this number to the next waiter, unless it was taken back. Without a waiter, gives the current
    /// ownership up.
    fn pass_on(mut self, number: u64) {
        loop {
            let next = {
                let mut state = self.queue.state();
                if state.turn != number {
                    return;
                }
                let next = state.waiting.pop_front();
                if next.is_some() {
                    state.release = Release::None;
                }
                next
            };
            let Some(next) = next else {
                match self.close(number) {
                    None => return,
                    Some(member) => self = member,
                }
                continue;
            };
            self.queue.acts_by(self.queues.clock.now() + GRACE);
            match next.turn.send(self.turn(number)) {
                Ok(()) => return,
                // The waiter has just given up.
                Err(mut turn) => match turn.member.take() {
                    Some(member) => self = member,
                    None => return,
                },
            }
        }
    }

    /// Removes the queue, unless its ownership has to be released first: attempts follow that release. Returns `self` if a
    /// waiter has come.
    fn close(self, number: u64) -> Option<Self> {
        let is_current = || self.queue.state().turn == number;
        let current = self.queue.current();
        if let Some(current) = current.filter(|current| current.give_up(is_current)) {
            self.queue.state().release = Release::GivenUp;
            self.pass_on_after_release(number, &current);
            return None;
        }
        let mut queues = self.queues.queues();
        let mut state = self.queue.state();
        if state.turn != number {
            return None;
        }
        if !state.waiting.is_empty() {
            drop(state);
            drop(queues);
            return Some(self);
        }
        queues.remove(&self.queue.key);
        let ended = state.current.take();
        drop(state);
        drop(queues);
        drop(ended);
        None
    }
}

/// A place in a queue. Dropping it leaves the queue.
pub(crate) struct Waiting {
    pub(super) member: Member,
    pub(super) place: u64,
    pub(super) turn: oneshot::Receiver<Turn>,
}

impl Waiting {
    /// Waits for the turn. Dropping the future leaves the queue.
    pub(crate) async fn turn(mut self) -> Turn {
        match (&mut self.turn).await {
            Ok(turn) => turn,
            // A waiter is only removed from the queue to be sent the turn.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // Places are in ascending order.
        let mut state = self.member.queue.state();
        if let Ok(at) = state
            .waiting
            .binary_search_by_key(&self.place, |waiter| waiter.place)
        {
            let waiter = state.waiting.remove(at);
            drop(state);
            drop(waiter);
        }
    }
}
