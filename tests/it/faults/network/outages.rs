//! Slow networks, and outages that heal.

use std::time::{Duration, Instant};

use rlock_core::{InCurrentScope, LockClient, LockError, distributed_lock};
use rlock_testkit::{Proxy, RedisServer, eventually, within};

use crate::common::{LONG, connect, connect_with};

fn is_unavailable<T>(outcome: &Result<T, LockError>) -> bool {
    matches!(outcome, Err(LockError::Unavailable { .. }))
}

#[tokio::test]
async fn connecting_to_a_silent_server_ends_with_the_connect_timeout() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    proxy.black_hole();
    let builder = LockClient::builder().connect_timeout(Duration::from_millis(300));
    let started = Instant::now();
    let url = proxy.url();
    let outcome = within(LONG, "connecting ends", builder.connect(&url)).await;
    assert!(is_unavailable(&outcome), "{outcome:?}");
    assert!(started.elapsed() >= Duration::from_millis(300));
    let text = outcome.expect_err("unavailable").to_string();
    assert!(text.contains(&proxy.address()), "{text}");
}

#[tokio::test]
async fn renewals_with_late_replies_count() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let client = connect(&proxy.url()).await;
    let lock = client.lock("order:1").lease(Duration::from_millis(1500));
    // After the next attempt, but before the end of the lease.
    proxy.delay_replies(Duration::from_millis(350));
    let body = tokio::time::sleep(Duration::from_secs(4));
    lock.run(body).await.expect("kept");
}

#[tokio::test]
async fn a_lock_survives_an_outage_that_ends_well_before_its_lease() {
    let lease = Duration::from_secs(3);
    let survives = async |phase| {
        let server = RedisServer::start();
        let proxy = Proxy::in_front_of(&server);
        let client = connect(&proxy.url()).await;
        let guard = client
            .lock("order:1")
            .lease(lease)
            .acquire()
            .await
            .expect("free");
        tokio::time::sleep(lease * phase / 24).await;
        proxy.black_hole();
        tokio::time::sleep(lease / 3).await;
        proxy.pass();
        tokio::time::sleep(lease).await;
        assert!(guard.is_valid(), "phase {phase}");
        guard.release().await.expect("kept");
    };
    tokio::join!(survives(1), survives(9));
}

#[tokio::test]
async fn during_an_outage_no_holder_is_named() {
    let server = RedisServer::start();
    let client = connect_with(Duration::from_millis(200), &server.url()).await;
    let lock = client.lock("order:1").wait(Duration::from_millis(500));
    server.kill();
    for _ in 0..4 {
        let outcome = lock.try_acquire().await;
        assert!(is_unavailable(&outcome), "{outcome:?}");
        let outcome = lock.acquire().await;
        assert!(is_unavailable(&outcome), "{outcome:?}");
    }
    server.restart();
    let guard = within(LONG, "it is back", async {
        loop {
            if let Ok(guard) = lock.acquire().await {
                return guard;
            }
        }
    });
    guard.await.release().await.expect("held");
}

#[tokio::test]
async fn many_leases_of_different_length_are_all_renewed() {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    let mut guards = Vec::new();
    for n in 0..300_u64 {
        let lease = Duration::from_millis(1000 + 200 * (n % 7));
        let lock = client.lock(format!("order:{n}")).lease(lease);
        guards.push(lock.acquire().await.expect("free"));
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(guards.iter().all(rlock_core::LockGuard::is_valid));
    for guard in guards {
        guard.release().await.expect("held");
    }
}

#[tokio::test]
async fn a_slow_but_steady_network_keeps_short_leases() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let client = connect(&proxy.url()).await;
    let lock = client.lock("order:1").lease(Duration::from_millis(1200));
    proxy.delay_replies(Duration::from_millis(450));
    lock.run(tokio::time::sleep(Duration::from_secs(4)))
        .await
        .expect("kept");
    within(LONG, "the next is served", lock.acquire())
        .await
        .expect("free")
        .release()
        .await
        .expect("held");
}

#[tokio::test]
async fn a_nested_grant_that_comes_after_the_loss_does_not_bring_the_hold_back() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let client = connect(&proxy.url()).await;
    let lock = client.lock("order:1").lease(Duration::from_secs(1));
    let outer = lock.acquire().await.expect("free");
    proxy.hold_replies();
    let child = {
        let lock = lock.clone().wait(LONG);
        async move { lock.acquire().await }
    };
    let (nested,) = outer
        .scope(async { (tokio::spawn(child.in_current_scope()),) })
        .await;
    within(LONG, "the lease ends", outer.lost()).await;
    outer.release().await.expect_err("lost");
    proxy.pass();
    let nested = within(LONG, "the nested call is answered", nested)
        .await
        .expect("no panic");
    assert!(matches!(nested, Err(LockError::Lost { .. })), "{nested:?}");
    let again = within(
        LONG,
        "it is free",
        client.lock("order:1").wait(LONG).acquire(),
    )
    .await;
    again.expect("free").release().await.expect("held");
}

#[tokio::test]
async fn of_several_keys_none_is_kept_when_one_is_lost_before_the_reply() {
    #[distributed_lock(key = ["account:a", "account:b"], wait = "20s", lease = "20s", client = client)]
    async fn both(client: &LockClient) -> Result<(), LockError> {
        Ok(())
    }
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let (client, other) = (connect(&proxy.url()).await, connect(&server.url()).await);
    proxy.black_hole_replies();
    let waiting = tokio::spawn(async move { both(&client).await });
    let granted = async || server.exists("lock:{account:b}").await;
    eventually(LONG, "the first copy is executed", granted).await;
    // The proxy has to swallow the reply before it passes others again.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(server.del("lock:{account:a}").await);
    let taken = other.lock("account:a").acquire().await.expect("free");
    proxy.pass();
    let given_back = async || !server.exists("lock:{account:b}").await;
    eventually(Duration::from_secs(10), "the other is released", given_back).await;
    taken.release().await.expect("held");
    within(LONG, "both are granted", waiting)
        .await
        .expect("no panic")
        .expect("granted");
}
