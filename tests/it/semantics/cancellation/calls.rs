//! Every call of the public interface, with a cut at one point.

use rlock_core::{InCurrentScope, LockClient, LockError, LockGuard, current, distributed_lock};
use tokio::{task::yield_now, time::Duration};

use super::{
    cut::{Cut, Driven, Ending},
    place::{Place, Whose},
};
use crate::common::LASTING;

#[distributed_lock(key = "<key>", client = client)]
async fn annotated(client: &LockClient, key: &str) -> Result<(), LockError> {
    yield_now().await;
    annotated_inner(client, key).await?;
    yield_now().await;
    Ok(())
}

#[distributed_lock(key = "<key>", client = client)]
async fn annotated_inner(client: &LockClient, key: &str) -> Result<(), LockError> {
    yield_now().await;
    Ok(())
}

/// Cuts the release off, and has the waiter acquire and release the lock after it.
async fn cut_off_release<F>(cut: Cut<'_>, guard: LockGuard, waiter: Driven<F>) -> Ending
where
    F: Future<Output = Result<LockGuard, LockError>>,
{
    let ending = cut.off(guard.release()).await;
    let next = waiter.end().await.expect("its turn");
    next.release().await.expect("held");
    ending
}

#[distributed_lock(key = ["<key>", "<key>-too"], client = client)]
async fn annotated_with_two(client: &LockClient, key: &str) -> Result<(), LockError> {
    yield_now().await;
    Ok(())
}

#[distributed_lock(key = "<key>")]
async fn annotated_in_scope(key: &str) -> Result<(), LockError> {
    yield_now().await;
    Ok(())
}

fn too(key: &str) -> String {
    format!("{key}-too")
}

async fn assert_nothing_left_of_the_other(place: &Place, key: &str) {
    let point = "the other of two";
    place.assert_nothing_left(&too(key), point).await;
}

/// Calls of a free lock.
pub(crate) async fn of_a_free_lock(place: &Place, least: usize) {
    let client = &place.client;
    let lock = |key: &str| client.lock(key);
    place
        .everywhere("acquire", least, async |key, cut| {
            cut.off(async { drop(lock(key).acquire().await) }).await
        })
        .await;
    place
        .everywhere("try_acquire", least, async |key, cut| {
            cut.off(async { drop(lock(key).try_acquire().await) }).await
        })
        .await;
    place
        .everywhere("run", least + 1, async |key, cut| {
            cut.off(lock(key).run(yield_now())).await
        })
        .await;
    place
        .everywhere("annotated", least + 3, async |key, cut| {
            cut.off(annotated(client, key)).await
        })
        .await;
    place
        .everywhere("client.scope", least + 1, async |key, cut| {
            cut.off(client.scope(annotated_in_scope(key))).await
        })
        .await;
    place
        .everywhere("two keys", least + 1, async |key, cut| {
            let ending = cut.off(annotated_with_two(client, key)).await;
            assert_nothing_left_of_the_other(place, key).await;
            ending
        })
        .await;
    place
        .everywhere("inspect", least, async |key, cut| {
            cut.off(client.inspect(key)).await
        })
        .await;
}

/// Calls inside a hold, which does not change.
pub(crate) async fn inside_a_hold(place: &Place, least: usize) {
    let client = &place.client;
    place
        .everywhere("nested acquire", least, async |key, cut| {
            let outer = place.hold(client, key).await;
            let lock = client.lock(key);
            let nested = async { drop(lock.acquire().await) };
            let ending = cut.off(outer.scope(nested)).await;
            place.assert_held_and_release(outer, cut).await;
            ending
        })
        .await;
    place
        .everywhere("nested acquire in scope", least, async |key, cut| {
            let outer = place.hold(client, key).await;
            let lock = client.lock(key);
            let nested = async { drop(lock.acquire().await) };
            let nested = async { Some(nested.in_current_scope()) };
            let nested = outer.scope(nested).await.expect("made inside");
            let ending = cut.off(nested).await;
            place.assert_held_and_release(outer, cut).await;
            ending
        })
        .await;
    place
        .everywhere("nested run", least + 1, async |key, cut| {
            let outer = place.hold(client, key).await;
            let ending = cut.off(outer.scope(annotated(client, key))).await;
            place.assert_held_and_release(outer, cut).await;
            ending
        })
        .await;
    place
        .everywhere("one of two keys held", least, async |key, cut| {
            let outer = place.hold(client, key).await;
            let ending = cut.off(outer.scope(annotated_with_two(client, key))).await;
            place.assert_held_and_release(outer, cut).await;
            assert_nothing_left_of_the_other(place, key).await;
            ending
        })
        .await;
    place
        .everywhere("nested release", 0, async |key, cut| {
            let outer = place.hold(client, key).await;
            let inner = outer.scope(client.lock(key).acquire()).await;
            let inner = inner.expect("the hold can be entered");
            let ending = cut.off(inner.release()).await;
            place.assert_held_and_release(outer, cut).await;
            ending
        })
        .await;
    // The outer entry leaves first. The nested one, which was cut off, has to leave as well.
    place
        .everywhere("release of the last", 1, async |key, cut| {
            let outer = place.hold(client, key).await;
            let inner = outer.scope(client.lock(key).acquire()).await;
            let inner = inner.expect("the hold can be entered");
            outer.release().await.expect("held");
            cut.off(inner.release()).await
        })
        .await;
}

/// Waits for a loss that does not happen.
pub(crate) async fn for_a_loss(place: &Place) {
    let client = &place.client;
    place
        .everywhere("lost", 1, async |key, cut| {
            let guard = place.hold(client, key).await;
            let ending = cut.off(guard.lost()).await;
            place.assert_held_and_release(guard, cut).await;
            ending
        })
        .await;
    place
        .everywhere("lost or held for long enough", 1, async |key, cut| {
            let lock = client.lock(key).max_hold(LASTING);
            let guard = lock.acquire().await.expect("free");
            let ending = cut.off(guard.lost()).await;
            place.assert_held_and_release(guard, cut).await;
            ending
        })
        .await;
    place
        .everywhere("lost, inside", 1, async |key, cut| {
            let guard = place.hold(client, key).await;
            let hold = guard.scope(async { current().expect("inside") }).await;
            let ending = cut.off(hold.lost()).await;
            place.assert_held_and_release(guard, cut).await;
            ending
        })
        .await;
}

/// Releases.
pub(crate) async fn of_a_held_lock(place: &Place, least: usize) {
    let client = &place.client;
    place
        .everywhere("release", least, async |key, cut| {
            cut.off(place.hold(client, key).await.release()).await
        })
        .await;
    place
        .everywhere("late release", least, async |key, cut| {
            let lock = client.lock(key).at_least(Duration::from_millis(300));
            let guard = lock.acquire().await.expect("free");
            cut.off(guard.release()).await
        })
        .await;
    place
        .everywhere(
            "release to the next of the process",
            least,
            async |key, cut| {
                let guard = place.hold(client, key).await;
                // The store grants a new lease to a caller whose lease is not renewed.
                let next = client.lock(key).watchdog(false);
                let mut next = Driven::new(next.acquire());
                next.until_still().await;
                cut_off_release(cut, guard, next).await
            },
        )
        .await;
    place
        .everywhere("hand-over within the process", 1, async |key, cut| {
            let guard = place.hold(client, key).await;
            let next = client.lock(key);
            let mut next = Driven::new(next.acquire());
            next.until_still().await;
            cut_off_release(cut, guard, next).await
        })
        .await;
    place
        .everywhere("acquire of a retained lock", 1, async |key, cut| {
            let lock = client.lock(key).retain(Duration::from_millis(20));
            let guard = lock.acquire().await.expect("free");
            guard.release().await.expect("held");
            cut.off(lock.acquire()).await
        })
        .await;
    place
        .everywhere("release to another client", least, async |key, cut| {
            let guard = place.hold(client, key).await;
            let next = place.other.lock(key);
            let mut next = Driven::new(next.acquire());
            next.until_still().await;
            place.assert_soon_queued(key, 1).await;
            cut_off_release(cut, guard, next).await
        })
        .await;
}

/// Calls of a taken lock, which are cut off before it is free.
pub(crate) async fn of_a_taken_lock(place: &Place, whose: Whose, least: usize) {
    let holder = place.holder(whose);
    let least = if whose == Whose::Own { 1 } else { least };
    place
        .everywhere(&format!("acquire, {whose:?}"), least, async |key, cut| {
            let taken = place.hold(holder, key).await;
            let lock = place.client.lock(key);
            let ending = cut.off(async { drop(lock.acquire().await) }).await;
            taken.release().await.expect("held");
            ending
        })
        .await;
    place
        .everywhere(&format!("try_acquire, {whose:?}"), 0, async |key, cut| {
            let taken = place.hold(holder, key).await;
            let lock = place.client.lock(key);
            let ending = cut.off(async { drop(lock.try_acquire().await) }).await;
            place.assert_held_and_release(taken, cut).await;
            ending
        })
        .await;
    place
        .everywhere(&format!("two keys, {whose:?}"), least, async |key, cut| {
            let taken = place.hold(holder, &too(key)).await;
            let call = annotated_with_two(&place.client, key);
            let ending = cut.off(call).await;
            taken.release().await.expect("held");
            assert_nothing_left_of_the_other(place, key).await;
            ending
        })
        .await;
}

/// Calls that wait, and are cut off during their grant.
pub(crate) async fn of_a_lock_that_is_handed_over(place: &Place, whose: Whose) {
    let holder = place.holder(whose);
    place
        .everywhere(&format!("acquire, from {whose:?}"), 1, async |key, cut| {
            let taken = place.hold(holder, key).await;
            let lock = place.client.lock(key);
            let mut driven = Driven::new(async { drop(lock.acquire().await) });
            driven.until_still().await;
            taken.release().await.expect("held");
            cut.off_driven(driven).await
        })
        .await;
    place
        .everywhere(
            &format!("annotated, from {whose:?}"),
            2,
            async |key, cut| {
                let taken = place.hold(holder, key).await;
                let mut driven = Driven::new(annotated(&place.client, key));
                driven.until_still().await;
                taken.release().await.expect("held");
                cut.off_driven(driven).await
            },
        )
        .await;
    place
        .everywhere(&format!("two keys, from {whose:?}"), 1, async |key, cut| {
            let taken = place.hold(holder, &too(key)).await;
            let mut driven = Driven::new(annotated_with_two(&place.client, key));
            driven.until_still().await;
            taken.release().await.expect("held");
            let ending = cut.off_driven(driven).await;
            assert_nothing_left_of_the_other(place, key).await;
            ending
        })
        .await;
}

/// A call that is granted the lock and cut off, with another waiter behind it.
pub(crate) async fn before_another(place: &Place) {
    place
        .everywhere("acquire, before another", 1, async |key, cut| {
            let taken = place.hold(&place.other, key).await;
            let lock = place.client.lock(key);
            let mut first = Driven::new(async { drop(lock.acquire().await) });
            first.until_still().await;
            let mut second = Driven::new(lock.acquire());
            second.until_still().await;
            taken.release().await.expect("held");
            let ending = cut.off_driven(first).await;
            let second = second.end().await.expect("its turn");
            second.release().await.expect("held");
            ending
        })
        .await;
}

/// The shutdown of a client: it is closed even if the shutdown is not awaited.
pub(crate) async fn of_a_client_s_end(place: &Place) {
    place
        .everywhere("shutdown", 1, async |key, cut| {
            let client = place.another_client().await;
            let guard = place.hold(&client, key).await;
            let ending = cut.off(client.shutdown()).await;
            if cut.polls > 0 {
                let refused = client.lock(key).acquire().await;
                assert!(matches!(refused, Err(LockError::Closed { .. })));
                assert!(!guard.is_valid());
            }
            if cut.polls % 2 == 0 {
                client.shutdown().await.expect("everything is released");
            }
            drop((guard, client));
            ending
        })
        .await;
}

/// Connecting: no connection may stay open.
pub(crate) async fn of_a_client_s_beginning(place: &Place, least: usize) {
    let before = connections(place).await;
    place
        .everywhere("connect", least, async |_, cut| {
            let ending = cut.off(LockClient::connect(place.url())).await;
            rlock_testkit::eventually(crate::common::LONG, "it is closed", async || {
                connections(place).await == before
            })
            .await;
            ending
        })
        .await;
}

async fn connections(place: &Place) -> usize {
    match place.server() {
        Some(server) => server.client_count().await,
        None => 0,
    }
}
