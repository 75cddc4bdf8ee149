//! Leases are renewed while a lock is held, and never after.

use std::{thread, time::Duration};

use rlock_core::{LockClient, LockError, LostCause, Reentry};
use rlock_testkit::{RedisServer, assert_taken, eventually};

use crate::common::{
    LASTING, LONG, assert_lost, assert_soon_free, cause_of, client, count, ms, name, resp2_client,
    timed,
};

#[tokio::test]
async fn a_body_longer_than_several_leases_keeps_its_lock() {
    let server = RedisServer::start();
    let (client, other) = (client(&server).await, client(&server).await);
    let lock = client.lock("k").lease(ms(800));
    let body = async {
        for _ in 0..14 {
            tokio::time::sleep(ms(200)).await;
            assert_taken(&other, "k").await;
        }
        "done"
    };
    assert_eq!(lock.run(body).await.expect("never lost"), "done");
    assert!(!server.exists(&name("k")).await);
}

/// The body blocks the only thread of the test's runtime.
#[tokio::test(flavor = "current_thread")]
async fn a_body_that_blocks_its_executor_keeps_its_lock() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let lease = ms(800);
    let guard = client.lock("k").lease(lease).acquire().await.expect("free");
    thread::sleep(lease * 3);
    assert!(guard.is_valid(), "renewed while the executor was blocked");
    assert_eq!(count(&server, &guard).await, Some(1));
    // Owners are never reused, so this owner has held the lock all the time.
    guard.release().await.expect("still held");
}

#[tokio::test]
async fn hundreds_of_leases_are_renewed_by_a_few_requests() {
    const HELD: u64 = 500;
    const LEASE: Duration = Duration::from_millis(1500);
    let server = RedisServer::start();
    let client = client(&server).await;
    let mut guards = Vec::new();
    for n in 0..HELD {
        let lock = client.lock(format!("many:{n}")).lease(LEASE);
        guards.push(lock.acquire().await.expect("free"));
    }
    let mut watch = server.watch_commands().await;
    tokio::time::sleep(LEASE * 2).await;
    let requests = watch.count_of("EVALSHA").await;
    // Each lease was renewed at least four times, in scripts of up to 16 locks.
    assert!(
        (4 * HELD / 16..=HELD).contains(&requests),
        "{requests} requests for {HELD} leases"
    );
    assert!(guards.iter().all(rlock_core::LockGuard::is_valid));
    assert_eq!(
        server.keys("lock:{many:*}").await.len() as u64,
        HELD,
        "the server agrees"
    );
}

#[tokio::test]
async fn a_loss_in_a_batch_concerns_its_own_lock_alone() {
    let server = RedisServer::start();
    let client = resp2_client(&server).await;
    let mut guards = Vec::new();
    for key in ["a", "b", "c"] {
        let lock = client.lock(key).lease(ms(900));
        guards.push(lock.acquire().await.expect("free"));
    }
    assert!(server.del(&name("b")).await);
    assert_lost(&guards[1], LONG, LostCause::Removed).await;
    tokio::time::sleep(ms(1200)).await;
    assert!(guards[0].is_valid() && guards[2].is_valid());
    assert!(!server.exists(&name("b")).await);
}

#[tokio::test]
async fn nothing_is_renewed_after_a_release_or_a_drop() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = |key: &str| client.lock(key).lease(ms(600));
    let released = lock("released").acquire().await.expect("free");
    let dropped = lock("dropped").acquire().await.expect("free");
    let mut watch = server.watch_commands().await;
    eventually(LONG, "they are renewed while they are held", async || {
        watch.count_of("EVALSHA").await >= 2
    })
    .await;
    released.release().await.expect("held");
    drop(dropped);
    assert_soon_free(&server, "dropped").await;
    watch.clear().await;
    tokio::time::sleep(ms(1200)).await;
    assert_eq!(watch.seen().await, []);
}

