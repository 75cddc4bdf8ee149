//! Checks that each fault of the fixture affects a real server, or its connections, as documented.
//! `fixture.rs` has the older half.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisError, RedisResult};
use rlock_testkit::{Proxy, RedisServer, eventually, within};

const SOON: Duration = Duration::from_secs(30);
/// After this time a silence counts as one.
const SILENCE: Duration = Duration::from_millis(300);

async fn connect(url: &str) -> MultiplexedConnection {
    let limits = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(SOON))
        .set_response_timeout(Some(SOON));
    Client::open(url)
        .expect("a URL")
        .get_multiplexed_async_connection_with_config(&limits)
        .await
        .expect("a connection")
}

async fn incr(connection: &mut MultiplexedConnection) -> RedisResult<u64> {
    redis::cmd("INCR").arg("n").query_async(connection).await
}

/// Returns how often the server has executed `INCR n`.
async fn n(server: &RedisServer) -> u64 {
    let n: Option<u64> = server.command(&["GET", "n"]).await;
    n.unwrap_or(0)
}

/// The first word of the server's error.
fn word(outcome: RedisResult<u64>) -> String {
    let error: RedisError = outcome.expect_err("a refusal");
    error.code().unwrap_or_default().to_owned()
}

fn a_stream_to(proxy: &Proxy) -> TcpStream {
    let mut stream = TcpStream::connect(proxy.address()).expect("a connection");
    stream.set_read_timeout(Some(SOON)).expect("a limit");
    stream.write_all(b"PING\r\n").expect("it is written");
    stream.read_exact(&mut [0; 7]).expect("a reply");
    stream
}

// --- the way ---

#[tokio::test]
async fn the_message_that_is_lost_can_be_chosen_by_its_number() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    proxy.drop_reply_number(3, "INCR");
    let mut connection = connect(&proxy.url()).await;
    let outcomes = [
        incr(&mut connection).await,
        incr(&mut connection).await,
        incr(&mut connection).await,
    ];
    assert_eq!(outcomes[..2], [Ok(1), Ok(2)]);
    assert!(outcomes[2].is_err(), "the third reply is lost");
    assert_eq!((n(&server).await, proxy.replies_lost()), (3, 1), "it ran");

    proxy.drop_request_number(2, "INCR");
    let mut connection = connect(&proxy.url()).await;
    assert_eq!(incr(&mut connection).await, Ok(4));
    assert!(incr(&mut connection).await.is_err());
    assert_eq!(
        (n(&server).await, proxy.requests_lost()),
        (4, 1),
        "it never ran"
    );
    assert_eq!(
        incr(&mut connect(&proxy.url()).await).await,
        Ok(5),
        "only one"
    );
}

#[tokio::test]
async fn a_delayed_request_runs_no_earlier_and_in_order() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let mut connection = connect(&proxy.url()).await;
    proxy.delay_requests(SILENCE * 3);
    let started = Instant::now();
    let mut other = connection.clone();
    let both = tokio::spawn(async move { tokio::join!(incr(&mut connection), incr(&mut other)) });
    tokio::time::sleep(SILENCE).await;
    assert_eq!(n(&server).await, 0, "it is on its way");
    let both = within(SOON, "they arrive", both).await.expect("no panic");
    assert!(started.elapsed() >= SILENCE * 3);
    assert_eq!(both, (Ok(1), Ok(2)));
}

#[tokio::test]
async fn a_request_that_is_cut_in_two_does_not_run() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let mut stream = a_stream_to(&proxy);
    // The first request is whole, the second lacks its end.
    proxy.cut_requests_after_bytes(13);
    stream
        .write_all(b"INCR n\r\nINCR n\r\n")
        .expect("it is written");
    let mut answers = String::new();
    let _ = stream.read_to_string(&mut answers);
    assert!(answers.is_empty() || answers == ":1\r\n", "{answers:?}");
    assert_eq!(n(&server).await, 1);
    assert_eq!(
        incr(&mut connect(&proxy.url()).await).await,
        Ok(2),
        "only one cut"
    );
}

#[tokio::test]
async fn a_connection_that_is_closed_towards_the_server_ends() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let mut stream = a_stream_to(&proxy);
    proxy.half_close_requests();
    assert_eq!(stream.read(&mut [0; 8]).expect("an orderly end"), 0);
    a_stream_to(&proxy);
}

#[tokio::test]
async fn half_open_connections_are_silent_and_new_ones_are_not() {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    let mut old = a_stream_to(&proxy);
    proxy.half_open();
    old.set_read_timeout(Some(SILENCE)).expect("a limit");
    old.write_all(b"INCR n\r\n")
        .expect("nobody says that it is dead");
    old.read(&mut [0; 8]).expect_err("silence");
    assert_eq!(
        incr(&mut connect(&proxy.url()).await).await,
        Ok(1),
        "the first to run"
    );
    server.restart();
    old.read(&mut [0; 8])
        .expect_err("nor does the server's end get through");
    proxy.pass();
    old.set_read_timeout(Some(SOON)).expect("a limit");
    assert_eq!(old.read(&mut [0; 8]).unwrap_or(0), 0, "it lacks bytes");
}

