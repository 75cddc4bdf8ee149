//! Holds that are renewed by one request, time and again the same.

use std::{sync::Arc, time::Duration};

use crate::{
    hold::{Hold, SharedLease},
    lease::{Time, next_look, renewal_attempt, renewal_due},
    store::Renewal,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Holds whose lease was confirmed by the same answer, and that differ in nothing that a renewal looks
/// at. Whatever happens to one of them spoils the group, and each goes on by itself until the next
/// answer.
pub(super) struct Cohort {
    pub(super) shared: Arc<SharedLease>,
    pub(super) holds: Box<[Arc<Hold>]>,
    pub(super) renewals: Box<[Renewal]>,
    /// When the latest renewal was sent, as long as it was not answered; in the future: when it is sent
    /// at the latest.
    renewing: Mutex<Option<Time>>,
}

impl Cohort {
    pub(super) fn new(
        shared: Arc<SharedLease>,
        holds: Vec<Arc<Hold>>,
        renewals: Vec<Renewal>,
    ) -> Self {
        Self {
            shared,
            holds: holds.into(),
            renewals: renewals.into(),
            renewing: Mutex::new(None),
        }
    }

    fn renewing(&self) -> MutexGuard<'_, Option<Time>> {
        self.renewing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It came due: whether a renewal is to be sent, and when to look again, should that fail. `None`:
    /// each hold is to be looked at by itself. `in_line` as for [`Hold::come_due`].
    pub(super) fn come_due(
        &self,
        now: Time,
        in_line: impl FnOnce(Time, Duration) -> bool,
    ) -> Option<(bool, Time)> {
        let end = self.shared.valid_until();
        if self.shared.is_spoilt() || now >= end {
            return None;
        }
        let pause = renewal_attempt(self.shared.lease);
        let next = next_look((now + pause).min(end), now);
        let mut renewing = self.renewing();
        match *renewing {
            None => {
                *renewing = Some(now + pause * 2);
                Some((true, next))
            }
            Some(sent) if in_line(sent, pause / 2) => Some((false, next)),
            Some(_) => None,
        }
    }

    /// When it is to be renewed next, as far as confirmed.
    pub(super) fn due(&self) -> Time {
        let shared = &self.shared;
        renewal_due(shared.confirmed_at(), shared.lease).min(shared.valid_until())
    }

    /// A renewal is about to be sent, and for how long it is good; `None`: not for all of them.
    pub(super) fn begin_renewal(&self, now: Time) -> Option<Duration> {
        let left = self.shared.valid_until().since(now);
        if self.shared.is_spoilt() || left.is_zero() {
            return None;
        }
        *self.renewing() = Some(now);
        Some(left)
    }

    /// A renewal was answered, or given up.
    pub(super) fn end_renewal(&self) {
        *self.renewing() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(6);

    fn at(second: u64) -> Time {
        Time::from(Duration::from_secs(second))
    }

    fn cohort() -> Cohort {
        let shared = SharedLease::new(1, LEASE, at(10), at(12));
        Cohort::new(Arc::new(shared), Vec::new(), Vec::new())
    }

    #[test]
    fn it_is_renewed_every_third_of_its_lease_unless_the_one_before_is_still_in_line() {
        let cohort = cohort();
        assert_eq!(cohort.come_due(at(12), |_, _| false), Some((true, at(13))));
        assert!(
            cohort
                .begin_renewal(at(12))
                .is_some_and(|left| left < LEASE)
        );
        let in_line = |sent, _| sent == at(12);
        assert_eq!(cohort.come_due(at(13), in_line), Some((false, at(14))));
        cohort.end_renewal();
        assert_eq!(cohort.come_due(at(14), |_, _| false), Some((true, at(15))));
    }

    #[test]
    fn each_is_looked_at_by_itself_when_one_changed_or_nothing_was_answered_or_all_is_over() {
        let changed = cohort();
        changed.shared.spoil();
        assert_eq!(changed.begin_renewal(at(12)), None);
        assert_eq!(changed.come_due(at(12), |_, _| true), None);

        let silent = cohort();
        assert!(silent.come_due(at(12), |_, _| false).is_some());
        assert_eq!(silent.come_due(at(13), |_, _| false), None);

        let over = cohort();
        assert_eq!(over.begin_renewal(at(16)), None);
        assert_eq!(over.come_due(at(16), |_, _| true), None);
    }
}