#[tokio::test]
async fn without_a_watchdog_the_hold_ends_with_its_lease_and_says_so() {
    let server = RedisServer::start();
    let (client, other) = (client(&server).await, client(&server).await);
    let lease = ms(600);
    let lock = client.lock("k").lease(lease).watchdog(false);

    let guard = lock.acquire().await.expect("free");
    let mut watch = server.watch_commands().await;
    let next = other.lock("k").wait(LONG);
    let next = async {
        let next = next.acquire().await.expect("the lease has ended");
        assert!(!guard.is_valid(), "the first knew before");
        next
    };
    let is_lost = timed(assert_lost(&guard, LONG, LostCause::Expired));
    let (next, ((), took)) = tokio::join!(next, is_lost);
    assert!(took <= lease + ms(1000), "notified only after {took:?}");
    assert!(next.fencing_token() > guard.fencing_token());
    let owner = guard.owner().to_string();
    assert!(
        watch.seen().await.iter().all(|c| !c.words.contains(&owner)),
        "nothing was sent for the first owner"
    );
    let error = guard.release().await;
    assert_eq!(cause_of(error), Some(LostCause::Expired));
    assert_eq!(count(&server, &next).await, Some(1), "the next is unharmed");
    next.release().await.expect("held");

    let stopped = lock.run(std::future::pending::<()>()).await;
    assert_eq!(cause_of(stopped), Some(LostCause::Expired));
}

#[tokio::test]
async fn max_hold_ends_the_hold_and_the_renewals() {
    let server = RedisServer::start();
    let (client, other) = (client(&server).await, client(&server).await);
    let lock = client.lock("k").lease(ms(900)).max_hold(ms(1200));
    let (guard, asked) = timed(lock.acquire()).await;
    let guard = guard.expect("free");
    let held = timed(assert_lost(&guard, LONG, LostCause::MaxHold)).await.1;
    assert!(held + asked >= ms(1200), "notified after only {held:?}");
    // The lock is not released, so its lease ends.
    let next = other.lock("k").wait(LONG);
    let (next, waited) = timed(next.acquire()).await;
    drop(next.expect("the renewals have ended"));
    assert!(waited < ms(4000), "it took {waited:?}");
}

#[tokio::test]
async fn a_release_after_max_hold_returns_the_cause_that_the_guard_reported() {
    let server = RedisServer::start();
    let client = client(&server).await;
    // Once during the lease, and once after its end.
    for lease in [LASTING, ms(400)] {
        let lock = client.lock("k").lease(lease).max_hold(ms(300));
        let guard = lock.acquire().await.expect("free");
        assert_lost(&guard, LONG, LostCause::MaxHold).await;
        if lease < LASTING {
            assert_soon_free(&server, "k").await;
        }
        let outcome = guard.release().await;
        assert_soon_free(&server, "k").await;
        assert_eq!(cause_of(outcome), Some(LostCause::MaxHold), "{lease:?}");
    }
}

#[tokio::test]
async fn max_hold_stops_a_body_and_releases_the_lock() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let lock = client.lock("k").lease(LASTING).max_hold(ms(300));
    let error = lock.run(std::future::pending::<()>()).await;
    let error = error.expect_err("the body hangs");
    assert!(error.to_string().contains("`max_hold`"), "{error}");
    assert!(matches!(error, LockError::Lost { ref key, .. } if key == "k"));
    assert_soon_free(&server, "k").await;
}

