//! A master and its replica with three Sentinels: clients connect to the current master.

mod secured;

use redis::Value;
use rlock_core::LockClient;
use rlock_testkit::{FAILOVER, Proxy, RedisServer, SERVICE, Trio, eventually};

use super::{FAILOVER_LEASE, assert_soon_extended, hold_renewed};
use crate::common::{
    LASTING, LONG, acl, assert_passed_on, assert_refused, assert_soon_counted,
    assert_soon_listening, assert_unavailable, builder, connect, count, enqueued, hold, ms, name,
    pttl_in,
};

/// The rules of a server's user that keep Sentinels from demoting this server.
const NEVER_DEMOTED: &str = "-replicaof -slaveof";

/// Makes a Sentinel promote the replica.
async fn fail_over(sentinel: &RedisServer) {
    let () = sentinel.command(&["SENTINEL", "FAILOVER", SERVICE]).await;
}

async fn client(trio: &Trio) -> LockClient {
    connect(&trio.url()).await
}

#[tokio::test]
async fn holders_and_waiters_follow_a_failover() {
    let trio = Trio::start().await;
    let (one, other) = (client(&trio).await, client(&trio).await);
    let lock = one.lock("k").lease(FAILOVER_LEASE).wait(LONG);
    let guard = lock.acquire().await.expect("free");
    let nested = guard.scope(lock.acquire()).await.expect("enters");
    assert_soon_counted(&trio.master, &guard, 2).await;
    let waiting = enqueued(&trio.master, other.lock("k").lease(LASTING).wait(LONG * 3)).await;
    trio.replica.catch_up_with(&trio.master).await;
    trio.lose_master().await;
    trio.failed_over().await;
    assert_soon_extended(&guard).await;
    assert_eq!(count(&trio.replica, &guard).await, Some(2));
    nested.release().await.expect("held");
    assert_passed_on(guard, waiting).await;
}

/// The client continues to use the same database.
#[tokio::test]
async fn a_master_that_is_demoted_on_purpose_is_left() {
    let trio = Trio::start().await;
    let client = connect(&format!("{}/3", trio.url())).await;
    let guard = hold_renewed(&client, "k").await;
    assert!(pttl_in(&trio.master, 3, "k").await > 0);
    assert!(!trio.master.exists(&name("k")).await);
    trio.replica.catch_up_with(&trio.master).await;
    fail_over(&trio.sentinels[0]).await;
    trio.failed_over().await;
    assert_soon_extended(&guard).await;
    guard.release().await.expect("held");
    let again = client.lock("k").lease(LASTING).wait(LONG).acquire().await;
    let again = again.expect("free");
    assert!(pttl_in(&trio.replica, 3, "k").await > 0);
    again.release().await.expect("held");
}

/// The Sentinels cannot demote the former master, which therefore accepts writes until the end.
#[tokio::test]
async fn holders_and_waiters_leave_a_master_that_was_replaced_and_accepts_writes() {
    let trio = Trio::start().await;
    trio.master.set_user("default", NEVER_DEMOTED).await;
    let (one, other) = (client(&trio).await, client(&trio).await);
    let guard = hold_renewed(&one, "k").await;
    let waiting = enqueued(&trio.master, other.lock("k").lease(LASTING).wait(LONG * 3)).await;
    trio.replica.catch_up_with(&trio.master).await;
    fail_over(&trio.sentinels[0]).await;
    trio.failed_over().await;
    let newcomer = client(&trio).await;
    let taken = newcomer.lock("k").try_acquire().await.expect("reachable");
    assert!(taken.is_none(), "the lock has come by replication");
    eventually(LONG, "no client stays", async || {
        trio.master.client_count().await == 0
    })
    .await;
    let () = trio.master.command(&["SET", "accepts", "writes"]).await;
    assert_soon_extended(&guard).await;
    assert_eq!(count(&trio.replica, &guard).await, Some(1));
    assert_passed_on(guard, waiting).await;
}

/// A client subscribes to promotions if it may, and asks from time to time otherwise.
#[tokio::test]
async fn a_sentinel_that_refuses_subscriptions_is_asked_for_the_master() {
    let (master, replica) = (RedisServer::start(), RedisServer::start());
    replica.follow(&master).await;
    master.set_user("default", NEVER_DEMOTED).await;
    let rules = acl::beyond("Sentinels");
    let rules = rules.split(' ').filter(|rule| !rule.starts_with(['&']));
    let rules = acl::only(&rules.collect::<Vec<_>>());
    let sentinel = RedisServer::builder().acl_user("finder", &rules);
    let sentinel = sentinel.sentinel(SERVICE, &master, 1, FAILOVER).start();
    eventually(LONG, "the Sentinel knows the replica", async || {
        let replicas: Vec<Value> = sentinel.command(&["SENTINEL", "REPLICAS", SERVICE]).await;
        format!("{replicas:?}").contains("\"ok\"")
    })
    .await;
    let (address, login) = (
        sentinel.address(),
        "sentinel_user=finder&sentinel_password=secret",
    );
    let client = connect(&format!("redis-sentinel://{address}/{SERVICE}?{login}")).await;
    let guard = hold_renewed(&client, "k").await;
    replica.catch_up_with(&master).await;
    fail_over(&sentinel).await;
    eventually(LONG, "no client stays", async || {
        master.client_count().await == 0
    })
    .await;
    assert_soon_extended(&guard).await;
    assert_eq!(count(&replica, &guard).await, Some(1));
    assert!(
        acl::refused(&sentinel)
            .await
            .contains("+failover-state-send-slaveof-noone")
    );
}

