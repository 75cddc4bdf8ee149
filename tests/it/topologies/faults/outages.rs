//! Connections and servers that fail for less than a lease, and for longer.

use std::time::Duration;

use rlock_core::LostCause;
use rlock_testkit::{Fronted, Proxy, eventually};

use super::{
    KEY, assert_kept_out, assert_most_soon_count, assert_nothing_left, assert_soon_counts, lasting,
};
use crate::common::{LONG, acquiring, assert_lost, cause_of, its_turn, ms};

/// A lease that ends within a test.
const BRIEF: Duration = Duration::from_secs(3);

pub(crate) async fn connections_that_are_cut_again_and_again_cost_no_hold(place: Fronted) {
    let (one, other) = (place.client().await, place.client().await);
    let lock = lasting(&one);
    let guard = lock.acquire().await.expect("free");
    for _ in 0..3 {
        place.ways(Proxy::reset).await;
        let nested = guard.scope(lock.acquire()).await.expect("enters");
        assert_kept_out(&other, ms(300)).await;
        place.ways(Proxy::reset).await;
        nested.release().await.expect("held");
        assert_kept_out(&other, ms(300)).await;
    }
    assert_most_soon_count(&place, &guard, 1).await;
    place.ways(Proxy::reset).await;
    guard.release().await.expect("held");
    assert_nothing_left(&place).await;
}

/// The first renewal is due during the outage.
pub(crate) async fn outages_shorter_than_the_lease_cost_no_hold(place: Fronted) {
    const LEASE: Duration = Duration::from_secs(20);
    let (one, other) = (place.client().await, place.client().await);
    for outage in [Proxy::black_hole, Proxy::cut_off] {
        let guard = one.lock(KEY).lease(LEASE).acquire().await.expect("free");
        assert_soon_counts(&place, &guard, 1).await;
        place.ways(outage).await;
        eventually(LONG, "a renewal is due", async || {
            guard.valid_for() < LEASE * 5 / 8
        })
        .await;
        place.pass().await;
        eventually(LONG, "it is renewed", async || {
            guard.valid_for() > LEASE * 3 / 4
        })
        .await;
        assert_kept_out(&other, ms(300)).await;
        guard.release().await.expect("held");
        assert_nothing_left(&place).await;
    }
}

/// Checks that the holder is notified by the end of its lease, and that the waiter gets the lock
/// after the outage.
async fn assert_ends_with_its_lease(
    place: Fronted,
    begin: impl AsyncFnOnce(&Fronted),
    end: impl AsyncFnOnce(&Fronted),
) {
    let (one, other) = (place.client().await, place.client().await);
    let guard = one.lock(KEY).lease(BRIEF).acquire().await.expect("free");
    begin(&place).await;
    let waiting = acquiring(lasting(&other));
    // The lease of a renewal starts when its request is sent.
    let over = async {
        tokio::time::sleep(BRIEF).await;
        assert!(!guard.is_valid(), "it is not valid for longer");
    };
    let is_lost = assert_lost(&guard, LONG, LostCause::Expired);
    tokio::join!(over, is_lost);
    assert!(!waiting.is_finished(), "the lock cannot be granted");
    end(&place).await;
    let next = its_turn(waiting).await;
    assert!(next.token() > guard.token());
    assert_eq!(cause_of(guard.release().await), Some(LostCause::Expired));
    // Late requests have run by then.
    tokio::time::sleep(ms(300)).await;
    assert!(next.is_valid());
    assert_most_soon_count(&place, &next, 1).await;
    next.release().await.expect("held");
    assert_nothing_left(&place).await;
}

pub(crate) async fn a_hold_ends_with_its_lease_when_the_servers_are_silent(place: Fronted) {
    let silent = async |place: &Fronted| place.ways(Proxy::black_hole).await;
    assert_ends_with_its_lease(place, silent, Fronted::pass).await;
}

pub(crate) async fn a_hold_ends_with_its_lease_when_the_servers_cannot_be_reached(place: Fronted) {
    let away = async |place: &Fronted| place.ways(Proxy::cut_off).await;
    assert_ends_with_its_lease(place, away, Fronted::pass).await;
}

pub(crate) async fn a_hold_ends_with_its_lease_when_the_servers_are_paused(place: Fronted) {
    assert_ends_with_its_lease(place, Fronted::freeze, Fronted::thaw).await;
}
