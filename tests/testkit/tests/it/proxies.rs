//! Tests the fixtures' proxies and gates.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, PushKind};
use rlock_testkit::{Proxy, RedisServer, eventually, within};

use crate::{LONG, SILENCE, connect, incr, n, try_connect};

fn server() -> (RedisServer, Proxy) {
    let server = RedisServer::start();
    let proxy = Proxy::in_front_of(&server);
    (server, proxy)
}

/// Starts a server and a proxy in front of it, and connects through the proxy.
async fn connected() -> (RedisServer, Proxy, MultiplexedConnection) {
    let (server, proxy) = server();
    let connection = connect(&proxy.url()).await;
    (server, proxy, connection)
}

/// Opens a connection, and waits for a first reply.
fn stream_to(proxy: &Proxy) -> TcpStream {
    let mut stream = TcpStream::connect(proxy.address()).expect("a connection");
    stream.set_read_timeout(Some(LONG)).expect("a limit");
    send(&mut stream, "PING\r\n");
    stream.read_exact(&mut [0; 7]).expect("a reply");
    stream
}

fn send(stream: &mut TcpStream, text: &str) {
    stream.write_all(text.as_bytes()).expect("it is written");
}

fn assert_silent(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(SILENCE)).expect("a limit");
    let silence = stream.read(&mut [0; 8]).expect_err("silence").kind();
    let is_silence = matches!(silence, ErrorKind::WouldBlock | ErrorKind::TimedOut);
    assert!(is_silence, "{silence}");
    stream.set_read_timeout(Some(LONG)).expect("a limit");
}

/// Asserts that the connection has ended.
fn assert_cut(stream: &mut TcpStream) {
    assert_eq!(stream.read(&mut [0; 8]).unwrap_or(0), 0);
}

async fn assert_no_answer(connection: &mut MultiplexedConnection) {
    let silence = incr(connection).await.expect_err("silence");
    assert!(silence.is_timeout(), "{silence}");
}

// --- lost messages ---

#[tokio::test]
async fn a_lost_reply_belongs_to_a_command_that_ran_and_cuts_its_connection() {
    let (server, proxy, mut connection) = connected().await;
    proxy.drop_replies_if(2, |request| request.is("INCR"));
    let ping: String = redis::cmd("PING")
        .query_async(&mut connection)
        .await
        .expect("other replies pass");
    assert_eq!(ping, "PONG");
    let lost = incr(&mut connection).await.expect_err("the reply is lost");
    assert!(lost.is_connection_dropped() || lost.is_io_error(), "{lost}");
    assert!(incr(&mut connect(&proxy.url()).await).await.is_err());
    assert_eq!(incr(&mut connect(&proxy.url()).await).await, Ok(3));
    assert_eq!((proxy.replies_lost(), proxy.requests_of("incr")), (2, 3));
    assert_eq!(n(&server).await, 3);
}

#[tokio::test]
async fn a_lost_request_never_runs() {
    let (server, proxy, mut connection) = connected().await;
    proxy.drop_requests(1);
    assert!(incr(&mut connection).await.is_err());
    proxy.drop_requests_to("INCR", 1);
    assert!(incr(&mut connect(&proxy.url()).await).await.is_err());
    assert_eq!((n(&server).await, proxy.requests_lost()), (0, 2));
    assert_eq!(incr(&mut connect(&proxy.url()).await).await, Ok(1));
}

#[tokio::test]
async fn pushes_do_not_count_as_replies() {
    let (server, proxy) = server();
    let (sender, mut pushes) = tokio::sync::mpsc::unbounded_channel();
    let config = AsyncConnectionConfig::new()
        .set_push_sender(sender)
        .set_response_timeout(Some(LONG));
    let client = Client::open(format!("{}?protocol=resp3", proxy.url())).expect("a URL");
    let connection = client.get_multiplexed_async_connection_with_config(&config);
    let mut connection = connection.await.expect("a connection");
    connection.subscribe("c").await.expect("a subscription");

    proxy.drop_replies(1);
    let _: u64 = server.command(&["PUBLISH", "c", "message"]).await;
    loop {
        let push = within(LONG, "the message passes", pushes.recv()).await;
        if push.expect("a push").kind == PushKind::Message {
            break;
        }
    }
    assert_eq!(proxy.replies_lost(), 0);
    assert!(incr(&mut connection).await.is_err(), "this one is a reply");
    assert_eq!((n(&server).await, proxy.replies_lost()), (1, 1));
}

#[tokio::test]
async fn a_message_of_a_resp2_subscriber_does_not_count_as_a_reply_and_a_confirmation_does() {
    let (server, proxy) = server();
    let mut stream = stream_to(&proxy);
    let expect = |stream: &mut TcpStream, expected: &str| {
        let mut answer = vec![0; expected.len()];
        stream.read_exact(&mut answer).expect("a reply");
        assert_eq!(String::from_utf8_lossy(&answer), expected);
    };
    send(&mut stream, "SUBSCRIBE a\r\n");
    expect(&mut stream, "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n");
    proxy.drop_replies(1);
    let _: u64 = server.command(&["PUBLISH", "a", "x"]).await;
    expect(&mut stream, "*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nx\r\n");
    send(&mut stream, "SUBSCRIBE b\r\n");
    assert_cut(&mut stream);
    assert_eq!(proxy.replies_lost(), 1);
}