/// Starts a Sentinel of this master, and returns its URL.
fn sentinel_of(master: &RedisServer) -> (RedisServer, String) {
    let sentinel = RedisServer::builder().sentinel(SERVICE, master, 1, FAILOVER);
    let sentinel = sentinel.start();
    let url = format!("redis-sentinel://{}/{SERVICE}", sentinel.address());
    (sentinel, url)
}

/// Makes a Sentinel name another master, without the former one noticing.
async fn name_master(sentinel: &RedisServer, port: u16) {
    let () = sentinel.command(&["SENTINEL", "REMOVE", SERVICE]).await;
    let port = port.to_string();
    let words = ["SENTINEL", "MONITOR", SERVICE, "127.0.0.1", &port, "1"];
    let () = sentinel.command(&words).await;
}

/// The former master is not demoted yet, and replies only when the Sentinels already name another one.
#[tokio::test]
async fn no_client_connects_to_a_master_that_resumes_after_the_failover() {
    let (former, master) = (RedisServer::start(), RedisServer::start());
    let proxy = Proxy::in_front_of(&former);
    let (sentinel, url) = sentinel_of(&former);
    name_master(&sentinel, proxy.port()).await;
    proxy.hold_replies();
    let connecting = LockClient::builder().connect_timeout(LONG);
    let connecting = tokio::spawn({
        let url = url.clone();
        async move { connecting.connect(&url).await }
    });
    eventually(LONG, "it waits for the former master", async || {
        proxy.requests_of("HELLO") > 0
    })
    .await;
    name_master(&sentinel, master.port()).await;
    // A client trusts the answer of the Sentinels for this long.
    tokio::time::sleep(ms(200)).await;
    proxy.pass();
    let error = connecting.await.expect("no panic").expect_err("former");
    assert!(format!("{error:#}").contains("another master"), "{error:#}");
    let guard = hold(&connect(&url).await, "k").await;
    assert_eq!(count(&master, &guard).await, Some(1));
    assert!(!former.exists(&name("k")).await);
}

/// The client loses one connection to the former master. The other is idle.
#[tokio::test]
async fn both_connections_of_a_client_lead_to_the_same_master() {
    for lost in ["normal", "pubsub"] {
        let (former, master) = (RedisServer::start(), RedisServer::start());
        let (sentinel, url) = sentinel_of(&former);
        let client = connect(&url).await;
        hold(&client, "k").await.release().await.expect("held");
        assert_soon_listening(&former, 1).await;
        name_master(&sentinel, master.port()).await;
        assert!(former.kill_clients(lost).await > 0);
        eventually(LONG, "no connection stays", async || {
            former.client_count().await == 0
        })
        .await;
        let guard = hold(&client, "k").await;
        assert_eq!(count(&master, &guard).await, Some(1), "{lost}");
        assert_soon_listening(&master, 1).await;
    }
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
    let client = builder().connect(&url).await;
    let client = client.expect("the Sentinels reply in the end");
    // The next connection has the same time-out.
    let () = trio
        .master
        .command(&["CLIENT", "KILL", "TYPE", "normal"])
        .await;
    let guard = client.lock("k").wait(LONG * 2).acquire().await;
    guard.expect("free").release().await.expect("held");
}

/// The errors say if no Sentinel is left, and if the Sentinels do not know the service.
#[tokio::test]
async fn sentinels_that_are_gone_or_paused_are_no_obstacle_while_one_replies() {
    let trio = Trio::start().await;
    let url = trio.url().replace(SERVICE, "invoices");
    let shown = assert_refused(builder().connect(&url).await, "no such service");
    for part in ["invoices", "No such master"] {
        assert!(shown.contains(part), "{shown}");
    }
    trio.sentinels[0].kill();
    trio.sentinels[1].pause();
    let client = client(&trio).await;
    hold(&client, "k").await.release().await.expect("held");
    trio.sentinels[1].kill();
    trio.sentinels[2].kill();
    let said = assert_unavailable(LockClient::connect(&trio.url()).await, "no server is there");
    assert!(said.contains(SERVICE), "{said}");
}
