//! Checks of the fixture itself against real servers.

use std::any::Any;
use std::env;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands as _, AsyncConnectionConfig, Client, RedisResult};
use rlock_testkit::{
    Exclusion, Gate, MASTERS, Proxy, RedisCluster, RedisServer, SERVICE, SharedExclusion, Trio,
    Way, Worker, assert_taken, eventually, within,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};

const SOON: Duration = Duration::from_secs(30);
/// Long enough for a reply on an idle machine. After this time a silence counts as one.
const SILENCE: Duration = Duration::from_millis(300);

async fn connect(url: &str) -> MultiplexedConnection {
    try_connect(url, SOON).await.expect("a connection")
}

async fn try_connect(url: &str, limit: Duration) -> RedisResult<MultiplexedConnection> {
    let limits = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(limit))
        .set_response_timeout(Some(limit));
    Client::open(url)?
        .get_multiplexed_async_connection_with_config(&limits)
        .await
}

async fn incr_key(connection: &mut MultiplexedConnection, key: &str) -> RedisResult<u64> {
    redis::cmd("INCR").arg(key).query_async(connection).await
}

async fn incr(connection: &mut MultiplexedConnection) -> RedisResult<u64> {
    incr_key(connection, "n").await
}

async fn assert_no_answer(connection: &mut MultiplexedConnection) {
    let silence = incr(connection).await.expect_err("silence");
    assert!(silence.is_timeout(), "{silence}");
}

/// A server, a proxy in front of it, and a connection that goes through the proxy.
async fn behind_proxy() -> (RedisServer, Proxy, MultiplexedConnection) {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let connection = connect(&proxy.url()).await;
    (server, proxy, connection)
}

/// A connection with this read time-out.
fn stream_to(proxy: &Proxy, limit: Duration) -> TcpStream {
    let stream = TcpStream::connect(proxy.address()).expect("connections are accepted");
    stream.set_read_timeout(Some(limit)).expect("a limit");
    stream
}

/// The message of a panic.
fn message(panic: Box<dyn Any + Send>) -> String {
    *panic.downcast().expect("a message")
}

fn assert_silent(stream: &mut TcpStream) {
    let silence = stream.read(&mut [0; 8]).expect_err("silence");
    assert!(
        matches!(silence.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        "{silence}"
    );
}

async fn n(server: &RedisServer) -> u64 {
    server
        .command::<Option<u64>>(&["GET", "n"])
        .await
        .unwrap_or(0)
}

// --- the server ---

#[tokio::test]
async fn a_server_replies_over_tcp_and_over_its_unix_socket() {
    let server = RedisServer::start();
    assert_eq!(incr(&mut connect(&server.url()).await).await, Ok(1));
    assert_eq!(incr(&mut connect(&server.unix_url()).await).await, Ok(2));
    assert_eq!(n(&server).await, 2);
}

#[tokio::test]
async fn two_servers_are_two() {
    let (one, other) = (RedisServer::start(), RedisServer::start());
    assert_ne!(one.port(), other.port());
    assert_ne!(one.pid(), other.pid());
    let _: RedisResult<u64> = incr(&mut connect(&one.url()).await).await;
    assert_eq!((n(&one).await, n(&other).await), (1, 0));
}

#[tokio::test]
async fn a_server_goes_with_its_fixture_even_when_it_is_paused() {
    let server = RedisServer::start();
    let (address, directory) = (server.address(), server.directory().to_owned());
    assert!(directory.exists());
    server.pause();
    drop(server);
    assert!(
        TcpStream::connect(address).is_err(),
        "nothing listens any more"
    );
    assert!(!directory.exists());
}

#[tokio::test]
async fn a_server_goes_with_a_test_that_panics() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let test = thread::spawn(move || {
        let server = RedisServer::start();
        sender.send(server.address()).expect("the test listens");
        panic!("as a failing test does");
    });
    assert!(test.join().is_err());
    assert!(TcpStream::connect(receiver.recv().expect("an address")).is_err());
}

/// Does nothing in a normal run. The next test runs it in a process, and kills it.
#[tokio::test]
async fn a_process_that_is_asked_to_keeps_a_server() {
    if env::var_os("KEEP_A_SERVER").is_none() {
        return;
    }
    let server = RedisServer::start();
    if env::var_os("PAUSED").is_some() {
        server.pause();
    }
    println!();
    println!(
        "server {} {}",
        server.address(),
        server.directory().display()
    );
    thread::sleep(SOON * 4);
}

