//! Which function each request calls, and with which parameters.

use std::time::Duration;

use super::{
    PostgresStore,
    parameter::Parameter,
    statements::{Statement, Statements},
};
use rlock_proto::store::{AcquireRequest, Change, Claim, Renewal};

/// A call of a function.
pub(super) struct Request {
    /// Its name in metrics.
    pub(super) name: &'static str,
    pub(super) statement: fn(&Statements) -> &Statement,
    pub(super) parameters: Vec<Parameter>,
}

/// Makes a request of the statement with this name.
macro_rules! call {
    ($name:ident($($parameter:expr),*)) => {
        Request {
            name: stringify!($name),
            statement: |all| &all.$name,
            parameters: vec![$(Parameter::new($parameter)),*],
        }
    };
}
pub(super) use call;

impl Request {
    /// Returns whether the request changes what an owner has.
    pub(super) fn is_change(&self) -> bool {
        matches!(self.name, "acquire" | "set_count" | "downgrade" | "release")
    }
}

/// Returns whole milliseconds, the unit of the functions.
fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Returns a fence, which is less than 2^46.
fn signed(fence: u64) -> i64 {
    i64::try_from(fence).unwrap_or(i64::MAX)
}

impl PostgresStore {
    fn retention(&self) -> i64 {
        millis(self.options().fence_retention)
    }

    fn floor(&self) -> i64 {
        signed(self.options().floor.next())
    }

    /// Returns the names of the locks, and the owners.
    fn claims<'a>(&self, claims: impl Iterator<Item = &'a Claim>) -> (Vec<String>, Vec<String>) {
        let named = |claim: &Claim| (self.keyspace.lock(&claim.key), claim.owner.to_string());
        claims.map(named).unzip()
    }

    pub(super) fn acquires(&self, ask: &AcquireRequest) -> Request {
        let (keys, owners) = self.claims(ask.claims.iter());
        let (lease, retention) = (millis(ask.lease), self.retention());
        call!(acquire(
            keys,
            owners,
            lease,
            retention,
            ask.waits,
            self.floor()
        ))
    }

    pub(super) fn changes(&self, change: &Change) -> Request {
        let (lock, retention, floor) = (
            self.keyspace.lock(change.key()),
            self.retention(),
            self.floor(),
        );
        match change {
            Change::SetCount(set) => {
                let count = i32::try_from(set.count).unwrap_or(i32::MAX);
                let (owner, lease) = (set.owner.to_string(), millis(set.lease));
                call!(set_count(lock, owner, count, lease, retention))
            }
            Change::Downgrade(downgrade) => {
                let (owner, fence) = (downgrade.owner.to_string(), signed(downgrade.fence));
                call!(downgrade(lock, owner, fence, retention, floor))
            }
            Change::Release(release) => {
                let (owner, fence) = (release.owner.to_string(), signed(release.fence));
                // Rounded up: the lock stays taken for at least this long.
                let min_hold = millis(release.min_hold + Duration::from_nanos(999_999));
                call!(release(lock, owner, fence, min_hold, retention, floor))
            }
        }
    }

    pub(super) fn renews(&self, renewals: &[Renewal], lease: Duration) -> Request {
        let (keys, owners) = self.claims(renewals.iter().map(|renewal| &renewal.claim));
        let fences = renewals.iter().map(|renewal| signed(renewal.fence));
        let fences: Vec<i64> = fences.collect();
        call!(renew(keys, owners, fences, millis(lease), self.retention()))
    }
}
