//! Everything that can happen to a machine: calls, replies, notifications, time.

use std::time::Duration;

use super::{CallId, Entry, HoldEnd, Owner, Renew, Request, SlotId, doubt::Answer};
use crate::{
    few::Few,
    key::Key,
    lease::Time,
    mode::LockMode,
    options::LockOptions,
    owner::OwnerId,
    store::{Acquired, Applied, Notification, RenewalOutcome},
};

/// An event in a client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Input {
    /// A call asks for locks.
    Acquire {
        /// The number of the call.
        call: CallId,
        /// The locks in ascending order of their keys.
        locks: Few<WantedLock>,
        /// The holds that the call chain is inside, the innermost first. The call enters those of its keys. If one
        /// of them is live, the call begins even if the client drains, because the hold may need further locks to end.
        inside: Few<Inside>,
        /// The options of all these locks, but for the mode.
        options: LockOptions,
        /// Whether a body runs inside the entries. It stops when the hold is lost.
        runs_body: bool,
    },
    /// A call ends its entry. It waits for the store's reply as `call`, or leaves that to the background.
    Leave {
        /// The entry that ends.
        entry: Entry,
        /// How the call ended.
        end: HoldEnd,
        /// The call that waits for the reply.
        call: Option<CallId>,
    },
    /// A holder sets the lease of its hold, which counts from now on.
    Extend(Entry, Duration),
    /// A holder ends its hold, and leaves the lock to its lease. Sends no request.
    Detach(Entry),
    /// A holder downgrades its hold.
    Downgrade(Entry),
    /// A call adds an entry to the hold of this one, for work that a loss does not stop. Sends no request.
    Keep(Entry),
    /// A body begins inside an entry of a call that did not say so when it asked.
    Run(Entry),
    /// A call is polled.
    Poll(CallId),
    /// The task of a call was woken while this request of it is under way, so the reply may have arrived, or was polled
    /// since and has no reply.
    Woken {
        /// The number of the call.
        call: CallId,
        /// The number of the request.
        request: u64,
        /// Whether the call was polled since.
        is_polled: bool,
    },
    /// The future of a call was dropped.
    Cancel(CallId),
    /// The store has replied to a request, or no reply will come. With a reply, the call that sent it is polled.
    Reply(Box<Request>, Reply),
    /// The store has replied to a renewal, or no reply will come.
    Renewed {
        /// The renewal.
        renew: Renew,
        /// When it was sent.
        sent_at: Time,
        /// The outcome; `None` if no reply will come.
        outcome: Option<RenewalOutcome>,
    },
    /// Something happened to a lock. It concerns this owner, or all of the client.
    Event(Key, Option<Owner>, Event),
    /// A deadline may have come.
    Time,
    /// The client retains nothing any more, and begins no calls but those inside a hold.
    Drain,
    /// The client ends: it acquires nothing, its holds are lost, and what has no body is released.
    Close,
    /// Nothing is sent any more.
    End,
}

/// A lock that a call wants.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WantedLock {
    /// The key.
    pub key: Key,
    /// The mode.
    pub mode: LockMode,
}

/// A hold that a call chain is inside, and one of its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Inside {
    /// The slot of its key.
    pub slot: SlotId,
    /// The owner of the hold.
    pub owner: Owner,
    /// The token of the hold.
    pub token: u64,
    /// The number of the entry.
    pub entry: u32,
}

/// Something that happened to a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The store handed the lock off to an owner in its wait queue.
    Granted {
        /// The mode of the grant.
        mode: LockMode,
        /// The fence of the grant.
        fence: u64,
        /// How long the lock is granted for.
        ttl: Duration,
        /// Whether others wait for the lock.
        wanted: bool,
    },
    /// Another client waits for the lock.
    Wanted,
    /// A waiter has to ask again after this time. A retention ends then.
    Retry {
        /// The mode of the waiter.
        mode: LockMode,
        /// After how long it asks.
        after: Duration,
    },
    /// Another client changed the lock.
    Changed,
    /// Messages were missed, so the lock may have changed.
    Missed {
        /// Whether messages arrive again. Otherwise, more may be missed.
        is_heard: bool,
    },
    /// Another client extends the hold with this token. The lease only grows.
    Extend {
        /// The token of the hold that is meant.
        token: u64,
        /// The lease that it has from now on at least.
        lease: Duration,
    },
    /// Another client revokes the lock, or takes it `at_once`, if its hold has this token.
    Revoke {
        /// The token of the hold that is meant; `None` means any.
        token: Option<u64>,
        /// Whether the lock is taken already.
        at_once: bool,
    },
}

impl Event {
    /// Translates a notification to an owner into its key, owner and event. Returns `None` for all others.
    #[must_use]
    pub fn of(notification: Notification) -> Option<(Key, OwnerId, Self)> {
        match notification {
            Notification::Granted {
                key,
                owner,
                fence,
                ttl,
                wanted,
            } => {
                let granted = Self::Granted {
                    mode: owner.mode(),
                    fence,
                    ttl,
                    wanted,
                };
                Some((key, owner, granted))
            }
            Notification::Wanted { key, owner } => Some((key, owner, Self::Wanted)),
            Notification::Retry { key, owner, after } => {
                let mode = owner.mode();
                Some((key, owner, Self::Retry { mode, after }))
            }
            Notification::PermitsDiffer { .. }
            | Notification::Message(_)
            | Notification::Changed(_)
            | Notification::SomeChanged(_)
            | Notification::Disconnected => None,
        }
    }
}

/// The reply to a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// The outcome of a request for locks.
    Acquired(Acquired),
    /// The outcome of a request that changes what an owner has.
    Applied(Applied),
    /// The store, or the way to it, has failed.
    Failed(Failure),
    /// The same for a request for several locks, of which other masters of a cluster have granted those of these claims.
    FailedInPart(Few<usize>, Failure),
    /// None will come: the future that sent the request was dropped.
    None,
}

/// How a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Failure {
    /// The store may have executed the request, or may yet.
    pub maybe_executed: bool,
    /// A later try may succeed.
    pub transient: bool,
}

impl Failure {
    /// No reply will come.
    pub(super) const UNANSWERED: Self = Self {
        maybe_executed: true,
        transient: true,
    };
}

impl Reply {
    /// Returns the claims that were granted although the request has failed.
    pub(super) fn granted_in_part(&self) -> Few<usize> {
        match self {
            Self::FailedInPart(granted, _) => granted.clone(),
            _ => Few::new(),
        }
    }

    /// Returns the reply to a request for locks.
    pub(super) fn acquired(self) -> Result<Acquired, Failure> {
        match self {
            Self::Acquired(acquired) => Ok(acquired),
            Self::Failed(failure) | Self::FailedInPart(_, failure) => Err(failure),
            Self::Applied(_) | Self::None => Err(Failure::UNANSWERED),
        }
    }

    /// Returns the reply to a request that changes what an owner has.
    pub(super) fn applied(self) -> Result<Applied, Failure> {
        match self {
            Self::Applied(applied) => Ok(applied),
            Self::Failed(failure) | Self::FailedInPart(_, failure) => Err(failure),
            Self::Acquired(_) | Self::None => Err(Failure::UNANSWERED),
        }
    }
}

impl From<Failure> for Answer {
    fn from(failure: Failure) -> Self {
        if failure.maybe_executed {
            Self::Missing
        } else {
            Self::NotExecuted
        }
    }
}
