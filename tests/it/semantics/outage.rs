//! Simulated outages of the embedded store, for the tests of services.

use std::time::Duration;

use rlock_core::{
    ErrorKind, LockClient, LockError, LostCause, distributed_lock,
    testing::{simulate_outage, use_tokio_clock},
};
use tokio::time::{Instant, sleep};

use crate::{
    common::{begin, cause_of, connect, ms, two_clients},
    leases::clock::HOUR,
};

const LEASE: Duration = Duration::from_secs(30);

/// Returns two clients of one store, whose leases and waits end by the clock of the test.
async fn on_tokio_clock(store: &str) -> [LockClient; 2] {
    let client = || {
        use_tokio_clock(LockClient::builder())
            .default_lease(LEASE)
            .connect(store)
    };
    [
        client().await.expect("a client"),
        client().await.expect("a client"),
    ]
}

#[track_caller]
fn assert_outage<T>(outcome: Result<T, LockError>) {
    let Err(error) = outcome else {
        panic!("the store is down");
    };
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    assert_eq!(error.kind(), ErrorKind::Outage);
    assert!(
        format!("{error:#}").contains("simulates an outage"),
        "{error:#}"
    );
}

#[distributed_lock(key = "order:<id>", client = client, wait = "0s", if_taken = Ok(false))]
async fn pay(client: &LockClient, id: u32) -> Result<bool, LockError> {
    Ok(true)
}

#[tokio::test]
async fn every_request_of_the_store_fails_until_the_outage_ends() {
    let [one, other] = two_clients("memory:down").await;
    let elsewhere = LockClient::in_memory();
    let held = one.lock("held").acquire().await.expect("free");
    let outage = simulate_outage(&one).expect("the embedded store");
    for client in [&one, &other] {
        assert_outage(client.lock("k").try_acquire().await);
        assert_outage(client.lock("k").wait(ms(1)).acquire().await);
        assert_outage(client.lock_all(["k", "l"]).try_acquire().await);
        assert_outage(pay(client, 1).await);
        assert_outage(client.ping().await);
        assert_outage(client.inspect("held").await);
        assert_outage(client.revoke("held").await);
        assert_outage(client.force_release("held").await);
    }
    assert_outage(LockClient::connect("memory:down").await);
    assert!(held.is_valid(), "its lease has not ended");
    elsewhere.ping().await.expect("another store");
    drop(outage);
    for client in [&one, &other, &connect("memory:down").await] {
        client.ping().await.expect("it replies again");
        assert!(pay(client, 1).await.expect("free"));
        assert!(client.inspect("held").await.expect("a reply").is_some());
    }
    held.release().await.expect("held");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_at_most_twice_the_response_time_out() {
    let limit = Duration::from_secs(3);
    let builder = use_tokio_clock(LockClient::builder()).response_timeout(limit);
    let client = builder.in_memory().expect("a client");
    let guard = client.lock("k").lease(HOUR).acquire().await.expect("free");
    let _outage = simulate_outage(&client).expect("the embedded store");
    drop(guard);
    let started = Instant::now();
    let error = client.shutdown().await.expect_err("the store is down");
    // In the time of the test, which passes while all tasks wait.
    let waited = started.elapsed();
    assert!(waited >= limit && waited <= 2 * limit, "{waited:?}");
    let text = format!("{error:#}");
    assert!(text.contains("end with their leases"), "{text}");
}

#[tokio::test]
async fn overlapping_outages_end_with_the_last_one() {
    let client = LockClient::in_memory();
    let [first, second] = [(); 2].map(|()| simulate_outage(&client).expect("embedded"));
    drop(first);
    assert_outage(client.ping().await);
    drop(second);
    client.ping().await.expect("it replies again");
}

#[tokio::test(start_paused = true)]
async fn an_acquire_tries_again_until_its_wait_is_over() {
    let [client, _] = on_tokio_clock("memory:retries").await;
    let lock = client.lock("k").wait(HOUR);
    let outage = simulate_outage(&client).expect("the embedded store");
    let Err(LockError::Unavailable { waited, .. }) = lock.acquire().await else {
        panic!("the store is down");
    };
    assert!(
        waited + ms(100) >= HOUR && waited < HOUR + ms(100),
        "{waited:?}"
    );

    let mut waiter = Box::pin(lock.acquire());
    begin(&mut waiter).await;
    drop(outage);
    let guard = waiter.await.expect("the store replies again");
    guard.release().await.expect("held");
}

#[tokio::test(start_paused = true)]
async fn a_held_lock_survives_an_outage_that_is_shorter_than_its_lease() {
    let [client, other] = on_tokio_clock("memory:short").await;
    let guard = client.lock("k").acquire().await.expect("free");
    for _ in 0..3 {
        let outage = simulate_outage(&other).expect("the embedded store");
        sleep(LEASE / 2).await;
        drop(outage);
        assert!(guard.is_valid());
        // It was confirmed at most a third of its lease before the outage. It is renewed, otherwise it would end.
        sleep(LEASE).await;
        assert!(guard.is_valid());
        assert!(
            other
                .lock("k")
                .try_acquire()
                .await
                .expect("a reply")
                .is_none()
        );
    }
    guard.release().await.expect("held");
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_lost_when_its_lease_ends_during_an_outage() {
    let [client, other] = on_tokio_clock("memory:long").await;
    let (lock, started) = (client.lock("k"), Instant::now());
    let body = async {
        let outage = simulate_outage(&client).expect("the embedded store");
        sleep(HOUR).await;
        drop(outage);
    };
    assert_eq!(cause_of(lock.run(body).await), Some(LostCause::Expired));
    assert!(
        started.elapsed() <= LEASE,
        "it stops before others may enter"
    );

    // The body has ended its outage. After another one, the next waiter has the lock of a guard that was lost.
    let guard = lock.acquire().await.expect("the store replies again");
    let outage = simulate_outage(&other).expect("the embedded store");
    assert_eq!(guard.lost().await, LostCause::Expired);
    let waiter = other.lock("k").wait(HOUR);
    let mut waiter = Box::pin(waiter.acquire());
    begin(&mut waiter).await;
    drop(outage);
    let next = waiter.await.expect("free");
    assert!(next.token() > guard.token());
    assert_eq!(cause_of(guard.release().await), Some(LostCause::Expired));
    next.release()
        .await
        .expect("the loss of another is not its own");
}
