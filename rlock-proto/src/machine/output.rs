//! Everything that a machine asks its driver to do, and what it reports.

use std::time::Duration;

use uuid::Uuid;

use super::{CallId, Entry, Owner, SlotId, doubt::Behind};
use crate::{
    few::{self, Few},
    key::Key,
    lease::Time,
    lost::LostCause,
    mode::LockMode,
    options::Site,
    owner::OwnerId,
    store::{
        AcquireRequest, Change, Claim, DowngradeRequest, ReleaseRequest, Renewal, SetCountRequest,
        StoreRequest,
    },
};

/// The outputs of an input, in the order in which the driver carries them out.
pub type Outputs<'a> = std::vec::Drain<'a, Output>;

/// An action or an observation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Output {
    /// The next step of the call that the input concerns.
    Step(Step),
    /// Another call has to be polled.
    Wake(CallId),
    /// The background sends this request, and passes its reply to the machine.
    Send(Box<Request>),
    /// The background sends this renewal, with others.
    Renew(Box<Renew>),
    /// A hold has ended, after this number of renewals. `first` is the number of its first entry.
    Ended {
        /// The owner of the hold.
        owner: Owner,
        /// The number of its first entry.
        first: u32,
        /// How it ended.
        end: HoldEnd,
        /// How often its lease was renewed.
        renewals: u32,
    },
    /// A hold is lost, or a release found it lost.
    Lost(Box<Loss>),
    /// The outcome of a revocation by another client.
    Revoked(Revoked),
    /// The client gave up releasing the lock: its lease has ended, or the store refuses the release for good.
    GaveUp {
        /// The key of the lock.
        key: Key,
        /// The owner that was not released.
        owner: Owner,
        /// Its mode.
        mode: LockMode,
        /// Whether a hold had begun. Otherwise, an acquire without a reply may have been executed.
        was_held: bool,
    },
}

/// The next step of a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Send this request, and pass its reply to the machine.
    Send(Box<Request>),
    /// Wait until [`Output::Wake`].
    Wait,
    /// The call has these entries, in the order of its keys.
    Entered(Few<Entered>),
    /// The entry has ended. With a cause, its hold was lost.
    Left(Result<(), LostCause>),
    /// The hold has been downgraded to a shared one.
    Downgraded,
    /// The guard has been detached from its lock, which this token releases.
    Detached {
        /// The token of the hold, or a later one if the store has set a new fence since it began.
        token: u64,
    },
    /// Send this renewal, which extends a hold, and pass its outcome to the machine.
    Renew(Box<Renew>),
    /// The call gets no lock, or the holder cannot do what it asked for.
    Refused(Refusal),
}

impl Step {
    /// Returns whether the call has ended.
    #[must_use]
    pub fn is_last(&self) -> bool {
        !matches!(self, Self::Send(_) | Self::Wait)
    }
}

/// An entry into a hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entered {
    /// The entry.
    pub entry: Entry,
    /// The number of the first entry of its hold.
    pub first: u32,
    /// The fencing token of the hold.
    pub token: u64,
    /// The mode in which the store granted the lock.
    pub mode: LockMode,
    /// How the lock came, if the hold began with this entry.
    pub began: Option<By>,
}

/// The way in which a lock comes to a call that waits for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum By {
    /// A hold of this client left it.
    Local,
    /// The first request, after a release.
    #[default]
    Release,
    /// A message of the store.
    Message,
    /// A request after a pause.
    Timer,
}

/// Why a call gets no lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Another owner has, or had, the lock of this key, for this time.
    Taken(Key, Option<Duration>),
    /// No owner has the lock on a majority of the servers.
    Split,
    /// Requests of the call, or of the call before it in the line, had no answer in time that says who has the lock.
    Failed,
    /// The hold that the call or the entry is inside has ended or is lost.
    Lost(Key, LostCause),
    /// The call is inside a hold in this mode, which does not admit it.
    Upgrade(Key, LockMode),
    /// Other entries of the hold, this many, need the exclusive lock.
    Nested(u32),
    /// The client drains, and begins no further calls.
    Draining,
    /// The client is closed.
    Closed,
}

/// A hold that is lost.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Loss {
    /// The key of the lock.
    pub key: Key,
    /// The owner that had the lock.
    pub owner: Owner,
    /// The mode of the hold.
    pub mode: LockMode,
    /// Where the hold began.
    pub site: Site,
    /// Why it was lost.
    pub cause: LostCause,
    /// The lease that was confirmed last.
    pub lease: Duration,
    /// The entries of the hold; none if it ended before.
    pub entries: Vec<u32>,
}

/// The outcome of a revocation by another client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Revoked {
    /// Its hold is lost.
    Lost,
    /// It had no hold, and is being released.
    Retained,
    /// Nothing was lost: its hold was lost before, or has not begun. In the second case, the call with its turn asks
    /// the store with another owner.
    Given,
    /// Its hold has another token.
    OtherHold,
    /// It is not held.
    NotHeld,
}

/// A request to the store. It returns to the machine with its reply.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// Its number among the requests of the client.
    pub number: u64,
    /// The call that sends it; `None` for the background.
    pub call: Option<CallId>,
    /// The locks, each with its owner. Only an acquire may have several.
    pub claims: Few<Claimed>,
    /// What the store is asked for.
    pub what: Ask,
    /// How long to wait for the reply.
    pub timeout: Duration,
}

impl Request {
    /// Returns whether this is about a lock that was held. Otherwise, an acquire without a reply may have been executed.
    #[must_use]
    pub fn was_held(&self) -> bool {
        match self.what {
            Ask::Release { was_held, .. } => was_held,
            Ask::SetCount { .. } | Ask::Downgrade { .. } => true,
            Ask::Acquire { .. } => false,
        }
    }

