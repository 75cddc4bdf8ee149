//! What the store shows of a hold: the count of its entries, or that it shares its lock. No call waits for that.
//!
//! The background sends it, one request at a time for an owner, and each request says what the store should show by then. So it
//! corrects whatever an earlier one left, and entries that leave soon cost no request.

use std::time::Duration;

use super::{
    Context, Owner,
    input::Failure,
    output::{Ask, Claimed, Output, Request},
    slot::Slot,
};
use crate::{few::one, lease::Time, mode::LockMode, store::Applied, wait::Spread};

/// How long a count is kept back, because most nested calls leave sooner.
const SOON: Duration = Duration::from_millis(20);

/// What the store shows of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Shown {
    /// The number of entries in an exclusive lock.
    Count(u32),
    /// The owner has no count, because it tolerates other holders.
    Shared,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Count {
    /// `None` if a request without a reply may have changed it.
    shown: Option<Shown>,
    flight: Option<Flight>,
    failures: u32,
    /// When the next request may be sent.
    not_before: Time,
}

/// A request that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Flight {
    request: u64,
    shows: Shown,
    sent_at: Time,
}

impl Count {
    /// Returns the count of an owner that the store grants a lock in this mode.
    pub(super) fn new(mode: LockMode) -> Self {
        Self {
            shown: Some(match mode {
                LockMode::Exclusive => Shown::Count(1),
                LockMode::Shared | LockMode::Permits(_) => Shown::Shared,
            }),
            flight: None,
            failures: 0,
            not_before: Time::default(),
        }
    }

    /// Returns whether the store is known to show this.
    pub(super) fn is_told(&self, shows: Shown) -> bool {
        self.shown == Some(shows) && self.flight.is_none()
    }

    /// Notes that an entry comes or has left. The client tells the store soon, and before the rest of the lease ends, because
    /// nothing else may extend it.
    pub(super) fn changes(&mut self, now: Time, left: Duration) {
        if now >= self.not_before {
            self.not_before = now + SOON.min(left / 2);
        }
    }

    /// Notes that the owner has changed its mode. The client tells the store at once, because others may join.
    pub(super) fn is_urgent(&mut self, now: Time) {
        self.not_before = now;
    }

    /// Returns when the store has to be told this.
    pub(super) fn due(&self, shows: Shown) -> Time {
        let is_idle = self.flight.is_none() && self.shown != Some(shows);
        if is_idle {
            self.not_before
        } else {
            Time::NEVER
        }
    }

    /// Makes the next request follow after a pause, which grows with the number of failures.
    fn pause(&mut self, now: Time, spread: Spread) {
        self.not_before = now + spread.after_failures(self.failures);
        self.failures += 1;
    }
}

impl Slot {
    /// Makes the background tell the store what it should show of this owner.
    pub(super) fn show(&mut self, owner: Owner, cx: &mut Context) {
        let (now, counts) = (cx.now, cx.settings.counts_entries);
        let key = self.key.clone();
        let Some(own) = self.find_mut(owner) else {
            return;
        };
        let Some(shows) = own.shows(counts) else {
            return;
        };
        let number = cx.number();
        let what = match shows {
            Shown::Count(count) => Ask::SetCount {
                count,
                lease: own.lease.full,
            },
            Shown::Shared => Ask::Downgrade {
                fence: own.fence_to_pass(cx),
            },
        };
        let claim = Claimed {
            key,
            owner,
            mode: own.mode,
            in_doubt: own.requests.is_in_doubt() || own.count.shown.is_none(),
            arrives: false,
        };
        own.count.flight = Some(Flight {
            request: number,
            shows,
            sent_at: now,
        });
        cx.outputs.push(Output::Send(Box::new(Request {
            number,
            call: None,
            claims: one(claim),
            what,
            timeout: own.left(now).min(cx.settings.response_timeout),
        })));
    }

    /// Applies the reply to a request that told the store what to show.
    ///
    /// A lock that the store does not have may be lost. The renewal decides that, which is due at once then, because a quorum may be
    /// about to restore the lock at some of its members.
    pub(super) fn shown(
        &mut self,
        request: &Request,
        reply: Result<Applied, Failure>,
        cx: &mut Context,
    ) {
        let (now, spread) = (cx.now, cx.spread());
        let Some(own) = self.find_mut(request.claims[0].owner) else {
            return;
        };
        let is_meant = |flight: &mut Flight| flight.request == request.number;
        let Some(flight) = own.count.flight.take_if(is_meant) else {
            return;
        };
        match reply {
            Ok(Applied::Done) => {
                (own.count.shown, own.count.failures) = (Some(flight.shows), 0);
                if let Ask::SetCount { lease, .. } = request.what {
                    own.kept(flight.sent_at, lease, now);
                }
            }
            Ok(Applied::NotHeld) => {
                own.count.shown = None;
                own.count.pause(now, spread);
                own.doubt(true, now);
            }
            // The store would refuse it again.
            Err(failure) if !failure.transient => own.count.shown = Some(flight.shows),
            Err(failure) => {
                own.count.shown.take_if(|_| failure.maybe_executed);
                own.count.pause(now, spread);
            }
        }
    }
}
