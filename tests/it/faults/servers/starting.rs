//! Clients made before their servers are up, clients made from synchronous code, and readiness probes.

use std::{
    panic::{RefUnwindSafe, UnwindSafe},
    thread,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use rlock_core::{
    CurrentHold, Lock, LockClient, LockClientBuilder, LockError, LockGuard, StoreUrl,
};
use rlock_testkit::{RedisServer, eventually, within};

use crate::common::log::{keep_log, logged_of};
use crate::common::{LONG, acquiring, assert_refused, builder, hold, its_turn, ms};
use crate::leases::clock::HOUR;

/// Servers that can stop and restart, and the store of their topology.
struct Service {
    servers: Vec<RedisServer>,
    store: StoreUrl,
}

impl Service {
    fn at(server: RedisServer, url: impl Fn(&RedisServer) -> String) -> Self {
        let store = url(&server).into();
        Self {
            servers: vec![server],
            store,
        }
    }

    fn sentinel() -> Self {
        let master = RedisServer::start();
        let sentinel = RedisServer::builder().sentinel("orders", &master, 1, LONG);
        let sentinel = sentinel.start();
        let store = format!("redis-sentinel://{}/orders", sentinel.address()).into();
        Self {
            servers: vec![master, sentinel],
            store,
        }
    }

    async fn cluster() -> Self {
        let node = RedisServer::builder().cluster_node(Duration::from_secs(5));
        let node = node.start();
        node.serve_slots(0..=16383).await;
        eventually(LONG, "the cluster is up", async || {
            let info: String = node.command(&["CLUSTER", "INFO"]).await;
            info.contains("cluster_state:ok")
        })
        .await;
        Self::at(node, |node| format!("redis-cluster://{}", node.address()))
    }

    fn quorum() -> Self {
        let servers: Vec<_> = (0..3).map(|_| RedisServer::start()).collect();
        let store = StoreUrl::quorum(servers.iter().map(RedisServer::url));
        Self { servers, store }
    }

    async fn all() -> [Self; 5] {
        [
            Self::at(RedisServer::start(), RedisServer::url),
            Self::at(RedisServer::start(), RedisServer::unix_url),
            Self::sentinel(),
            Self::cluster().await,
            Self::quorum(),
        ]
    }

    fn lazy(&self, builder: LockClientBuilder) -> LockClient {
        let made = builder.connect_lazy(&self.store);
        made.expect("it does not wait for servers")
    }

    fn goes(&self) {
        self.servers.iter().for_each(RedisServer::kill);
    }

    fn comes_back(&self) {
        self.servers.iter().for_each(RedisServer::restart_with_data);
    }
}

/// Runs the same test with all of them in parallel.
async fn each_alone(test: impl AsyncFn(Service)) {
    let services = Service::all().await;
    join_all(services.into_iter().map(|service| test(service))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_are_made_before_their_servers_wait_for_them() {
    each_alone(async |service| {
        let store = &service.store;
        service.goes();
        let lazy = service.lazy(LockClient::builder());
        let waiting = acquiring(lazy.lock("k").wait(LONG * 2));
        let back = async {
            tokio::time::sleep(ms(1000)).await;
            assert!(!waiting.is_finished(), "{store:?}: it waits");
            service.comes_back();
        };
        let builder = LockClient::builder().connect_retry_for(LONG * 2);
        let (client, ()) = tokio::join!(builder.connect(store), back);
        let client = client.unwrap_or_else(|error| panic!("{store:?}: {error}"));
        its_turn(waiting).await.release().await.expect("held");
        let guard = client.lock("k").wait(LONG).acquire().await;
        guard.expect("free").release().await.expect("held");
        within(LONG, "it replies", lazy.ping()).await.expect("up");
        lazy.shutdown().await.expect("it replies");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_servers_stay_away_each_wait_ends_with_an_error() {
    each_alone(async |service| {
        let store = &service.store;
        service.goes();
        let client = service.lazy(LockClient::builder().response_timeout(ms(300)));
        let outcome = client.lock("k").wait(ms(500)).acquire().await;
        let error = outcome.expect_err("no server is there");
        assert!(error.is_outage(), "{store:?}: {error:?}");
        let error = client.ping().await.expect_err("no server is there");
        assert!(error.is_outage(), "{store:?}: {error:?}");
        let shown = error.to_string();
        assert!(shown.contains("could not ping "), "{shown}");
        let builder = LockClient::builder().connect_retry_for(ms(700));
        let started = Instant::now();
        let error = builder.connect(store).await.expect_err("no server is up");
        assert!(started.elapsed() >= ms(500), "it tries for that long");
        assert!(error.is_outage(), "{store:?}: {error:?}");
        let shown = format!("{error:#}");
        assert!(shown.contains("could not connect to "), "{shown}");
    })
    .await;
}

/// Waits of an hour would not help.
#[tokio::test]
async fn a_start_does_not_wait_if_a_server_refuses_the_client() {
    let server = || RedisServer::builder().password("right").start();
    let node = RedisServer::builder()
        .password("right")
        .cluster_node(LONG)
        .start();
    let master = server();
    let sentinel = RedisServer::builder()
        .password("right")
        .config("sentinel", "sentinel-pass right")
        .sentinel("orders", &master, 1, LONG)
        .start();
    let three = [server(), server(), server()];
    let wrong = |server: &RedisServer| format!("redis://:wrong@{}/", server.address());
    for store in [
        StoreUrl::from(wrong(&master)),
        format!("redis-sentinel://:right@{}/orders", sentinel.address()).into(),
        format!("redis-cluster://:wrong@{}", node.address()).into(),
        StoreUrl::quorum(three.each_ref().map(wrong)),
    ] {
        let client = LockClient::connect_lazy(&store).expect("it does not wait for servers");
        let refused = client.lock("k").wait(HOUR).acquire();
        let acquired = within(LONG, "it is refused", refused).await.map(drop);
        let pinged = client.ping().await;
        let connecting = LockClient::builder()
            .connect_retry_for(HOUR)
            .connect(&store);
        let connected = within(LONG, "it is refused", connecting).await.map(drop);
        for refused in [acquired, pinged, connected] {
            let said = assert_refused(refused, &format!("{store:?}"));
            assert!(!said.contains("wrong@"), "{said}");
        }
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_yet_is_logged_once_and_then_what_it_lacks() {
    keep_log();
    let server = RedisServer::builder()
        .acl_user("poor", "on nopass ~* &* +@all -zrange")
        .start();
    server.kill();
    let address = server.address();
    let client = LockClient::connect_lazy(format!("redis://poor@{address}/")).expect("lazy");
    let lines = |of: &str| {
        let lines = logged_of(&address);
        lines.iter().filter(|line| line.contains(of)).count()
    };
    eventually(LONG, "it is logged", async || {
        lines("the server cannot be reached yet") == 1
    })
    .await;
    tokio::time::sleep(ms(1000)).await;
    server.restart();
    client.lock("k").wait(LONG).run(async {}).await.expect("up");
    assert_eq!(lines("the server cannot be reached yet"), 1);
    let lacks = async || lines("lacks permissions") == 1;
    eventually(LONG, "the missing permission is logged", lacks).await;
    server.kill_clients("normal").await;
    client.lock("k").wait(LONG).run(async {}).await.expect("up");
    assert_eq!(lines("lacks permissions"), 1);
}

#[test]
fn synchronous_code_connects_and_locks() {
    let service = Service::quorum();
    let url = service.servers[0].url();
    let client = LockClient::connect_blocking(&url).expect("up");
    let guard = client.lock("k").acquire_blocking().expect("free");
    assert!(guard.is_valid());
    drop(guard);
    let builder = LockClient::builder().connect_retry_for(ms(300));
    let client = builder.clone().connect_blocking(&service.store);
    let of_quorum = client.expect("up").lock("k").run_blocking(|| ());
    of_quorum.expect("free");
    let client = LockClient::connect_lazy(&url).expect("lazy");
    client.lock("k").run_blocking(|| ()).expect("free");
    service.goes();
    for error in [
        LockClient::connect_blocking(&url).expect_err("gone"),
        builder.connect_blocking(&service.store).expect_err("gone"),
    ] {
        assert!(error.is_outage(), "{error:?}");
    }
    LockClient::connect_blocking("memory:").expect("embedded");
}

#[tokio::test]
async fn a_blocking_connect_inside_an_async_task_is_refused() {
    let server = RedisServer::start();
    let url = format!("redis://:s3cret@{}/", server.address());
    let error = LockClient::connect_blocking(&url).expect_err("inside a task");
    assert!(
        matches!(error, LockError::BlockingInAsync { .. }),
        "{error:?}"
    );
    assert!(error.to_string().contains(&server.address()), "{error}");
    assert!(!error.to_string().contains("s3cret"), "{error}");
    let url = server.url();
    let connected = tokio::task::spawn_blocking(move || LockClient::connect_blocking(&url));
    let client = connected.await.expect("no panic").expect("up");
    hold(&client, "k").await.release().await.expect("held");
    let url = server.url();
    let connected = thread::spawn(move || LockClient::connect_blocking(&url));
    connected.join().expect("no panic").expect("up");
}

#[tokio::test]
async fn a_ping_succeeds_while_enough_servers_for_locks_reply() {
    let memory = LockClient::in_memory();
    memory.ping().await.expect("embedded");
    memory.shutdown().await.expect("nothing is held");
    let error = memory.ping().await.expect_err("shut down");
    assert!(matches!(error, LockError::Closed { .. }), "{error:?}");

    for service in Service::all().await {
        let client = builder().connect(&service.store).await.expect("up");
        let replies = async || client.ping().await.is_ok();
        eventually(LONG, "it replies", replies).await;
        if let [first, second, _] = service.servers.as_slice() {
            first.kill();
            eventually(LONG, "two of three reply", replies).await;
            second.kill();
            let error = client.ping().await.expect_err("one of three");
            let shown = format!("{error:#}");
            assert!(
                error.is_outage() && shown.contains("1 of 3 servers"),
                "{shown}"
            );
            continue;
        }
        let master = &service.servers[0];
        master.pause();
        let error = client.ping().await.expect_err("it is paused");
        assert!(error.is_outage(), "{:?}: {error:?}", service.store);
        master.resume();
        eventually(LONG, "it replies again", replies).await;
    }
}

#[test]
fn clients_locks_and_guards_may_be_used_across_a_caught_panic() {
    fn is_unwind_safe<T: UnwindSafe + RefUnwindSafe>() {}
    is_unwind_safe::<LockClient>();
    is_unwind_safe::<Lock>();
    is_unwind_safe::<LockGuard>();
    is_unwind_safe::<CurrentHold>();
}
