//! Drops every call of the public interface at every one of its polls.
//!
//! The drop comes right after the poll, when the call is woken, while its request is on its way, or
//! while the reply is. Afterwards there is no lock and no place in the queue, and both clients can acquire
//! the lock.

mod calls;
mod cut;
mod place;

use rlock_core::Reentry::{Counted, Local};

use place::Place;

/// Runs all calls. Each kind has its own place, and all places run in parallel, because the calls mostly wait.
async fn everywhere(place: impl AsyncFn(&'static str) -> Place, least: usize) {
    let free = async {
        let place = place("free").await;
        calls::of_a_free_lock(&place, least).await;
        calls::inside_a_hold(&place, least).await;
    };
    let held = async {
        let place = place("held").await;
        calls::of_a_held_lock(&place, least).await;
    };
    let own = async {
        let place = place("own").await;
        calls::of_a_taken_lock(&place, "own", &place.client, 1).await;
    };
    let foreign = async {
        let place = place("foreign").await;
        calls::of_a_taken_lock(&place, "foreign", &place.other, least.max(1)).await;
    };
    tokio::join!(
        Box::pin(free),
        Box::pin(held),
        Box::pin(own),
        Box::pin(foreign)
    );
}

#[tokio::test]
async fn a_call_that_is_cancelled_on_a_server_leaves_nothing_behind() {
    everywhere(async |_| Place::server(str::to_owned).await, 2).await;
}

#[tokio::test]
#[ignore = "scripts/test-all"]
async fn a_call_that_is_cancelled_by_the_older_protocol_leaves_nothing_behind() {
    everywhere(async |_| Place::server(crate::common::resp2).await, 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_cancelled_in_the_embedded_store_leaves_nothing_behind() {
    everywhere(async |calls| Place::memory(calls, Counted).await, 0).await;
    let place = Place::memory("local", Local).await;
    calls::inside_a_hold(&place, 0).await;
}

#[tokio::test]
async fn connecting_that_is_cancelled_leaves_no_connection() {
    let place = Place::server(str::to_owned).await;
    calls::of_a_client_s_beginning(&place, 4).await;
    // Over RESP2, a client has one more, for messages.
    let place = Place::server(crate::common::resp2).await;
    calls::of_a_client_s_beginning(&place, 5).await;
}
