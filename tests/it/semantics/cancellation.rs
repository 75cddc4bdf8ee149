//! Drops every call of the public interface at every one of its polls.
//!
//! The drop comes right after the poll, when the call is woken, while its request is on its way, or
//! while the reply is. Afterwards there is no lock, no place in the queue, no subscription and no
//! renewal. The next caller gets the lock at once, and the client still works.

mod calls;
mod cut;
mod place;
mod renewals;

use futures_util::{
    FutureExt,
    future::{LocalBoxFuture, join_all},
};
use rlock_core::Reentry::{Counted, Local};

use place::{
    Place,
    Whose::{Foreign, Own},
};

/// Runs the calls that work with every store and connection. They mostly wait, so each kind has its
/// own place, and all places run in parallel.
async fn everywhere(place: impl AsyncFn(&'static str) -> Place, least: usize) {
    tokio::join!(without_waiters(&place, least), with_waiters(&place, least));
}

async fn without_waiters(place: &impl AsyncFn(&'static str) -> Place, least: usize) {
    tokio::join!(
        at(place("free"), async |place| {
            calls::of_a_free_lock(place, least).await;
        }),
        at(place("inside"), async |place| {
            calls::inside_a_hold(place, least).await;
            calls::for_a_loss(place).await;
        }),
        at(place("held"), async |place| {
            calls::of_a_held_lock(place, least).await;
        }),
    );
}

async fn with_waiters(place: &impl AsyncFn(&'static str) -> Place, least: usize) {
    tokio::join!(
        at(place("taken"), async |place| {
            calls::of_a_taken_lock(place, Own, least.max(1)).await;
            calls::of_a_client_s_end(place).await;
        }),
        at(place("taken-elsewhere"), async |place| {
            calls::of_a_taken_lock(place, Foreign, least.max(1)).await;
        }),
        at(place("handed-over"), async |place| {
            calls::of_a_lock_that_is_handed_over(place, Own).await;
            calls::before_another(place).await;
        }),
        at(place("handed-over-elsewhere"), async |place| {
            calls::of_a_lock_that_is_handed_over(place, Foreign).await;
        }),
    );
}

/// Makes the place and runs these calls there. Checks that nothing is renewed afterwards.
fn at<'a>(
    place: impl Future<Output = Place> + 'a,
    calls: impl AsyncFnOnce(&Place) + 'a,
) -> LocalBoxFuture<'a, ()> {
    let all = async {
        let place = place.await;
        calls(&place).await;
        place.assert_no_late_renewals().await;
    };
    all.boxed_local()
}

#[tokio::test]
async fn whatever_is_cancelled_on_the_runtime_of_its_client_leaves_nothing_behind() {
    without_waiters(&async |_| Place::caller(Counted).await, 2).await;
}

#[tokio::test]
async fn whatever_is_cancelled_on_that_runtime_while_others_wait_leaves_nothing_behind() {
    with_waiters(&async |_| Place::caller(Counted).await, 2).await;
}

#[tokio::test]
#[ignore = "scripts/test-all"]
async fn whatever_is_cancelled_on_another_runtime_leaves_nothing_behind() {
    everywhere(async |_| Place::background(Counted).await, 2).await;
}

#[tokio::test]
#[ignore = "scripts/test-all"]
async fn whatever_is_cancelled_by_the_older_protocol_leaves_nothing_behind() {
    everywhere(async |_| Place::caller_by_resp2(Counted).await, 2).await;
}

#[tokio::test]
async fn whatever_is_cancelled_in_the_embedded_store_leaves_nothing_behind() {
    everywhere(async |calls| Place::memory(calls, Counted).await, 0).await;
}

#[tokio::test]
async fn what_is_cancelled_inside_a_hold_that_counts_locally_leaves_it_as_it_was() {
    let places = [
        Place::memory("local", Local).await,
        Place::caller(Local).await,
        Place::background(Local).await,
    ];
    let inside = places.iter().map(async |place| {
        calls::inside_a_hold(place, 0).await;
        place.assert_no_late_renewals().await;
    });
    join_all(inside).await;
}

#[tokio::test]
async fn connecting_that_is_cancelled_leaves_no_connection() {
    for place in [
        Place::memory("connect", Counted).await,
        Place::caller(Counted).await,
        Place::caller_by_resp2(Counted).await,
    ] {
        let least = if place.server().is_some() { 2 } else { 0 };
        calls::of_a_client_s_beginning(&place, least).await;
    }
}
