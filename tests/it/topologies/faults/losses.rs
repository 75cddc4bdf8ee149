//! Locks that are deleted on the store: their holders notice, and stop.

use rlock_core::LostCause;
use rlock_testkit::{Fronted, Proxy, eventually};

use super::{KEY, assert_most_soon_count, assert_nothing_left, assert_soon_counts, lasting};
use crate::common::{LONG, assert_lost, cause_of, ms};

pub(crate) async fn a_lock_that_is_deleted_is_lost_and_does_not_come_back(place: Fronted) {
    let (one, other) = (place.client().await, place.client().await);
    // Without renewals, only a notification reports the loss before the lease ends.
    let lock = if place.reports_deletions() {
        one.lock(KEY).lease(LONG * 2).watchdog(false)
    } else {
        one.lock(KEY).lease(ms(9000))
    };
    let guard = lock.acquire().await.expect("free");
    assert_soon_counts(&place, &guard, 1).await;
    assert!(place.delete().await);
    // A member of a quorum gets the lock back if the client finds it at a majority before all have lost it.
    eventually(LONG, "it is lost", async || {
        if guard.is_valid() {
            place.delete().await;
        }
        !guard.is_valid()
    })
    .await;
    assert_lost(&guard, LONG, LostCause::Removed).await;
    let next = lasting(&other).acquire().await.expect("free");
    assert!(next.token() > guard.token());
    assert_eq!(cause_of(guard.release().await), Some(LostCause::Removed));
    assert_most_soon_count(&place, &next, 1).await;
    next.release().await.expect("held");
    assert_nothing_left(&place).await;
}

/// No notification arrives during the outage, so the client finds out on its new connection.
pub(crate) async fn a_lock_that_is_deleted_during_an_outage_is_lost_when_that_ends(place: Fronted) {
    let (one, other) = (place.client().await, place.client().await);
    // Without renewals, only the new connection shows the loss.
    let lock = one.lock(KEY).lease(LONG * 2).watchdog(false);
    let guard = lock.acquire().await.expect("free");
    assert_soon_counts(&place, &guard, 1).await;
    place.ways(Proxy::cut_off).await;
    assert!(place.delete().await);
    assert!(guard.is_valid(), "it cannot know yet");
    place.pass().await;
    assert_lost(&guard, LONG, LostCause::Removed).await;
    let next = lasting(&other).acquire().await.expect("free");
    next.release().await.expect("held");
    assert_eq!(cause_of(guard.release().await), Some(LostCause::Removed));
    assert_nothing_left(&place).await;
}
