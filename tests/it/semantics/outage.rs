//! Simulated outages of the embedded store, for the tests of services.

use std::{future::pending, time::Duration};

use rlock_core::{
    ErrorKind, LockClient, LockError, LostCause, distributed_lock,
    testing::{simulate_outage, use_tokio_clock},
};
use rlock_testkit::{RedisServer, within};
use tokio::time::{Instant, sleep};

use crate::common::{LONG, begin, cause_of, client, connect, ms};

const LEASE: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_secs(60 * 60);

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
    let (one, other) = (connect("memory:down").await, connect("memory:down").await);
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

#[tokio::test(start_paused = true)]
async fn a_guard_that_is_dropped_during_an_outage_is_released_after_it() {
    let [client, other] = on_tokio_clock("memory:release").await;
    let guard = client.lock("k").lease(HOUR).acquire().await.expect("free");
    let outage = simulate_outage(&client).expect("the embedded store");
    drop(guard);
    sleep(ms(100)).await;
    drop(outage);
    let lock = other.lock("k").wait(LEASE);
    let guard = within(LONG, "the release", lock.acquire()).await;
    guard
        .expect("released before the lease ends")
        .release()
        .await
        .expect("held");
}

#[tokio::test]
async fn only_the_embedded_store_simulates_outages() {
    let server = RedisServer::start();
    let client = client(&server).await;
    let error = simulate_outage(&client).expect_err("a server");
    assert!(matches!(error, LockError::Refused { .. }), "{error:?}");
    client.ping().await.expect("it replies");
    let closed = LockClient::in_memory();
    closed.shutdown().await.expect("in good order");
    let error = simulate_outage(&closed).expect_err("closed");
    assert!(matches!(error, LockError::Closed { .. }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_body_runs_on_during_an_outage() {
    let [client, _] = on_tokio_clock("memory:body").await;
    let outage = simulate_outage(&client).expect("the embedded store");
    let stopped = client.lock("k").wait(ms(10)).run(pending::<()>()).await;
    assert_outage(stopped);
    drop(outage);
    let lock = client.lock("k");
    let body = lock.run(async {
        let outage = simulate_outage(&client).expect("the embedded store");
        sleep(LEASE / 3).await;
        drop(outage);
        7
    });
    assert_eq!(body.await.expect("held"), 7);
}
