//! The validity of a lock: its lease, less the time for replies, less the drift of clocks.

use std::time::Duration;

use rlock_core::{LockClient, LockGuard};
use rlock_testkit::{
    Proxy,
    simultaneous::{acquire_all_for, release_all},
};

use super::simultaneous::{behind_proxies, keys};
use crate::common::{LONG, ms};

/// The delay of every reply.
const LATE: Duration = Duration::from_millis(400);
/// An eighth of it is more than a second. A shorter remaining time triggers a renewal.
const LEASE: Duration = Duration::from_secs(10);

/// Returns the longest remaining lease when such a reply arrives.
fn most() -> Duration {
    LEASE.saturating_sub(LATE + LEASE / 100 + ms(2))
}

#[track_caller]
fn assert_counts_from_before(guard: &LockGuard) {
    let left = guard.valid_for();
    assert!(left <= most(), "{left:?} of {:?} are left", most());
    assert!(left > LEASE / 2, "{left:?} are left");
}

/// Resolves when a renewal extends the lease.
async fn renewed(guard: &LockGuard) {
    let mut before = guard.valid_for();
    loop {
        tokio::time::sleep(ms(5)).await;
        let left = guard.valid_for();
        assert!(!left.is_zero(), "it is renewed in time");
        if left > before {
            return;
        }
        before = left;
    }
}

/// Acquires and releases each key once, so that the servers agree on tokens and reply once.
async fn acquire_each_once(client: &LockClient, keys: &[String]) {
    release_all(acquire_all_for(LEASE, client, keys).await).await;
}

#[tokio::test]
async fn the_lease_of_a_lock_alone_counts_from_before_it_was_asked_for() {
    let (_three, proxies, client) = behind_proxies().await;
    let keys = ["alone".to_owned()];
    acquire_each_once(&client, &keys).await;
    for proxy in &proxies {
        proxy.delay_replies(LATE);
    }
    let lock = client.lock("alone").lease(LEASE).wait(LONG);
    let outer = lock.acquire().await.expect("free");
    assert_counts_from_before(&outer);
    renewed(&outer).await;
    assert_counts_from_before(&outer);
    let inner = outer.scope(lock.acquire()).await.expect("enters");
    assert_counts_from_before(&inner);
    proxies.iter().for_each(Proxy::pass);
    inner.release().await.expect("held");
    outer.release().await.expect("held");
}

#[tokio::test]
async fn the_leases_of_locks_taken_together_count_from_before_they_were_asked_for() {
    let (_three, proxies, client) = behind_proxies().await;
    let keys = keys();
    acquire_each_once(&client, &keys).await;
    for proxy in &proxies {
        proxy.delay_replies(LATE);
    }
    let guards = acquire_all_for(LEASE, &client, &keys).await;
    guards.iter().for_each(assert_counts_from_before);
    renewed(&guards[0]).await;
    guards.iter().for_each(assert_counts_from_before);
    proxies.iter().for_each(Proxy::pass);
    release_all(guards).await;
}
