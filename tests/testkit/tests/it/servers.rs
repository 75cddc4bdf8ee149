//! Servers, and processes that are paused.

use std::env;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Instant;

use redis::{AsyncCommands as _, Client};
use rlock_testkit::{MASTERS, RedisCluster, RedisServer, SERVICE, Trio, Worker, eventually};

use crate::{LONG, SILENCE, connect, incr, n, try_connect};

/// Does nothing in a normal run. The next test runs it in a process of its own, which it kills.
#[test]
fn a_process_that_is_asked_to_keeps_a_paused_server() {
    if env::var_os("KEEP_A_SERVER").is_none() {
        return;
    }
    let server = RedisServer::start();
    server.pause();
    let directory = server.directory().display();
    println!("\nserver {} {directory}", server.address());
    thread::sleep(LONG * 4);
}

#[tokio::test]
async fn a_server_does_not_outlive_a_killed_test_even_when_it_is_paused() {
    let mut command = Command::new(env::current_exe().expect("the path of this test"));
    let test = "servers::a_process_that_is_asked_to_keeps_a_paused_server";
    command.args(["--exact", test, "--nocapture"]);
    let mut test = Worker::start(command.env("KEEP_A_SERVER", "1"));
    let (address, directory) = loop {
        let line = test.line(LONG).await.expect("it prints its server");
        let place = line.strip_prefix("server ");
        if let Some((address, directory)) = place.and_then(|place| place.split_once(' ')) {
            break (address.to_owned(), PathBuf::from(directory));
        }
    };
    assert!(TcpStream::connect(&address).is_ok());
    test.kill();
    eventually(LONG, "the server follows its test", async || {
        TcpStream::connect(&address).is_err()
    })
    .await;
    eventually(LONG, "its directory follows", async || !directory.exists()).await;
}

#[tokio::test]
async fn a_paused_server_is_silent_and_executes_late_what_it_was_sent() {
    let server = RedisServer::start();
    let mut connection = connect(&server.url()).await;
    connection.set_response_timeout(SILENCE);
    server.pause();
    assert!(incr(&mut connection).await.is_err());
    server.resume();
    eventually(LONG, "the increment ran after all", async || {
        n(&server).await == 1
    })
    .await;
}

#[tokio::test]
async fn a_restarted_server_is_empty_unless_it_saved_its_data() {
    let server = RedisServer::start();
    let url = server.url();
    assert_eq!(incr(&mut connect(&url).await).await, Ok(1));
    server.save().await;
    server.kill();
    assert!(try_connect(&url, LONG).await.is_err(), "it is down");
    server.restart_with_data();
    server.loaded().await;
    assert_eq!(n(&server).await, 1);
    server.restart();
    assert_eq!(n(&server).await, 0);
}

#[tokio::test]
async fn a_server_is_asleep_or_busy_for_as_long_as_it_is_told() {
    let server = RedisServer::builder().debug_commands().start();
    // The server executes one command at a time.
    let started = Instant::now();
    server.sleep(SILENCE).await;
    assert!(started.elapsed() >= SILENCE / 2);
    let started = Instant::now();
    server.run_script_for(SILENCE).await;
    assert!(started.elapsed() >= SILENCE / 2);
}

#[tokio::test]
async fn the_looks_behind_the_scenes_see_what_is_there() {
    let server = RedisServer::start();
    let mut connection = connect(&server.url()).await;
    let _: u64 = connection.hset("h", "owner", 2).await.expect("a hash");
    let _: bool = connection.pexpire("h", 60_000).await.expect("a lease");
    let entries = server.hgetall("h").await;
    assert_eq!(
        entries.into_iter().next(),
        Some(("owner".into(), "2".into()))
    );
    assert!(server.exists("h").await);
    assert!((1..=60_000).contains(&server.pttl("h").await));
    assert_eq!(server.keys("*").await, ["h"]);
    assert!(server.del("h").await);
    assert!(!server.del("h").await && !server.exists("h").await);
    assert_eq!(server.pttl("h").await, -2);
    // Connections of the fixture count until the server has closed them.
    eventually(LONG, "one client is connected", async || {
        server.client_count().await == 1
    })
    .await;

    let load = ["SCRIPT", "LOAD", "return 1"];
    let digest: String = server.command(&load).await;
    server.script_flush().await;
    let exists: Vec<u64> = server.command(&["SCRIPT", "EXISTS", &digest]).await;
    assert_eq!(exists, [0]);
}

