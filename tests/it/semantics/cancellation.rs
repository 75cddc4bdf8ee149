//! Every call of the public interface is dropped at every one of its polls: right after it, when what it
//! waits for is there, while its request is on the way, and while the answer is. Afterwards there is no
//! lock, no place in line, no subscription and no renewal, the next has the lock at once, and the
//! client works as before.

mod calls;
mod cut;
mod place;
mod renewals;

use rlock_core::Reentry::{Counted, Local};

use place::Place;

/// What holds at every store, and by every way to a server.
async fn everywhere(place: Place, least: usize) {
    while_nobody_waits(&place, least).await;
    while_others_wait(&place, least).await;
    place.assert_no_late_renewals().await;
}

async fn while_nobody_waits(place: &Place, least: usize) {
    calls::of_a_free_lock(place, least).await;
    calls::inside_a_hold(place, least).await;
    calls::for_a_loss(place).await;
    calls::of_a_held_lock(place, least).await;
}

async fn while_others_wait(place: &Place, least: usize) {
    calls::of_a_taken_lock(place, least.max(1)).await;
    calls::of_a_lock_that_is_handed_over(place).await;
    calls::of_a_client_s_end(place).await;
}

#[tokio::test]
async fn whatever_is_cancelled_on_the_runtime_of_its_client_leaves_nothing_behind() {
    let place = Place::near(Counted).await;
    while_nobody_waits(&place, 2).await;
    place.assert_no_late_renewals().await;
}

#[tokio::test]
async fn whatever_is_cancelled_on_that_runtime_while_others_wait_leaves_nothing_behind() {
    let place = Place::near(Counted).await;
    while_others_wait(&place, 2).await;
    place.assert_no_late_renewals().await;
}

#[tokio::test]
#[ignore = "scripts/test-all"]
async fn whatever_is_cancelled_on_another_runtime_leaves_nothing_behind() {
    everywhere(Place::home(Counted).await, 2).await;
}

#[tokio::test]
#[ignore = "scripts/test-all"]
async fn whatever_is_cancelled_by_the_older_protocol_leaves_nothing_behind() {
    everywhere(Place::near_by_resp2(Counted).await, 2).await;
}

#[tokio::test]
async fn whatever_is_cancelled_in_the_embedded_store_leaves_nothing_behind() {
    everywhere(Place::memory("counted", Counted).await, 0).await;
}

#[tokio::test]
async fn what_is_cancelled_inside_a_hold_that_counts_locally_leaves_it_as_it_was() {
    for place in [
        Place::memory("local", Local).await,
        Place::near(Local).await,
        Place::home(Local).await,
    ] {
        calls::inside_a_hold(&place, 0).await;
        place.assert_no_late_renewals().await;
    }
}

#[tokio::test]
async fn connecting_that_is_cancelled_leaves_no_connection() {
    for place in [
        Place::memory("connect", Counted).await,
        Place::near(Counted).await,
        Place::near_by_resp2(Counted).await,
    ] {
        let least = if place.server().is_some() { 2 } else { 0 };
        calls::of_a_client_s_beginning(&place, least).await;
    }
}