#[tokio::test]
async fn a_server_does_not_outlive_a_killed_test_even_when_it_is_paused() {
    for paused in [false, true] {
        let mut command = Command::new(env::current_exe().expect("the path of this test"));
        command
            .args([
                "--exact",
                "fixture::a_process_that_is_asked_to_keeps_a_server",
                "--nocapture",
            ])
            .env("KEEP_A_SERVER", "1");
        if paused {
            command.env("PAUSED", "1");
        }
        let mut test = Worker::start(&mut command);
        let (address, directory) = loop {
            let line = test
                .line(SOON)
                .await
                .expect("the process tells of its server");
            if let Some((address, directory)) = line
                .strip_prefix("server ")
                .and_then(|rest| rest.split_once(' '))
            {
                break (address.to_owned(), std::path::PathBuf::from(directory));
            }
        };
        assert!(TcpStream::connect(&address).is_ok());
        test.kill();
        eventually(SOON, "the server follows its test", async || {
            TcpStream::connect(&address).is_err()
        })
        .await;
        eventually(SOON, "its directory follows", async || !directory.exists()).await;
    }
}

#[tokio::test]
async fn a_paused_server_is_silent_and_executes_late_what_it_was_sent() {
    let server = RedisServer::start();
    let mut connection = connect(&server.url()).await;
    connection.set_response_timeout(SILENCE);
    server.pause();
    assert!(incr(&mut connection).await.is_err());
    server.resume();
    eventually(SOON, "the increment ran after all", async || {
        n(&server).await == 1
    })
    .await;
}

#[tokio::test]
async fn a_restarted_server_is_empty_on_the_same_port() {
    let server = RedisServer::start();
    let url = server.url();
    let mut before = connect(&url).await;
    assert_eq!(incr(&mut before).await, Ok(1));
    let pid = server.pid();
    server.kill();
    assert!(try_connect(&url, SOON).await.is_err(), "it is down");
    server.restart();
    assert_ne!(server.pid(), pid);
    assert!(!server.exists("n").await);
    assert_eq!(incr(&mut connect(&url).await).await, Ok(1));
    server.restart();
    assert!(!server.exists("n").await);
}

#[tokio::test]
async fn a_server_listens_on_the_port_that_was_chosen() {
    let port = RedisServer::start().port();
    let server = RedisServer::builder().port(port).start();
    assert_eq!(server.port(), port);
    assert!(server.url().contains(&port.to_string()));
}

#[tokio::test]
async fn a_configured_server_keeps_to_its_configuration() {
    let server = RedisServer::builder()
        .config("maxmemory", "4mb")
        .config("maxmemory-policy", "noeviction")
        .start();
    let (_, limit): (String, u64) = server.command(&["CONFIG", "GET", "maxmemory"]).await;
    assert_eq!(limit, 4 << 20);
    server.config_set("maxmemory", "5mb").await;
    let (_, limit): (String, u64) = server.command(&["CONFIG", "GET", "maxmemory"]).await;
    assert_eq!(limit, 5 << 20);
}

#[tokio::test]
async fn a_server_that_cannot_start_says_why() {
    let started = thread::spawn(|| RedisServer::builder().config("no-such-option", "1").start());
    let panic = started.join().expect_err("it does not start");
    let message = panic.downcast_ref::<String>().expect("a message");
    assert!(message.contains("no-such-option"), "{message}");
}

#[tokio::test]
async fn a_password_opens_the_server_and_its_absence_does_not() {
    let server = RedisServer::builder().password("secret").start();
    assert_eq!(incr(&mut connect(&server.url()).await).await, Ok(1));
    assert_eq!(incr(&mut connect(&server.unix_url()).await).await, Ok(2));
    let without = format!("redis://{}/", server.address());
    let refused = match try_connect(&without, SOON).await {
        Ok(mut connection) => incr(&mut connection).await.is_err(),
        Err(_) => true,
    };
    assert!(refused);
    assert_eq!(n(&server).await, 2, "the fixture still has access");
    server.restart();
    assert_eq!(incr(&mut connect(&server.url()).await).await, Ok(1));
}

#[tokio::test]
async fn a_user_may_do_what_its_rules_say_and_no_more() {
    let server = RedisServer::builder()
        .acl_user("alice", "on >secret ~n resetchannels -@all +incr +ping")
        .acl_user("default", "off")
        .start();
    let mut alice = connect(&server.url_as("alice", "secret")).await;
    assert_eq!(incr(&mut alice).await, Ok(1));
    assert!(alice.get::<_, u64>("n").await.is_err());
    assert!(incr_key(&mut alice, "other").await.is_err());
    assert_eq!(n(&server).await, 1);
}