#[tokio::test]
async fn only_the_watch_tells_a_clients_commands_from_those_of_a_script() {
    let server = RedisServer::start();
    assert_eq!(server.client_commands().await, 0);
    let mut watch = server.watch_commands().await;
    let mut connection = connect(&server.url()).await;
    let greeting = watch.count().await;

    let script = "for i = 1, 100 do redis.call('incr', 'n') end return 'say \"hi\"\\n'";
    for _ in 0..3 {
        let mut eval = redis::cmd("EVAL");
        let reply = eval.arg(script).arg(0).query_async(&mut connection).await;
        let _: String = reply.expect("a script");
    }
    assert_eq!(server.command_calls("eval").await, 3);
    let increments = server.command_calls("incr").await;
    assert_eq!(increments, 300, "the statistics count calls inside scripts");
    let seen = watch.seen().await;
    assert!(
        seen.last()
            .is_some_and(|last| last.is("eval") && last.words.len() == 3)
    );
    assert_eq!(watch.count().await - greeting, 3);
    assert_eq!(watch.count_of("EVAL").await, 3);
    assert_eq!(server.client_commands().await, watch.count().await);
    watch.clear().await;
    let own = watch.count().await;
    assert_eq!(own, 0, "the fixture's own commands are not counted");
}

#[tokio::test]
async fn killed_clients_are_those_of_the_type_and_never_the_fixtures_own() {
    let server = RedisServer::start();
    let mut own = server.connection().await;
    let mut normal = connect(&server.url()).await;
    let client = Client::open(server.url()).expect("a URL");
    let mut subscriber = client.get_async_pubsub().await.expect("a subscriber");
    subscriber.subscribe("c").await.expect("a subscription");
    assert_eq!(server.subscribers("c").await, 1);

    assert_eq!(server.kill_clients("pubsub").await, 1);
    assert_eq!(server.subscribers("c").await, 0);
    assert_eq!(incr(&mut normal).await, Ok(1), "another type lives on");
    assert_eq!(server.kill_clients("normal").await, 1);
    assert!(incr(&mut normal).await.is_err());
    assert_eq!(incr(&mut own).await, Ok(2));
}

#[tokio::test]
async fn a_master_behind_a_proxy_is_replaced_when_the_proxy_is_cut() {
    let trio = Trio::builder().behind_proxies().start().await;
    let assert_master = async |server: &RedisServer| {
        let front = ("127.0.0.1".to_owned(), server.front().port());
        for sentinel in &trio.sentinels {
            let words = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE];
            let master: (String, u16) = sentinel.command(&words).await;
            assert_eq!(master, front);
        }
    };
    assert_master(&trio.master).await;
    trio.master.front().black_hole();
    trio.failed_over().await;
    assert_master(&trio.replica).await;
    for server in [&trio.master, &trio.replica] {
        let info: String = server.command(&["INFO", "replication"]).await;
        assert!(info.contains("role:master"), "{info}");
    }
}

#[tokio::test]
async fn nodes_of_a_cluster_behind_proxies_announce_those() {
    let cluster = RedisCluster::of(&RedisServer::builder().behind_proxy()).await;
    let known: String = cluster.node(0).command(&["CLUSTER", "NODES"]).await;
    for node in (0..2 * MASTERS).map(|number| cluster.node(number)) {
        let (front, bus) = (node.front().port(), node.port() + 10_000);
        let address = format!("127.0.0.1:{front}@{bus}");
        assert!(known.contains(&address), "{address} in {known}");
    }
}

#[tokio::test]
async fn a_paused_worker_does_nothing_until_it_is_resumed() {
    let mut worker = Worker::start(&mut Command::new("cat"));
    worker.send("one");
    worker.expect_line(LONG, "one").await;
    worker.pause();
    worker.send("two");
    let silence = tokio::time::timeout(SILENCE, worker.line(LONG)).await;
    assert!(silence.is_err(), "it is paused");
    worker.resume();
    worker.expect_line(LONG, "two").await;
}
