//! A master and its replica with three Sentinels: clients connect to the current master.

mod secured;

use rlock_core::{LockClient, LockError, LostCause};
use rlock_testkit::{FAILOVER, Proxy, SERVICE, Trio, eventually};

use crate::common::{
    FAILOVER_LEASE as LEASE, LASTING, LONG, acquiring, assert_lost, assert_outlives_the_master,
    assert_passed_on, assert_soon_free, assert_soon_queued, assert_soon_renewed, connect, count,
    hold, its_turn, leave_behind, ms, name, pttl_in, timed,
};

async fn client(trio: &Trio) -> LockClient {
    connect(&trio.url()).await
}

#[tokio::test]
async fn a_client_with_the_sentinels_addresses_finds_the_master() {
    let trio = Trio::start().await;
    let (one, other) = (client(&trio).await, client(&trio).await);
    let guard = hold(&one, "k").await;
    assert_eq!(count(&trio.master, &guard).await, Some(1));
    let waiting = acquiring(other.lock("k").wait(LONG));
    assert_soon_queued(&trio.master, "k", 1).await;
    assert_passed_on(guard, waiting).await;
    assert_soon_free(&trio.master, "k").await;
}

#[tokio::test]
async fn holders_and_waiters_follow_a_failover() {
    let trio = Trio::start().await;
    let (one, other) = (client(&trio).await, client(&trio).await);
    let lock = one.lock("k").lease(LEASE);
    let guard = lock.acquire().await.expect("free");
    let nested = guard.scope(lock.acquire()).await.expect("enters");
    let waiting = acquiring(other.lock("k").wait(FAILOVER * 2));
    assert_soon_queued(&trio.master, "k", 1).await;
    trio.replica.catch_up_with(&trio.master).await;
    assert_outlives_the_master(&trio, "k").await;
    assert!(guard.is_valid() && !waiting.is_finished());
    assert_eq!(count(&trio.replica, &guard).await, Some(2));
    nested.release().await.expect("held");
    assert_passed_on(guard, waiting).await;
}

#[tokio::test]
async fn the_database_is_that_of_whichever_server_is_the_master() {
    let trio = Trio::start().await;
    let (elsewhere, client) = (
        client(&trio).await,
        connect(&format!("{}/3", trio.url())).await,
    );
    let guard = client.lock("k").lease(LEASE).acquire().await.expect("free");
    assert!(pttl_in(&trio.master, 3, "k").await > 0);
    assert!(!trio.master.exists(&name("k")).await);
    let other = hold(&elsewhere, "k").await;
    other.release().await.expect("another lock");
    trio.replica.catch_up_with(&trio.master).await;
    trio.master.kill();
    trio.failed_over().await;
    eventually(LONG, "it is renewed at the new master", async || {
        pttl_in(&trio.replica, 3, "k").await > 14_000
    })
    .await;
    guard.release().await.expect("held");
    let again = client.lock("k").wait(FAILOVER).acquire().await;
    let again = again.expect("free");
    assert!(pttl_in(&trio.replica, 3, "k").await > 0);
    again.release().await.expect("held");
}

#[tokio::test]
async fn a_lock_that_had_not_reached_the_replica_is_lost_and_its_holder_knows() {
    let trio = Trio::start().await;
    let (one, other) = (client(&trio).await, client(&trio).await);
    let before = one.lock("k").acquire().await.expect("free");
    let token = before.fencing_token();
    before.release().await.expect("held");
    leave_behind(&trio.replica, &trio.master).await;
    let guard = one.lock("k").lease(LEASE).acquire().await.expect("free");
    trio.master.kill();
    trio.replica.resume();
    trio.failed_over().await;
    assert_lost(&guard, LEASE + LONG, LostCause::Removed).await;
    let next = other.lock("k").wait(FAILOVER).acquire().await;
    assert!(next.expect("free").fencing_token() > token);
}

#[tokio::test]
async fn a_master_that_is_demoted_on_purpose_is_left() {
    let trio = Trio::start().await;
    let client = client(&trio).await;
    let guard = client.lock("k").lease(LEASE).acquire().await.expect("free");
    trio.replica.catch_up_with(&trio.master).await;
    let () = trio.sentinels[0]
        .command(&["SENTINEL", "FAILOVER", SERVICE])
        .await;
    trio.failed_over().await;
    assert_soon_renewed(FAILOVER, &trio.replica, "k").await;
    assert!(guard.is_valid());
    guard.release().await.expect("held");
    assert_soon_free(&trio.replica, "k").await;
    let again = client
        .lock("k")
        .wait(FAILOVER)
        .acquire()
        .await
        .expect("free");
    assert_eq!(count(&trio.replica, &again).await, Some(1));
}

