//! The count of entries on the store. Zero is the release.
//!
//! One request at a time changes it, and sends the count that is wanted then. So it corrects whatever an earlier one left.
//! The call that causes the change sends the first request, and the background any further ones.

use std::time::Duration;

use smallvec::SmallVec;

use super::{
    CallId,
    output::{Ask, Request},
};
use crate::{lease::Time, wait::Spread};

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Count {
    /// The last count that the store confirmed; `None` if another one has to be sent.
    pub(super) known: Option<u32>,
    /// A request without a reply may have set another count, or may yet.
    pub(super) is_in_doubt: bool,
    /// The request that is under way.
    flight: Option<Flight>,
    failures: u32,
    /// When the next attempt may be made.
    not_before: Time,
    /// Until when attempts are made.
    give_up: Option<Time>,
    pub(super) release: Release,
    /// The call that tries again to enter, and then sends the count.
    pub(super) retries: Option<CallId>,
    /// The calls that wait for the reply.
    pub(super) waiting: SmallVec<[CallId; 1]>,
}

/// A request that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Flight {
    request: u64,
    is_release: bool,
    /// Whether a call enters.
    is_enter: bool,
    /// The call that waits for the reply; `None` for the background.
    call: Option<CallId>,
    /// By when it has a reply.
    answered_by: Time,
}

/// The progress of the release.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Release {
    #[default]
    Unsent,
    /// A release that was sent within the lease may have been executed. Its reply was not received.
    InDoubt,
    Confirmed,
}

/// What has to be done about the count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Todo {
    Nothing,
    /// The request under way has no reply, and is not waited for.
    Abandon,
    /// This count has to be sent, within this time.
    Send(u32, Duration),
    /// Attempts failed until the lease ended.
    GiveUp,
}

impl Count {
    /// Returns whether the store is known to have this count.
    pub(super) fn is_settled(&self, count: u32) -> bool {
        self.known == Some(count) && !self.is_in_doubt && self.flight.is_none()
    }

    /// Returns the call whose request to enter is under way.
    pub(super) fn entering(&self) -> Option<CallId> {
        self.flight.filter(|flight| flight.is_enter)?.call
    }

    /// Notes that the call does not wait any more, or is about to wait again.
    pub(super) fn waits_no_more(&mut self, call: CallId) {
        self.waiting.retain(|waiting| *waiting != call);
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.flight.is_some()
    }

    /// Returns whether an attempt has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.failures > 0
    }

    /// Notes that a request is sent. An earlier one may still be executed before it.
    pub(super) fn sent(&mut self, request: &Request, answered_by: Time) {
        self.is_in_doubt |= self.flight.is_some();
        self.retries = None;
        self.flight = Some(Flight {
            request: request.number,
            is_release: matches!(request.what, Ask::Lower { count: 0, .. }),
            is_enter: matches!(request.what, Ask::Enter { .. }),
            call: request.call,
            answered_by,
        });
    }

    /// Notes that this request has ended. Returns `None` if another one was sent since.
    pub(super) fn ended(&mut self, request: u64) -> Option<()> {
        self.flight.take_if(|flight| flight.request == request)?;
        Some(())
    }

    /// Notes that the store has this count, while this many entries are present.
    pub(super) fn confirmed(&mut self, count: u32, entries: u32) {
        self.known = (count == entries).then_some(count);
        (self.is_in_doubt, self.failures) = (false, 0);
    }

    /// Notes that a request has failed. The next attempt follows after a pause.
    pub(super) fn failed(&mut self, maybe_executed: bool, now: Time, spread: Spread) {
        self.is_in_doubt |= maybe_executed;
        self.not_before = now + spread.after_failures(self.failures);
        self.failures += 1;
    }

    /// Begins the attempts of another count.
    pub(super) fn restart(&mut self, now: Time, give_up: Time) {
        self.failures = 0;
        (self.not_before, self.give_up) = (now, Some(give_up));
    }

    /// Makes no further attempt.
    pub(super) fn stop(&mut self, now: Time) {
        self.give_up = Some(now);
    }

    /// Forgets the request of a call, whose future may never be polled again. The background sends the count.
    pub(super) fn leave_to_background(&mut self, now: Time) {
        if self.flight.is_some_and(|flight| flight.call.is_some()) {
            self.abandon(now);
        }
    }

    /// Forgets the request under way.
    pub(super) fn abandon(&mut self, now: Time) {
        self.flight = None;
        self.failed(true, now, Spread::default());
    }

    /// Returns what the background has to do, if the store has to be told this count.
    pub(super) fn todo(&self, wanted: Option<u32>, is_release: bool, now: Time) -> Todo {
        // A release waits for no change of the count: a later change finds nothing.
        let is_superseded = |flight: &Flight| is_release && !flight.is_release;
        match self.flight {
            Some(flight) if is_superseded(&flight) => {}
            Some(flight) if now >= flight.answered_by => return Todo::Abandon,
            Some(_) => return Todo::Nothing,
            None => {}
        }
        let give_up = self.give_up.unwrap_or(Time::NEVER);
        match wanted {
            Some(_) if now >= give_up => Todo::GiveUp,
            Some(count) if now >= self.not_before => Todo::Send(count, give_up.since(now)),
            Some(_) | None => Todo::Nothing,
        }
    }

    /// Returns when the background has to look at it, if the store has to be told this count.
    pub(super) fn due(&self, wanted: Option<u32>) -> Time {
        match self.flight {
            Some(flight) => flight.answered_by,
            None => wanted.map_or(Time::NEVER, |_| self.not_before),
        }
    }
}
