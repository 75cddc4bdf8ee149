//! The validity of a lock: its lease, less the time for replies, less the drift of clocks.

use std::time::Duration;

use rlock_core::{LockGuard, StoreUrl};
use rlock_testkit::Proxy;

use super::Servers;
use crate::{
    common::{LONG, connect_with, ms},
    topologies::{RENEWED as LEASE, assert_soon_extended},
};

/// The delay of every reply.
const LATE: Duration = Duration::from_secs(2);

/// Asserts that the lease counts from before the request, and so from at least [`LATE`] ago.
#[track_caller]
fn assert_counts_from_before(guard: &LockGuard) {
    let most = LEASE.saturating_sub(LATE + LEASE / 100 + ms(2));
    let left = guard.valid_for();
    assert!(left <= most, "{left:?} of {most:?} are left");
}

#[tokio::test]
async fn the_lease_of_a_lock_counts_from_before_it_was_asked_for() {
    let three = Servers::some(3);
    let proxies: Vec<Proxy> = three.0.iter().map(Proxy::in_front_of).collect();
    let client = connect_with(LONG, StoreUrl::quorum(proxies.iter().map(Proxy::url))).await;
    for proxy in &proxies {
        proxy.delay_replies(LATE);
    }
    let lock = client.lock("k").lease(LEASE).wait(LONG);
    let outer = lock.acquire().await.expect("free");
    assert_counts_from_before(&outer);
    assert_soon_extended(&outer).await;
    assert_counts_from_before(&outer);
    let inner = outer.scope(lock.acquire()).await.expect("enters");
    assert_counts_from_before(&inner);
    proxies.iter().for_each(Proxy::pass);
    inner.release().await.expect("held");
    outer.release().await.expect("held");
}
