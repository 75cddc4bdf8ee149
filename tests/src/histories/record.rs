//! The records, each a line of [`text`](super::text). All times are nanoseconds of [`clock`](super::clock).

use std::fmt;

use rlock_core::{LockMode, Token};
use serde::{Deserialize, Serialize};

use super::mode;

/// One line of a history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Record {
    /// The options of the run; the first line.
    Run(Run),
    /// A client started. `process` counts processes, including replacements.
    Started { process: u32, client: String },
    /// A process was killed.
    Killed { process: u32, at: u64 },
    /// The background of a client ended while its process went on.
    Ended { client: String, at: u64 },
    /// The user is about to shut a client down.
    Closed { client: String, at: u64 },
    /// A client's call and its result. A call that its process did not survive is missing.
    #[serde(rename = "call")]
    Operation(Operation),
    /// The end of a hold's validity when its holder checked; `None` if it was not valid.
    Looked {
        key: String,
        owner: String,
        at: u64,
        #[serde(rename = "until")]
        valid_until: Option<u64>,
    },
    /// A holder is about to downgrade its lock. It writes no more.
    Downgraded { key: String, owner: String, at: u64 },
    /// A holder is about to release its lock, or has stopped.
    Left { key: String, owner: String, at: u64 },
    /// An access to the resource.
    Accessed(Access),
    /// A lock with an owner, as an observer saw it.
    Seen(Sighting),
    /// A fault.
    Fault(Fault),
    /// Something was left after the run.
    Leftover { what: String },
    /// The end of the run.
    Over { at: u64 },
}

/// The options of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) seed: u64,
    pub(super) store: String,
    #[serde(default)]
    pub(super) server: String,
    pub(super) seconds: u64,
    pub(super) floor: u64,
    /// The number of replicas that a lock requires.
    pub(super) replicas: u32,
}

/// A call of a client, with its start and its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Operation {
    pub(super) process: u32,
    pub(super) verb: Verb,
    pub(super) key: String,
    #[serde(with = "mode::text")]
    pub(super) mode: LockMode,
    pub(super) owner: Option<String>,
    pub(super) token: Option<u64>,
    /// The duration of its lease.
    pub(super) lease: u64,
    /// The least time for which the lock stays taken.
    #[serde(rename = "keeps")]
    pub(super) min_hold: Option<u64>,
    /// How long its client retains the lock after the hold.
    #[serde(rename = "retains")]
    pub(super) retain: Option<u64>,
    #[serde(rename = "asked")]
    pub(super) invoke: u64,
    #[serde(rename = "at")]
    pub(super) returned: u64,
    #[serde(rename = "until")]
    pub(super) valid_until: Option<u64>,
    pub(super) outcome: Outcome,
    pub(super) error: Option<String>,
}

/// The kind of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verb {
    Acquire,
    TryAcquire,
    /// Run a body inside a lock.
    Run,
    /// Run a body inside two locks.
    RunBoth,
    /// Acquire a held lock again.
    Enter,
    /// Downgrade a lock.
    Downgrade,
    Release,
}

/// The outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    /// The lock was granted.
    Granted,
    Released,
    /// A lock was downgraded.
    Shared,
    /// Another owner had the lock until the wait ended.
    Taken,
    Lost,
    /// A nested call asked for more than its hold, as intended.
    Upgrade,
    /// The store did not reply in time.
    Unavailable,
    Closed,
    /// The caller dropped the future.
    Cancelled,
    /// The body panicked.
    Panicked,
    /// The store refused, or the call was invalid. Neither is expected.
    Refused,
}

/// What an access to the resource does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum AccessKind {
    Write,
    Read,
}

impl fmt::Display for AccessKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// An access, as the resource saw it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Access {
    pub(super) kind: AccessKind,
    pub(super) key: String,
    pub(super) owner: String,
    pub(super) token: u64,
    pub(super) at: u64,
    /// Whether the fence accepted it.
    pub(super) accepted: bool,
    /// Whether it is a write after that of a later writer, which only the register without a fence
    /// allows.
    pub(super) late: bool,
}

/// The first and the last time when the store had a lock for this owner. Each observation in between found it, too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Sighting {
    pub(super) key: String,
    pub(super) owner: String,
    pub(super) first: u64,
    pub(super) last: u64,
    /// The server of a quorum, each of which has its own locks.
    pub(super) server: Option<usize>,
}

/// A fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Fault {
    pub(super) kind: FaultKind,
    pub(super) start: u64,
    pub(super) end: u64,
    /// The only affected lock.
    pub(super) key: Option<String>,
    /// The only affected process.
    pub(super) process: Option<u32>,
    /// The only affected server or its proxy, if there are several.
    pub(super) server: Option<usize>,
    /// The number of lost messages.
    pub(super) messages: Option<u64>,
    /// When all Sentinels named another master.
    pub(super) named: Option<u64>,
}

/// How long a client on a busy machine takes at most to leave a former master and renew its locks at the new one, once all
/// Sentinels name the new one.
const FOLLOWED: u64 = 1_000_000_000;

impl Fault {
    /// A fault that is not limited to one key, process or server.
    pub(super) fn new(kind: FaultKind, start: u64, end: u64) -> Self {
        Self {
            kind,
            start,
            end,
            key: None,
            process: None,
            server: None,
            messages: None,
            named: None,
        }
    }