    /// Returns whether this releases a lock, or a place in its wait queue.
    #[must_use]
    pub fn is_release(&self) -> bool {
        matches!(self.what, Ask::Release { .. })
    }

    /// Returns the request as the store gets it from this client.
    #[must_use]
    pub fn for_store(&self, client: Uuid) -> StoreRequest {
        let claim = |claimed: &Claimed| Claim {
            key: claimed.key.clone(),
            owner: OwnerId::new(client, claimed.owner, claimed.mode),
        };
        let first = || claim(&self.claims[0]);
        StoreRequest::Change(match self.what {
            Ask::Acquire { lease, waits } => {
                return StoreRequest::Acquire(AcquireRequest {
                    claims: few::collect(self.claims.iter().map(claim)),
                    lease,
                    waits,
                });
            }
            Ask::SetCount { count, lease } => {
                let Claim { key, owner } = first();
                Change::SetCount(SetCountRequest {
                    key,
                    owner,
                    count,
                    lease,
                })
            }
            Ask::Downgrade { fence } => {
                let Claim { key, owner } = first();
                Change::Downgrade(DowngradeRequest { key, owner, fence })
            }
            Ask::Release {
                fence, min_hold, ..
            } => {
                let Claim { key, owner } = first();
                Change::Release(ReleaseRequest {
                    key,
                    owner,
                    fence,
                    min_hold,
                    refuses_late: self.claims[0].behind != Behind::Nothing,
                })
            }
        })
    }

    /// Returns the slots of its keys.
    pub(super) fn slots(&self) -> Few<SlotId> {
        few::collect(self.claims.iter().map(|claim| claim.slot))
    }

    /// Returns whether an earlier request of one of the owners has no reply. The server must execute this one after it.
    #[must_use]
    pub fn is_in_doubt(&self) -> bool {
        let mut claims = self.claims.iter();
        claims.any(|claim| matches!(claim.behind, Behind::Request | Behind::Release))
    }

    /// Returns whether this goes behind a release without an answer, which may have ended the ownership.
    #[must_use]
    pub fn repeats(&self) -> bool {
        self.claims[0].behind == Behind::Release
    }
}

/// An owner and the lock that it asks for or has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Claimed {
    /// The slot of the key.
    pub(super) slot: SlotId,
    /// The key of the lock.
    pub key: Key,
    /// The owner that asks for the lock or has it.
    pub owner: Owner,
    /// The mode of the owner.
    pub mode: LockMode,
    /// What the server must execute before.
    pub(super) behind: Behind,
    /// Whether the lock is not granted yet.
    pub(super) arrives: bool,
}

/// What the store is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ask {
    /// All these locks or none.
    Acquire {
        /// How long the store keeps the locks without a renewal.
        lease: Duration,
        /// Whether an owner that finds its lock taken joins the wait queue.
        waits: bool,
    },
    /// The count of an owner.
    SetCount {
        /// The number of entries.
        count: u32,
        /// How long the store keeps the lock without a renewal.
        lease: Duration,
    },
    /// A shared lock instead of the exclusive one.
    Downgrade {
        /// The last known fence, if the store may lack it, or 0.
        fence: u64,
    },
    /// The release of a lock, or of a place in its wait queue.
    Release {
        /// The last known fence, if the store may lack it, or 0.
        fence: u64,
        /// How long a released lock stays taken without an owner.
        min_hold: Duration,
        /// Whether a hold had begun. Otherwise, the owner has a lock only if an acquire without a reply was executed.
        was_held: bool,
        /// The outcome of the hold itself, or whether its lease had ended.
        held: Result<(), LostCause>,
        /// How long the call waits for the outcome.
        waits_until: Time,
    },
}

/// A renewal. A lease of zero only asks whether the lock exists.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Renew {
    /// The slot of the key.
    pub slot: SlotId,
    /// The key of the lock.
    pub key: Key,
    /// The owner that has the lock.
    pub owner: Owner,
    /// The mode of the owner.
    pub mode: LockMode,
    /// The lease to renew by.
    pub lease: Duration,
    /// The lease that was confirmed last.
    pub confirmed: Duration,
    /// The rest of the confirmed lease.
    pub rest: Duration,
    /// The least new fence, or 0.
    pub fence: u64,
    /// The last known fence, if the store may need it, or 0.
    pub last_fence: u64,
    /// Whether the store keeps that fence for longer.
    pub keeps_fence: bool,
    /// The number of entries.
    pub count: u32,
}

impl Renew {
    /// Returns the renewal as the store gets it from this client.
    #[must_use]
    pub fn for_store(&self, client: Uuid) -> Renewal {
        let claim = Claim {
            key: self.key.clone(),
            owner: OwnerId::new(client, self.owner, self.mode),
        };
        Renewal {
            claim,
            fence: self.fence,
            last_fence: self.last_fence,
            keeps_fence: self.keeps_fence,
            count: self.count,
        }
    }
}

/// The end of a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HoldEnd {
    /// The body returned, or the guard was released.
    Released,
    /// The body returned an error, or the guard was marked as failed.
    Failed,
    /// The lock was lost.
    Lost,
    /// The body panicked.
    Panicked,
    /// The call was cancelled.
    Cancelled,
    /// The guard was detached, and its lock left to its lease.
    Detached,
}

impl HoldEnd {
    /// Returns the value of a label, or of a field of a span.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::Failed => "failed",
            Self::Lost => "lost",
            Self::Panicked => "panicked",
            Self::Cancelled => "cancelled",
            Self::Detached => "detached",
        }
    }
}
