//! Passes a lock on to its waiters: decides which of them get it and which it notifies, and skips waiters whose clients are
//! gone.

use std::time::Duration;

use super::{Fences, State, WaitQueues};
use crate::{
    key::Key,
    lease::Time,
    mode::LockMode,
    owner::OwnerId,
    store::{BETWEEN_PROBES, GRACE, LONGEST_SILENCE, MOST_LET_IN, Notification, QUEUE_LIFETIME},
};

impl<F: Fences> State<F> {
    /// Returns whether a lock is free, or admits an owner in this mode in addition to its holders.
    pub(super) fn admits(&mut self, key: &Key, mode: LockMode, now: Time) -> bool {
        let lock = self.live(key, now);
        lock.is_none_or(|lock| lock.admits(mode))
    }

    /// Returns the largest number of permits that the first waiters name, or the owner that `joins` the queue. A waiter goes by
    /// this number.
    fn most_named(&self, key: &Key, joins: Option<OwnerId>) -> u32 {
        let waiters = self.queues.of(key).take(1 + MOST_LET_IN).chain(joins);
        let named = waiters.filter_map(|waiter| Some(waiter.mode().permits()?.1));
        named.max().unwrap_or(0)
    }

    /// Returns whether a lock admits an owner, which goes by the largest number of permits that is named if it waits.
    pub(super) fn lets_in(
        &mut self,
        key: &Key,
        owner: OwnerId,
        joins: Option<OwnerId>,
        now: Time,
    ) -> bool {
        let mode = owner.mode();
        self.admits(key, mode, now)
            || mode.permits().is_some() && self.queues.has(key, owner) && {
                let most = self.most_named(key, joins);
                self.admits(key, mode.of_at_least(most), now)
            }
    }

    /// Returns whether this waiter names more permits than the first one.
    pub(super) fn raises(&self, key: &Key, waiter: OwnerId) -> bool {
        let number = |waiter: OwnerId| Some(waiter.mode().permits()?.1);
        let first = self.queues.first(key).and_then(number);
        first.is_some() && number(waiter) > first
    }

    /// Hands a lock off to the first waiters, as long as it admits them and they precede the owner that `asks`. Skips
    /// waiters whose clients are gone. Returns whether the owner that asks has to wait. With `joins`, an owner joins the
    /// queue after this.
    pub(super) fn hand_off(
        &mut self,
        key: &Key,
        asks: Option<OwnerId>,
        joins: bool,
        now: Time,
    ) -> bool {
        if !self.is_wanted(key) {
            return asks.is_some_and(|asks| !self.admits(key, asks.mode(), now));
        }
        let (mut served, mut longest) = (0, Duration::ZERO);
        let (mut has_to_wait, mut is_full, mut is_asked);
        loop {
            let (mut batch, mut is_deaf) = (Vec::new(), false);
            (has_to_wait, is_full, is_asked) = (false, false, false);
            while let Some((first, since)) = self.queues.first_since(key) {
                let admits = self.lets_in(key, first, asks.filter(|_| joins), now);
                is_full = admits && served + batch.len() == MOST_LET_IN;
                if !admits && self.passes_over(key, first, asks, now) {
                    continue;
                }
                if is_full || !admits {
                    has_to_wait = true;
                    break;
                }
                self.queues.leave(key, first);
                is_asked = asks == Some(first);
                if is_asked {
                    break;
                }
                batch.push((first, self.grant(key, first, GRACE, now), since));
            }
            let wanted = joins || self.is_wanted(key);
            for (owner, fence, since) in batch {
                let notification = Notification::Granted {
                    key: key.clone(),
                    owner,
                    fence,
                    ttl: GRACE,
                    wanted,
                };
                if self.tell(key, owner, notification) {
                    served += 1;
                    longest = longest.max(now.since(since));
                } else {
                    self.leave(key, owner, now);
                    is_deaf = true;
                }
            }
            if !is_deaf || is_asked {
                break;
            }
        }
        if is_full {
            self.ask(key, Duration::ZERO, |queues| queues.first_since(key));
        }
        // The waiter may be dead. The next and the last waiter retry after the grace period: the last one asked most
        // recently.
        if longest > LONGEST_SILENCE {
            self.ask_from(key, 0, GRACE);
        }
        let enters = is_asked || asks.is_none_or(|asks| self.admits(key, asks.mode(), now));
        has_to_wait || !enters
    }

