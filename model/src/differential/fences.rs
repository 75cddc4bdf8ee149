//! The fences of each side.

use std::collections::BTreeMap;

use super::{Observed, Operation, Reply};
use crate::words::{Acquired, Fence, Holder, Key, Mode, Notification, Owner, Released};

/// The fences of one side.
#[derive(Debug, Default)]
pub(super) struct Side {
    /// The last fence that each owner knows.
    known: BTreeMap<(Key, Owner), Fence>,
    /// The grants of each key, in order.
    grants: BTreeMap<Key, Vec<(Owner, Fence)>>,
    /// Later fences are larger.
    last: BTreeMap<Key, Fence>,
}

impl Side {
    /// Returns the operation with absolute fences: those that this side's owners know are added to the fences that
    /// it asks for, and the largest of all to a floor.
    pub(super) fn resolve(&self, operation: &Operation) -> Operation {
        let mut operation = operation.clone();
        let add = |fence: &mut Fence, key, owner| {
            if *fence > 0 {
                *fence += self.known.get(&(key, owner)).copied().unwrap_or(0);
            }
        };
        match &mut operation {
            Operation::Acquire(ask) if ask.floor > 0 => {
                ask.floor += self.last.values().max().copied().unwrap_or(0);
            }
            Operation::Release(ask) => add(&mut ask.fence, ask.key, ask.owner),
            Operation::Renew(ask) => {
                for renewal in &mut ask.renewals {
                    let claim = renewal.claim;
                    add(&mut renewal.fence, claim.key, claim.owner);
                }
            }
            _ => {}
        }
        operation
    }

    /// Records the grants of a step, in the order of their fences.
    pub(super) fn note(&mut self, operation: &Operation, seen: &Observed) -> Result<(), String> {
        self.note_reply(operation, &seen.reply, &seen.notifications)?;
        self.agrees_with_view(seen)
    }

    /// Records the fences in a reply. The states of the keys follow.
    fn note_reply(
        &mut self,
        operation: &Operation,
        reply: &Reply,
        notifications: &[Notification],
    ) -> Result<(), String> {
        if let Operation::Release(ask) = self.resolve(operation)
            && *reply == Reply::Released(Released::Done)
            && ask.count == 0
        {
            let last = self.last.entry(ask.key).or_default();
            *last = ask.fence.max(*last);
        }
        let floor = match self.resolve(operation) {
            Operation::Acquire(ask) => ask.floor,
            _ => 0,
        };
        let handed_off = notifications.iter().filter_map(|notification| {
            let Notification::Granted {
                key, owner, fence, ..
            } = *notification
            else {
                return None;
            };
            Some((fence, key, owner))
        });
        let mut grants: Vec<_> = handed_off.collect();
        if let (Operation::Acquire(ask), Reply::Acquired(Acquired::Granted { fences, .. })) =
            (operation, reply)
        {
            if fences.len() != ask.claims.len() {
                return Err(format!("{} fences", fences.len()));
            }
            let own = ask.claims.iter().zip(fences);
            grants.extend(own.map(|(claim, fence)| (*fence, claim.key, claim.owner)));
        }
        grants.sort_unstable();
        for (fence, key, owner) in grants {
            self.granted(key, owner, fence, floor)?;
        }
        match (operation, reply) {
            (Operation::Acquire(ask), Reply::Acquired(Acquired::Taken { fences, .. })) => {
                // A fence that was lost is zero.
                for (claim, fence) in ask.claims.iter().zip(fences).filter(|(_, it)| **it > 0) {
                    let last = self.last.entry(claim.key).or_default();
                    if fence < last {
                        return Err(format!("fence {fence} after {last}"));
                    }
                    *last = *fence;
                }
            }
            (Operation::Renew(ask), Reply::Renewed(renewed)) => {
                let renewals = ask.renewals.iter().zip(renewed);
                for (renewal, renewed) in renewals.filter(|(_, renewed)| renewed.fence > 0) {
                    let claim = renewal.claim;
                    self.grew(claim.key, claim.owner, renewed.fence)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn granted(
        &mut self,
        key: Key,
        owner: Owner,
        fence: Fence,
        floor: Fence,
    ) -> Result<(), String> {
        let grants = self.grants.entry(key).or_default();
        let is_last = grants.last().is_some_and(|(last, _)| *last == owner);
        if is_last && self.known.get(&(key, owner)) == Some(&fence) {
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

    fn grew(&mut self, key: Key, owner: Owner, fence: Fence) -> Result<(), String> {
        let last = self.last.entry(key).or_default();
        if fence <= *last {
            return Err(format!("fence {fence} of key {key} after {last}"));
        }
        *last = fence;
        self.known.insert((key, owner), fence);
        Ok(())
    }

    /// Checks that the store shows the last fence that each holder knows.
    fn agrees_with_view(&self, seen: &Observed) -> Result<(), String> {
        for (key, view) in (0..).zip(&seen.keys) {
            if let Some(entry) = &view.entry
                && let [Holder::Owner(owner)] = *entry.holders
                && owner.mode == Mode::Exclusive
                && entry.fence > 0
                && self.known.get(&(key, owner)) != Some(&entry.fence)
            {
                return Err(format!("key {key} shows fence {}", entry.fence));
            }
        }
        Ok(())
    }

    /// Checks that both sides made the same grants in the same order.
    pub(super) fn same_order(&self, other: &Self) -> Result<(), String> {
        let owners = |side: &Self| -> Vec<Vec<Owner>> {
            let owners = |grants: &Vec<(Owner, Fence)>| grants.iter().map(|(o, _)| *o).collect();
            side.grants.values().map(owners).collect()
        };
        if owners(self) == owners(other) {
            Ok(())
        } else {
            Err(format!("grants {:?} and {:?}", self.grants, other.grants))
        }
    }
}