/// The attempts to connect to the former master begin before the failover. Its replies come after the failover.
#[tokio::test]
async fn no_client_connects_to_a_master_that_resumes_after_the_failover() {
    const CLIENTS: usize = 6;
    // Longer than the first attempts to connect take.
    let trio = Trio::builder().silence(ms(1500)).start().await;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let builder = LockClient::builder().response_timeout(ms(600));
        clients.push(builder.connect(&trio.url()).await.expect("a master"));
    }
    trio.master.pause();
    let asking = |(n, client): (usize, &LockClient)| {
        acquiring(client.lock(format!("before-{n}")).wait(LONG))
    };
    let asking: Vec<_> = clients.iter().enumerate().map(asking).collect();
    trio.failed_over().await;
    tokio::time::sleep(ms(200)).await;
    trio.master.resume();
    tokio::time::sleep(ms(1500)).await;
    for (n, client) in clients.iter().enumerate() {
        let key = format!("after-{n}");
        let guard = client.lock(&key).wait(LONG).acquire().await.expect("free");
        let at = [&trio.master, &trio.replica].map(|server| count(server, &guard));
        let [former, present] = at;
        let at = (former.await, present.await);
        assert_eq!(
            at,
            (None, Some(1)),
            "client {n}: at the former master, at the present"
        );
    }
    for task in &asking {
        task.abort();
    }
}

/// One connection is lost at a former master that is not demoted yet. The other is idle.
#[tokio::test]
async fn both_connections_of_a_client_lead_to_the_same_master() {
    for lost in ["normal", "pubsub"] {
        let trio = Trio::start().await;
        let idle = client(&trio).await;
        trio.master.pause();
        trio.failed_over().await;
        trio.master.resume();
        assert!(trio.master.kill_clients(lost).await > 0);
        let holder = client(&trio).await;
        let guard = hold(&holder, "k").await;
        assert_eq!(count(&trio.replica, &guard).await, Some(1));
        tokio::time::sleep(ms(500)).await;
        let waiting = acquiring(idle.lock("k").lease(LASTING).wait(LONG));
        assert_soon_queued(&trio.replica, "k", 1).await;
        guard.release().await.expect("held");
        let (next, took) = timed(its_turn(waiting)).await;
        // By its timer the waiter would only retry after five seconds.
        assert!(took < ms(2500), "{lost}: {took:?}");
        next.release().await.expect("held");
    }
}

#[tokio::test]
async fn sentinels_that_are_gone_or_paused_are_no_obstacle() {
    let trio = Trio::start().await;
    trio.sentinels[0].kill();
    trio.sentinels[1].pause();
    let client = client(&trio).await;
    let guard = client.lock("k").acquire().await.expect("free");
    guard.release().await.expect("held");
    trio.sentinels[1].resume();
}

#[tokio::test]
async fn slow_sentinels_are_waited_for_as_long_as_connecting_may_take() {
    let trio = Trio::start().await;
    let proxies: Vec<Proxy> = trio.sentinels.iter().map(Proxy::in_front_of).collect();
    for proxy in &proxies {
        proxy.delay_replies(ms(600));
    }
    let addresses: Vec<String> = proxies.iter().map(Proxy::address).collect();
    let url = format!("redis-sentinel://{}/{SERVICE}", addresses.join(","));
    let client = LockClient::builder().connect_timeout(LONG);
    let client = client
        .connect(&url)
        .await
        .expect("the Sentinels reply in the end");
    // The next connection has the same time-out.
    let () = trio
        .master
        .command(&["CLIENT", "KILL", "TYPE", "normal"])
        .await;
    let guard = client.lock("k").wait(LONG * 2).acquire().await;
    guard.expect("free").release().await.expect("held");
}

#[tokio::test]
async fn the_error_names_an_unknown_service_and_missing_sentinels() {
    let trio = Trio::start().await;
    let url = trio.url().replace(SERVICE, "invoices");
    let error = LockClient::connect(&url)
        .await
        .expect_err("no such service");
    assert!(matches!(error, LockError::Store { .. }), "{error:?}");
    let shown = error.to_string();
    assert!(
        shown.contains("invoices") && shown.contains("No such master"),
        "{shown}"
    );
    for sentinel in &trio.sentinels {
        sentinel.kill();
    }
    let error = LockClient::connect(&trio.url())
        .await
        .expect_err("no server is there");
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().contains(SERVICE), "{error}");
}