#[tokio::test]
async fn a_nested_call_shares_the_max_hold_of_its_caller() {
    let server = RedisServer::start();
    for reentry in [Reentry::Counted, Reentry::Local] {
        let builder = LockClient::builder().reentry(reentry);
        let client = builder.connect(&server.url()).await.expect("it runs");
        let lock = client.lock("k").lease(LASTING);
        let outer = lock.clone().max_hold(ms(900)).acquire().await;
        let outer = outer.expect("free");
        let nested = lock.clone().max_hold(ms(1)).acquire();
        let inner = outer.scope(nested).await.expect("enters");
        tokio::time::sleep(ms(300)).await;
        assert!(inner.is_valid() && outer.is_valid(), "its own is ignored");
        assert!(inner.valid_for() < ms(700), "{:?}", inner.valid_for());
        assert_lost(&inner, LONG, LostCause::MaxHold).await;
        assert!(!outer.is_valid());
        let late = outer.scope(lock.acquire()).await;
        assert_eq!(cause_of(late), Some(LostCause::MaxHold));
        assert_eq!(cause_of(inner.release().await), Some(LostCause::MaxHold));
        assert_eq!(cause_of(outer.release().await), Some(LostCause::MaxHold));
        assert_soon_free(&server, "k").await;
        // The next hold of the same client has no limit.
        let next = lock.acquire().await.expect("free");
        assert!(next.valid_for() > ms(5000), "{:?}", next.valid_for());
        next.release().await.expect("held");
    }
}

#[tokio::test]
async fn a_nested_call_has_the_lease_of_its_hold() {
    let server = RedisServer::start();
    let client = client(&server).await;
    for (lease, nested) in [(LASTING, ms(300)), (ms(900), LASTING)] {
        let lasts = lease == LASTING;
        let outer = client.lock("k").lease(lease);
        let outer = outer.acquire().await.expect("free");
        let inner = client.lock("k").lease(nested);
        let inner = outer.scope(inner.acquire()).await.expect("enters");
        assert_eq!(server.pttl(&name("k")).await > 20_000, lasts);
        // Long enough for a renewal or the end of the shorter lease.
        tokio::time::sleep(ms(1200)).await;
        assert_eq!(server.pttl(&name("k")).await > 20_000, lasts);
        inner.release().await.expect("held");
        assert_eq!(outer.valid_for() > Duration::from_secs(20), lasts);
        outer.release().await.expect("held");
    }
}

#[tokio::test]
async fn a_lock_that_was_made_to_last_gets_its_time_to_live_back() {
    let server = RedisServer::start();
    for client in [client(&server).await, resp2_client(&server).await] {
        let guard = client.lock("k").lease(ms(900));
        let guard = guard.acquire().await.expect("free");
        let persisted: bool = server.command(&["PERSIST", &name("k")]).await;
        assert!(persisted);
        eventually(LONG, "the next renewal sets it", async || {
            (1..=900).contains(&server.pttl(&name("k")).await)
        })
        .await;
        guard.release().await.expect("held");
    }
}

/// As after a backward step of the server's clock.
#[tokio::test]
async fn a_renewal_takes_back_a_time_to_live_that_is_too_long() {
    let server = RedisServer::start();
    for client in [client(&server).await, resp2_client(&server).await] {
        let guard = client.lock("k").lease(ms(600));
        let guard = guard.acquire().await.expect("free");
        let _: bool = server.command(&["PEXPIRE", &name("k"), "3600000"]).await;
        eventually(LONG, "the next renewal sets it", async || {
            (1..=600).contains(&server.pttl(&name("k")).await)
        })
        .await;
        guard.release().await.expect("held");
    }
}

#[tokio::test]
async fn a_renewal_never_creates_a_lock() {
    let server = RedisServer::start();
    let client = resp2_client(&server).await;
    let guard = client.lock("k").lease(ms(600));
    let guard = guard.acquire().await.expect("free");
    let mut watch = server.watch_commands().await;
    assert!(server.del(&name("k")).await);
    let lost = assert_lost(&guard, LONG, LostCause::Removed);
    let look = async {
        loop {
            assert!(!server.exists(&name("k")).await, "it was created anew");
            tokio::time::sleep(ms(2)).await;
        }
    };
    tokio::select! {
        () = lost => {}
        () = look => {}
    }
    assert!(watch.count_of("EVALSHA").await > 0, "a renewal was tried");
    watch.clear().await;
    tokio::time::sleep(ms(900)).await;
    assert!(!server.exists(&name("k")).await);
    assert_eq!(watch.seen().await, [], "what is lost is not renewed");
}
