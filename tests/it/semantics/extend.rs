//! What a holder may extend or detach, and what is left if that fails.

use std::time::Duration;

use rlock_core::{
    Lock, LockClient, LockError, LockGuard, LostCause,
    testing::{Clock, simulate_loss, simulate_outage, use_clock},
};
use rlock_testkit::{Proxy, RedisServer, eventually};

use crate::{
    common::{LONG, begin, cause_of, connect_with, ms, name},
    leases::clock::HOUR,
};

const LEASE: Duration = Duration::from_secs(30);

fn clocked() -> (Clock, LockClient) {
    let clock = Clock::new();
    let builder = use_clock(LockClient::builder().response_timeout(ms(100)), &clock);
    (clock, builder.in_memory().expect("a client"))
}

async fn unrenewed(client: &LockClient) -> LockGuard {
    let lock = client.lock("k").lease(LEASE).watchdog(false);
    lock.acquire().await.expect("free")
}

#[tokio::test]
async fn an_extension_without_a_reply_leaves_the_hold_what_was_confirmed() {
    let (clock, client) = clocked();
    let guard = unrenewed(&client).await;
    let outage = simulate_outage(&client).expect("the embedded store");
    let failed = guard.extend(HOUR).await;
    let Err(LockError::Unavailable { action, .. }) = &failed else {
        panic!("{failed:?}");
    };
    assert_eq!(action, "extend lock `k`");
    assert!(guard.is_valid() && guard.valid_for() <= LEASE);
    drop(outage);
    guard.extend(HOUR).await.expect("held");
    clock.advance(LEASE);
    assert!(guard.is_valid());
    clock.advance(HOUR);
    assert!(!guard.is_valid(), "nothing renews it");
    let late = cause_of(guard.extend(HOUR).await);
    assert_eq!(late, Some(LostCause::Expired));
}

#[tokio::test]
async fn a_shorter_lease_counts_at_once_even_if_the_store_is_down() {
    let (clock, client) = clocked();
    let guard = client.lock("k").lease(HOUR).acquire().await.expect("free");
    let _outage = simulate_outage(&client).expect("the embedded store");
    guard
        .extend(LEASE)
        .await
        .expect_err("the store does not confirm it");
    assert!(guard.valid_for() <= LEASE && guard.check().is_ok());
    clock.advance(LEASE);
    assert!(!guard.is_valid() && guard.check().is_err());
}

#[tokio::test]
async fn an_extension_whose_future_is_dropped_leaves_a_hold_that_can_be_extended() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let client = connect_with(LONG, &proxy.url()).await;
    let guard = unrenewed(&client).await;
    proxy.hold_replies();
    for _ in 0..3 {
        begin(&mut Box::pin(guard.extend(HOUR))).await;
    }
    assert!(guard.valid_for() <= LEASE, "no reply was read");
    proxy.pass();
    guard.extend(HOUR * 2).await.expect("held");
    assert!(guard.valid_for() > HOUR);
    assert!(server.pttl(&name("k")).await > 3_600_000);
    guard.release().await.expect("held");
}

#[tokio::test]
async fn an_extension_is_refused_for_a_lease_out_of_bounds_and_by_a_lost_hold() {
    let (_clock, client) = clocked();
    let guard = unrenewed(&client).await;
    for lease in [Duration::ZERO, ms(9), HOUR * 25] {
        let refused = guard.extend(lease).await.expect_err("out of bounds");
        assert!(matches!(
            refused,
            LockError::InvalidOption {
                option: "lease",
                ..
            }
        ));
        let token = guard.token();
        let refused = client.extend_if("k", token, lease).await;
        assert!(matches!(refused, Err(LockError::InvalidOption { .. })));
    }
    assert!(simulate_loss(&client, "k").expect("the embedded store"));
    let lost = cause_of(guard.extend(LEASE).await);
    assert_eq!(lost, Some(LostCause::Removed));
    let lost = cause_of(guard.detach());
    assert_eq!(lost, Some(LostCause::Removed));
}

/// Returns the error of a detachment, after which the lock becomes free.
async fn refused(lock: &Lock, guard: LockGuard) -> String {
    let error = guard.detach().expect_err("refused");
    assert!(matches!(
        error,
        LockError::InvalidOption {
            option: "detach",
            ..
        }
    ));
    eventually(LONG, "it is released", async || {
        let free = lock.try_acquire().await.expect("a reply");
        free.is_some()
    })
    .await;
    error.to_string()
}

#[tokio::test]
async fn a_guard_that_cannot_be_detached_releases_its_lock_and_says_why() {
    let (_clock, client) = clocked();
    let exclusive = client.lock("k");
    for (lock, why) in [
        (exclusive.clone().shared(), "shared"),
        (exclusive.clone().permits(2), "one of 2 permits"),
    ] {
        let guard = lock.acquire().await.expect("free");
        let error = refused(&exclusive, guard).await;
        assert!(error.contains(why) && error.contains("`k`"), "{error}");
    }
    let both = client.lock_all(["k", "l"]);
    let guard = both.acquire().await.expect("free");
    let error = refused(&both, guard).await;
    assert!(error.contains("with 2 keys"), "{error}");

    let guard = exclusive.acquire().await.expect("free");
    let nested = guard.scope(exclusive.acquire()).await.expect("enters");
    let error = guard.detach().expect_err("a nested call relies on it");
    assert!(error.to_string().contains("1 other entry"), "{error}");
    assert!(nested.is_valid());
    let token = nested.detach().expect("it is the only entry now");
    assert!(exclusive.try_acquire().await.expect("a reply").is_none());
    assert!(client.release_if("k", token).await.expect("a reply"));
}
