//! Requests as the server takes them: scripts, names of keys, arguments.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use redis::{Cmd, Script, cmd};

use super::keyspace::Keyspace;
use crate::{
    key::Key,
    owner::OwnerId,
    store::{Claim, Release, Renewal},
};

/// A lower bound for the server's time (µs). A token below it was counted from nothing.
const NO_TIME: u64 = 1_000_000_000_000;

/// Returns a script with the library that it may use.
macro_rules! script {
    ($name:literal) => {
        Script::new(concat!(
            include_str!("scripts/library.lua"),
            include_str!(concat!("scripts/", $name, ".lua"))
        ))
    };
}

pub(in crate::store) struct Scripts {
    pub(super) acquire: Script,
    pub(super) release: Script,
    /// Serves several requests, each by itself.
    pub(super) acquire_together: Script,
    pub(super) release_together: Script,
    pub(super) renew: Script,
    pub(super) extend: Script,
    pub(super) inspect: Script,
    pub(super) raise: Script,
}

pub(in crate::store) struct Commands {
    pub(in crate::store) keyspace: Keyspace,
    pub(super) scripts: Scripts,
    /// How long the server keeps a fencing token after the lock's last lease.
    pub(super) fence_retention: Duration,
    /// Lower bound for fencing tokens: the server's clock (µs) when the newest connection was opened. A failover, or a
    /// start from an old save, may bring back older tokens. Such a server can only be reached over a new connection.
    least_token: AtomicU64,
}

/// A request for one lock that most likely is free, or has no waiters. One script can serve several.
#[derive(Clone)]
pub(in crate::store) enum Batchable {
    Acquire {
        claim: Claim,
        lease: Duration,
        waits: bool,
    },
    Release {
        key: Key,
        owner: OwnerId,
        token: u64,
    },
}

impl Scripts {
    /// Returns the scripts that every store uses.
    pub(super) fn common(&self) -> [&Script; 7] {
        [
            &self.acquire,
            &self.release,
            &self.acquire_together,
            &self.release_together,
            &self.renew,
            &self.extend,
            &self.inspect,
        ]
    }
}

impl Commands {
    pub(in crate::store) fn new(keyspace: Keyspace, fence_retention: Duration) -> Self {
        Self {
            keyspace,
            scripts: Scripts {
                acquire: script!("acquire"),
                release: script!("release"),
                acquire_together: script!("acquire_together"),
                release_together: script!("release_together"),
                renew: script!("renew"),
                extend: script!("extend"),
                inspect: script!("inspect"),
                raise: script!("raise"),
            },
            fence_retention,
            least_token: AtomicU64::new(NO_TIME),
        }
    }

    fn least_token(&self) -> u64 {
        self.least_token.load(Ordering::Acquire)
    }

    /// Notes the server's time at which a connection was opened.
    pub(super) fn opened_at(&self, micros: u64) {
        self.least_token.fetch_max(micros, Ordering::AcqRel);
    }

    /// Begins a call of a script for these locks. The arguments follow.
    fn call<'k>(&self, script: &Script, keys: impl ExactSizeIterator<Item = &'k Key>) -> Cmd {
        let mut call = cmd("EVALSHA");
        call.arg(script.get_hash()).arg(keys.len());
        for key in keys {
            call.arg(self.keyspace.lock(key));
        }
        call
    }

    pub(super) fn acquire(
        &self,
        claims: &[Claim],
        lease: Duration,
        count: u32,
        waits: bool,
    ) -> Cmd {
        let keys = claims.iter().map(|claim| &claim.key);
        let mut call = self.call(&self.scripts.acquire, keys);
        call.arg(millis(lease))
            .arg(count)
            .arg(millis(self.fence_retention + lease))
            .arg(u8::from(waits))
            .arg(self.keyspace.channels())
            .arg(self.least_token());
        for claim in claims {
            call.arg(claim.owner.to_string());
        }
        call
    }

    pub(super) fn release(&self, release: &Release<'_>) -> Cmd {
        let lease = release.next.map_or(Duration::ZERO, |next| next.lease);
        let mut call = self.call(&self.scripts.release, [release.key].into_iter());
        call.arg(release.owner.to_string())
            .arg(release.count)
            .arg(millis(release.keep))
            .arg(release.token)
            .arg(millis(self.fence_retention + lease))
            .arg(self.keyspace.channels())
            .arg(self.least_token());
        if let Some(next) = release.next {
            call.arg(next.owner.to_string()).arg(millis(next.lease));
        }
        call
    }

    pub(super) fn renew(&self, batch: &[Renewal]) -> Cmd {
        let keys = batch.iter().map(|renewal| &renewal.key);
        let mut call = self.call(&self.scripts.renew, keys);
        let lease = batch.first().map_or(Duration::ZERO, |first| first.lease);
        call.arg(millis(self.fence_retention)).arg(millis(lease));
        for renewal in batch {
            call.arg(renewal.owner.to_string());
        }
        if batch.iter().any(|renewal| renewal.lease != lease) {
            for renewal in batch {
                call.arg(millis(renewal.lease));
            }
        }
        call
    }

    pub(super) fn extend(&self, claim: &Claim, tokens: u64) -> Cmd {
        let mut call = self.call(&self.scripts.extend, [&claim.key].into_iter());
        call.arg(claim.owner.to_string())
            .arg(tokens)
            .arg(self.least_token());
        call
    }

    pub(super) fn inspect(&self, key: &Key) -> Cmd {
        self.call(&self.scripts.inspect, [key].into_iter())
    }

    pub(super) fn raise(&self, claim: &Claim, token: u64, lease: Duration) -> Cmd {
        let mut call = self.call(&self.scripts.raise, [&claim.key].into_iter());
        call.arg(claim.owner.to_string())
            .arg(token)
            .arg(millis(self.fence_retention + lease));
        call
    }

    /// Returns the command that serves one request.
    pub(super) fn alone(&self, request: &Batchable) -> Cmd {
        match request {
            Batchable::Acquire {
                claim,
                lease,
                waits,
            } => self.acquire(std::slice::from_ref(claim), *lease, 1, *waits),
            Batchable::Release { key, owner, token } => self.release(&Release {
                key,
                owner: *owner,
                token: *token,
                count: 0,
                keep: Duration::ZERO,
                next: None,
            }),
        }
    }

    /// Returns the command that serves several acquires, or several releases.
    pub(super) fn together(&self, requests: &[Batchable]) -> Cmd {
        let acquires = matches!(requests, [Batchable::Acquire { .. }, ..]);
        let script = if acquires {
            &self.scripts.acquire_together
        } else {
            &self.scripts.release_together
        };
        let keys = requests.iter().map(|request| match request {
            Batchable::Acquire { claim, .. } => &claim.key,
            Batchable::Release { key, .. } => key,
        });
        let mut call = self.call(script, keys);
        call.arg(millis(self.fence_retention));
        if acquires {
            call.arg(self.least_token());
        }
        for request in requests {
            match request {
                Batchable::Acquire { claim, lease, .. } => {
                    call.arg(claim.owner.to_string()).arg(millis(*lease))
                }
                Batchable::Release { owner, .. } => call.arg(owner.to_string()),
            };
        }
        call
    }
}

/// Returns milliseconds, as the server takes them.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