    /// Returns the first waiter that the lock would admit if the head of the queue did not precede it.
    pub(super) fn kept_out(&mut self, key: &Key, now: Time) -> Option<OwnerId> {
        let waiters: Vec<OwnerId> = (self.queues.of(key).skip(1).take(MOST_LET_IN)).collect();
        let most = self.most_named(key, None);
        let lock = self.live(key, now)?;
        let admits = |waiter: &OwnerId| lock.admits(waiter.mode().of_at_least(most));
        waiters.into_iter().find(admits)
    }

    /// Checks whether the client of the first waiter is there, if the lock does not admit this waiter but would admit the
    /// owner that `asks` or a later waiter. Removes a waiter whose client is gone, and returns true. Otherwise tells the
    /// later waiter to ask again soon, because the client of the first one may be gone by then.
    fn passes_over(&mut self, key: &Key, first: OwnerId, asks: Option<OwnerId>, now: Time) -> bool {
        let enters = asks.is_some_and(|asks| self.lets_in(key, asks, None, now));
        if asks == Some(first) || !enters && self.kept_out(key, now).is_none() {
            return false;
        }
        // Only shows whether its client is there, because the waiter asks sooner by itself.
        if !self.tell(key, first, retry(key, first, QUEUE_LIFETIME)) {
            return true;
        }
        while !enters && let Some(next) = self.kept_out(key, now) {
            if self.tell(key, next, retry(key, next, BETWEEN_PROBES)) {
                break;
            }
        }
        false
    }

    /// Makes the first waiter ask again. It may be dead by then, so the second and the last waiter ask after a further grace
    /// period.
    pub(super) fn ask_first(&mut self, key: &Key, after: Duration, now: Time) {
        let first = self.ask(key, after, |queues| queues.first_since(key));
        if first.is_some_and(|(_, since)| now.since(since) + after > LONGEST_SILENCE) {
            self.ask_from(key, 1, after + GRACE);
        }
    }

    /// Makes the waiter at this place, and the last one behind it, ask again.
    fn ask_from(&mut self, key: &Key, place: usize, after: Duration) {
        let next = self.ask(key, after, |queues| queues.since(key).nth(place));
        self.ask(key, after, |queues| {
            let last = queues.since(key).skip(place).last();
            last.filter(|last| Some(*last) != next)
        });
    }

    /// Makes the waiter that `select` returns ask again. If its client is gone, selects another one. Returns the waiter that
    /// was notified.
    fn ask(
        &mut self,
        key: &Key,
        after: Duration,
        select: impl Fn(&WaitQueues) -> Option<(OwnerId, Time)>,
    ) -> Option<(OwnerId, Time)> {
        loop {
            let selected = select(&self.queues)?;
            if self.tell(key, selected.0, retry(key, selected.0, after)) {
                return Some(selected);
            }
        }
    }

    /// Notifies a waiter, and removes it from the queue if its client is gone. Returns whether the client is there. Only this
    /// function notifies waiters, so that no waiter stays behind one whose client is gone.
    #[must_use]
    fn tell(&mut self, key: &Key, waiter: OwnerId, notification: Notification) -> bool {
        let is_there = self.notify(waiter.client(), notification);
        if !is_there {
            self.queues.leave(key, waiter);
        }
        is_there
    }
}

/// Returns the notification that makes an owner ask again after this time.
pub(super) fn retry(key: &Key, owner: OwnerId, after: Duration) -> Notification {
    let key = key.clone();
    Notification::Retry { key, owner, after }
}
