//! Locks, leases and tokens.

use std::time::{Duration, Instant};

use rlock_core::{LockError, LostCause, escape};
use rlock_testkit::{Place, assert_taken, eventually, within};

use super::{LONG, answered, owner};
use crate::common::{acquiring, its_turn};

pub(crate) async fn a_lock_is_held_by_one_client_at_a_time(place: Place) {
    let (one, other) = (place.client().await, place.client().await);
    let guard = one.lock("order:42").acquire().await.expect("free");
    assert_taken(&other, "order:42").await;
    assert_taken(&one, "order:42").await;
    let free = other.lock("order:43").try_acquire().await.expect("a reply");
    assert!(free.is_some(), "another key is another lock");
    guard.release().await.expect("held");
    let next = other.lock("order:42").try_acquire().await;
    assert!(next.expect("a reply").is_some());
}

pub(crate) async fn a_probe_proves_a_grant_and_leaves_no_lock_behind(place: Place) {
    let (one, other) = (place.client().await, place.client().await);
    for _ in 0..3 {
        let probes = tokio::join!(one.probe(), one.probe(), other.probe());
        assert!(matches!(probes, (Ok(()), Ok(()), Ok(()))), "{probes:?}");
    }
    let mut locks = one.list("rlock:probe:*").scan(true);
    let left = locks.try_next().await.expect("a reply");
    assert_eq!(left, None);
}

pub(crate) async fn a_lease_that_is_not_renewed_ends(place: Place) {
    let (one, other) = (place.client().await, place.client().await);
    let lease = Duration::from_millis(300);
    let lock = one.lock("order:42").lease(lease).watchdog(false);
    let guard = lock.acquire().await.expect("free");
    assert!(guard.valid_for() < lease);
    let lost = within(LONG, "the loss is reported", guard.lost());
    // If the members lost it one after another, they could repair the first before the last has
    // lost it.
    let deletes = async {
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            place.delete("order:42").await;
        }
    };
    let cause = tokio::select! {
        cause = lost => cause,
        () = deletes => unreachable!("it goes on"),
    };
    assert!(
        matches!(cause, LostCause::Expired | LostCause::Removed),
        "{cause:?}"
    );
    assert!(!guard.is_valid() && guard.valid_for().is_zero());
    let next = other.lock("order:42").wait(LONG).acquire().await;
    let next = next.expect("free in the end");
    let lost = guard.release().await.expect_err("lost");
    assert!(
        matches!(lost, LockError::Lost { ref key, .. } if key == "order:42"),
        "{lost:?}"
    );
    assert!(
        next.is_valid(),
        "the late release did not touch the successor's lock"
    );
    assert_taken(&one, "order:42").await;
}

pub(crate) async fn the_watchdog_renews_for_as_long_as_the_lock_is_held(place: Place) {
    let (one, other) = (place.client().await, place.client().await);
    // The first renewal is due after three seconds, and a busy machine may take six more.
    let lock = one.lock("order:42").lease(Duration::from_secs(9));
    let body = async {
        let mut left = Duration::MAX;
        eventually(LONG, "it is renewed", async || {
            let info = other.inspect("order:42").await.expect("a reply");
            let now = info.and_then(|info| info.ttl).expect("held");
            now > std::mem::replace(&mut left, now)
        })
        .await;
        assert_taken(&other, "order:42").await;
    };
    lock.run(body).await.expect("kept");
}

pub(crate) async fn inspect_shows_the_holder_of_the_lock(place: Place) {
    let (one, other) = (place.client().await, place.client().await);
    assert_eq!(owner(&other, "order:42").await, None);
    let lock = one.lock("order:42").lease(Duration::from_secs(60));
    let guard = lock.acquire().await.expect("free");
    let inner = guard.scope(lock.acquire()).await.expect("enters");
    eventually(LONG, "the store counts the entries", async || {
        answered(&other, "order:42").await.depth == 2
    })
    .await;
    let info = answered(&other, "order:42").await;
    assert_eq!(info.owner, guard.owner());
    assert_eq!(info.token(), Some(guard.token()));
    let ttl = info.ttl.expect("a lease");
    assert!(
        ttl > Duration::from_secs(30) && ttl <= Duration::from_secs(60),
        "{ttl:?}"
    );
    drop((inner, guard));
    eventually(LONG, "it is released", async || {
        owner(&other, "order:42").await.is_none()
    })
    .await;
}

pub(crate) async fn a_waiter_for_a_kept_lock_is_served_when_min_hold_is_over(place: Place) {
    let (one, other) = (place.client().await, place.client().await);
    let (lock, started) = (one.lock("order:42"), Instant::now());
    let guard = lock.min_hold(Duration::from_secs(1)).acquire().await;
    let guard = guard.expect("free");
    let waiter = acquiring(other.lock("order:42").wait(LONG));
    guard.release().await.expect("held");
    drop(its_turn(waiter).await);
    // The server counts whole milliseconds.
    assert!(started.elapsed() >= Duration::from_millis(990));
}

pub(crate) async fn keys_with_hash_tags_and_hostile_values_are_locks_of_their_own(place: Place) {
    let client = place.client().await;
    let hostile = [
        "1:2", "1", "%", "}", "{x}", "a\nb", "\u{0}", "ü", "", "*", "' or 1=1",
    ];
    let mut keys: Vec<String> = hostile
        .iter()
        .map(|value| format!("order:{}", escape(value)))
        .collect();
    keys.extend(["order:1:2", "{order}:1", "{order:1}", "order:1:fence"].map(str::to_owned));
    let mut guards = Vec::new();
    for key in &keys {
        let guard = client.lock(key).try_acquire().await.expect("a reply");
        guards.push(guard.unwrap_or_else(|| panic!("{key:?} is another's lock")));
    }
    for guard in guards {
        guard.release().await.expect("held");
    }
}
