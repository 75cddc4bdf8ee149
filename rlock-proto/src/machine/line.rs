//! The calls of this client that want a key, in their order: the call with the turn, and those that wait for it.
//!
//! To the store, all calls of a client are one waiter. So one of them has the turn and asks, and the others wait in their order.
//! An *attempt* is a call that waits only until it is known who has the lock.
//!
//! The next call is *offered* the turn until it is polled, and gives it back if it lacks that of another key. So that calls cannot pass
//! their turns around forever, one that lacks several takes the turn from a younger call that was only offered it ("wound-wait",
//! Rosenkrantz et al., 1978).

use std::collections::VecDeque;

use smallvec::SmallVec;

use super::{CallId, Common};
use crate::{lease::Time, options::LockOptions, store::MOST_LET_IN};

/// The calls of this client that want to use a key, and whether other clients do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Line {
    turn: HasTurn,
    queue: VecDeque<Waiter>,
    /// How many calls of the queue are attempts.
    attempts: u32,
    /// Whether other clients wait for the lock, as far as is known.
    pub(super) others_wait: bool,
    /// When the latest request was sent to which the store replied who has the lock, or a hold of this client ended.
    pub(super) decided_at: Option<Time>,
    /// How many further calls are served before other clients are.
    handovers: usize,
}

/// Which call has the turn: it may ask the store, or has the lock and has not begun its hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
enum HasTurn {
    #[default]
    NoCall,
    /// It was taken out of the queue, and has not been polled since.
    Offered(Waiter),
    Used(CallId),
}

/// A call that waits for its turn.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Waiter {
    pub(super) call: CallId,
    /// The options of the call, with its mode for this key.
    pub(super) options: LockOptions,
    pub(super) since: Time,
    /// Whether the call waits no longer than until it is known who has the lock.
    pub(super) is_attempt: bool,
}

impl Line {
    /// Returns the call with the turn.
    pub(super) fn turn(&self) -> Option<CallId> {
        match &self.turn {
            HasTurn::NoCall => None,
            HasTurn::Offered(waiter) => Some(waiter.call),
            HasTurn::Used(call) => Some(*call),
        }
    }

    pub(super) fn has_turn(&self, call: CallId) -> bool {
        self.turn() == Some(call)
    }

    /// Returns whether a call waits for its turn.
    pub(super) fn is_queued(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Returns the number of calls that wait.
    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns the calls of the line.
    pub(super) fn calls(&self) -> impl Iterator<Item = CallId> {
        let waiters = self.queue.iter().map(|waiter| waiter.call);
        self.turn().into_iter().chain(waiters)
    }

    /// Returns the next call.
    pub(super) fn next(&self) -> Option<&Waiter> {
        self.queue.front()
    }

    /// Returns the largest number of permits that one of the next calls names, as a store does with its waiters.
    pub(super) fn most_named(&self) -> u32 {
        let next = self.queue.iter().take(MOST_LET_IN);
        let waiting = next.filter(|waiter| !waiter.is_attempt);
        let named = waiting.filter_map(|waiter| Some(waiter.options.mode.permits()?.1));
        named.max().unwrap_or(0)
    }

    /// Marks the turn, which no other call has, as used by this call.
    pub(super) fn set_turn(&mut self, call: CallId) {
        self.turn = HasTurn::Used(call);
    }

    /// Takes the turn from a younger call that was offered it, and puts that one back at the head of the queue. Returns whether it
    /// did.
    pub(super) fn take_offered_turn(&mut self, call: CallId) -> bool {
        match std::mem::take(&mut self.turn) {
            HasTurn::Offered(waiter) if waiter.call > call => {
                self.attempts += u32::from(waiter.is_attempt);
                self.queue.push_front(waiter);
                self.turn = HasTurn::Used(call);
                true
            }
            other => {
                self.turn = other;
                false
            }
        }
    }

    /// Offers the next call the turn, and returns the call.
    pub(super) fn offer_turn(&mut self) -> Option<CallId> {
        self.turn = HasTurn::Offered(self.remove(0)?);
        self.turn()
    }

    /// Ends the turn of a call that begins its hold.
    pub(super) fn begins(&mut self) {
        self.turn = HasTurn::NoCall;
    }

    /// Removes the next call from the queue.
    pub(super) fn remove_next(&mut self) {
        self.remove(0);
    }

    /// Returns whether an attempt waits.
    pub(super) fn has_attempts(&self) -> bool {
        self.attempts > 0
    }

    /// Takes the attempts out of the queue for which `is_meant` returns true.
    pub(super) fn take_attempts(
        &mut self,
        is_meant: impl Fn(&Waiter) -> bool,
    ) -> SmallVec<[CallId; 1]> {
        let (mut taken, mut at) = (SmallVec::new(), 0);
        while self.attempts > 0
            && let Some(waiter) = self.queue.get(at)
        {
            if waiter.is_attempt && is_meant(waiter) {
                taken.extend(self.remove(at).map(|waiter| waiter.call));
            } else {
                at += 1;
            }
        }
        taken
    }

    /// Makes a call that is not in the line wait behind the others.
    pub(super) fn wait(&mut self, call: CallId, options: LockOptions, since: Time) {
        debug_assert!(self.calls().all(|other| other != call), "{self:?}");
        let is_attempt = options.wait.is_none();
        self.attempts += u32::from(is_attempt);
        self.queue.push_back(Waiter {
            call,
            options,
            since,
            is_attempt,
        });
    }

    /// Turns a queued call whose wait has ended into an attempt.
    pub(super) fn attempt(&mut self, call: CallId) {
        let mut queue = self.queue.iter_mut();
        if let Some(waiter) = queue.find(|waiter| waiter.call == call)
            && !std::mem::replace(&mut waiter.is_attempt, true)
        {
            self.attempts += 1;
        }
    }

    /// Takes a call out of the line.
    pub(super) fn give_back(&mut self, call: CallId) {
        if self.has_turn(call) {
            self.turn = HasTurn::NoCall;
        } else if let Some(at) = self.queue.iter().position(|waiter| waiter.call == call) {
            self.remove(at);
        }
    }

    fn remove(&mut self, at: usize) -> Option<Waiter> {
        let waiter = self.queue.remove(at)?;
        self.attempts -= u32::from(waiter.is_attempt);
        Some(waiter)
    }

    /// Lets the calls that wait at this time come before the other clients, up to a limit, because the store granted the lock.
    pub(super) fn arrives(&mut self, others_wait: bool, cx: &Common) {
        let waiting = self.queue.len() - self.attempts as usize;
        self.handovers = waiting.min(cx.settings.local_handovers);
        self.others_wait |= others_wait;
    }

    /// Returns whether the next call comes before the other clients.
    pub(super) fn may_serve(&self) -> bool {
        !self.others_wait || self.handovers > 0
    }

    /// Uses up one of the calls that come before the other clients.
    pub(super) fn hands_over(&mut self) {
        self.handovers = self.handovers.saturating_sub(1);
    }
}