    /// Returns until when a grant may be lost by this fault. A former master may accept requests for longer, but no client
    /// sends it any.
    pub(super) fn loses_until(&self) -> u64 {
        let followed = self.named.map(|named| named + FOLLOWED);
        followed.map_or(self.end, |followed| followed.min(self.end))
    }
}

/// The kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FaultKind {
    ConnectionsReset,
    ConnectionsHalfClosed,
    ConnectionsRefused,
    RepliesDropped,
    RequestsDropped,
    RepliesDelayed,
    BlackHole,
    RequestsSwallowed,
    RepliesSwallowed,
    RequestsHeld,
    RepliesHeld,
    /// All existing connections went silent; new ones worked.
    ConnectionsSilenced,
    /// Every second connection went silent, also new ones.
    EverySecondSilenced,
    ServerPaused,
    /// The process of one session was paused.
    SessionPaused,
    /// Another transaction kept the row of a lock.
    RowKept,
    /// The server was paused again and again, for a moment each time.
    ServerSlowed,
    /// The server was killed, and restarted with its data.
    ServerRestarted,
    /// The server was killed, and restarted empty.
    ServerKilled,
    /// The master was killed, and its replica replaced it.
    MasterKilled,
    /// The master was paused until its replica had replaced it.
    MasterPaused,
    /// The master was cut off until its replica had replaced it, and for a while after. Then there
    /// were two masters until it was demoted.
    MasterCutOff,
    /// The Sentinels could not reach the master, but clients could, until its replica had replaced
    /// it and for a while after.
    MasterUnseen,
    /// An operator ordered a failover of Sentinels. The former master accepted writes until it was demoted.
    MasterReplaced,
    /// An operator ordered a failover of a cluster.
    MasterHandedOver,
    /// A lock's slot was moved from one master to another.
    SlotMoved,
    ClientsKilled,
    ScriptsFlushed,
    AllFlushed,
    LockDeleted,
    ProcessKilled,
    ProcessPaused,
    /// The process ended properly, and another one started.
    ProcessRetired,
    ClientShutDown,
    ExecutorBlocked,
    AcquireCancelled,
    BodyCancelled,
    BodyPanicked,
    GuardDropped,
    WaitTimedOut,
}

impl FaultKind {
    /// Returns whether the store forgets locks by this fault, so that exclusion fails until clients
    /// notice.
    pub(super) fn loses_data(self) -> bool {
        matches!(
            self,
            Self::ServerKilled
                | Self::MasterKilled
                | Self::MasterPaused
                | Self::MasterCutOff
                | Self::MasterUnseen
                | Self::MasterReplaced
                | Self::AllFlushed
                | Self::LockDeleted
        )
    }

    /// Returns whether connections stay open, on which the server reports the loss of data.
    pub(super) fn leaves_connections(self) -> bool {
        matches!(self, Self::AllFlushed | Self::LockDeleted)
    }

    /// Returns whether the old master continues after its replacement.
    pub(super) fn leaves_two_masters(self) -> bool {
        matches!(
            self,
            Self::MasterPaused | Self::MasterCutOff | Self::MasterUnseen | Self::MasterReplaced
        )
    }

    /// Returns whether delayed requests may run at the end of the fault.
    pub(super) fn holds_up(self) -> bool {
        matches!(
            self,
            Self::ServerPaused
                | Self::ServerSlowed
                | Self::SessionPaused
                | Self::RowKept
                | Self::ServerRestarted
                | Self::ProcessPaused
                | Self::RequestsHeld
                | Self::RepliesHeld
                | Self::RepliesDelayed
                | Self::BlackHole
                | Self::RepliesSwallowed
                | Self::RequestsSwallowed
                | Self::ConnectionsRefused
                | Self::ConnectionsSilenced
                | Self::EverySecondSilenced
                | Self::ServerKilled
                | Self::MasterKilled
                | Self::MasterPaused
                | Self::MasterCutOff
                | Self::MasterUnseen
                | Self::MasterReplaced
                | Self::MasterHandedOver
                | Self::SlotMoved
                | Self::ExecutorBlocked
        )
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The name of a hold. Several holds may have one owner in turn, and differ in the token.
pub(super) fn hold_name(owner: &str, token: Token) -> String {
    format!("{owner}/{token}")
}

/// The owner of a hold, as the store names it.
pub(super) fn owner_of(hold: &str) -> &str {
    hold.split_once('/').map_or(hold, |(owner, _)| owner)
}

/// The ownership of a hold or of an owner. A downgrade does not change it.
pub(super) fn ownership_of(hold: &str) -> &str {
    let owner = owner_of(hold);
    owner.strip_suffix('s').unwrap_or(owner)
}

/// The client of an owner.
pub(super) fn client_of(owner: &str) -> &str {
    owner.rsplit_once(':').map_or(owner, |(client, _)| client)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_keeps_its_ownership_when_it_is_shared() {
        assert_eq!(owner_of("a:1s/7/0"), "a:1s");
        for hold in ["a:1", "a:1/7", "a:1s/7/0"] {
            assert_eq!(ownership_of(hold), "a:1");
            assert_eq!(client_of(hold), "a");
        }
        assert_eq!(ownership_of("a:1.3p/7"), "a:1.3p");
    }
}
