//! When a lock is released on the store, and until when a release without a reply is repeated. The call that ends it
//! sends the first request, and the background any further ones, until the lease has ended the lock at the store.
//!
//! If the store refuses a release for good, the client gives it up, but remembers the owner until the lease ends: a message may
//! show that the store has the owner in its wait queue, and then the client releases it again, with its fence.

use std::time::Duration;

use super::{Ownership, Phase, tries::Tries};
use crate::{
    few::one,
    key::Key,
    lease::Time,
    lost::LostCause,
    machine::{
        CallId, Common, SlotId,
        doubt::{Answer, Asked},
        input::Failure,
        output::{Ask, Output, Request},
        patience::IDLE,
    },
    store::Applied,
    wait::Spread,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::machine) struct Release {
    progress: Progress,
    /// When the lease ends at the store. From then on the background sends no release.
    until: Time,
    /// The call that waits for the next try.
    pub(in crate::machine) waiting: Option<CallId>,
    /// Whether a hold ended with the ownership. Only such a release can find a loss.
    ends_hold: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Progress {
    /// The store may still have the lock.
    Due,
    /// The store refuses the release for good, and may still have the lock.
    GivenUp,
    /// The store does not have the lock.
    Done,
    /// A holder has detached the lock, which its token now releases. The machine remembers the owner until the lease ends,
    /// because otherwise a late message about the grant would release the lock.
    Detached,
}

impl Release {
    fn new(ends_hold: bool, until: Time) -> Self {
        Self {
            progress: Progress::Due,
            until,
            waiting: None,
            ends_hold,
        }
    }

    /// Returns whether no further try follows, because the store does not have the lock.
    pub(in crate::machine) fn is_done(&self) -> bool {
        self.progress == Progress::Done
    }

    /// Returns when the background has to look at it.
    pub(super) fn due(&self, tries: &Tries) -> Time {
        match self.progress {
            _ if tries.is_under_way() => tries.due(),
            Progress::Due => tries.due().min(self.until),
            Progress::GivenUp | Progress::Detached => self.until,
            Progress::Done => Time::NEVER,
        }
    }

    /// Returns whether no request is under way, and none will be.
    pub(super) fn is_over(&self, tries: &Tries, now: Time) -> bool {
        let is_over = match self.progress {
            Progress::Due => false,
            Progress::GivenUp | Progress::Detached => now >= self.until,
            Progress::Done => true,
        };
        is_over && !tries.is_under_way()
    }
}

impl Ownership {
    /// Ends the ownership, which is released from then on.
    pub(in crate::machine) fn end(&mut self, now: Time) {
        let ends_hold = self.phase() == Phase::Held;
        self.tries = Tries::from(now);
        let release = Release::new(ends_hold, self.lease.longest_end(now));
        self.status.end(release);
    }

    /// Returns its release, once it has ended.
    pub(in crate::machine) fn release_mut(&mut self) -> Option<&mut Release> {
        self.status.release_mut()
    }

    /// Ends the ownership without a release. Returns the token by which the store knows the lock. The store compares its fence
    /// only, and a renewal may have set a new one since the hold began.
    pub(in crate::machine) fn detach(&mut self, now: Time) -> u64 {
        let token = self.token().unwrap_or_default();
        let token = self.tokens.of_last_fence(token);
        self.end(now);
        if let Some(release) = self.status.release_mut() {
            release.progress = Progress::Detached;
        }
        token
    }

    /// Returns whether it is being released, and the store may still have the lock.
    #[must_use]
    pub fn is_releasing(&self) -> bool {
        let release = self.status.release();
        release.is_some_and(|release| release.progress == Progress::Due)
    }

    /// Releases it once more, because the store may have granted it the lock or queued it after its release was executed or
    /// given up.
    pub(in crate::machine) fn release_again(&mut self, now: Time) {
        let until = self.lease.longest_end(now);
        if let Some(release) = self.status.release_mut()
            && matches!(release.progress, Progress::GivenUp | Progress::Done)
        {
            // The outcome of its hold is known, so this release finds no loss.
            *release = Release::new(false, until);
            self.tries = Tries::from(now);
        }
    }

    /// Makes the tries at its release last until this time at least.
    pub(in crate::machine) fn release_until(&mut self, least: Time) {
        if let Some(release) = self.status.release_mut() {
            release.until = release.until.max(least);
        }
    }

    /// Leaves its release to the background if the request of a call is under way, whose future may never be polled again.
    /// Returns when that was sent.
    pub(in crate::machine) fn pass_release_on(&mut self, now: Time) -> Option<Time> {
        let sent_at = self
            .status
            .release()
            .and_then(|_| self.tries.forget_call(now))?;
        self.doubt.answered(Asked::Release, Answer::Missing, now);
        Some(sent_at)
    }

    /// Returns the request that releases it. `by`: the call that sends it, and when it gives up.
    pub(in crate::machine) fn release(
        &mut self,
        slot: SlotId,
        key: Key,
        rest: Duration,
        by: Option<(CallId, Time)>,
        cx: &mut Common,
    ) -> Option<Box<Request>> {
        let (call, waits_until) = by.map_or((None, Time::NEVER), |(call, at)| (Some(call), at));
        let (now, number) = (cx.now, cx.number());
        let timeout = rest.min(cx.settings.response_timeout);
        let what = Ask::Release {
            fence: self.fence_to_pass(cx),
            min_hold: self.min_hold(now),
            was_held: self.hold().is_some(),
            held: self.valid_until(now).map(|_| ()),
            waits_until,
        };
        let answered_by = call.map_or(Time::NEVER, |_| now + timeout + IDLE);
        self.status.release()?;
        self.tries.sent(number, now, answered_by);
        Some(Box::new(Request {
            number,
            call,
            claims: one(self.claimed(Asked::Release, slot, key, false)),
            what,
            timeout,
        }))
    }

    /// Returns how long the background may still release it, or zero.
    pub(in crate::machine) fn release_rest(&self, now: Time) -> Duration {
        let release = self.status.release();
        release.map_or(Duration::ZERO, |release| release.until.since(now))
    }

    /// Ends the tries at its release, because the lease has ended the lock. Returns the report if one has failed.
    pub(in crate::machine) fn stop_releasing(&mut self, key: Key) -> Option<Output> {
        self.status.release_mut()?.progress = Progress::Done;
        self.tries.have_failed().then(|| self.given_up(key))
    }

    /// Gives its release up, because the store refuses it for good. Returns the report.
    pub(in crate::machine) fn give_up(&mut self, key: Key) -> Option<Output> {
        self.status.release_mut()?.progress = Progress::GivenUp;
        Some(self.given_up(key))
    }

    /// Ends the try with this request. Returns `None` if it is not the one under way.
    pub(in crate::machine) fn release_answered(&mut self, request: u64) -> Option<()> {
        self.status.release()?;
        self.tries.answered(request).map(|_| ())
    }

    /// Makes the next try at its release follow after a pause.
    pub(in crate::machine) fn release_failed(
        &mut self,
        failure: Failure,
        now: Time,
        spread: Spread,
    ) {
        self.tries.failed(now, spread);
        self.doubt.answered(Asked::Release, failure.into(), now);
    }

    /// Applies that the store has executed its release. Returns the outcome of its hold.
    pub(in crate::machine) fn released(
        &mut self,
        applied: Applied,
        was_valid: bool,
        now: Time,
    ) -> Result<(), LostCause> {
        let Some(release) = self.status.release_mut() else {
            return Ok(());
        };
        release.progress = Progress::Done;
        // A missing lock is a loss only if a hold ended with the ownership, the hold was valid when the release was sent, and no
        // earlier release may have taken the lock.
        let may_be_lost = release.ends_hold && was_valid;
        self.doubt.answered(Asked::Release, Answer::HasNot, now);
        match applied {
            Applied::NotHeld if may_be_lost => {
                Err(self.timed_out(now).unwrap_or(LostCause::Removed))
            }
            Applied::NotHeld | Applied::Done => Ok(()),
        }
    }

    /// Returns the last known fence, if the store may lack it or forget it soon, or 0.
    pub(super) fn fence_to_pass(&self, cx: &Common) -> u64 {
        // Other members of a quorum may lack the fence.
        let is_needed =
            cx.settings.needs_majority || self.tokens.may_be_forgotten(self.mode, cx.now);
        if is_needed { self.tokens.fence() } else { 0 }
    }

    /// Returns how long the lock stays taken after its release.
    pub(super) fn min_hold(&self, now: Time) -> Duration {
        let until = self.hold().and_then(|hold| hold.min_hold_until);
        until.map_or(Duration::ZERO, |until| until.since(now))
    }

    /// Reports that its release was given up.
    fn given_up(&self, key: Key) -> Output {
        Output::GaveUp {
            key,
            owner: self.owner,
            mode: self.mode,
            was_held: self.hold().is_some(),
        }
    }
}