#[test]
fn a_tls_server_shows_a_certificate_of_its_own_authority() {
    let server = RedisServer::builder().tls().start();
    assert_eq!(
        std::fs::read_to_string(server.ca_path()).expect("the file"),
        server.ca_pem()
    );
    assert!(server.tls_url().starts_with("rediss://127.0.0.1:"));

    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(server.ca_pem().as_bytes()).expect("PEM"))
        .expect("a certificate");
    let configuration = rustls::ClientConfig::builder_with_provider(Arc::new(
        rustls::crypto::ring::default_provider(),
    ))
    .with_safe_default_protocol_versions()
    .expect("versions")
    .with_root_certificates(roots)
    .with_no_client_auth();
    let name = ServerName::try_from("127.0.0.1").expect("a name");
    let session = rustls::ClientConnection::new(Arc::new(configuration), name).expect("a session");
    // The proxy passes bytes that are not Redis protocol unchanged.
    let proxy = Proxy::to(&format!("127.0.0.1:{}", server.tls_port()));
    let stream = TcpStream::connect(proxy.address()).expect("a connection");
    let mut stream = rustls::StreamOwned::new(session, stream);
    stream
        .write_all(b"PING\r\n")
        .expect("the handshake succeeds");
    let mut answer = [0; 7];
    stream.read_exact(&mut answer).expect("a reply");
    assert_eq!(&answer, b"+PONG\r\n");
}

#[tokio::test]
async fn the_looks_behind_the_scenes_see_what_is_there() {
    let server = RedisServer::start();
    let mut connection = connect(&server.url()).await;
    let _: u64 = connection.hset("h", "owner", 2).await.expect("a hash");
    let _: bool = connection.pexpire("h", 60_000).await.expect("a lease");
    assert_eq!(
        server.hgetall("h").await.into_iter().collect::<Vec<_>>(),
        [("owner".into(), "2".into())]
    );
    assert!(server.exists("h").await);
    assert!((1..=60_000).contains(&server.pttl("h").await));
    assert_eq!(server.keys("*").await, ["h"]);
    assert!(server.del("h").await);
    assert!(!server.del("h").await);
    assert!(server.hgetall("h").await.is_empty());
    assert_eq!(server.pttl("h").await, -2);
    assert_eq!(server.client_count().await, 1);
    assert_eq!(server.subscribers("c").await, 0);
}

#[tokio::test]
async fn only_the_watch_tells_a_clients_commands_from_those_of_a_script() {
    let server = RedisServer::start();
    assert_eq!(server.client_commands().await, 0);
    let mut watch = server.watch_commands().await;
    let mut connection = connect(&server.url()).await;
    let greeting = watch.count().await;
    assert_eq!(server.command_calls("eval").await, 0);

    let script = "for i = 1, 100 do redis.call('incr', 'n') end return 'say \"hi\"\\n'";
    for _ in 0..3 {
        let _: String = redis::cmd("EVAL")
            .arg(script)
            .arg(0)
            .query_async(&mut connection)
            .await
            .expect("a script");
    }
    assert_eq!(server.command_calls("eval").await, 3);
    assert_eq!(
        server.command_calls("incr").await,
        300,
        "the statistics count calls inside scripts"
    );
    assert_eq!(
        watch.count().await - greeting,
        3,
        "{:?}",
        watch.seen().await
    );
    assert_eq!(watch.count_of("EVAL").await, 3);
    let last = watch.seen().await.last().cloned().expect("a command");
    assert!(last.is("eval") && last.words.len() == 3, "{last:?}");
    assert!(last.client.starts_with("127.0.0.1:"), "{last:?}");
    assert_eq!(server.client_commands().await, watch.count().await);
    watch.clear().await;
    assert_eq!(
        watch.count().await,
        0,
        "the fixture's own commands are not counted"
    );
}

#[tokio::test]
async fn flushed_scripts_are_gone() {
    let server = RedisServer::start();
    let digest: String = server.command(&["SCRIPT", "LOAD", "return 1"]).await;
    assert_eq!(
        server
            .command::<Vec<u64>>(&["SCRIPT", "EXISTS", &digest])
            .await,
        [1]
    );
    server.script_flush().await;
    assert_eq!(
        server
            .command::<Vec<u64>>(&["SCRIPT", "EXISTS", &digest])
            .await,
        [0]
    );
}

