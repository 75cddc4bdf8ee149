//! What a majority has granted or confirmed, which members lack a lock, and when waiters of a quorum ask again.

use std::time::Duration;

use super::verdict::{majority, majority_has, verdict};
use crate::{
    few::Few,
    lease::Time,
    store::{
        AcquireRequest, Acquired, Applied, Notification, QueuePlace, Renewal, RenewalOutcome,
        Renewed, TakenBy,
    },
};

/// The shortest and the longest time for which a call waits for the others once a majority has replied. Between them,
/// it waits for ten times as long as the majority took.
pub const SHORTEST_LATE: Duration = Duration::from_millis(20);
const LONGEST_LATE: Duration = Duration::from_millis(250);
/// The longest pause of a waiter after a notification. Waiters that ask at the same moment split the members, and
/// none of them gets the lock.
const SPREAD: Duration = Duration::from_millis(10);
/// Fences that differ by this or more are taken for those of different holds, in the unit of fences: 51 ms. Those of one hold
/// differ by as much as the members' clocks, and by how much later one of them granted it.
pub(super) const OF_ONE_HOLD: u64 = 512;

/// The replies of those members that executed a request.
pub struct Votes<'a, T> {
    /// The number of members.
    pub members: usize,
    /// The replies so far.
    pub replies: Vec<&'a T>,
}

impl<T> Votes<'_, T> {
    /// Returns whether a majority has replied yes, or `None` if that is open.
    pub fn verdict(&self, is_yes: impl Fn(&T) -> bool) -> Option<bool> {
        let yes = self.replies.iter().filter(|reply| is_yes(reply)).count();
        verdict(self.members, yes, self.replies.len() - yes)
    }

    /// Returns whether a majority replied, with any outcome.
    #[must_use]
    pub fn have_majority(&self) -> bool {
        self.replies.len() >= majority(self.members)
    }
}

/// Returns how long a call waits for the others, once a majority took this time to reply.
#[must_use]
pub fn rest(took: Duration, least: Duration) -> Duration {
    (took * 10).min(LONGEST_LATE).max(least)
}

/// Returns how long to wait for a majority. A later grant would have little of its lease left.
#[must_use]
pub fn decisive(timeout: Duration, lease: Duration) -> Duration {
    timeout.min((lease / 8).max(SHORTEST_LATE))
}

/// Returns a time up to [`SPREAD`] from a random number between 0 and 1. The shortest one of `draws` is distributed evenly.
fn spread(draws: usize, random: f64) -> Duration {
    let draws = i32::try_from(draws).unwrap_or(i32::MAX);
    SPREAD.mul_f64(1.0 - random.powi(draws))
}

/// Returns what the notification of one member means to its client. `random` draws a number between 0 and 1.
pub fn of_member(
    notification: Notification,
    members: usize,
    random: impl FnOnce() -> f64,
) -> Option<Notification> {
    match notification {
        // Other members notify the waiters, too, and what one member grants is not granted.
        Notification::Disconnected | Notification::Granted { .. } => None,
        Notification::Retry { key, owner, after } => {
            let after = after + spread(members, random());
            Some(Notification::Retry { key, owner, after })
        }
        notification => Some(notification),
    }
}

/// Returns whether a member granted the locks.
#[must_use]
pub fn is_granted(reply: &Acquired) -> bool {
    matches!(reply, Acquired::Granted { .. })
}

/// Returns whether a majority has granted the locks, or `None` if that is open.
pub fn is_acquired(votes: &Votes<'_, Acquired>) -> Option<bool> {
    votes.verdict(is_granted)
}

/// Returns the outcome of an acquire, or `None` if too few members replied. The members that granted a refused request
/// have to release the locks. `in_doubt`: others may have granted it as well. `random` draws a number between 0 and 1.
pub fn acquired(
    request: &AcquireRequest,
    votes: &Votes<'_, Acquired>,
    in_doubt: bool,
    sent_at: Time,
    random: impl FnOnce() -> f64,
) -> Option<Acquired> {
    match is_acquired(votes) {
        Some(true) => Some(granted(request, votes, sent_at)),
        _ if !votes.have_majority() => None,
        _ => Some(refusal(request, votes, in_doubt, sent_at, random)),
    }
}

/// Returns the grant of a majority, with the largest fences of its members.
fn granted(request: &AcquireRequest, votes: &Votes<'_, Acquired>, sent_at: Time) -> Acquired {
    let mut largest: Few<u64> = request.claims.iter().map(|_| 0).collect();
    let mut is_wanted = false;
    for reply in &votes.replies {
        if let Acquired::Granted { fences, wanted, .. } = reply {
            is_wanted |= wanted;
            for (largest, fence) in largest.iter_mut().zip(fences) {
                *largest = (*largest).max(*fence);
            }
        }
    }
    Acquired::Granted {
        fences: largest,
        wanted: is_wanted,
        sent_at,
    }
}

