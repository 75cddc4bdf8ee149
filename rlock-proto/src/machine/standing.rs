//! What the store last said of an owner (absent, waiting, granted), and when to ask it again.

use std::time::Duration;

use super::output::By;
use crate::{
    lease::Time,
    store::{Asks, BETWEEN_PROBES, Grant, QueuePlace},
    wait::Spread,
};

/// The longest sleep of a waiter that the store notifies: the delay after a lost notification.
const LONGEST_SLEEP: Duration = Duration::from_secs(5);
/// The same limit for the first waiter, if the store does not report that a lock became free
/// without a release. One process asks for each key. A shorter sleep would lose more locks to
/// unseen replies: the store keeps such a lock for a whole lease.
const LONGEST_UNWATCHED_SLEEP: Duration = Duration::from_secs(2);
/// The shortest time between two requests of a waiter that is notified of changes. Most changes are
/// renewals, which come every few milliseconds if leases are short.
const BETWEEN_CHANGES: Duration = Duration::from_millis(500);

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Standing {
    known: Known,
    /// The lock was not granted before this time. `None` before the first request.
    not_before: Option<Time>,
    /// Grants with this fence, or a smaller one, have ended.
    past_fence: u64,
    /// When to ask again, by a notification since the latest request was about to be sent. The reply may arrive
    /// after the notification.
    advised: Option<Time>,
    /// Another client has changed the lock since the latest request was about to be sent.
    changed: bool,
    /// How the ownership came to its next caller.
    by: By,
    /// Whether the store told it to ask again.
    told: bool,
    /// How often the owner has asked in vain while the store cannot notify it.
    polls: u32,
}

/// What the store last said about the owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Known {
    /// The store does not know the owner.
    #[default]
    Absent,
    /// `ask_at`: when to ask again without a notification. `queued`: the place in the store's wait queue.
    Waiting {
        ask_at: Time,
        queued: Option<QueuePlace>,
    },
    /// The owner may have the lock, although the store refused its request. It asks again at once, because a grant that it knew
    /// may have ended.
    Unclear,
    Granted(Grant),
}

impl Standing {
    /// Begins a request, which ends what earlier notifications advised.
    pub(super) fn asks(&mut self, now: Time) {
        let was_told = std::mem::take(&mut self.told);
        self.by = match self.known {
            Known::Absent | Known::Granted(_) => By::Release,
            Known::Waiting { .. } | Known::Unclear if was_told => By::Message,
            Known::Waiting { .. } | Known::Unclear => By::Timer,
        };
        (self.advised, self.changed) = (None, false);
        self.not_before.get_or_insert(now);
    }

    /// Applies the reply that another owner had the lock at `since`, for `ttl`.
    pub(super) fn refused(
        &mut self,
        since: Time,
        ttl: Option<Duration>,
        queued: Option<QueuePlace>,
        (now, spread): (Time, Spread),
    ) {
        let asks = queued.map_or(Asks::Late, |place| place.asks);
        let is_unwatched = queued.is_some_and(|place| place.first && !place.watched);
        let most = if asks == Asks::Polling {
            self.polls = self.polls.saturating_add(1);
            spread.after_failures(self.polls)
        } else if asks == Asks::Probing {
            BETWEEN_PROBES
        } else if is_unwatched {
            LONGEST_UNWATCHED_SLEEP
        } else {
            LONGEST_SLEEP
        };
        let ask_at = match self.known {
            // The message of the grant overtook this reply.
            Known::Granted(grant) if queued.is_some() && grant.is_fresh(grant.ttl, now) => {
                return;
            }
            Known::Granted(_) => now,
            Known::Absent | Known::Waiting { .. } | Known::Unclear => {
                now + spread.fallback(ttl, most)
            }
        };
        let ask_at = ask_at.min(self.advised.take().unwrap_or(ask_at));
        self.not_before = Some(since);
        self.known = Known::Waiting { ask_at, queued };
        self.ask_after_change();
    }

    /// Applies the reply that neither granted the lock nor queued the owner.
    pub(super) fn not_granted(&mut self, since: Time) {
        match self.known {
            Known::Absent | Known::Waiting { queued: None, .. } => {
                self.known = Known::Absent;
            }
            // The owner may still have its place.
            Known::Waiting { .. } | Known::Unclear | Known::Granted(_) => {
                self.wait_behind(since);
            }
        }
    }

    /// Applies the reply that the owner may have the lock, although its request was refused.
    pub(super) fn unclear(&mut self) {
        self.known = Known::Unclear;
    }

    /// Ends the grant: at `since`, the owner had none, and may have a place in the store's wait queue.
    fn wait_behind(&mut self, since: Time) {
        self.not_before = Some(since);
        self.known = Known::Waiting {
            ask_at: since,
            queued: Some(QueuePlace::BEHIND),
        };
    }

    /// Notes the store's fence at the time of a refusal. Messages about earlier grants are ignored.
    pub(super) fn note_fence(&mut self, fence: u64) {
        self.past_fence = self.past_fence.max(fence);
        if let Known::Granted(grant) = self.known
            && grant.fence <= fence
        {
            self.wait_behind(grant.since);
        }
    }

    /// Applies the reply that granted the lock.
    pub(super) fn granted(&mut self, grant: Grant) {
        self.known = Known::Granted(grant);
    }

    /// Leaves this grant to the next hold of the ownership.
    pub(super) fn passed_on(&mut self, grant: Grant) {
        self.by = By::Local;
        self.known = Known::Granted(grant);
    }

    /// Returns whether no grant with this fence has ended.
    pub(super) fn is_new(&self, fence: u64) -> bool {
        fence > self.past_fence
    }