#[tokio::test]
async fn killed_clients_are_those_of_the_type_and_never_the_fixtures_own() {
    let server = RedisServer::start();
    let mut own = server.connection().await;
    let mut watch = server.watch_commands().await;
    let mut normal = connect(&server.url()).await;
    let subscriber = Client::open(server.url())
        .expect("a URL")
        .get_async_pubsub()
        .await;
    let mut subscriber = subscriber.expect("a subscriber");
    subscriber.subscribe("c").await.expect("a subscription");
    assert_eq!(server.subscribers("c").await, 1);

    assert_eq!(server.kill_clients("pubsub").await, 1);
    assert_eq!(server.subscribers("c").await, 0);
    assert_eq!(incr(&mut normal).await, Ok(1), "another type lives on");

    assert_eq!(server.kill_clients("normal").await, 1);
    assert!(incr(&mut normal).await.is_err());
    assert_eq!(incr(&mut own).await, Ok(2));
    assert!(watch.count().await > 0);
}

// --- the proxy ---

#[tokio::test]
async fn a_lost_reply_belongs_to_a_command_that_ran() {
    let (server, proxy, mut connection) = behind_proxy().await;
    proxy.drop_replies_to("INCR", 1);
    let _: () = redis::cmd("PING")
        .query_async(&mut connection)
        .await
        .expect("other replies pass");
    let lost = incr(&mut connection).await.expect_err("the reply is lost");
    assert!(
        lost.is_connection_dropped() || lost.is_io_error(),
        "{lost:?}"
    );
    assert_eq!(n(&server).await, 1, "the command ran");
    assert_eq!(proxy.replies_lost(), 1);

    let mut connection = connect(&proxy.url()).await;
    assert_eq!(
        incr(&mut connection).await,
        Ok(2),
        "only one was to be lost"
    );
    assert_eq!(proxy.replies_lost(), 1);
    assert_eq!(proxy.requests_of("incr"), 2);
}

#[tokio::test]
async fn each_lost_reply_cuts_its_own_connection() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    proxy.drop_replies_to("INCR", 3);
    for attempt in 1..=5 {
        let answer = incr(&mut connect(&proxy.url()).await).await;
        assert_eq!(answer.is_ok(), attempt > 3, "attempt {attempt}: {answer:?}");
    }
    assert_eq!(n(&server).await, 5);
}

#[tokio::test]
async fn the_lost_reply_can_be_picked_by_its_request() {
    let (server, proxy, mut connection) = behind_proxy().await;
    proxy.drop_replies_if(1, |request| request.is("INCR") && request.mentions("b"));
    assert_eq!(incr_key(&mut connection, "a").await, Ok(1));
    assert!(incr_key(&mut connection, "b").await.is_err());
    assert_eq!(server.command::<u64>(&["GET", "b"]).await, 1);
}

#[tokio::test]
async fn pipelined_replies_before_the_lost_one_arrive() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let mut stream = stream_to(&proxy, SOON);
    proxy.drop_replies_to("INCR", 1);
    stream
        .write_all(b"PING\r\nECHO before\r\nINCR n\r\nECHO after\r\n")
        .expect("it is written");
    let mut answers = String::new();
    let _ = stream.read_to_string(&mut answers);
    assert_eq!(answers, "+PONG\r\n$6\r\nbefore\r\n");
    assert_eq!(n(&server).await, 1);
}

#[tokio::test]
async fn pushes_are_no_replies() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let (sender, mut pushes) = tokio::sync::mpsc::unbounded_channel();
    let config = AsyncConnectionConfig::new()
        .set_push_sender(sender)
        .set_response_timeout(Some(SOON));
    let client = Client::open(format!("{}?protocol=resp3", proxy.url())).expect("a URL");
    let mut connection = client
        .get_multiplexed_async_connection_with_config(&config)
        .await
        .expect("a connection");
    connection.subscribe("c").await.expect("a subscription");

    proxy.drop_replies(1);
    for _ in 0..3 {
        let _: u64 = server.command(&["PUBLISH", "c", "message"]).await;
    }
    let mut messages = 0;
    while messages < 3 {
        let push = within(SOON, "the messages pass", pushes.recv())
            .await
            .expect("a push");
        messages += usize::from(push.kind == redis::PushKind::Message);
    }
    assert_eq!(proxy.replies_lost(), 0);
    assert!(incr(&mut connection).await.is_err(), "this one is a reply");
    assert_eq!((n(&server).await, proxy.replies_lost()), (1, 1));
}

