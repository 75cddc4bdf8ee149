//! Builds the command for each request: its script, keys and arguments.

use std::{
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use redis::{Arg, Cmd, RedisWrite, ToRedisArgs, cmd};
use rlock_proto::{
    few::{Few, one},
    key::Key,
    mode::LockMode,
    owner::OwnerId,
    store::{
        AcquireRequest, Change, DowngradeRequest, GRACE, ReleaseRequest, Renewal, SetCountRequest,
    },
};
use uuid::Uuid;

use super::scripts::{Script, Scripts, millis};
use crate::store::{floor::Floor, keyspace::Keyspace, options::StoreOptions};

/// Room for the arguments of each lock in a call of a script, and for those that its locks share.
const ARGUMENTS: usize = 8;
const BYTES: usize = 128;
/// How long after a release an acquire may still arrive over a connection that was given up.
const LATE: Duration = Duration::from_secs(61);
const GROWS: &str = "a command grows";

pub(in crate::store) struct Commands {
    pub(in crate::store) keyspace: Keyspace,
    pub(super) scripts: Scripts,
    /// The time for which the server keeps a fence after the lease of its grant.
    fence_retention: Duration,
    pub(super) floor: Arc<Floor>,
    /// The client, and the beginning of the texts of its owners.
    client: (Uuid, String),
    /// Whether the server is one of a quorum.
    of_quorum: bool,
}

/// A request to the server.
#[derive(Clone, Copy)]
pub(in crate::store) enum Operation<'a> {
    /// Acquires locks. With a flag, it is not sent any more once that is `true`.
    Acquire(&'a AcquireRequest, Option<&'a AtomicBool>),
    Change(&'a Change),
    /// Renews locks by this lease.
    Renew(&'a [Renewal], Duration),
    /// Restores locks, for this lease, at a member of a quorum that lacks them.
    Restore(&'a [Renewal], Duration),
    Inspect(&'a Key),
    /// A command that calls no script.
    LookUp(&'a Cmd),
    Ping,
}

impl<'a> Operation<'a> {
    /// Returns the name of the operation in metrics.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Acquire(..) => "acquire",
            Self::Change(Change::SetCount(_)) => "set_count",
            Self::Change(Change::Downgrade(_)) => "downgrade",
            Self::Change(Change::Release(_)) => "release",
            Self::Renew(..) => "renew",
            Self::Restore(..) => "restore",
            Self::Inspect(_) => "inspect",
            Self::LookUp(_) => "look_up",
            Self::Ping => "ping",
        }
    }

    /// Returns whether the request changes what an owner has.
    pub(super) fn is_change(self) -> bool {
        matches!(self, Self::Acquire(..) | Self::Change(_))
    }

    /// Returns whether the request writes, which a replica refuses.
    pub(super) fn writes(self) -> bool {
        self.is_change() || matches!(self, Self::Renew(..) | Self::Restore(..))
    }

    /// Returns the locks that the request names.
    pub(super) fn keys(self) -> Few<&'a Key> {
        match self {
            Self::Acquire(request, _) => request.claims.iter().map(|claim| &claim.key).collect(),
            Self::Change(change) => one(change.key()),
            Self::Renew(renewals, _) | Self::Restore(renewals, _) => (renewals.iter())
                .map(|renewal| &renewal.claim.key)
                .collect(),
            Self::Inspect(key) => one(key),
            Self::LookUp(_) | Self::Ping => Few::new(),
        }
    }

    /// Returns whether the request must not be sent any more.
    pub(super) fn is_void(self) -> bool {
        matches!(self, Self::Acquire(_, Some(decided)) if decided.load(Ordering::Acquire))
    }
}

impl Commands {
    pub(in crate::store) fn new(keyspace: Keyspace, options: &StoreOptions) -> Self {
        Self {
            keyspace,
            scripts: Scripts::new(),
            fence_retention: options.fence_retention,
            floor: Arc::clone(&options.floor),
            client: (options.client, format!("{}:", options.client)),
            of_quorum: options.run_ids.is_some(),
        }
    }

    /// Returns the command of a request.
    pub(super) fn command(&self, call: Operation<'_>) -> Cmd {
        match call {
            Operation::Acquire(request, _) => self.acquire(request),
            Operation::Change(Change::SetCount(set)) => self.set_count(set),
            Operation::Change(Change::Downgrade(downgrade)) => self.downgrade(downgrade),
            Operation::Change(Change::Release(release)) => self.release(release),
            Operation::Renew(renewals, lease) => self.renew(renewals, lease),
            Operation::Restore(renewals, lease) => self.restore(renewals, lease),
            Operation::Inspect(key) => self.begin(&self.scripts.inspect, [key]),
            Operation::LookUp(command) => command.clone(),
            Operation::Ping => cmd("PING"),
        }
    }

    /// Returns the same command with the text of its script instead of the hash.
    pub(super) fn with_text(&self, command: &Cmd) -> Cmd {
        let args: Vec<&[u8]> = command
            .args_iter()
            .filter_map(|arg| match arg {
                Arg::Simple(arg) => Some(arg),
                _ => None,
            })
            .collect();
        let named = |script: &&Script| args.get(1) == Some(&script.hash.as_bytes());
        match self.scripts.all().find(named) {
            Some(script) => cmd("EVAL").arg(&script.text).arg(&args[2..]).take(),
            None => command.clone(),
        }
    }

    /// Returns a call of a script for these locks, without arguments.
    fn begin<'k, K>(&self, script: &Script, keys: K) -> Cmd
    where
        K: IntoIterator<Item = &'k Key, IntoIter: ExactSizeIterator>,
    {
        let keys = keys.into_iter();
        let parts = 1 + keys.len();
        let mut command = Cmd::with_capacity(parts * ARGUMENTS, parts * BYTES);
        command.arg("EVALSHA").arg(&script.hash).arg(keys.len());
        for key in keys {
            let mut name = command.writer_for_next_arg();
            for part in self.keyspace.parts_of_lock(key) {
                name.write_all(part.as_bytes()).expect(GROWS);
            }
        }
        command
    }

    fn acquire(&self, request: &AcquireRequest) -> Cmd {
        let keys = request.claims.iter().map(|claim| &claim.key);
        let mut command = self.begin(&self.scripts.acquire, keys);
        command
            .arg(millis(request.lease))
            .arg(self.fence_ttl(request.lease))
            .arg(u8::from(request.waits))
            .arg(self.keyspace.channels())
            .arg(self.waiters())
            .arg(self.floor.next());
        for claim in &*request.claims {
            command.arg(self.owner(claim.owner));
        }
        command
    }

    fn owner(&self, owner: OwnerId) -> Owner<'_> {
        Owner {
            owner,
            commands: self,
        }
    }

    /// Returns how long the server keeps the fence of a grant (ms). The request may hand the lock off, too.
    pub(super) fn fence_ttl(&self, lease: Duration) -> u64 {
        millis(self.fence_retention + lease.max(GRACE))
    }

    /// Returns which waiters a release notifies, and a free lock belongs to. A quorum has no order of its waiters.
    fn waiters(&self) -> &'static str {
        if self.of_quorum { "all" } else { "first" }
    }

    fn set_count(&self, request: &SetCountRequest) -> Cmd {
        let mut command = self.begin(&self.scripts.set_count, [&request.key]);
        command
            .arg(self.owner(request.owner))
            .arg(request.count)
            .arg(millis(request.lease))
            .arg(self.fence_ttl(request.lease));
        command
    }

    fn downgrade(&self, request: &DowngradeRequest) -> Cmd {
        let mut command = self.begin(&self.scripts.downgrade, [&request.key]);
        command.arg(self.owner(request.owner));
        self.hands_off(&mut command, request.fence);
        command
    }

    fn release(&self, request: &ReleaseRequest) -> Cmd {
        let mut command = self.begin(&self.scripts.release, [&request.key]);
        command
            .arg(self.owner(request.owner))
            // Rounded up: the lock stays taken for at least this long.
            .arg(millis(request.min_hold + Duration::from_nanos(999_999)));
        self.hands_off(&mut command, request.fence);
        // A member of a quorum remembers each release anyway.
        let is_late = request.refuses_late && !self.of_quorum;
        command.arg(if is_late { millis(LATE) } else { 0 });
        command
    }

    /// Adds what a script needs to pass on this fence, and the lock to its waiters.
    fn hands_off(&self, command: &mut Cmd, fence: u64) {
        command
            .arg(fence)
            .arg(self.fence_ttl(GRACE))
            .arg(self.keyspace.channels())
            .arg(self.waiters())
            .arg(self.floor.next());
    }

    fn renew(&self, renewals: &[Renewal], lease: Duration) -> Cmd {
        let mut command = self.begin_renewals(&self.scripts.renew, renewals, lease);
        for renewal in renewals {
            command.arg(self.owner(renewal.claim.owner));
            if renewal.keeps_fence {
                command.arg(format!("={}", renewal.last_fence));
            } else {
                command.arg(renewal.fence);
            }
        }
        command
    }

    fn restore(&self, renewals: &[Renewal], lease: Duration) -> Cmd {
        let mut command = self.begin_renewals(&self.scripts.restore, renewals, lease);
        for renewal in renewals {
            command
                .arg(self.owner(renewal.claim.owner))
                .arg(renewal.count)
                .arg(renewal.last_fence);
        }
        command
    }

    fn begin_renewals(&self, script: &Script, renewals: &[Renewal], lease: Duration) -> Cmd {
        let keys = renewals.iter().map(|renewal| &renewal.claim.key);
        let mut command = self.begin(script, keys);
        command.arg(millis(lease)).arg(self.fence_ttl(lease));
        command
    }
}

/// An owner that is written into a command without a string in between.
struct Owner<'a> {
    owner: OwnerId,
    commands: &'a Commands,
}

impl ToRedisArgs for Owner<'_> {
    fn write_redis_args<W: RedisWrite + ?Sized>(&self, out: &mut W) {
        let (owner, (client, prefix)) = (self.owner, &self.commands.client);
        let mut text = out.writer_for_next_arg();
        let is_usual = owner.is_of(*client) && owner.mode() == LockMode::Exclusive;
        let written = if is_usual && !owner.is_kept() {
            write!(text, "{prefix}{}", owner.sequence())
        } else {
            write!(text, "{owner}")
        };
        written.expect(GROWS);
    }
}
