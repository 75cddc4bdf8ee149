//! Runs one suite of semantics and one of faults on every topology, and special tests for some.

mod cluster;
pub(crate) mod conformance;
mod databases;
mod failover;
mod faults;
mod pooler;
mod postgres;
mod questions;
pub(crate) mod quorum;
mod replicas;
mod sentinel;
mod sessions;

use std::{mem, time::Duration};

use rlock_core::{LockClient, LockGuard};
use rlock_testkit::eventually;

use crate::common::LONG;

/// A lease that is renewed within a test, even if a busy machine delays the renewals by seconds.
pub(crate) const RENEWED: Duration = Duration::from_secs(20);

/// A lease that a failover does not outlast, and that is renewed within a test.
const FAILOVER_LEASE: Duration = Duration::from_secs(30);

/// Acquires a free lock with [`FAILOVER_LEASE`].
async fn hold_renewed(client: &LockClient, key: &str) -> LockGuard {
    let lock = client.lock(key).lease(FAILOVER_LEASE);
    lock.acquire().await.expect("free")
}

/// Waits until a renewal extends the lease.
pub(crate) async fn assert_soon_extended(guard: &LockGuard) {
    let mut before = guard.valid_for();
    eventually(LONG, "the lease is extended", async || {
        let left = guard.valid_for();
        assert!(!left.is_zero(), "the lock is lost");
        left > mem::replace(&mut before, left)
    })
    .await;
}