// --- silence ---

#[tokio::test]
async fn a_black_hole_accepts_everything_and_replies_nothing() {
    let (server, proxy, mut connection) = connected().await;
    connection.set_response_timeout(SILENCE);
    proxy.black_hole();
    assert_no_answer(&mut connection).await;
    let mut stream = TcpStream::connect(proxy.address()).expect("it accepts connections");
    send(&mut stream, "INCR n\r\n");
    assert_silent(&mut stream);
    assert_eq!(n(&server).await, 0, "nothing reached the server");

    // A black hole hides that the server is gone.
    server.restart();
    assert_silent(&mut stream);
    proxy.pass();
    // A stream that lacks bytes is cut.
    assert_cut(&mut stream);
    assert_eq!(incr(&mut connect(&proxy.url()).await).await, Ok(1));
}

#[tokio::test]
async fn a_black_hole_for_replies_lets_commands_run_and_one_for_requests_does_not() {
    let (server, proxy, mut connection) = connected().await;
    connection.set_response_timeout(SILENCE);
    proxy.black_hole_replies();
    assert_no_answer(&mut connection).await;
    eventually(LONG, "the command ran", async || n(&server).await == 1).await;
    proxy.black_hole_requests();
    let _ = incr(&mut connection).await;
    assert_eq!(n(&server).await, 1, "the proxy swallowed this one");
}

#[tokio::test]
async fn if_every_second_connection_is_silent_the_others_continue_and_all_recover() {
    let (_server, proxy, mut first) = connected().await;
    let mut second = connect(&proxy.url()).await;
    proxy.silence_every_second();
    assert_eq!(incr(&mut first).await, Ok(1));
    second.set_response_timeout(SILENCE);
    assert_no_answer(&mut second).await;
    assert_eq!(incr(&mut connect(&proxy.url()).await).await, Ok(2));
    assert!(try_connect(&proxy.url(), SILENCE).await.is_err());
    proxy.pass();
    assert_eq!(incr(&mut connect(&proxy.url()).await).await, Ok(3));
}

#[tokio::test]
async fn half_open_connections_are_silent_and_new_ones_are_not() {
    let (server, proxy) = server();
    let mut old = stream_to(&proxy);
    proxy.half_open();
    send(&mut old, "INCR n\r\n");
    assert_silent(&mut old);
    let first = incr(&mut connect(&proxy.url()).await).await;
    assert_eq!(first, Ok(1), "the first to run");
    // The end of the server does not get through either.
    server.restart();
    assert_silent(&mut old);
    proxy.pass();
    assert_cut(&mut old);
}

// --- late messages ---

#[tokio::test]
async fn held_messages_are_delivered_late() {
    let (server, proxy, mut connection) = connected().await;
    proxy.hold_requests();
    let mut held = connection.clone();
    let request = tokio::spawn(async move { incr(&mut held).await });
    tokio::time::sleep(SILENCE).await;
    assert_eq!(n(&server).await, 0, "it has not arrived");
    proxy.hold_replies();
    eventually(LONG, "it arrives", async || n(&server).await == 1).await;
    tokio::time::sleep(SILENCE).await;
    assert!(!request.is_finished(), "its reply is held now");
    proxy.pass();
    let reply = within(LONG, "the reply arrives", request).await;
    assert_eq!(reply.expect("no panic"), Ok(1));

    proxy.hold();
    let mut held = connection.clone();
    let request = tokio::spawn(async move { incr(&mut held).await });
    tokio::time::sleep(SILENCE).await;
    assert_eq!(n(&server).await, 1);
    proxy.pass();
    let reply = within(LONG, "the reply arrives", request).await;
    assert_eq!(reply.expect("no panic"), Ok(2));
    assert_eq!(incr(&mut connection).await, Ok(3));
}

#[tokio::test]
async fn the_requests_of_one_connection_are_held_and_none_is_lost() {
    let (server, proxy, mut held) = connected().await;
    let mut free = connect(&proxy.url()).await;
    assert_eq!(proxy.connections(), 2);
    proxy.hold_requests_of(0);
    let mut connection = held.clone();
    let request = tokio::spawn(async move { incr(&mut connection).await });
    eventually(LONG, "it is held", async || proxy.holds()).await;
    assert_eq!(n(&server).await, 0);
    assert_eq!(incr(&mut free).await, Ok(1), "the other is free");
    proxy.pass();
    let request = within(LONG, "the reply arrives", request).await;
    assert_eq!(request.expect("no panic"), Ok(2));
    assert_eq!(incr(&mut held).await, Ok(3));
}