#[tokio::test]
async fn messages_of_a_resp2_subscriber_are_no_replies_and_a_confirmation_is_one() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let mut stream = stream_to(&proxy, SOON);
    let expect = |stream: &mut TcpStream, expected: &str| {
        let mut answer = vec![0; expected.len()];
        stream.read_exact(&mut answer).expect("a reply");
        assert_eq!(String::from_utf8_lossy(&answer), expected);
    };
    stream.write_all(b"SUBSCRIBE a\r\n").expect("it is written");
    expect(&mut stream, "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n");
    proxy.drop_replies(1);
    let _: u64 = server.command(&["PUBLISH", "a", "x"]).await;
    expect(&mut stream, "*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nx\r\n");
    stream.write_all(b"SUBSCRIBE b\r\n").expect("it is written");
    assert_eq!(
        stream.read(&mut [0; 64]).unwrap_or(0),
        0,
        "the confirmation is lost"
    );
    assert_eq!(proxy.replies_lost(), 1);
}

#[tokio::test]
async fn a_lost_request_never_runs() {
    let (_server, proxy, mut connection) = behind_proxy().await;
    proxy.drop_requests(1);
    assert!(incr(&mut connection).await.is_err());
    assert_eq!(proxy.requests_lost(), 1);
    proxy.drop_requests_to("INCR", 1);
    let mut connection = connect(&proxy.url()).await;
    assert!(incr(&mut connection).await.is_err());
    assert_eq!(proxy.requests_lost(), 2);
    assert_eq!(
        incr(&mut connect(&proxy.url()).await).await,
        Ok(1),
        "neither of them ran"
    );
}

#[tokio::test]
async fn a_black_hole_accepts_everything_and_replies_nothing() {
    let (server, proxy, mut connection) = behind_proxy().await;
    connection.set_response_timeout(SILENCE);
    proxy.black_hole();
    assert_no_answer(&mut connection).await;
    let mut stream = TcpStream::connect(proxy.address()).expect("new connections are accepted");
    stream.write_all(b"INCR n\r\n").expect("it is written");
    stream.set_read_timeout(Some(SILENCE)).expect("a limit");
    assert_silent(&mut stream);
    assert_eq!(n(&server).await, 0, "nothing reached the server");

    server.kill();
    // A black hole hides that the server is gone, and that it cannot be reached.
    assert_silent(&mut stream);
    let mut late = stream_to(&proxy, SILENCE);
    assert_silent(&mut late);
    server.restart();
    proxy.pass();
    stream.set_read_timeout(Some(SOON)).expect("a limit");
    assert_eq!(
        stream.read(&mut [0; 8]).unwrap_or(0),
        0,
        "a stream that lacks bytes is cut"
    );
    assert_eq!(incr(&mut connect(&proxy.url()).await).await, Ok(1));
}

#[tokio::test]
async fn a_connection_that_lost_nothing_survives_a_black_hole() {
    let (_server, proxy, mut connection) = behind_proxy().await;
    proxy.black_hole();
    proxy.pass();
    assert_eq!(incr(&mut connection).await, Ok(1));
}

#[tokio::test]
async fn if_every_second_connection_is_silent_the_others_continue_and_all_recover() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let mut first = connect(&proxy.url()).await;
    let mut second = connect(&proxy.url()).await;
    proxy.silence_every_second();
    assert_eq!(incr(&mut first).await, Ok(1));
    second.set_response_timeout(SILENCE);
    assert!(incr(&mut second).await.expect_err("silence").is_timeout());
    let mut third = connect(&proxy.url()).await;
    assert_eq!(incr(&mut third).await, Ok(2));
    assert!(try_connect(&proxy.url(), SILENCE).await.is_err());
    proxy.pass();
    assert_eq!(incr(&mut connect(&proxy.url()).await).await, Ok(3));
}

#[tokio::test]
async fn a_master_behind_a_proxy_is_replaced_when_the_proxy_is_cut() {
    let trio = Trio::builder().behind_proxies().start().await;
    let master_of = async |sentinel: &RedisServer| -> (String, u16) {
        let words = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE];
        sentinel.command(&words).await
    };
    let address = |server: &RedisServer| ("127.0.0.1".to_owned(), server.front().port());
    for sentinel in &trio.sentinels {
        assert_eq!(master_of(sentinel).await, address(&trio.master));
    }
    let info: String = trio.replica.command(&["INFO", "replication"]).await;
    let follows = format!("master_port:{}", trio.master.front().port());
    assert!(info.contains(&follows), "{info}");
    trio.master.front().black_hole();
    trio.failed_over().await;
    for sentinel in &trio.sentinels {
        assert_eq!(master_of(sentinel).await, address(&trio.replica));
    }
    for server in [&trio.master, &trio.replica] {
        let info: String = server.command(&["INFO", "replication"]).await;
        assert!(info.contains("role:master"), "{info}");
    }
}

