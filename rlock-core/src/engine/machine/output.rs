//! What the machine wants to be done, and what it tells.

use std::time::Duration;

use super::{CallId, Entry, HoldEnd, Owner};
use crate::{error::LostCause, few::Few, key::Key, lease::Time, mode::Mode, options::Site};

/// An action or an observation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Output {
    /// The next step of the call that the input concerns.
    Step(Step),
    /// Another call has to be polled.
    Wake(CallId),
    /// The background sends this, and tells the reply.
    Send(Box<Request>),
    /// The background sends this renewal, with others.
    Renew(Box<Renew>),
    /// A hold has ended, after this number of renewals. `first` is the number of its first entry.
    Ended {
        owner: Owner,
        first: u32,
        end: HoldEnd,
        renewals: u32,
    },
    /// A hold is lost, or a release found it lost.
    Lost(Box<Loss>),
    /// What became of a lock that another client asked for.
    Revoked(Revoked),
    /// The background could not release the lock in time. Its lease ends it.
    GaveUp(Key, Owner, Mode),
}

/// The next step of a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// Send this, and tell the reply.
    Send(Box<Request>),
    /// Wait until [`Output::Wake`].
    Wait,
    /// Ask the holder of this key who it is, and wait.
    AskHolder(Key),
    /// The call has these entries, in the order of its keys.
    Entered(Few<Entered>),
    /// The entry has ended, or its hold is shared now.
    Left(Result<(), LostCause>),
    Refused(Refusal),
}

impl Step {
    /// Returns whether the call has ended.
    pub(crate) fn is_last(&self) -> bool {
        matches!(self, Self::Entered(_) | Self::Left(_) | Self::Refused(_))
    }
}

/// An entry into a hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Entered {
    pub(crate) entry: Entry,
    /// The number of the first entry of its hold.
    pub(crate) first: u32,
    pub(crate) token: u64,
    /// The mode in which the store granted the lock.
    pub(crate) mode: Mode,
    /// How the lock came, if the hold began with this entry.
    pub(crate) began: Option<By>,
}

/// The way in which a lock comes to a call that waits for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum By {
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
pub(crate) enum Refusal {
    /// Another owner has the lock of this key, for this time.
    Taken(Key, Option<Duration>),
    /// No owner has the lock on a majority of the servers.
    Split,
    /// Requests failed.
    Failed,
    /// The hold that the call is inside is lost.
    Lost(Key, LostCause),
    /// The call is inside a hold in this mode, which does not admit it.
    Upgrade(Key, Mode),
    /// Other entries of the hold, this many, need the exclusive lock.
    Nested(u32),
    Draining,
    Closed,
}

/// A hold that is lost.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Loss {
    pub(crate) key: Key,
    pub(crate) owner: Owner,
    pub(crate) mode: Mode,
    pub(crate) site: Site,
    pub(crate) cause: LostCause,
    /// The lease that was confirmed last.
    pub(crate) lease: Duration,
    /// The entries of the hold; none if it ended before.
    pub(crate) entries: Vec<u32>,
}

/// What became of a lock that another client asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Revoked {
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
pub(crate) struct Request {
    pub(super) number: u64,
    /// The call that sends it; `None` for the background.
    pub(crate) call: Option<CallId>,
    pub(crate) claims: Few<Claimed>,
    pub(crate) what: Ask,
    pub(crate) timeout: Duration,
}

impl Request {
    /// Returns whether an earlier request of one of the owners has no reply. The server must execute this one after it.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.claims.iter().any(|claim| claim.in_doubt)
    }
}

/// An owner and the lock that it asks for or has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Claimed {
    pub(crate) key: Key,
    pub(crate) owner: Owner,
    pub(crate) mode: Mode,
    /// An earlier request of the owner has no reply.
    pub(super) in_doubt: bool,
    /// Whether the lock is not granted yet.
    pub(super) arrives: bool,
}

/// What the store is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Ask {
    /// All these locks or none.
    Acquire { lease: Duration, waits: bool },
    /// The count of an owner that has its lock, for one more entry.
    Enter { lease: Duration, count: u32 },
    /// A lower count; zero releases the lock.
    Lower {
        fence: u64,
        count: u32,
        at_least: Duration,
        /// An earlier release may have ended the ownership while its lease was valid.
        repeats: bool,
        /// The outcome of the hold itself, and until when the call tries.
        held: Result<(), LostCause>,
        give_up: Time,
    },
}

/// A renewal. A lease of zero only asks whether the lock exists.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Renew {
    pub(crate) key: Key,
    pub(crate) owner: Owner,
    pub(crate) mode: Mode,
    pub(crate) lease: Duration,
    /// The lease that was confirmed last, and what is left of it.
    pub(crate) confirmed: Duration,
    pub(crate) left: Duration,
    /// The least new fence, or 0.
    pub(crate) fence: u64,
}
