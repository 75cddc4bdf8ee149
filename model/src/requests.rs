//! Requests to a server and their replies, and how every server executes them: by the rules of the embedded store, as they ship.

use std::time::Duration;

use uuid::Uuid;

use crate::{
    embedded::{self, State},
    key::Key,
    lease::Time,
    machine::{self, Event, Input},
    owner::OwnerId,
    store::{
        AcquireRequest, Acquired, Applied, Change, Claim, DowngradeRequest, FENCES_A_SECOND,
        Notification, ReleaseRequest, Renewal, Renewed, SetCountRequest, StoreRequest,
        UNTIL_NOTIFIED,
    },
};

/// A request to a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Body {
    /// Asks for locks. New fences are not below this floor, even if the clock is. Zero: no floor.
    Acquire(AcquireRequest, u64),
    /// Sets a count.
    SetCount(SetCountRequest),
    /// Shares an exclusive lock. If that hands the lock off, the new fence is not below this floor.
    Downgrade(DowngradeRequest, u64),
    /// Releases a lock. If that hands the lock off, the new fence is not below this floor.
    Release(ReleaseRequest, u64),
    /// Extends a lease to this time from now on. Zero leaves it as it is.
    Renew(Renewal, Duration),
    /// Gives a lock, for this time, to an owner that a majority of the members of a quorum has confirmed.
    Restore(Renewal, Duration),
}

impl Body {
    /// Returns a request of a client's machine as its servers get it.
    #[must_use]
    pub fn of(request: &machine::Request, client: Uuid, floor: u64) -> Self {
        match request.for_store(client) {
            StoreRequest::Acquire(acquire) => Self::Acquire(acquire, floor),
            StoreRequest::Change(Change::SetCount(set)) => Self::SetCount(set),
            StoreRequest::Change(Change::Downgrade(downgrade)) => Self::Downgrade(downgrade, floor),
            StoreRequest::Change(Change::Release(release)) => Self::Release(release, floor),
        }
    }

    /// Returns an acquire of one lock for a moment.
    #[must_use]
    pub fn attempt(claim: Claim, waits: bool) -> Self {
        let request = AcquireRequest {
            claims: [claim].into(),
            lease: Duration::from_millis(1),
            waits,
        };
        Self::Acquire(request, 0)
    }

    /// Returns the lease that an acquire asks for.
    #[must_use]
    pub fn lease(&self) -> Option<Duration> {
        match self {
            Self::Acquire(request, _) => Some(request.lease),
            Self::SetCount(_)
            | Self::Downgrade(..)
            | Self::Release(..)
            | Self::Renew(..)
            | Self::Restore(..) => None,
        }
    }

    /// Returns the keys of its locks.
    #[must_use]
    pub fn keys(&self) -> Vec<Key> {
        match self {
            Self::Acquire(request, _) => request.claims.iter().map(|it| it.key.clone()).collect(),
            Self::SetCount(set) => vec![set.key.clone()],
            Self::Downgrade(downgrade, _) => vec![downgrade.key.clone()],
            Self::Release(release, _) => vec![release.key.clone()],
            Self::Renew(renewal, _) | Self::Restore(renewal, _) => {
                vec![renewal.claim.key.clone()]
            }
        }
    }
}

/// The reply of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// To an acquire.
    Acquired(Acquired),
    /// To a request that changes what an owner has.
    Applied(Applied),
    /// To a renewal.
    Renewed(Renewed),
    /// Whether a lock was restored.
    Restored(bool),
}

impl Answer {
    /// Counts a lease from the time at which its request was sent.
    #[must_use]
    pub fn since(mut self, at: Time) -> Self {
        if let Self::Acquired(Acquired::Granted { sent_at, .. } | Acquired::Taken { sent_at, .. })
        | Self::Renewed(Renewed { sent_at, .. }) = &mut self
        {
            *sent_at = at;
        }
        self
    }
}

/// Returns a notification as the machine of its client gets it.
#[must_use]
pub fn to_input(notification: Notification) -> Option<Input> {
    if let Notification::Changed(key) = notification {
        return Some(Input::Event(key, None, Event::Changed));
    }
    let (key, owner, event) = Event::of(notification)?;
    Some(Input::Event(key, Some(owner.sequence()), event))
}

/// The fences of a server.
pub trait Fences: embedded::Fences {
    /// Makes the next fence larger than this one.
    fn raise(&mut self, least: u64);

    /// Keeps the last fence for its whole time, as that of a new grant.
    fn keep(&mut self) {}
}

/// Returns the least new fence, by the clock of a server in units of fences, or by the floor of a request. A floor that is
/// ahead of the clock by less than a second is ignored.
#[must_use]
pub fn least(clock: u64, floor: u64) -> u64 {
    if floor > clock + FENCES_A_SECOND {
        floor
    } else {
        clock
    }
}

