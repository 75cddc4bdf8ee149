//! Requests as the server takes them: the names of its keys, the scripts, their arguments.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use redis::Cmd;

use super::{
    names::Names,
    scripts::{Scripts, millis},
};
use crate::{
    key::Key,
    owner::OwnerId,
    store::{Claim, Release, Renewal},
};

/// No server's time is as little as this (µs): what is less was counted from nothing.
const NO_TIME: u64 = 1_000_000_000_000;

pub(super) struct Calls {
    pub(super) names: Names,
    pub(super) scripts: Scripts,
    /// How long the server keeps a fencing token after the lock's last lease.
    pub(super) fence_retention: Duration,
    /// Where fencing tokens begin anew that are less: what the server's clock showed (µs) when the latest
    /// connection was opened. A failover, or a start from an old save, may bring back older tokens, which
    /// others were given meanwhile; nobody comes to such a server but by a new connection.
    least_token: AtomicU64,
}

/// A request of the usual kind: one lock that most likely is free, or that nobody waits for.
/// Several are served by one script.
#[derive(Clone)]
pub(super) enum Usual {
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

impl Calls {
    pub(super) fn new(names: Names, fence_retention: Duration) -> Self {
        Self {
            names,
            scripts: Scripts::new(),
            fence_retention,
            least_token: AtomicU64::new(NO_TIME),
        }
    }

    fn least_token(&self) -> u64 {
        self.least_token.load(Ordering::Acquire)
    }

    /// A connection was opened when the server's clock showed this time.
    pub(super) fn opened_at(&self, micros: u64) {
        self.least_token.fetch_max(micros, Ordering::AcqRel);
    }

    pub(super) fn acquire(
        &self,
        claims: &[Claim],
        lease: Duration,
        count: u32,
        waits: bool,
    ) -> Cmd {
        let mut call = self.scripts.acquire.call(claims.len());
        for claim in claims {
            call.arg(self.names.lock(&claim.key));
        }
        call.arg(millis(lease))
            .arg(count)
            .arg(millis(self.fence_retention + lease))
            .arg(u8::from(waits))
            .arg(self.names.channels())
            .arg(self.least_token());
        for claim in claims {
            call.arg(claim.owner.to_string());
        }
        call
    }

    pub(super) fn release(&self, release: &Release<'_>) -> Cmd {
        let lease = release.next.map_or(Duration::ZERO, |next| next.lease);
        let mut call = self.scripts.release.call(1);
        call.arg(self.names.lock(release.key))
            .arg(release.owner.to_string())
            .arg(release.count)
            .arg(millis(release.keep))
            .arg(release.token)
            .arg(millis(self.fence_retention + lease))
            .arg(self.names.channels())
            .arg(self.least_token());
        if let Some(next) = release.next {
            call.arg(next.owner.to_string()).arg(millis(next.lease));
        }
        call
    }

    pub(super) fn renew(&self, batch: &[Renewal]) -> Cmd {
        let mut call = self.scripts.renew.call(batch.len());
        for renewal in batch {
            call.arg(self.names.lock(&renewal.key));
        }
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
        let mut call = self.scripts.extend.call(1);
        call.arg(self.names.lock(&claim.key))
            .arg(claim.owner.to_string())
            .arg(tokens)
            .arg(self.least_token());
        call
    }

    pub(super) fn inspect(&self, key: &Key) -> Cmd {
        let mut call = self.scripts.inspect.call(1);
        call.arg(self.names.lock(key));
        call
    }

    pub(super) fn raise(&self, claim: &Claim, token: u64, lease: Duration) -> Cmd {
        let mut call = self.scripts.raise.call(1);
        call.arg(self.names.lock(&claim.key))
            .arg(claim.owner.to_string())
            .arg(token)
            .arg(millis(self.fence_retention + lease));
        call
    }

    /// A usual request by itself.
    pub(super) fn alone(&self, usual: &Usual) -> Cmd {
        match usual {
            Usual::Acquire {
                claim,
                lease,
                waits,
            } => self.acquire(std::slice::from_ref(claim), *lease, 1, *waits),
            Usual::Release { key, owner, token } => self.release(&Release {
                key,
                owner: *owner,
                token: *token,
                count: 0,
                keep: Duration::ZERO,
                next: None,
            }),
        }
    }

    pub(super) fn acquire_together(&self, claims: &[(Claim, Duration)]) -> Cmd {
        let mut call = self.scripts.acquire_together.call(claims.len());
        for (claim, _) in claims {
            call.arg(self.names.lock(&claim.key));
        }
        call.arg(millis(self.fence_retention))
            .arg(self.least_token());
        for (claim, lease) in claims {
            call.arg(claim.owner.to_string()).arg(millis(*lease));
        }
        call
    }

    pub(super) fn release_together(&self, holds: &[(Key, OwnerId)]) -> Cmd {
        let mut call = self.scripts.release_together.call(holds.len());
        for (key, _) in holds {
            call.arg(self.names.lock(key));
        }
        call.arg(millis(self.fence_retention));
        for (_, owner) in holds {
            call.arg(owner.to_string());
        }
        call
    }
}
