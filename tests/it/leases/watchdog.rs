//! Leases are renewed while a lock is held, and never after.

use futures_util::future::join_all;
use rlock_core::LostCause;
use rlock_testkit::{RedisServer, eventually};

use super::clock::{self, HOUR};
use crate::common::{
    LASTING, LONG, assert_lost, assert_soon_counted, assert_soon_free, client, count, ms, name,
    resp2,
};

/// Over RESP2, no notification reports the loss.
#[tokio::test]
async fn a_few_renewals_keep_many_locks_and_find_the_one_that_is_gone() {
    let server = RedisServer::start();
    let (clock, client) = clock::connect(&resp2(&server.url())).await;
    let taking = (0..20).map(|n| {
        let lock = client.lock(format!("k{n}"));
        async move { lock.acquire().await.expect("free") }
    });
    let mut guards = join_all(taking).await;
    let [lost, dropped, released] = [15, 10, 5].map(|n| guards.remove(n));
    let ended = [&dropped, &released].map(|guard| guard.owner());
    released.release().await.expect("held");
    drop(dropped);
    assert_soon_free(&server, "k10").await;
    assert!(server.del(&name("k15")).await);
    let mut watch = server.watch_commands().await;
    clock.advance(HOUR / 2);
    assert_lost(&lost, LONG, LostCause::Removed).await;
    assert!(!server.exists(&name("k15")).await, "the renewal created it");
    for guard in &guards {
        let renewed = async || guard.valid_for() > HOUR / 2;
        eventually(LONG, guard.key(), renewed).await;
        assert_eq!(count(&server, guard).await, Some(1), "{}", guard.key());
    }
    let requests = watch.count_of("EVALSHA").await;
    // A script renews up to 16 locks, and the first request has to load it.
    assert!((2..guards.len() as u64).contains(&requests), "{requests}");
    let seen = watch.seen().await;
    let renewed = |owner| seen.iter().any(|call| call.words.contains(owner));
    assert!(!ended.iter().any(renewed), "{seen:?}");
}

/// A renewal by the lease before an extension may run late, and a backward step of the server's clock leaves a long time to
/// live, too.
#[tokio::test]
async fn a_renewal_sets_a_missing_time_to_live_and_never_a_shorter_one() {
    let server = RedisServer::start();
    let (clock, client) = clock::connect(&server.url()).await;
    let guard = client.lock("k").acquire().await.expect("free");
    let (lock, hour) = (name("k"), i64::try_from(HOUR.as_millis()).expect("small"));
    let changes: [(&[&str], _); 2] = [
        (&["PERSIST", &lock], 1..=hour),
        (&["PEXPIRE", &lock, "86400000"], hour + 1..=24 * hour),
    ];
    for (change, kept) in changes {
        assert!(server.command::<bool>(change).await);
        clock.advance(HOUR / 2);
        eventually(LONG, "the next renewal keeps it", async || {
            guard.valid_for() > HOUR / 2 && kept.contains(&server.pttl(&lock).await)
        })
        .await;
    }
    guard.release().await.expect("held");
}

#[tokio::test]
async fn a_nested_call_has_the_lease_of_its_hold() {
    let server = RedisServer::start();
    let client = client(&server).await;
    for (lease, nested, lasts) in [(HOUR, ms(300), true), (LASTING, HOUR, false)] {
        let outer = client.lock("k").lease(lease).acquire().await;
        let outer = outer.expect("free");
        let inner = client.lock("k").lease(nested);
        let inner = outer.scope(inner.acquire()).await.expect("enters");
        assert_soon_counted(&server, &outer, 2).await;
        assert_eq!(server.pttl(&name("k")).await > 1_000_000, lasts);
        assert_eq!(inner.valid_for() > LASTING, lasts);
        inner.release().await.expect("held");
        assert_soon_counted(&server, &outer, 1).await;
        assert_eq!(server.pttl(&name("k")).await > 1_000_000, lasts);
        outer.release().await.expect("held");
    }
}
