//! Shared locks and permits on every store.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::future::join_all;
use rlock_core::{Lock, LockClient, LockError, LockMode, LostCause, current};
use rlock_testkit::{Place, Witness, eventually, within};
use tokio::{task::JoinHandle, time::sleep};

use super::{LONG, answered, assert_soon_queued, assert_taken_away};
use crate::common::{acquiring, assert_soon_waits, its_turn};

fn reader(client: &LockClient) -> Lock {
    client.lock("k").wait(LONG).shared()
}

/// Tasks that wait for the lock, and release it at once.
#[derive(Default)]
struct Waiting {
    tasks: Vec<JoinHandle<()>>,
    served: Arc<Mutex<Vec<&'static str>>>,
}

impl Waiting {
    async fn add(&mut self, lock: Lock, name: &'static str) {
        let served = Arc::clone(&self.served);
        self.tasks.push(tokio::spawn(async move {
            let guard = lock.acquire().await.expect("its turn");
            served.lock().expect("not poisoned").push(name);
            guard.release().await.expect("held");
        }));
        tokio::task::yield_now().await;
    }

    /// Starts tasks, each of which is queued before the next one starts.
    async fn enqueue_all<const N: usize>(
        calls: [(Lock, &'static str); N],
        observer: &LockClient,
    ) -> Self {
        let mut waiting = Self::default();
        for (lock, name) in calls {
            waiting.add(lock, name).await;
            assert_soon_waits(observer, "k", waiting.tasks.len()).await;
        }
        waiting
    }

    /// Starts a task that waits for the exclusive lock.
    async fn writer(client: &LockClient) -> Self {
        let mut waiting = Self::default();
        waiting.add(client.lock("k").wait(LONG), "writer").await;
        waiting
    }

    fn assert_waits(&self) {
        let served = self.served.lock().expect("not poisoned");
        assert!(served.is_empty(), "others are inside: {served:?}");
    }

    async fn assert_served(self, expected: &[&str]) {
        for task in within(LONG, "all are served", join_all(self.tasks)).await {
            task.expect("no panic");
        }
        assert_eq!(*self.served.lock().expect("not poisoned"), expected);
    }
}

pub(crate) async fn readers_share_a_lock_and_a_writer_waits_for_all_of_them(place: Place) {
    let (one, other) = (place.client().await, place.client().await);
    let first = reader(&one).acquire().await.expect("free");
    let joined = reader(&one).acquire().await.expect("shared");
    assert_eq!(joined.owner(), first.owner(), "one holder for each client");
    assert_eq!(joined.mode(), LockMode::Shared);
    let second = reader(&other).acquire().await.expect("shared");
    assert_ne!(second.owner(), first.owner());
    let writer = Waiting::writer(&one).await;
    assert_soon_queued(place.keeps_strict_order(), &other, "k", 1).await;
    for guard in [first, second] {
        guard.release().await.expect("held");
        sleep(Duration::from_millis(50)).await;
        writer.assert_waits();
    }
    let token = joined.token();
    joined.release().await.expect("held");
    writer.assert_served(&["writer"]).await;
    let next = one.lock("k").acquire().await.expect("free");
    assert!(next.token() > token);
}

pub(crate) async fn readers_and_writers_are_served_in_the_order_of_their_requests(place: Place) {
    if !place.keeps_strict_order() {
        return;
    }
    let clients = place.clients::<4>().await;
    let writer = |n: usize| clients[n].lock("k").wait(LONG);
    let held = reader(&clients[1]).acquire().await.expect("free");
    let calls = [
        (writer(0), "first writer"),
        // These could share the lock at once, and do not overtake the writer.
        (reader(&clients[2]), "reader"),
        (reader(&clients[1]), "reader"),
        (writer(3), "second writer"),
    ];
    let waiting = Waiting::enqueue_all(calls, &clients[0]).await;
    waiting.assert_waits();
    held.release().await.expect("held");
    let expected = ["first writer", "reader", "reader", "second writer"];
    waiting.assert_served(&expected).await;
}

pub(crate) async fn permits_let_in_as_many_calls_as_there_are(place: Place) {
    let clients = [place.client().await, place.client().await];
    if !place.has_permits() {
        let refused = clients[0].lock("k").permits(3).acquire().await;
        assert!(
            matches!(&refused, Err(LockError::InvalidOption { option, .. }) if *option == "permits"),
            "{refused:?}"
        );
        return;
    }
    // Each takes one permit, or between one and all of them.
    for takes in [1, 3] {
        let inside = Witness::new();
        let calls = (0..24_u32).map(|n| {
            let lock = clients[n as usize % 2].lock("k").permits(3).wait(LONG);
            let lock = lock.take(1 + n % takes);
            let inside = inside.clone();
            tokio::spawn(async move {
                let body = async {
                    let _inside = inside.hold(&current().expect("inside"));
                    // The first calls that take one permit wait for each other.
                    while takes == 1 && inside.most_inside() < 3 {
                        sleep(Duration::from_millis(5)).await;
                    }
                    tokio::task::yield_now().await;
                };
                lock.run(body).await.expect("served");
            })
        });
        for call in within(LONG, "all are served", join_all(calls)).await {
            call.expect("no panic");
        }
        inside.assert_held();
        assert_eq!(inside.entries(), 24);
    }
    eventually(LONG, "all are released", async || {
        clients[0].inspect("k").await.expect("a reply").is_none()
    })
    .await;
}

pub(crate) async fn several_permits_are_taken_all_or_none_and_in_order(place: Place) {
    let clients = place.clients::<4>().await;
    let take = |n: usize, take| clients[n].lock("k").permits(8).take(take).wait(LONG);
    if !place.has_permits() {
        let refused = take(0, 3).acquire().await;
        assert!(
            matches!(&refused, Err(LockError::InvalidOption { option, .. }) if *option == "permits"),
            "{refused:?}"
        );
        return;
    }
    let held = take(0, 5).acquire().await.expect("free");
    let also_held = take(1, 2).acquire().await.expect("there are enough");
    let info = clients[3]
        .inspect("k")
        .await
        .expect("a reply")
        .expect("held");
    assert_eq!((info.permits_taken(), info.holder_count), (Some(7), 2));
    assert!(
        take(2, 2).try_acquire().await.expect("a reply").is_none(),
        "one is left"
    );
    let inner = held.scope(take(0, 5).acquire()).await.expect("enters");
    inner.release().await.expect("held");
    let refused = held.scope(take(0, 6).acquire()).await;
    let mode = LockMode::Permits { take: 5, of: 8 };
    assert!(
        matches!(&refused, Err(LockError::Upgrade { held, .. }) if *held == mode),
        "{refused:?}"
    );
    if !place.keeps_strict_order() {
        return;
    }
    let calls = [(take(1, 8), "all"), (take(2, 1), "one")];
    let waiting = Waiting::enqueue_all(calls, &clients[3]).await;
    // A permit is free for it, but a call that needs all of them waits for that.
    assert!(take(3, 1).try_acquire().await.expect("a reply").is_none());
    for guard in [held, also_held] {
        guard.release().await.expect("held");
    }
    waiting.assert_served(&["all", "one"]).await;
}

pub(crate) async fn a_writer_is_served_when_the_last_lease_of_the_readers_ends(place: Place) {
    let (one, other) = (place.client().await, place.client().await);
    let brief = Duration::from_millis(700);
    let dead = reader(&one).lease(brief).watchdog(false);
    let dead = dead.acquire().await.expect("free");
    let lasting = reader(&other).acquire().await.expect("shared");
    let writer = Waiting::writer(&one).await;
    lasting.release().await.expect("held");
    writer.assert_served(&["writer"]).await;
    assert!(!dead.is_valid());
}

pub(crate) async fn all_who_share_a_lock_are_shown_and_can_be_asked_to_release_it(place: Place) {
    let (one, other) = (place.client().await, place.client().await);
    let operator = place.client().await;
    let held = [
        reader(&one).acquire().await.expect("free"),
        reader(&other).acquire().await.expect("shared"),
    ];
    let info = operator.inspect("k").await.expect("a reply").expect("held");
    assert_eq!((info.mode(), info.holder_count), (LockMode::Shared, 2));
    let mut shown: Vec<String> = info.other_owners.iter().map(ToString::to_string).collect();
    shown.push(info.owner);
    for guard in &held {
        assert!(shown.contains(&guard.owner()), "{shown:?}");
    }
    let info = answered(&operator, "k").await;
    assert_eq!(info.holder.expect("it replies").mode, LockMode::Shared);
    let bodies = held.map(|guard| async move {
        assert_eq!(guard.lost().await, LostCause::Revoked);
        drop(guard);
    });
    let asked = eventually(LONG, "all answer, and it is free", async || {
        operator.revoke("k").await.expect("a reply");
        operator.inspect("k").await.expect("a reply").is_none()
    });
    tokio::join!(asked, join_all(bodies));
}

pub(crate) async fn all_who_share_a_lock_are_listed_with_those_who_wait(place: Place) {
    let (one, other) = (place.client().await, place.client().await);
    let first = reader(&one).acquire().await.expect("free");
    let writer = Waiting::writer(&other).await;
    assert_soon_queued(place.keeps_strict_order(), &one, "k", 1).await;
    let mut held = vec![first];
    if place.has_permits() {
        for client in [&one, &one, &other] {
            let permit = client.lock("p").permits(3).acquire().await;
            held.push(permit.expect("free"));
        }
    }
    let operator = place.client().await;
    let mut owners: Vec<String> = held.iter().map(|guard| guard.owner()).collect();
    owners.sort_unstable();
    // On a busy machine, a client may answer too late.
    eventually(LONG, "all are listed", async || {
        let mut list = operator.list("*");
        let mut listed = Vec::new();
        while let Some(info) = list.try_next().await.expect("a reply") {
            let waiting = usize::from(info.key == "k" && place.keeps_strict_order());
            assert_eq!(info.queued_owners.len().min(waiting), waiting, "{info:?}");
            assert!(info.holder.is_some(), "{info:?}");
            listed.push(info.owner);
        }
        listed.sort_unstable();
        listed == owners
    })
    .await;
    for guard in held {
        guard.release().await.expect("held");
    }
    writer.assert_served(&["writer"]).await;
}

pub(crate) async fn a_scan_shows_holders_that_do_not_reply_next_to_one_that_does(place: Place) {
    let silent = place
        .client_of(LockClient::builder().inspectable(false))
        .await;
    let held = [
        reader(&place.client().await).acquire().await.expect("free"),
        reader(&silent).acquire().await.expect("shared"),
    ];
    let owner = |n: usize| held[n].owner();
    let operator = place.client().await;
    eventually(LONG, "both are shown", async || {
        let mut list = operator.list("*").scan(true);
        let mut listed = Vec::new();
        while let Some(info) = list.try_next().await.expect("a reply") {
            listed.push((info.owner, info.holder.is_some(), info.holder_count));
        }
        listed.sort_unstable_by_key(|(_, replies, _)| !replies);
        listed == [(owner(0), true, 1), (owner(1), false, 1)]
    })
    .await;
    let mut list = operator.list("*").scan_at_most(0);
    while let Some(info) = list.try_next().await.expect("a reply") {
        assert_ne!(info.owner, owner(1), "nothing is scanned");
    }
    assert!(!list.is_complete());
}

pub(crate) async fn a_shared_lock_is_taken_by_force_from_all_its_holders(place: Place) {
    let (one, other) = (place.client().await, place.client().await);
    let held = [
        reader(&one).acquire().await.expect("free"),
        reader(&other).acquire().await.expect("shared"),
    ];
    let operator = place.client().await;
    assert!(operator.force_release("k").await.expect("a reply"));
    let next = operator.lock("k").acquire().await.expect("free");
    for guard in held {
        assert_taken_away(&guard).await;
        assert!(guard.token() < next.token());
    }
}

pub(crate) async fn a_silent_reader_keeps_its_lock_by_whichever_token_it_is_named(place: Place) {
    let builder = || LockClient::builder().inspectable(false);
    let (one, other) = (
        place.client_of(builder()).await,
        place.client_of(builder()).await,
    );
    let stays = reader(&one).acquire().await.expect("free");
    let leaves = reader(&other).acquire().await.expect("shared");
    let tokens = [leaves.token(), stays.token()];
    leaves.release().await.expect("held");
    let operator = place.client().await;
    for token in tokens {
        let released = operator.release_if("k", token).await;
        assert!(!released.expect("a reply"), "{token}");
    }
    stays.release().await.expect("it was not taken");
}

pub(crate) async fn a_downgrade_lets_all_readers_in_and_no_writer(place: Place) {
    let clients = place.clients::<3>().await;
    let held = clients[0].lock("k").acquire().await.expect("free");
    let waiting = clients.each_ref().map(|client| acquiring(reader(client)));
    // The reader of the holder's client waits in the client.
    assert_soon_queued(place.keeps_strict_order(), &clients[0], "k", 2).await;
    let writer = Waiting::writer(&place.client().await).await;
    assert_soon_queued(place.keeps_strict_order(), &clients[0], "k", 3).await;
    held.downgrade().expect("held");
    let readers = join_all(waiting.map(its_turn)).await;
    assert!(held.is_valid() && readers.iter().all(|reader| reader.is_valid()));
    writer.assert_waits();
    held.release().await.expect("held");
    for guard in readers {
        writer.assert_waits();
        guard.release().await.expect("held");
    }
    writer.assert_served(&["writer"]).await;
}