    /// Applies the message that the store handed the lock off to the owner, with a new fence.
    pub(super) fn handed_off(&mut self, fence: u64, ttl: Duration, wanted: bool) {
        // The reply that the owner is queued may not be received yet.
        if let Some(since) = self.not_before {
            self.known = Known::Granted(Grant {
                fence,
                since,
                ttl,
                wanted,
            });
            self.by = By::Message;
        }
    }

    /// Makes the waiter ask again at this time at the latest.
    pub(super) fn ask_by(&mut self, at: Time) {
        self.told = true;
        self.advised = Some(self.advised.map_or(at, |advised| advised.min(at)));
        if let Known::Waiting { ask_at, .. } = &mut self.known {
            *ask_at = (*ask_at).min(at);
        }
    }

    /// Makes the first waiter ask again, because another client changed the lock: its owner renewed it, or it is free.
    pub(super) fn changed(&mut self) {
        self.changed = true;
        self.ask_after_change();
    }

    /// Schedules the next request after a change of the lock, which subscribes the waiter to the next change. Only the
    /// first waiter asks, and a waiter without a place, to which no lock is handed off.
    fn ask_after_change(&mut self) {
        if self.changed
            && let Known::Waiting { ask_at, queued } = &mut self.known
            && queued.is_none_or(|place| place.first)
        {
            let at = self.not_before.unwrap_or(*ask_at) + BETWEEN_CHANGES;
            self.told |= at < *ask_at;
            *ask_at = at.min(*ask_at);
        }
    }

    pub(super) fn grant(&self) -> Option<Grant> {
        match self.known {
            Known::Granted(grant) => Some(grant),
            Known::Absent | Known::Waiting { .. } | Known::Unclear => None,
        }
    }

    /// Returns whether another owner had the lock at the latest reply.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.known, Known::Waiting { .. })
    }

    /// Returns whether the owner has the lock, or may have it by a reply.
    pub(super) fn may_have_lock(&self) -> bool {
        matches!(self.known, Known::Unclear | Known::Granted(_))
    }

    /// Returns when to ask again, while the owner waits.
    pub(super) fn ask_at(&self) -> Option<Time> {
        match self.known {
            Known::Waiting { ask_at, .. } => Some(ask_at),
            Known::Unclear => self.not_before,
            Known::Absent | Known::Granted(_) => None,
        }
    }

    /// Returns how the ownership came to its next caller.
    pub(super) fn by(&self) -> By {
        self.by
    }

    /// Returns whether the store was asked, and has neither granted the lock nor made the owner wait.
    pub(super) fn is_unanswered(&self) -> bool {
        self.known == Known::Absent && self.not_before.is_some()
    }

    /// Returns whether the store has granted the lock to the owner, or queued the owner.
    pub(super) fn is_known(&self) -> bool {
        match self.known {
            Known::Absent => false,
            Known::Waiting { queued, .. } => queued.is_some(),
            Known::Unclear | Known::Granted(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(30);

    fn at(seconds: u64) -> Time {
        Time::from(Duration::from_secs(seconds))
    }

    fn grant(fence: u64) -> Grant {
        Grant {
            fence,
            since: at(1),
            ttl: LEASE,
            wanted: false,
        }
    }

    fn place(first: bool, watched: bool, probes: bool) -> QueuePlace {
        QueuePlace {
            first,
            watched,
            asks: Asks::probing(probes),
        }
    }

    /// Returns where an owner stands that was refused in the second second, after it was handed a lock in the meantime or not.
    fn refused(handed_off: bool, queued: Option<QueuePlace>, now: Time) -> Standing {
        let mut standing = Standing::default();
        standing.asks(at(1));
        if handed_off {
            standing.handed_off(7, LEASE, false);
        }
        standing.refused(at(1), Some(LEASE), queued, (now, Spread(0)));
        standing
    }

    #[test]
    fn a_waiter_sleeps_longer_the_less_the_store_needs_it() {
        let sleeps = |place| {
            refused(false, Some(place), at(2))
                .ask_at()
                .map(|ask_at| ask_at.since(at(2)))
        };
        assert_eq!(sleeps(place(true, true, false)), Some(LONGEST_SLEEP));
        assert_eq!(sleeps(place(false, false, false)), Some(LONGEST_SLEEP));
        assert_eq!(
            sleeps(place(true, false, false)),
            Some(LONGEST_UNWATCHED_SLEEP)
        );
        assert_eq!(sleeps(place(true, false, true)), Some(BETWEEN_PROBES));
    }

    #[test]
    fn a_hand_off_that_overtakes_a_refusal_counts_while_it_lasts_and_only_for_a_waiter() {
        let waits = Some(place(false, false, false));
        assert!(refused(true, waits, at(2)).grant().is_some());
        for (queued, now) in [(waits, at(40)), (None, at(2))] {
            let standing = refused(true, queued, now);
            assert_eq!((standing.grant(), standing.ask_at()), (None, Some(now)));
        }
    }

    #[test]
    fn a_later_refusal_ends_a_grant_up_to_its_fence_and_keeps_the_place() {
        for (fence, ends) in [(6, false), (7, true), (8, true)] {
            let mut standing = Standing::default();
            standing.granted(grant(7));
            standing.note_fence(fence);
            assert_eq!(standing.grant().is_none(), ends, "{fence}");
            assert!(standing.is_known() && !standing.is_new(fence) && standing.is_new(fence + 1));
        }
        let mut standing = Standing::default();
        standing.granted(grant(7));
        standing.not_granted(at(3));
        assert_eq!((standing.grant(), standing.ask_at()), (None, Some(at(3))));
        let mut standing = refused(false, None, at(2));
        standing.not_granted(at(3));
        assert!(standing.is_unanswered() && !standing.is_known());
    }
}
