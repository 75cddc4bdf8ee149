//! Requests that run after their call has ended, and waiters that are cut off.

use std::time::Duration;

use rlock_core::LockClient;
use rlock_testkit::{Fronted, Proxy, eventually};

use super::{KEY, assert_most_soon_count, assert_nothing_left, lasting};
use crate::{
    common::{LONG, acquiring, assert_passed_on, assert_unavailable, hold, its_turn, ms},
    topologies::conformance::assert_soon_queued,
};

pub(crate) async fn an_acquire_that_is_cancelled_while_it_is_under_way_leaves_nothing(
    place: Fronted,
) {
    let (one, other) = (place.client().await, place.client().await);
    for hold in [Proxy::hold_requests, Proxy::hold_replies] {
        place.ways(hold).await;
        let asking = acquiring(lasting(&one));
        tokio::time::sleep(ms(200)).await;
        assert!(!asking.is_finished(), "it receives no reply");
        asking.abort();
        tokio::time::sleep(ms(100)).await;
        place.pass().await;
        let next = lasting(&other).acquire().await.expect("free");
        assert_most_soon_count(&place, &next, 1).await;
        next.release().await.expect("held");
        assert_nothing_left(&place).await;
    }
}

/// The client may have left the late request's connection, and released over another one. Then the server refuses the late request; at
/// a member of a quorum, the lease ends its grant.
pub(crate) async fn a_request_that_runs_after_it_was_given_up_leaves_nothing(place: Fronted) {
    const LEASE: Duration = Duration::from_secs(2);
    const LATE: Duration = Duration::from_millis(1200);
    let impatient = LockClient::builder().response_timeout(ms(300));
    let (one, other) = (place.client_of(impatient).await, place.client().await);
    place.ways(|way| way.delay_requests(LATE)).await;
    let lock = one.lock(KEY).lease(LEASE).wait(ms(500));
    assert_unavailable(lock.acquire().await, "no reply");
    place.pass().await;
    if place.grants_late_requests() {
        let granted = async || place.have_granted().await;
        eventually(LONG, "it was granted, late", granted).await;
    } else {
        tokio::time::sleep(LATE).await;
    }
    let next = lasting(&other).acquire().await.expect("free");
    assert_most_soon_count(&place, &next, 1).await;
    next.release().await.expect("held");
    assert_nothing_left(&place).await;
}

pub(crate) async fn a_waiter_whose_connection_is_cut_has_its_turn(place: Fronted) {
    let (one, other) = (place.client().await, place.client().await);
    let held = hold(&one, KEY).await;
    let waiting = acquiring(lasting(&other));
    assert_soon_queued(place.keeps_strict_order(), &one, KEY, 1).await;
    place.ways(Proxy::reset).await;
    assert!(held.is_valid() && !waiting.is_finished());
    held.release().await.expect("held");
    let next = its_turn(waiting).await;
    assert_most_soon_count(&place, &next, 1).await;
    // And once more, like a server that shuts down.
    let waiting = acquiring(lasting(&one));
    assert_soon_queued(place.keeps_strict_order(), &other, KEY, 1).await;
    place.ways(Proxy::half_close).await;
    assert_passed_on(next, waiting).await;
    assert_nothing_left(&place).await;
}

/// The other end of each connection is gone without a FIN or RST, and new connections work.
pub(crate) async fn a_call_without_a_reply_is_repeated_over_another_connection(place: Fronted) {
    // The client tries another connection after a part of its response time-out.
    let client = place.client_of(LockClient::builder()).await;
    let lock = lasting(&client);
    place.ways(Proxy::half_open).await;
    let guard = lock.acquire().await.expect("granted after all");
    place.ways(Proxy::half_open).await;
    let nested = guard.scope(lock.acquire()).await.expect("enters");
    assert_most_soon_count(&place, &guard, 2).await;
    place.ways(Proxy::half_open).await;
    drop(nested);
    assert_most_soon_count(&place, &guard, 1).await;
    place.ways(Proxy::half_open).await;
    drop(guard);
    assert_nothing_left(&place).await;
}

/// The notification goes to the half-open connection.
pub(crate) async fn a_waiter_that_cannot_be_notified_asks_by_its_timer(place: Fronted) {
    let (one, other) = (place.client().await, place.client().await);
    let held = hold(&one, KEY).await;
    let waiting = acquiring(lasting(&other));
    assert_soon_queued(place.keeps_strict_order(), &one, KEY, 1).await;
    place.ways(Proxy::half_open).await;
    drop(held);
    let next = its_turn(waiting).await;
    assert_most_soon_count(&place, &next, 1).await;
}
