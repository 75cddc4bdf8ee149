//! Requests that run, and whose replies are lost.

use std::time::Duration;

use rlock_testkit::{Fronted, assert_taken, eventually};

use super::{
    KEY, assert_lost_answers, assert_most_soon_count, assert_nothing_left, assert_soon_counts,
    lasting,
};
use crate::{
    common::{LONG, acquiring, assert_unavailable, its_turn},
    topologies::conformance::assert_soon_queued,
};

pub(crate) async fn an_acquire_whose_reply_is_lost_is_granted_once(place: Fronted) {
    let (one, other) = (place.client().await, place.client().await);
    place.lose_the_next_reply().await;
    let guard = lasting(&one).acquire().await.expect("granted after all");
    assert_lost_answers(&place, 1).await;
    assert_taken(&other, KEY).await;
    assert_soon_counts(&place, &guard, 1).await;
    guard.release().await.expect("held");
    assert_nothing_left(&place).await;
}

/// As if the servers closed the connections of expired logins: a call that does not wait has one request to itself.
pub(crate) async fn an_acquire_without_waiting_is_sent_again_over_the_next_connection(
    place: Fronted,
) {
    let (one, other) = (place.client().await, place.client().await);
    place.lose_the_next_reply().await;
    let guard = lasting(&one).try_acquire().await.expect("repeated");
    let guard = guard.expect("free");
    assert_lost_answers(&place, 1).await;
    assert_taken(&other, KEY).await;
    assert_most_soon_count(&place, &guard, 1).await;
    guard.release().await.expect("held");
    assert_nothing_left(&place).await;
}

pub(crate) async fn an_acquire_without_waiting_and_without_a_reply_leaves_nothing(place: Fronted) {
    let (one, other) = (place.client().await, place.client().await);
    // The grants of all repetitions are released, too.
    place.lose_the_next_replies(3).await;
    assert_unavailable(lasting(&one).try_acquire().await, "no reply");
    assert_lost_answers(&place, 3).await;
    let next = lasting(&other).acquire().await.expect("free");
    next.release().await.expect("held");
    assert_nothing_left(&place).await;
}

pub(crate) async fn an_entry_whose_reply_is_lost_counts_once(place: Fronted) {
    let client = place.client().await;
    let lock = lasting(&client);
    let outer = lock.acquire().await.expect("free");
    assert_soon_counts(&place, &outer, 1).await;
    place.lose_the_next_reply().await;
    let inner = outer.scope(lock.acquire()).await.expect("enters");
    assert_lost_answers(&place, 1).await;
    assert_most_soon_count(&place, &outer, 2).await;
    place.lose_the_next_reply().await;
    inner.release().await.expect("held");
    assert_lost_answers(&place, 2).await;
    assert_most_soon_count(&place, &outer, 1).await;
    outer.release().await.expect("held");
    assert_nothing_left(&place).await;
}

pub(crate) async fn a_release_whose_reply_is_lost_succeeds_and_does_not_touch_the_next_hold(
    place: Fronted,
) {
    let (one, other) = (place.client().await, place.client().await);
    let guard = lasting(&one).acquire().await.expect("free");
    assert_soon_counts(&place, &guard, 1).await;
    place.lose_the_next_reply().await;
    guard.release().await.expect("released, once");
    assert_lost_answers(&place, 1).await;
    assert_nothing_left(&place).await;

    let guard = lasting(&one).acquire().await.expect("free");
    assert_soon_counts(&place, &guard, 1).await;
    let waiting = acquiring(lasting(&other));
    assert_soon_queued(place.keeps_strict_order(), &other, KEY, 1).await;
    place.lose_the_next_reply().await;
    let (released, next) = tokio::join!(guard.release(), its_turn(waiting));
    released.expect("released, once");
    assert_soon_counts(&place, &next, 1).await;
    next.release().await.expect("held");
    assert_nothing_left(&place).await;
}

pub(crate) async fn a_renewal_whose_reply_is_lost_is_repeated_in_time(place: Fronted) {
    /// The first renewal is due after four seconds, and the next attempt after six.
    const LEASE: Duration = Duration::from_secs(12);
    let (one, other) = (place.client().await, place.client().await);
    let guard = one.lock(KEY).lease(LEASE).acquire().await.expect("free");
    assert_soon_counts(&place, &guard, 1).await;
    place.lose_the_next_reply().await;
    assert_lost_answers(&place, 1).await;
    eventually(LONG, "it is renewed", async || {
        guard.valid_for() > LEASE * 5 / 6
    })
    .await;
    assert_taken(&other, KEY).await;
    assert_soon_counts(&place, &guard, 1).await;
    guard.release().await.expect("held");
    assert_nothing_left(&place).await;
}

pub(crate) async fn a_connection_cut_within_a_reply_is_replaced(place: Fronted) {
    let client = place.client().await;
    for bytes in (1..40).step_by(3) {
        place.ways(|way| way.cut_after_bytes(bytes)).await;
        let guard = lasting(&client).acquire().await;
        let guard = guard.expect("granted after all");
        assert_most_soon_count(&place, &guard, 1).await;
        place.ways(|way| way.cut_after_bytes(bytes)).await;
        guard.release().await.expect("released");
        assert_nothing_left(&place).await;
    }
}