#[tokio::test]
async fn nodes_of_a_cluster_behind_proxies_announce_those_and_gossip_directly() {
    let cluster = RedisCluster::of(&RedisServer::builder().behind_proxy()).await;
    let nodes: Vec<&RedisServer> = (0..2 * MASTERS).map(|n| cluster.node(n)).collect();
    let known: String = nodes[0].command(&["CLUSTER", "NODES"]).await;
    for node in &nodes {
        let (front, bus) = (node.front().port(), node.port() + 10_000);
        let address = format!("127.0.0.1:{front}@{bus}");
        assert!(known.contains(&address), "{address} in {known}");
        node.front().black_hole();
    }
    let url = nodes[1].front().url();
    assert!(try_connect(&url, SILENCE).await.is_err());
    // Longer than the servers wait for each other.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(cluster.masters().await, [0, 1, 2]);
    for node in nodes {
        node.front().pass();
    }
    cluster.settled().await;
}

#[tokio::test]
async fn a_black_hole_for_replies_lets_commands_run() {
    let (server, proxy, mut connection) = behind_proxy().await;
    connection.set_response_timeout(SILENCE);
    proxy.black_hole_replies();
    assert_no_answer(&mut connection).await;
    eventually(SOON, "the command ran", async || n(&server).await == 1).await;
    proxy.black_hole_requests();
    let _ = incr(&mut connection).await;
    assert_eq!(
        n(&server).await,
        1,
        "this one was swallowed on its way there"
    );
}

#[tokio::test]
async fn what_is_held_is_delivered_late() {
    let (server, proxy, mut connection) = behind_proxy().await;

    proxy.hold_requests();
    let mut held = connection.clone();
    let request = tokio::spawn(async move { incr(&mut held).await });
    tokio::time::sleep(SILENCE).await;
    assert_eq!(n(&server).await, 0, "it has not arrived");
    proxy.hold_replies();
    eventually(SOON, "it arrives", async || n(&server).await == 1).await;
    tokio::time::sleep(SILENCE).await;
    assert!(!request.is_finished(), "its reply is held now");
    proxy.pass();
    assert_eq!(
        within(SOON, "the reply arrives", request)
            .await
            .expect("no panic"),
        Ok(1)
    );

    proxy.hold();
    let mut held = connection.clone();
    let request = tokio::spawn(async move { incr(&mut held).await });
    tokio::time::sleep(SILENCE).await;
    assert_eq!(n(&server).await, 1);
    proxy.pass();
    assert_eq!(
        within(SOON, "the reply arrives", request)
            .await
            .expect("no panic"),
        Ok(2)
    );
    assert_eq!(incr(&mut connection).await, Ok(3));
}

#[tokio::test]
async fn a_delayed_reply_arrives_no_earlier() {
    let (_server, proxy, mut connection) = behind_proxy().await;
    proxy.delay_replies(SILENCE);
    let started = Instant::now();
    let mut other = connection.clone();
    let (one, two) = tokio::join!(incr(&mut connection), incr(&mut other));
    assert!(started.elapsed() >= SILENCE);
    assert_eq!((one, two), (Ok(1), Ok(2)), "and in order");
    proxy.pass();
    assert_eq!(incr(&mut connection).await, Ok(3));
}

#[tokio::test]
async fn a_reset_ends_present_connections_and_no_others() {
    let (_server, proxy, mut connection) = behind_proxy().await;
    let mut idle = TcpStream::connect(proxy.address()).expect("a connection");
    idle.write_all(b"PING\r\n").expect("it is written");
    idle.read_exact(&mut [0; 7]).expect("a reply");
    proxy.reset();
    assert!(incr(&mut connection).await.is_err());
    let reset = idle
        .read(&mut [0; 8])
        .expect_err("an idle connection is reset too");
    assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
    assert_eq!(incr(&mut connect(&proxy.url()).await).await, Ok(1));
}

#[tokio::test]
async fn a_refusing_proxy_closes_new_connections_and_keeps_present_ones() {
    let (_server, proxy, mut connection) = behind_proxy().await;
    proxy.refuse();
    assert!(try_connect(&proxy.url(), SOON).await.is_err());
    assert_eq!(incr(&mut connection).await, Ok(1));
    proxy.pass();
    assert_eq!(incr(&mut connect(&proxy.url()).await).await, Ok(2));
}

