//! Requests to release a lock, which reach its holders, and the notice before a lease ends.

use futures_util::future::{FutureExt as _, join_all};
use rlock_core::{LockClient, current};
use rlock_testkit::{Place, eventually, within};
use tokio::sync::oneshot;

use super::{LONG, assert_soon_queued, owner};
use crate::common::{acquiring, its_turn};

/// Asks the holders until all have received a request. On a busy machine, they may reply too late.
async fn ask(operator: &LockClient, key: &str) {
    eventually(LONG, "the holders reply", async || {
        operator.request_release(key).await.expect("a reply")
    })
    .await;
}

pub(crate) async fn a_holder_that_is_asked_to_release_its_lock_ends_when_it_is_ready(place: Place) {
    let [one, other, operator] = place.clients().await;
    let asked = operator.request_release("k").await.expect("a reply");
    assert!(!asked, "it is free");
    let (reports, heard) = oneshot::channel();
    let (permits, permitted) = oneshot::channel();
    let body = async move {
        let hold = current().expect("inside");
        hold.release_requested().await;
        reports.send(hold.token()).expect("the test waits");
        permitted.await.expect("the test permits the end");
        assert!(hold.is_valid(), "nothing is lost");
        hold.owner()
    };
    let lock = one.lock("k");
    let holding = tokio::spawn(async move { lock.run(body).await });
    eventually(LONG, "the body runs", async || {
        owner(&operator, "k").await.is_some()
    })
    .await;
    let waiting = acquiring(other.lock("k").wait(LONG));
    assert_soon_queued(place.keeps_strict_order(), &operator, "k", 1).await;
    ask(&operator, "k").await;
    let token = within(LONG, "it hears of the request", heard).await;
    let held_by = owner(&operator, "k").await;
    permits.send(()).expect("the body waits");
    let outcome = within(LONG, "the body ends", holding).await;
    assert_eq!(outcome.expect("no panic").ok(), held_by);
    let next = its_turn(waiting).await;
    assert!(next.token() > token.expect("sent"));
    let asked = next.release_requested().now_or_never();
    assert!(asked.is_none(), "a call that waits is not asked");
}

pub(crate) async fn all_holders_of_a_shared_lock_are_asked_to_release_it(place: Place) {
    let [operator, clients @ ..] = place.clients::<4>().await;
    let mut locks = vec![clients.each_ref().map(|client| client.lock("k").shared())];
    if place.has_permits() {
        locks.push(clients.each_ref().map(|client| client.lock("p").permits(6)));
    }
    for locks in locks {
        // Two calls of each client, which share one holder in the store unless they have permits.
        let calls = locks.iter().chain(&locks);
        let guards = calls.map(async |lock| lock.clone().wait(LONG).acquire().await.expect("free"));
        let guards = join_all(guards).await;
        ask(&operator, locks[0].key()).await;
        for guard in guards {
            within(LONG, "it hears of it", guard.release_requested()).await;
            guard.release().await.expect("nothing is lost");
        }
    }
}
