//! The order in which waiters are served.

use futures_util::future::select_all;
use rlock_core::{LockClient, LockError, LockGuard};
use rlock_testkit::{Place, assert_taken, eventually, within};
use tokio::task::JoinHandle;

use super::{LONG, assert_soon_queued, owner};

type Waiting = JoinHandle<LockGuard>;

/// Starts a task that waits for the lock, and lets it ask.
async fn wait_for(client: &LockClient, key: &str) -> Waiting {
    let lock = client.lock(key).wait(LONG);
    let waiting = tokio::spawn(async move { lock.acquire().await.expect("its turn") });
    tokio::task::yield_now().await;
    waiting
}

/// Starts a task that waits for the lock. Returns once this many are queued.
async fn enqueue(place: &Place, client: &LockClient, key: &str, queued: usize) -> Waiting {
    let waiting = wait_for(client, key).await;
    assert_soon_queued(place.keeps_strict_order(), client, key, queued).await;
    waiting
}

async fn served(waiting: Waiting) -> LockGuard {
    within(LONG, "it has its turn", waiting)
        .await
        .expect("no panic")
}

pub(crate) async fn clients_are_served_in_the_order_of_their_requests(place: Place) {
    let [newcomer, clients @ ..] = place.clients::<4>().await;
    let mut held = clients[0].lock("k").acquire().await.expect("free");
    let mut waiting = vec![enqueue(&place, &clients[1], "k", 1).await];
    waiting.push(wait_for(&clients[2], "k").await);
    for round in 0..6 {
        assert_soon_queued(place.keeps_strict_order(), &newcomer, "k", 2).await;
        // It queues behind the others, although it holds the lock.
        waiting.push(wait_for(&clients[round % 3], "k").await);
        let (token, before) = (held.token(), held.owner());
        held.release().await.expect("held");
        if place.keeps_strict_order() {
            let given = owner(&newcomer, "k").await.expect("never free");
            assert_ne!(given, before);
            assert_taken(&newcomer, "k").await;
            held = served(waiting.remove(0)).await;
            assert_eq!(held.owner(), given);
        } else {
            let next = select_all(waiting.iter_mut());
            let (first, ahead, _) = within(LONG, "the next has its turn", next).await;
            held = first.expect("no panic");
            drop(waiting.remove(ahead));
        }
        assert!(held.token() > token);
    }
    held.release().await.expect("held");
    while !waiting.is_empty() {
        let next = select_all(waiting.iter_mut());
        let (next, ahead, _) = within(LONG, "all have their turns", next).await;
        drop(waiting.remove(ahead));
        next.expect("no panic").release().await.expect("held");
    }
    assert_eq!(owner(&newcomer, "k").await, None);
}

pub(crate) async fn a_waiter_that_gives_up_or_is_shut_down_leaves_its_place_to_the_next(
    place: Place,
) {
    let (one, other) = (place.client().await, place.client().await);
    for way in ["cancelled", "after it was given the lock", "shut down"] {
        let goes = place.client().await;
        let held = one.lock("k").acquire().await.expect("free");
        let lock = goes.lock("k").wait(LONG);
        let mut going = Box::pin(lock.acquire());
        tokio::select! {
            outcome = going.as_mut() => panic!("it has to wait: {outcome:?}"),
            () = assert_soon_queued(place.keeps_strict_order(), &one, "k", 1) => {}
        }
        let waiting = enqueue(&place, &other, "k", 2).await;
        match way {
            "cancelled" => {
                drop(going);
                assert_soon_queued(place.keeps_strict_order(), &one, "k", 1).await;
                held.release().await.expect("held");
            }
            "shut down" => {
                let (ended, refused) = tokio::join!(goes.shutdown(), going);
                ended.expect("nothing is left");
                assert!(matches!(refused, Err(LockError::Closed { .. })));
                assert_soon_queued(place.keeps_strict_order(), &one, "k", 1).await;
                held.release().await.expect("held");
            }
            _ => {
                held.release().await.expect("held");
                drop(going);
            }
        }
        served(waiting).await.release().await.expect("held");
        eventually(LONG, way, async || owner(&one, "k").await.is_none()).await;
    }
}

pub(crate) async fn the_last_handle_of_a_waiting_client_takes_its_place_along(place: Place) {
    let [one, other, goes] = place.clients().await;
    let held = one.lock("k").acquire().await.expect("free");
    let going = enqueue(&place, &goes, "k", 1).await;
    let waiting = enqueue(&place, &other, "k", 2).await;
    drop(goes);
    going.abort();
    let _ = going.await;
    assert_soon_queued(place.keeps_strict_order(), &one, "k", 1).await;
    held.release().await.expect("held");
    served(waiting).await.release().await.expect("held");
}