#[tokio::test]
async fn a_cut_comes_after_the_last_byte_that_passes() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let mut stream = stream_to(&proxy, SOON);
    proxy.cut_after_bytes(10);
    stream
        .write_all(b"PING\r\nPING\r\nPING\r\n")
        .expect("it is written");
    let mut answers = String::new();
    let _ = stream.read_to_string(&mut answers);
    assert_eq!(answers, "+PONG\r\n+PO");
    assert_eq!(
        incr(&mut connect(&proxy.url()).await).await,
        Ok(1),
        "only one connection is cut"
    );
}

#[tokio::test]
async fn a_half_closed_connection_still_carries_requests() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let mut stream = stream_to(&proxy, SOON);
    stream.write_all(b"PING\r\n").expect("it is written");
    stream.read_exact(&mut [0; 7]).expect("a reply");
    proxy.half_close();
    assert_eq!(stream.read(&mut [0; 8]).expect("an orderly end"), 0);
    stream.write_all(b"INCR n\r\n").expect("it is written");
    eventually(SOON, "the request arrives", async || n(&server).await == 1).await;
}

#[tokio::test]
async fn a_blocked_test_does_not_block_the_proxy() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    // This executor is blocked from here on, so the proxy must not depend on it.
    let mut stream = stream_to(&proxy, SOON);
    stream.write_all(b"PING\r\n").expect("it is written");
    stream.read_exact(&mut [0; 7]).expect("a reply");
}

#[tokio::test]
async fn a_proxy_serves_a_restarted_server_and_goes_when_it_is_dropped() {
    let server = RedisServer::builder().password("secret").start();
    let proxy = Proxy::in_front_of(&server);
    assert_eq!(incr(&mut connect(&proxy.url()).await).await, Ok(1));
    server.restart();
    assert_eq!(incr(&mut connect(&proxy.url()).await).await, Ok(1));
    let address = proxy.address();
    drop(proxy);
    // A process that another test is starting has a copy of every socket until it executes.
    eventually(SOON, "the proxy is gone", async || {
        TcpStream::connect(&address).is_err() && TcpListener::bind(&address).is_ok()
    })
    .await;
}

#[tokio::test]
async fn a_gate_holds_one_way_of_one_connection_and_loses_nothing() {
    let server = RedisServer::start();
    let gate = Gate::in_front_of(&server);
    let mut held = connect(&gate.url()).await;
    let mut free = connect(&gate.url()).await;
    assert_eq!(gate.connections(), 2);
    // A held request arrives after the other connection's. A held reply precedes it.
    for (way, executed, reply) in [(Way::Requests, 0, 2), (Way::Replies, 3, 3)] {
        gate.hold(0, way);
        assert!(!gate.holds(0, way), "nothing has come yet");
        let mut connection = held.clone();
        let request = tokio::spawn(async move { incr(&mut connection).await });
        eventually(SOON, "it is held", async || gate.holds(0, way)).await;
        assert_eq!(n(&server).await, executed);
        assert!(
            incr(&mut free).await.is_ok(),
            "the other connection is free"
        );
        gate.pass(0, way);
        let request = within(SOON, "the reply arrives", request).await;
        assert_eq!(request.expect("no panic"), Ok(reply));
        assert!(!gate.holds(0, way));
    }
    assert_eq!(incr(&mut held).await, Ok(5));
}

#[tokio::test]
async fn a_gate_outlasts_its_server_and_goes_when_it_is_dropped() {
    let server = RedisServer::start();
    let gate = Gate::in_front_of(&server);
    let url = gate.url();
    let mut connection = connect(&url).await;
    server.kill();
    assert!(incr(&mut connection).await.is_err());
    assert!(try_connect(&url, SOON).await.is_err());
    assert_eq!(gate.connections(), 1);
    server.restart();
    let mut connection = connect(&url).await;
    assert_eq!(incr(&mut connection).await, Ok(1));
    drop(gate);
    eventually(SOON, "the gate is gone", async || {
        incr(&mut connection).await.is_err() && try_connect(&url, SOON).await.is_err()
    })
    .await;
}

// --- processes ---

#[tokio::test]
async fn a_worker_is_read_and_written_line_by_line() {
    let mut worker = Worker::start(
        Command::new("sh")
            .args(["-c", "echo ready; read it; echo got $it $WHO; exit 3"])
            .env("WHO", "me"),
    );
    assert_eq!(worker.line(SOON).await.as_deref(), Some("ready"));
    worker.send("that");
    assert!(worker.expect_line(SOON, "got that me").await.is_empty());
    assert_eq!(worker.line(SOON).await, None);
    assert_eq!(worker.wait(SOON).await.code(), Some(3));
}

