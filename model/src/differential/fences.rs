//! Compares the fences of two stores, which differ in value but must agree in order.

use std::collections::BTreeMap;

use super::{Observed, Operation, Reply};
use crate::{
    key::Key,
    mode::LockMode,
    owner::OwnerId,
    server::{key, number},
    store::{Acquired, Applied, Claim, Notification, Renewal, RenewalOutcome},
};

/// The fences of one side.
#[derive(Debug, Default)]
pub(super) struct Side {
    /// The last fence that each owner knows.
    known: BTreeMap<(Key, OwnerId), u64>,
    /// The grants of each key, in order.
    grants: BTreeMap<Key, Vec<(OwnerId, u64)>>,
    /// Later fences are larger.
    last: BTreeMap<Key, u64>,
}

impl Side {
    /// Returns the operation with absolute fences: those that this side's owners know are added to the fences that
    /// it asks for, and the largest of all to a floor.
    pub(super) fn resolve(&self, operation: &Operation) -> Operation {
        let mut operation = operation.clone();
        let add = |fence: &mut u64, key: &Key, owner| {
            if *fence > 0 {
                *fence += self.known.get(&(key.clone(), owner)).unwrap_or(&0);
            }
        };
        let raise = |floor: &mut u64| {
            if *floor > 0 {
                *floor += self.last.values().max().unwrap_or(&0);
            }
        };
        match &mut operation {
            Operation::Acquire(_, floor) => raise(floor),
            Operation::Downgrade(ask, floor) => {
                let former = ask.owner.before_downgrade().unwrap_or(ask.owner);
                add(&mut ask.fence, &ask.key, former);
                raise(floor);
            }
            Operation::Release(ask, floor) => {
                add(&mut ask.fence, &ask.key, ask.owner);
                raise(floor);
            }
            Operation::Renew(renewals, _) | Operation::Restore(renewals, _) => {
                for renewal in renewals {
                    let (key, owner) = (&renewal.claim.key, renewal.claim.owner);
                    add(&mut renewal.fence, key, owner);
                    // The owner that renews a lock has the largest fence.
                    let known = self.known.get(&(key.clone(), owner));
                    renewal.last_fence = *known.max(self.last.get(key)).unwrap_or(&1);
                }
            }
            _ => {}
        }
        operation
    }

    /// Records the grants of a step, in the order of their fences.
    pub(super) fn note(&mut self, operation: &Operation, seen: &Observed) -> Result<(), String> {
        self.note_reply(operation, &seen.reply, &seen.notifications)?;
        self.note_restored(operation, seen)?;
        self.agrees_with_view(seen)
    }

    /// Records the fences of restored locks. The server may have a larger one than the owner knew.
    fn note_restored(&mut self, operation: &Operation, seen: &Observed) -> Result<(), String> {
        let (Operation::Restore(renewals, _), Reply::Restored(restored)) =
            (self.resolve(operation), &seen.reply)
        else {
            return Ok(());
        };
        for (renewal, _) in renewals.iter().zip(restored).filter(|(_, is_new)| **is_new) {
            let Claim { key, owner } = &renewal.claim;
            let view = &seen.keys[usize::from(number(key))];
            let fence = view.entry.as_ref().and_then(|entry| entry.fence);
            if fence < Some(renewal.last_fence) {
                return Err(format!("key {key} shows {fence:?} after {renewal:?}"));
            }
            let fence = fence.unwrap_or(0);
            self.known.insert((key.clone(), *owner), fence);
            (self.grants.entry(key.clone()).or_default()).push((*owner, fence));
            let last = self.last.entry(key.clone()).or_default();
            *last = (*last).max(renewal.last_fence);
        }
        Ok(())
    }