#[tokio::test]
async fn new_connections_lead_to_where_the_proxy_leads() {
    let (one, two) = (RedisServer::start(), RedisServer::start());
    let proxy = Proxy::in_front_of(&one);
    let mut old = connect(&proxy.url()).await;
    proxy.lead_to(&two);
    assert_eq!(incr(&mut old).await, Ok(1));
    assert_eq!(incr(&mut connect(&proxy.url()).await).await, Ok(1));
    assert_eq!((n(&one).await, n(&two).await), (1, 1));
    proxy.reset();
    assert!(incr(&mut old).await.is_err());
}

// --- the server ---

#[tokio::test]
async fn paused_clients_are_served_afterwards() {
    let server = RedisServer::start();
    let mut connection = connect(&server.url()).await;
    server.pause_clients(SILENCE * 2).await;
    let started = Instant::now();
    assert_eq!(incr(&mut connection).await, Ok(1));
    assert!(started.elapsed() >= SILENCE);
}

#[tokio::test]
async fn a_sleeping_server_and_one_that_runs_a_script_reply_afterwards() {
    let server = RedisServer::builder().debug_commands().start();
    let mut connection = connect(&server.url()).await;
    for script in [false, true] {
        let asleep = async {
            if script {
                server.run_script_for(SILENCE * 3).await;
            } else {
                server.sleep(SILENCE * 3).await;
            }
        };
        let asks = async {
            tokio::time::sleep(SILENCE).await;
            incr(&mut connection).await.expect("a reply");
            Instant::now()
        };
        let started = Instant::now();
        let ((), answered) = tokio::join!(asleep, asks);
        assert!(answered - started >= SILENCE * 3, "script: {script}");
    }
}

#[tokio::test]
async fn a_busy_server_says_so() {
    let server = RedisServer::builder()
        .config("lua-time-limit", "50")
        .start();
    let mut connection = connect(&server.url()).await;
    let asks = async {
        let says_busy = async || {
            let refused = incr(&mut connection).await;
            refused.is_err_and(|error| error.code() == Some("BUSY"))
        };
        eventually(SOON, "others are refused", says_busy).await;
    };
    tokio::join!(server.run_script_for(SILENCE * 3), asks);
    assert!(incr(&mut connection).await.is_ok());
}

#[tokio::test]
async fn a_replica_refuses_writes_until_it_is_promoted_and_then_has_the_data() {
    let (master, replica) = (RedisServer::start(), RedisServer::start());
    assert_eq!(incr(&mut connect(&master.url()).await).await, Ok(1));
    replica.follow(&master).await;
    let mut connection = connect(&replica.url()).await;
    assert_eq!(word(incr(&mut connection).await), "READONLY");
    assert_eq!(incr(&mut connect(&master.url()).await).await, Ok(2));
    replica.catch_up_with(&master).await;
    master.kill();
    replica.promote().await;
    assert_eq!(incr(&mut connection).await, Ok(3));
}

#[tokio::test]
async fn a_server_that_cannot_save_refuses_writes_until_it_can() {
    let server = RedisServer::start();
    let mut connection = connect(&server.url()).await;
    server.let_saves_fail().await;
    assert_eq!(word(incr(&mut connection).await), "MISCONF");
    server.let_saves_succeed().await;
    assert_eq!(incr(&mut connection).await, Ok(1));
}

#[tokio::test]
async fn a_saved_server_starts_with_its_data_and_says_while_it_loads() {
    let server = RedisServer::builder()
        .debug_commands()
        .slow_to_load(Duration::from_millis(1))
        .start();
    assert_eq!(incr(&mut connect(&server.url()).await).await, Ok(1));
    let () = server.command(&["DEBUG", "POPULATE", "2000"]).await;
    server.save().await;
    server.restart_with_data();
    let mut stream = TcpStream::connect(server.address()).expect("it listens");
    stream.set_read_timeout(Some(SOON)).expect("a limit");
    stream.write_all(b"INCR n\r\n").expect("it is written");
    let mut answer = [0; 8];
    stream.read_exact(&mut answer).expect("a reply");
    assert_eq!(&answer, b"-LOADING");
    let mut connection = connect(&server.url()).await;
    eventually(SOON, "it has loaded", async || {
        incr(&mut connection).await.is_ok()
    })
    .await;
    assert_eq!(n(&server).await, 2);
    server.restart();
    assert_eq!(n(&server).await, 0, "without data where none is asked for");
}

#[tokio::test]
async fn a_users_permissions_change_while_it_is_logged_in() {
    let server = RedisServer::builder()
        .acl_user("alice", "on >secret ~* +@all")
        .start();
    let mut connection = connect(&server.url_as("alice", "secret")).await;
    assert_eq!(incr(&mut connection).await, Ok(1));
    server.set_user("alice", "-incr").await;
    assert_eq!(word(incr(&mut connection).await), "NOPERM");
    server.set_user("alice", "+incr").await;
    assert_eq!(incr(&mut connection).await, Ok(2));
    server.flush_all().await;
    assert_eq!(n(&server).await, 0);
}
