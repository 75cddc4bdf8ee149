//! Holds that members lose.

use rlock_core::{LockGuard, LostCause};

use super::five::{ALL, SOON, Servers, give_to_another};
use crate::common::{LASTING, assert_lost, cause_of, hold, name};

/// Gives the lock to another owner on a majority, and asserts the loss.
async fn assert_lost_to_another(five: &Servers, guard: &LockGuard) {
    give_to_another(&five.0[..3], "k").await;
    assert_lost(guard, SOON, LostCause::Removed).await;
}

#[tokio::test]
async fn a_hold_that_a_minority_loses_is_kept_and_one_that_a_majority_loses_is_lost() {
    let five = Servers::five();
    let client = five.client().await;
    let lock = client.lock("k").lease(LASTING);
    let guard = lock.acquire().await.expect("free");
    let inner = guard.scope(lock.acquire()).await.expect("enters");
    five.assert_soon_count(&guard, &ALL, 2).await;
    for n in [0, 3] {
        five.0[n].del(&name("k")).await;
    }
    // The deletion is reported, and the renewal finds a majority.
    tokio::time::sleep(SOON).await;
    assert!(guard.is_valid());
    five.assert_soon_count(&guard, &[1, 2, 4], 2).await;
    assert_lost_to_another(&five, &guard).await;
    drop(inner);
}

/// A majority has lost the hold; the two other servers have not.
#[tokio::test]
async fn the_rest_of_a_lost_hold_is_released() {
    let five = Servers::five();
    let client = five.client().await;
    let guard = hold(&client, "k").await;
    five.assert_soon_count(&guard, &ALL, 1).await;
    assert_lost_to_another(&five, &guard).await;
    assert_eq!(cause_of(guard.release().await), Some(LostCause::Removed));
    five.assert_soon_clean("k", &[3, 4]).await;
}