/// Executes a request, on the only server or on a member of a quorum. Either remembers releases for the `retention`.
pub fn execute<F: Fences>(
    state: &mut State<F>,
    body: &Body,
    is_member: bool,
    retention: Duration,
    now: Time,
) -> Answer {
    match body {
        Body::Acquire(request, _) => {
            let mut claims = request.claims.iter();
            let is_late = claims.any(|Claim { key, owner }| {
                if is_member {
                    state.was_released(key, *owner, now)
                } else {
                    state.is_refused(key, *owner, now)
                }
            });
            let acquired = if is_late {
                // No call uses the owner again, so none waits for the reply.
                Acquired::Outdated
            } else if is_member {
                state.acquire_at_member(request, now)
            } else {
                state.acquire(request, now)
            };
            if matches!(acquired, Acquired::Granted { .. }) {
                state.fences.keep();
            }
            Answer::Acquired(acquired)
        }
        Body::SetCount(set) => {
            let applied = state.set_count(set, now);
            if applied == Applied::Done {
                state.fences.keep();
            }
            Answer::Applied(applied)
        }
        Body::Downgrade(downgrade, _) => {
            pass_fence(
                state,
                (&downgrade.key, downgrade.owner),
                downgrade.fence,
                is_member,
                now,
            );
            let applied = if is_member {
                downgrade_at_member(state, downgrade, now)
            } else {
                state.downgrade(downgrade, now)
            };
            Answer::Applied(applied)
        }
        Body::Release(release, _) => {
            pass_fence(
                state,
                (&release.key, release.owner),
                release.fence,
                is_member,
                now,
            );
            let (key, owner) = (&release.key, release.owner);
            if !is_member {
                if release.refuses_late {
                    state.refuse_late(key, owner, retention, now);
                }
                return Answer::Applied(state.release(release, now));
            }
            let released = release_of_member(state, release, now);
            // An owner that only waited does not displace one that had the lock.
            if release.fence > 0 || released == Applied::Done {
                state.note_release(key, owner, retention, now);
            }
            Answer::Applied(released)
        }
        Body::Renew(renewal, lease) => {
            let claim = &renewal.claim;
            let is_held = state.held_by(&claim.key, claim.owner, now).is_some();
            if renewal.fence > 0 && is_held {
                state.fences.raise(renewal.fence - 1);
            } else if renewal.keeps_fence && is_held {
                state.fences.raise(renewal.last_fence);
                state.fences.keep();
            }
            Answer::Renewed(state.renew(std::slice::from_ref(renewal), *lease, now))
        }
        Body::Restore(renewal, lease) => {
            let is_restored = state.restore(renewal, *lease, now);
            if is_restored {
                state.fences.raise(renewal.last_fence);
                state.fences.keep();
            }
            Answer::Restored(is_restored)
        }
    }
}

/// Raises the last fence to the one that an owner passes. A quorum carries the largest fence to its members: with a release, and
/// with a downgrade, after which others may join.
fn pass_fence<F: Fences>(
    state: &mut State<F>,
    (key, owner): (&Key, OwnerId),
    fence: u64,
    is_member: bool,
    now: Time,
) {
    if fence > 0 && (is_member || has(state, key, owner, now)) {
        state.fences.raise(fence);
        state.fences.keep();
        if let Some(lock) = state.locks.get_mut(key) {
            lock.fence = lock.fence.max(fence);
        }
    }
}

/// Returns whether an owner has a lock, perhaps still as the exclusive one that it has downgraded.
fn has<F: Fences>(state: &mut State<F>, key: &Key, owner: OwnerId, now: Time) -> bool {
    let mut owners = [Some(owner), owner.before_downgrade()]
        .into_iter()
        .flatten();
    owners.any(|owner| state.held_by(key, owner, now).is_some())
}

/// Releases at a member of a quorum, and makes all waiters ask again.
fn release_of_member<F: Fences>(
    state: &mut State<F>,
    release: &ReleaseRequest,
    now: Time,
) -> Applied {
    let (key, mut release) = (&release.key, release.clone());
    if state.held_by(key, release.owner, now).is_none() {
        return state.release(&release, now);
    }
    let waiters = take_waiters(state, key);
    if release.min_hold.is_zero() && !waiters.is_empty() {
        release.min_hold = UNTIL_NOTIFIED;
    }
    let released = state.release(&release, now);
    ask_again(state, key, waiters, release.min_hold);
    released
}

/// Shares a lock at a member of a quorum, and makes all waiters ask again.
fn downgrade_at_member<F: Fences>(
    state: &mut State<F>,
    downgrade: &DowngradeRequest,
    now: Time,
) -> Applied {
    let key = &downgrade.key;
    if !has(state, key, downgrade.owner, now) {
        return Applied::NotHeld;
    }
    let waiters = take_waiters(state, key);
    let applied = state.downgrade(downgrade, now);
    ask_again(state, key, waiters, Duration::ZERO);
    applied
}

fn take_waiters<F: Fences>(state: &mut State<F>, key: &Key) -> Vec<OwnerId> {
    let waiters: Vec<OwnerId> = state.queues.of(key).collect();
    state.queues.forget(key);
    waiters
}

fn ask_again<F: Fences>(state: &mut State<F>, key: &Key, waiters: Vec<OwnerId>, after: Duration) {
    for owner in waiters {
        let key = key.clone();
        state.notify(owner.client(), Notification::Retry { key, owner, after });
    }
}
