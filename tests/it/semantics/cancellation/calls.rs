//! Every call of the public interface, with a cut at one point.

use rlock_core::{LockClient, LockError, LockGuard, distributed_lock};
use rlock_testkit::eventually;
use tokio::task::yield_now;

use super::{
    cut::{Cut, Driven},
    place::Place,
};
use crate::common::LONG;

/// Locks, and enters the same lock and another one.
#[distributed_lock(key = "<key>", client = client)]
async fn annotated(client: &LockClient, key: &str) -> Result<(), LockError> {
    yield_now().await;
    annotated_with_two(client, key).await?;
    yield_now().await;
    Ok(())
}

#[distributed_lock(key = ["<key>", "<key>-too"], client = client)]
async fn annotated_with_two(client: &LockClient, key: &str) -> Result<(), LockError> {
    yield_now().await;
    Ok(())
}

fn too(key: &str) -> String {
    format!("{key}-too")
}

/// Cuts the release off, and has the waiter acquire and release the lock after it.
async fn cut_off_release<F>(cut: Cut<'_>, guard: LockGuard, waiter: Driven<F>) -> bool
where
    F: Future<Output = Result<LockGuard, LockError>>,
{
    let is_cut = cut.off(guard.release()).await;
    let next = waiter.end().await.expect("its turn");
    next.release().await.expect("held");
    is_cut
}

/// Calls of a free lock.
pub(crate) async fn of_a_free_lock(place: &Place, least: usize) {
    let client = &place.client;
    let acquire = async |key: &str, cut: Cut<'_>| {
        let lock = client.lock(key);
        cut.off(async { drop(lock.acquire().await) }).await
    };
    place.everywhere("acquire", least, acquire).await;
    let run = async |key: &str, cut: Cut<'_>| {
        let is_cut = cut.off(annotated(client, key)).await;
        place.assert_nothing_left(&too(key), "the other key").await;
        is_cut
    };
    place.everywhere("annotated", least + 3, run).await;
}

/// Calls inside a hold, which does not change.
pub(crate) async fn inside_a_hold(place: &Place, least: usize) {
    let client = &place.client;
    let acquire = async |key: &str, cut: Cut<'_>| {
        let outer = place.hold(client, key).await;
        let lock = client.lock(key);
        let nested = async { drop(lock.acquire().await) };
        let is_cut = cut.off(outer.scope(nested)).await;
        place.assert_held_and_release(outer).await;
        is_cut
    };
    // It enters at once.
    place
        .everywhere("nested acquire", least.min(1), acquire)
        .await;
    let run = async |key: &str, cut: Cut<'_>| {
        let outer = place.hold(client, key).await;
        let is_cut = cut.off(outer.scope(annotated_with_two(client, key))).await;
        place.assert_held_and_release(outer).await;
        place.assert_nothing_left(&too(key), "the other key").await;
        is_cut
    };
    place.everywhere("one of two held", least, run).await;
    // Once the nested entry leaves first, and once the outer one.
    for is_last in [false, true] {
        let release = async |key: &str, cut: Cut<'_>| {
            let outer = place.hold(client, key).await;
            let inner = outer.scope(client.lock(key).acquire()).await;
            let inner = inner.expect("the hold can be entered");
            if is_last {
                outer.release().await.expect("held");
                return cut.off(inner.release()).await;
            }
            let is_cut = cut.off(inner.release()).await;
            place.assert_held_and_release(outer).await;
            is_cut
        };
        let least = usize::from(is_last);
        place.everywhere("nested release", least, release).await;
    }
}

/// Releases.
pub(crate) async fn of_a_held_lock(place: &Place, least: usize) {
    let client = &place.client;
    let release = async |key: &str, cut: Cut<'_>| {
        let guard = place.hold(client, key).await;
        cut.off(guard.release()).await
    };
    place.everywhere("release", least, release).await;
    // The store grants a new lease to a caller whose lease is not renewed.
    for renews in [false, true] {
        let hand_over = async |key: &str, cut: Cut<'_>| {
            let guard = place.hold(client, key).await;
            let next = client.lock(key).watchdog(renews);
            let mut next = Driven::new(next.acquire());
            next.until_still().await;
            cut_off_release(cut, guard, next).await
        };
        let least = if renews { 1 } else { least };
        place.everywhere("hand-over", least, hand_over).await;
    }
    let hand_off = async |key: &str, cut: Cut<'_>| {
        let guard = place.hold(client, key).await;
        let next = place.other.lock(key);
        let mut next = Driven::new(next.acquire());
        next.until_still().await;
        place.assert_soon_queued(key, 1).await;
        cut_off_release(cut, guard, next).await
    };
    place.everywhere("hand-off", least, hand_off).await;
}

/// Cuts off calls of a lock that a client holds, before the lock is free or while it is granted.
pub(crate) async fn of_a_taken_lock(place: &Place, whose: &str, holder: &LockClient, least: usize) {
    for is_free in [false, true] {
        let least = if is_free { 1 } else { least };
        let what = format!("acquire, {whose}, {is_free}");
        let acquire = async |key: &str, cut: Cut<'_>| {
            let taken = place.hold(holder, key).await;
            let lock = place.client.lock(key);
            let mut driven = Driven::new(async { drop(lock.acquire().await) });
            if is_free {
                driven.until_still().await;
                taken.release().await.expect("held");
                return cut.off_driven(driven).await;
            }
            let is_cut = cut.off_driven(driven).await;
            taken.release().await.expect("held");
            is_cut
        };
        place.everywhere(&what, least, acquire).await;
        let both = async |key: &str, cut: Cut<'_>| {
            let taken = place.hold(holder, &too(key)).await;
            let mut driven = Driven::new(annotated_with_two(&place.client, key));
            let is_cut = if is_free {
                driven.until_still().await;
                taken.release().await.expect("held");
                cut.off_driven(driven).await
            } else {
                let is_cut = cut.off_driven(driven).await;
                taken.release().await.expect("held");
                is_cut
            };
            place.assert_nothing_left(&too(key), "the other key").await;
            is_cut
        };
        place.everywhere(&what, least, both).await;
    }
}

/// Connecting: no connection may stay open. `before`: the number of connections of the two clients of this place.
pub(crate) async fn of_a_client_s_beginning(place: &Place, before: usize) {
    let is_as_before = async || place.connections().await == before;
    eventually(LONG, "its clients are connected", is_as_before).await;
    let connect = async |_: &str, cut: Cut<'_>| {
        let is_cut = cut.off(LockClient::connect(&place.url)).await;
        eventually(LONG, "it is closed", is_as_before).await;
        is_cut
    };
    place.everywhere("connect", 2, connect).await;
}
