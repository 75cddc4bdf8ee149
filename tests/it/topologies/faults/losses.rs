//! Locks that are deleted.

use std::time::Duration;

use rlock_core::LostCause;
use rlock_testkit::{Deletion, Fronted};

use super::{KEY, SOON, assert_most_soon_count, assert_nothing_left, assert_soon_counts, lasting};
use crate::common::{assert_lost, cause_of, hold, ms, timed};

pub(crate) async fn a_lock_that_is_deleted_is_lost_and_does_not_come_back(place: Fronted) {
    /// The first renewal is due after three to four seconds.
    const LEASE: Duration = Duration::from_secs(12);
    let (one, other) = (place.client().await, place.client().await);
    let guard = one.lock(KEY).lease(LEASE).acquire().await.expect("free");
    assert_soon_counts(&place, &guard, 1).await;
    assert!(place.delete().await);
    let bound = match place.deletion() {
        Deletion::NotifiedAtOnce => LEASE / 4,
        Deletion::FoundByRenewal | Deletion::Impossible => LEASE / 2,
    };
    assert_lost(&guard, bound, LostCause::Removed).await;
    let (next, took) = timed(lasting(&other).acquire()).await;
    let next = next.expect("free");
    assert!(took < SOON, "{took:?}");
    assert!(next.fencing_token() > guard.fencing_token());
    assert_eq!(cause_of(guard.release().await), Some(LostCause::Removed));
    assert_most_soon_count(&place, &next, 1).await;
    next.release().await.expect("held");
    assert_nothing_left(&place).await;
}

/// No notification arrives during the outage, so the client finds out on its new connection.
pub(crate) async fn a_lock_that_is_deleted_during_an_outage_is_lost_when_that_ends(place: Fronted) {
    let (one, other) = (place.client().await, place.client().await);
    let guard = hold(&one, KEY).await;
    assert_soon_counts(&place, &guard, 1).await;
    place
        .ways(|way| {
            way.refuse();
            way.reset();
        })
        .await;
    assert!(place.delete().await);
    tokio::time::sleep(ms(300)).await;
    assert!(guard.is_valid(), "it cannot know yet");
    place.pass().await;
    // The next renewal is further away.
    assert_lost(&guard, SOON, LostCause::Removed).await;
    let (next, took) = timed(lasting(&other).acquire()).await;
    assert!(took < SOON, "{took:?}");
    next.expect("free").release().await.expect("held");
    assert_eq!(cause_of(guard.release().await), Some(LostCause::Removed));
    assert_nothing_left(&place).await;
}