#[tokio::test]
async fn a_paused_worker_does_nothing_until_it_is_resumed() {
    let mut worker = Worker::start(&mut Command::new("cat"));
    worker.send("one");
    worker.expect_line(SOON, "one").await;
    worker.pause();
    worker.send("two");
    let silence = tokio::time::timeout(SILENCE, worker.line(SOON)).await;
    assert!(silence.is_err(), "it is paused");
    worker.resume();
    worker.expect_line(SOON, "two").await;
    worker.close_input();
    assert!(worker.wait(SOON).await.success());
    assert!(worker.remaining_lines(SOON).await.is_empty());
}

#[tokio::test]
async fn a_killed_or_dropped_worker_is_gone() {
    let mut worker = Worker::start(&mut Command::new("cat"));
    let other = Worker::start(&mut Command::new("cat"));
    let pids = [worker.pid(), other.pid()];
    worker.pause();
    worker.kill();
    assert_eq!(worker.line(SOON).await, None);
    drop(other);
    for pid in pids {
        let pid = rustix::process::Pid::from_raw(pid.try_into().expect("a pid")).expect("a pid");
        assert!(
            rustix::process::test_kill_process(pid).is_err(),
            "no such process any more"
        );
    }
}

// --- time ---

#[tokio::test]
async fn eventually_waits_for_what_comes_and_names_what_does_not() {
    let mut tries = 0;
    eventually(SOON, "the third try", async || {
        tries += 1;
        tries == 3
    })
    .await;
    let never = tokio::spawn(eventually(SILENCE, "pigs fly", async || false)).await;
    let panic = never.expect_err("it panics").into_panic();
    assert!(message(panic).contains("pigs fly"));
    let never = tokio::spawn(within(
        SILENCE,
        "the end of time",
        std::future::pending::<()>(),
    ))
    .await;
    let panic = never.expect_err("it panics").into_panic();
    assert!(message(panic).contains("the end of time"));
}

#[tokio::test]
async fn an_expected_lock_that_is_free_is_reported_with_its_place() {
    let client = rlock_core::LockClient::in_memory();
    let guard = client.lock("k").acquire().await.expect("free");
    assert_taken(&client, "k").await;
    guard.release().await.expect("held");
    let line = line!() + 1;
    let free = tokio::spawn(async move { assert_taken(&client, "k").await });
    let said = message(free.await.expect_err("it panics").into_panic());
    assert!(
        said.contains("`k`") && said.contains(&format!("fixture.rs:{line}")),
        "{said}"
    );
}

// --- witnesses ---

#[test]
fn a_witness_counts_holders_and_reports_overlaps() {
    let witness = Exclusion::new();
    drop(witness.enter("a"));
    drop(witness.enter("b"));
    witness.assert_held();
    assert_eq!(
        (witness.entries(), witness.max_inside(), witness.inside()),
        (2, 1, 0)
    );

    let inside = witness.clone().enter("c");
    drop(witness.enter("d"));
    assert_eq!(witness.max_inside(), 2);
    assert_eq!(
        witness.overlaps()[0].to_string(),
        "d entered while c was inside"
    );
    drop(inside);
    assert_eq!(witness.inside(), 0);
    let complaint = thread::spawn(move || witness.assert_held())
        .join()
        .expect_err("it complains");
    assert!(message(complaint).contains("d entered while c was inside"));
}

#[test]
#[should_panic(expected = "no owner entered")]
fn a_witness_of_nothing_proves_nothing() {
    Exclusion::new().assert_held();
}

#[tokio::test]
async fn a_shared_witness_sees_overlaps_of_processes_and_knows_the_dead() {
    let server = RedisServer::start();
    let (one, other) = (
        SharedExclusion::connect(&server.url(), "x").await,
        SharedExclusion::connect(&server.url(), "x").await,
    );
    one.enter("a").await.leave().await;
    other.enter("b").await.leave().await;
    other.assert_held().await;
    assert_eq!((one.entries().await, one.inside().await.len()), (2, 0));

    let dead = one.enter("c").await;
    assert_eq!(other.inside().await.len(), 1);
    other.died(std::process::id()).await;
    let last = other.enter("d").await;
    one.assert_held().await;

    one.enter("e").await.leave().await;
    let overlaps = one.overlaps().await;
    assert_eq!(overlaps.len(), 1);
    assert!(
        overlaps[0].entered.starts_with("e (process ")
            && overlaps[0].inside[0].starts_with("d (process ")
    );
    last.leave().await;
    drop(dead);
    assert!(one.inside().await.is_empty());
    assert_eq!(
        SharedExclusion::connect(&server.url(), "y")
            .await
            .entries()
            .await,
        0,
        "names are apart"
    );
}
