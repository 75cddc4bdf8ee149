//! What is recorded: one line of JSON each. All times are nanoseconds of [`clock`](super::clock).

use std::fmt;

use rlock_core::OwnerId;
use serde::{Deserialize, Serialize};

use super::options::Kind;

/// One line of a history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(super) enum Record {
    /// What is run; the first line.
    Run(Run),
    /// A client began. `process` counts processes, replacements included.
    Started {
        process: u32,
        client: String,
        at: u64,
    },
    /// A process was killed.
    Killed { process: u32, at: u64 },
    /// The background of a client ended while its process went on.
    Ended { client: String, at: u64 },
    /// A client is about to be shut down by its user.
    Closed { client: String, at: u64 },
    /// A client called, and was answered. A call that its process did not survive is not here.
    Operation(Operation),
    /// Until when a hold could be relied on, when its holder looked; `None`: not any more.
    Looked {
        key: String,
        owner: String,
        at: u64,
        valid_until: Option<u64>,
    },
    /// A holder is about to release its lock, or stopped.
    Left { key: String, owner: String, at: u64 },
    /// The resource was written to.
    Written(Written),
    /// The store was seen to hold a lock for this owner, first and last; in between nobody else had it.
    Locked {
        key: String,
        owner: String,
        first: u64,
        last: u64,
        /// Which of several servers, each of which has locks of its own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        server: Option<usize>,
    },
    /// Something was made to fail.
    Fault(Fault),
    /// Something is still there that should be gone.
    Leftover { what: String },
    /// The run is over.
    Over { at: u64 },
}

/// What is run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) seed: u64,
    pub(super) store: Kind,
    pub(super) server: Option<String>,
    pub(super) seconds: u64,
    pub(super) processes: u32,
    pub(super) tasks: u32,
    pub(super) keys: u32,
    pub(super) floor: u64,
    /// How many replicas have to have a lock before it counts as taken.
    #[serde(default)]
    pub(super) replicas: u32,
    pub(super) at: u64,
}

/// A call of a client, from before it to after it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Operation {
    pub(super) process: u32,
    pub(super) task: u32,
    #[serde(rename = "operation")]
    pub(super) verb: Verb,
    pub(super) key: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) owner: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) count: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) token: Option<u64>,
    /// How long its lease is.
    pub(super) lease: u64,
    /// How long the lock stays taken at the least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) at_least: Option<u64>,
    /// How long its client keeps the lock after the hold.
    pub(super) retain: Option<u64>,
    pub(super) invoke: u64,
    #[serde(rename = "return")]
    pub(super) returned: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) valid_until: Option<u64>,
    pub(super) outcome: Outcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

/// What a client calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verb {
    Acquire,
    TryAcquire,
    /// A body inside a lock.
    Run,
    /// A body inside two locks.
    RunBoth,
    /// A nested acquire.
    Enter,
    Release,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    /// The caller is inside.
    Granted,
    Released,
    /// Another owner had it, and the caller did not wait longer.
    Taken,
    Lost,
    /// The store did not answer in time.
    Unavailable,
    Closed,
    /// The caller dropped the future.
    Cancelled,
    /// The body panicked.
    Panicked,
    /// The store refused, or the call made no sense: neither is expected.
    Refused,
}

/// A write, as the resource saw it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Written {
    pub(super) key: String,
    pub(super) owner: String,
    pub(super) token: u64,
    pub(super) at: u64,
    /// Whether the fence let it pass.
    pub(super) accepted: bool,
    /// Whether a later holder had written before: what the register without a fence suffers.
    pub(super) late: bool,
}

/// Something that was made to fail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Fault {
    pub(super) kind: FaultKind,
    pub(super) start: u64,
    pub(super) end: u64,
    /// Of this lock alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<String>,
    /// Of this process alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) process: Option<u32>,
    /// Of this server alone, or the ways to it, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) server: Option<usize>,
    /// How many messages were lost by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) messages: Option<u64>,
}

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
        }
    }
}

/// What can be made to fail.
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
    /// All connections that were there got nothing through any more; new ones did.
    ConnectionsSilenced,
    /// Every second connection got nothing through, new ones too.
    EverySecondSilenced,
    ServerPaused,
    /// The server was paused again and again, for a moment each.
    ServerSlowed,
    /// The server was killed, and came back with its data.
    ServerRestarted,
    /// The server was killed, and came back empty.
    ServerKilled,
    /// The master was killed, and its replica took its place.
    MasterKilled,
    /// The master was paused for so long that its replica took its place.
    MasterPaused,
    /// Nobody reached the master until its replica took its place, and for a while after; then there were two, until
    /// it was told.
    MasterCutOff,
    /// The Sentinels did not reach the master, and clients did, until its replica had taken its place and for a
    /// while after.
    MasterUnseen,
    /// The master was told to let its replica take its place.
    MasterHandedOver,
    /// The slot of a lock was moved from one master to another.
    SlotMoved,
    ClientsKilled,
    ScriptsFlushed,
    AllFlushed,
    LockDeleted,
    ProcessKilled,
    ProcessPaused,
    /// The process ended in good order, and another began.
    ProcessRetired,
    /// The client's background was shut down under it.
    ClientEnded,
    ClientShutDown,
    ExecutorBlocked,
    AcquireCancelled,
    BodyCancelled,
    BodyPanicked,
    GuardDropped,
    WaitTimedOut,
}

impl FaultKind {
    /// Whether the store forgets locks by it, so that nothing excludes anybody until that is noticed.
    pub(super) fn loses_data(self) -> bool {
        matches!(
            self,
            Self::ServerKilled
                | Self::MasterKilled
                | Self::MasterPaused
                | Self::MasterCutOff
                | Self::MasterUnseen
                | Self::AllFlushed
                | Self::LockDeleted
        )
    }

    /// Whether connections stay open, on which the loss of data is reported.
    pub(super) fn leaves_connections(self) -> bool {
        matches!(self, Self::AllFlushed | Self::LockDeleted)
    }

    /// Whether a master goes on though another has taken its place.
    pub(super) fn leaves_two_masters(self) -> bool {
        matches!(
            self,
            Self::MasterPaused | Self::MasterCutOff | Self::MasterUnseen
        )
    }

    /// Whether requests that are under way meanwhile may be executed at its end.
    pub(super) fn holds_up(self) -> bool {
        matches!(
            self,
            Self::ServerPaused
                | Self::ServerSlowed
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

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The name of a hold: several holds may have one owner after another, and differ in the token.
pub(super) fn hold_name(owner: OwnerId, token: u64) -> String {
    format!("{owner}/{token}")
}

/// The owner of a hold, as the store has it.
pub(super) fn owner_of(hold: &str) -> &str {
    hold.split_once('/').map_or(hold, |(owner, _)| owner)
}

/// What has become of the client that this owner belongs to is known by this.
pub(super) fn client_of(owner: &str) -> &str {
    owner.rsplit_once(':').map_or(owner, |(client, _)| client)
}
