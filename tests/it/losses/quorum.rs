//! Members of a quorum that lose a lock: its hold is lost only if they are a majority.

use std::time::Instant;

use rlock_core::{LostCause, StoreUrl};
use rlock_testkit::{Proxy, eventually};

use crate::{
    common::{LONG, assert_lost, cause_of, connect_with, ms, name, only_tokens_are_left},
    topologies::{
        RENEWED, assert_soon_extended,
        quorum::{ALL, Servers, give_to_another},
    },
};

#[tokio::test]
async fn a_hold_that_a_minority_loses_is_kept_and_one_that_a_majority_loses_is_lost() {
    let (five, began) = (Servers::five(), Instant::now());
    let client = five.client().await;
    // The lease does not end before its last server is asked.
    let lock = client.lock("k").lease(LONG * 3 / 2).wait(LONG);
    let guard = five.granted_by(&ALL, &lock).await;
    let ends = guard.valid_for() + began.elapsed();
    for n in [0, 3] {
        assert!(five.0[n].del(&name("k")).await);
    }
    // The deletion is reported, and the renewal finds a majority, maybe before the second one.
    eventually(LONG, "the lease is extended", async || {
        began.elapsed() + guard.valid_for() > ends
    })
    .await;
    give_to_another(&five.0[..3], "k").await;
    assert_lost(&guard, LONG, LostCause::Removed).await;
    assert_eq!(cause_of(guard.release().await), Some(LostCause::Removed));
    eventually(LONG, "the last server releases it, too", async || {
        only_tokens_are_left(&five.0[4]).await
    })
    .await;
}

/// A majority still has the lock. The far server replies after the others, which disagree.
#[tokio::test]
async fn a_hold_that_a_near_server_lost_is_kept_by_the_others_of_which_one_is_far() {
    let three = Servers::some(3);
    let far = Proxy::in_front_of(&three.0[2]);
    // For longer than a call waits for servers that could not change its outcome.
    far.delay_requests(ms(400));
    let urls = [three.0[0].url(), three.0[1].url(), far.url()];
    let client = connect_with(LONG, StoreUrl::quorum(urls)).await;
    let lock = client.lock("k").lease(RENEWED).wait(LONG);
    let guard = three.granted_by(&[0, 1, 2], &lock).await;
    assert!(three.0[0].del(&name("k")).await);
    assert_soon_extended(&guard).await;
    guard.release().await.expect("held");
}