    /// Records the fences in a reply. The states of the keys follow.
    fn note_reply(
        &mut self,
        operation: &Operation,
        reply: &Reply,
        notifications: &[Notification],
    ) -> Result<(), String> {
        let (floor, passed) = match self.resolve(operation) {
            Operation::Acquire(_, floor) => (floor, None),
            Operation::Downgrade(ask, floor) => (floor, Some((ask.key, ask.fence))),
            Operation::Release(ask, floor) => (floor, Some((ask.key, ask.fence))),
            _ => (0, None),
        };
        if let Some((key, fence)) = passed.filter(|_| *reply == Reply::Applied(Applied::Done)) {
            let last = self.last.entry(key).or_default();
            *last = fence.max(*last);
        }
        let handed_off = notifications.iter().filter_map(|notification| {
            let Notification::Granted {
                key, owner, fence, ..
            } = notification
            else {
                return None;
            };
            Some((*fence, key, *owner))
        });
        let mut grants: Vec<_> = handed_off.collect();
        if let (Operation::Acquire(ask, _), Reply::Acquired(Acquired::Granted { fences, .. })) =
            (operation, reply)
        {
            if fences.len() != ask.claims.len() {
                return Err(format!("{} fences", fences.len()));
            }
            let own = ask.claims.iter().zip(fences);
            grants.extend(own.map(|(claim, fence)| (*fence, &claim.key, claim.owner)));
        }
        grants.sort_unstable();
        for (fence, key, owner) in grants {
            self.granted(key, owner, fence, floor)?;
        }
        match (operation, reply) {
            (Operation::Acquire(ask, _), Reply::Acquired(Acquired::Taken { past_fences, .. })) => {
                for (claim, fence) in ask.claims.iter().zip(past_fences) {
                    let last = self.last.entry(claim.key.clone()).or_default();
                    let fence = fence.unwrap_or(*last);
                    if fence < *last {
                        return Err(format!("fence {fence} after {last}"));
                    }
                    *last = fence;
                }
            }
            (Operation::Renew(renewals, _), Reply::Renewed(renewed)) => {
                for (Renewal { claim, .. }, outcome) in renewals.iter().zip(renewed) {
                    if let RenewalOutcome::Held {
                        fence: fence @ 1.., ..
                    } = outcome
                    {
                        self.grew(&claim.key, claim.owner, *fence)?;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn granted(&mut self, key: &Key, owner: OwnerId, fence: u64, floor: u64) -> Result<(), String> {
        let grants = self.grants.entry(key.clone()).or_default();
        let is_last = grants.last().is_some_and(|(last, _)| *last == owner);
        if is_last && self.known.get(&(key.clone(), owner)) == Some(&fence) {
            return Ok(());
        }
        if fence < floor {
            return Err(format!(
                "fence {fence} of key {key} below the floor {floor}"
            ));
        }
        grants.push((owner, fence));
        self.grew(key, owner, fence)
    }

    fn grew(&mut self, key: &Key, owner: OwnerId, fence: u64) -> Result<(), String> {
        let last = self.last.entry(key.clone()).or_default();
        if fence <= *last {
            return Err(format!("fence {fence} of key {key} after {last}"));
        }
        *last = fence;
        self.known.insert((key.clone(), owner), fence);
        Ok(())
    }

    /// Checks that the store shows the last fence that each holder knows.
    fn agrees_with_view(&self, seen: &Observed) -> Result<(), String> {
        for (number, view) in (0..).zip(&seen.keys) {
            if let Some(entry) = &view.entry
                && let Some(owner) = OwnerId::parse(&entry.owner).filter(|it| !it.is_kept())
                && owner.mode() == LockMode::Exclusive
                && let Some(fence) = entry.fence
                && self.known.get(&(key(number), owner)) != Some(&fence)
            {
                return Err(format!("key {number} shows fence {fence}"));
            }
        }
        Ok(())
    }

    /// Checks that both sides made the same grants in the same order.
    pub(super) fn same_order(&self, other: &Self) -> Result<(), String> {
        let owners = |side: &Self| -> Vec<Vec<OwnerId>> {
            let owners = |grants: &Vec<(OwnerId, u64)>| grants.iter().map(|(o, _)| *o).collect();
            side.grants.values().map(owners).collect()
        };
        if owners(self) == owners(other) {
            Ok(())
        } else {
            Err(format!("grants {:?} and {:?}", self.grants, other.grants))
        }
    }
}