/// Returns the refusal of the member with which a majority will be free, if the leases end in their order.
fn refusal(
    request: &AcquireRequest,
    votes: &Votes<'_, Acquired>,
    in_doubt: bool,
    sent_at: Time,
    random: impl FnOnce() -> f64,
) -> Acquired {
    let mut refusals: Vec<(Duration, usize, Option<QueuePlace>)> = (votes.replies.iter())
        .filter_map(|reply| match reply {
            Acquired::Taken {
                claim, ttl, queued, ..
            } => Some((ttl.unwrap_or(Duration::MAX), *claim, *queued)),
            _ => None,
        })
        .collect();
    refusals.sort_unstable_by_key(|(ttl, ..)| *ttl);
    let granted = votes.replies.iter().filter(|reply| is_granted(reply));
    let granted = granted.count();
    let needed = majority(votes.members) - granted;
    let refusal = refusals.get(needed - 1).or(refusals.last());
    let (ttl, claim, queued) = refusal.copied().unwrap_or_default();
    Acquired::Taken {
        claim,
        // Waiters for the same lock ask at different times.
        ttl: (ttl < Duration::MAX).then(|| ttl + spread(1, random())),
        queued,
        sent_at,
        // Members hand nothing off, so these fences end no grant. A quorum does not tell which locks an owner may have.
        past_fences: request.claims.iter().map(|_| Some(0)).collect(),
        retired: granted > 0 || in_doubt,
        by: taken_by(votes),
    }
}

/// Returns who has the refused lock on a majority of the members.
fn taken_by(votes: &Votes<'_, Acquired>) -> TakenBy {
    let rivals = votes.replies.iter().filter_map(|reply| match reply {
        Acquired::Taken { claim, by, .. } => Some((*claim, *by)),
        _ => None,
    });
    let rivals: Vec<(usize, TakenBy)> = rivals.collect();
    let has_majority = |rival: &&(usize, TakenBy)| {
        let same = rivals.iter().filter(|other| other == rival);
        same.count() >= majority(votes.members)
    };
    let winner = rivals.iter().find(has_majority);
    winner.map_or(TakenBy::NoMajority, |(_, by)| *by)
}

/// Returns whether a majority has changed what the owner has, or `None` if that is open.
#[must_use]
pub fn is_applied(votes: &Votes<'_, Applied>) -> Option<bool> {
    votes.verdict(|reply| *reply == Applied::Done)
}

/// Returns the outcome of a change of what an owner has, or `None` if too few members replied. A change that `extends` the lease
/// needs a majority that has the lock.
#[must_use]
pub fn applied(votes: &Votes<'_, Applied>, extends: bool) -> Option<Applied> {
    match is_applied(votes) {
        Some(false) => Some(Applied::NotHeld),
        None if extends || !votes.have_majority() => None,
        // Some members had lost the lock.
        Some(true) | None => Some(Applied::Done),
    }
}

/// Returns the locks that a member has to restore, because it lacks them although a majority has confirmed them, so that no
/// other owner can have a majority. The member gets the fence of the hold, so that a later holder has a larger token there, too.
#[must_use]
pub fn to_restore(asked: &[Renewal], outcome: &Renewed, by_member: &Renewed) -> Vec<Renewal> {
    let outcomes = outcome.kept.iter().zip(&by_member.kept);
    let lacking = asked
        .iter()
        .zip(outcomes)
        .filter_map(|(renewal, outcomes)| {
            let (RenewalOutcome::Held { fence, .. }, RenewalOutcome::Lost) = outcomes else {
                return None;
            };
            Some(Renewal {
                last_fence: renewal.last_fence.max(*fence),
                ..renewal.clone()
            })
        });
    lacking.collect()
}

/// Returns those last fences of the members that the token of the present hold can be of, the largest first. The token
/// is of the largest fence of the majority that granted the lock first, so at least a majority has none that is larger.
/// A member that missed the renewal which set a new fence still has one of an earlier hold, which is left out if it is
/// much smaller.
#[must_use]
pub fn fences_of_hold(mut fences: Vec<u64>, members: usize) -> Vec<u64> {
    fences.sort_unstable_by(|one, other| other.cmp(one));
    fences.truncate((fences.len() + 1).saturating_sub(majority(members)));
    let largest = fences.first().copied().unwrap_or(0);
    fences.retain(|fence| largest - fence < OF_ONE_HOLD);
    fences
}

/// Returns whether a majority holds a lock of the batch, or `None` if that is open.
#[must_use]
pub fn is_held(votes: &Votes<'_, Renewed>, hold: usize) -> Option<bool> {
    votes.verdict(|renewed| matches!(renewed.kept.get(hold), Some(RenewalOutcome::Held { .. })))
}

/// Returns the outcome for a lock of the batch.
#[must_use]
pub fn renewed(votes: &Votes<'_, Renewed>, hold: usize) -> RenewalOutcome {
    match is_held(votes, hold) {
        Some(true) => {}
        Some(false) => return RenewalOutcome::Lost,
        None => return RenewalOutcome::Unknown,
    }
    let (mut is_wanted, mut fences) = (false, Vec::new());
    for renewed in &votes.replies {
        if let Some(RenewalOutcome::Held { wanted, fence }) = renewed.kept.get(hold) {
            is_wanted |= wanted;
            fences.push(*fence);
        }
    }
    RenewalOutcome::Held {
        wanted: is_wanted,
        fence: majority_has(fences, votes.members).unwrap_or(0),
    }
}
