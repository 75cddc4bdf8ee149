//! The URLs of stores: which server each names, and with which login.

use std::time::Duration;

use rlock_core::{LockClient, LockError};
use rlock_testkit::{RedisServer, RedisServerBuilder, eventually};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::common::{LONG, assert_refused, connect, hold};

/// Returns a server with a user who may have any password, even an empty one.
fn with_alice() -> RedisServerBuilder {
    RedisServer::builder().acl_user("alice", "on nopass ~* &* +@all")
}

/// Returns the users of all connections, except those of the fixture and of Sentinels.
async fn users(server: &RedisServer) -> Vec<String> {
    let list: String = server.command(&["CLIENT", "LIST"]).await;
    let clients = list.lines().filter(|line| !line.contains("name=sentinel-"));
    let fields = clients.flat_map(str::split_whitespace);
    let users = fields.filter_map(|field| field.strip_prefix("user="));
    let mut users: Vec<String> = users.map(str::to_owned).collect();
    users.retain(|user| user != "fixture");
    users.sort();
    users.dedup();
    users
}

async fn assert_all_are(user: &str, server: &RedisServer, client: &LockClient) {
    let guard = hold(client, "k").await;
    // A connection belongs to the default user until it has logged in.
    eventually(LONG, user, async || users(server).await == [user]).await;
    guard.release().await.expect("held");
}

#[tokio::test]
async fn a_user_without_a_password_is_that_user_to_one_server() {
    let server = with_alice().start();
    let (address, socket) = (server.address(), server.unix_url());
    for url in [
        format!("redis://alice@{address}/"),
        format!("valkey://alice:@{address}/3?protocol=resp2"),
        format!("{socket}?user=alice"),
        format!("redis+{socket}?user=alice&pass=&protocol=resp2"),
        format!("valkey+{socket}?user=alice"),
    ] {
        let client = connect(&url).await;
        assert_all_are("alice", &server, &client).await;
        client.shutdown().await.expect("it replies");
        drop(client);
        eventually(LONG, "its connections end", async || {
            users(&server).await.is_empty()
        })
        .await;
    }
    let client = connect(&server.url()).await;
    assert_all_are("default", &server, &client).await;
}

#[tokio::test]
async fn a_user_without_a_password_is_that_user_to_sentinels_and_to_their_master() {
    let master = with_alice().start();
    let sentinel = RedisServer::builder()
        .acl_user("bob", "on nopass &* +@all")
        // The Sentinel closes the connection of each look-up, so its log shows the refused users.
        .acl_user("default", "off")
        .sentinel("orders", &master, 1, LONG)
        .start();
    let address = sentinel.address();
    let url = |options: &str| {
        format!("redis-sentinel://alice@{address}/orders?sentinel_user=bob{options}")
    };
    for options in ["", "&sentinel_password=&protocol=resp2"] {
        let client = connect(&url(options)).await;
        assert_all_are("alice", &master, &client).await;
    }
    refusal(&format!("redis-sentinel://alice@{address}/orders")).await;
}

/// Returns the error of a client that its servers refuse.
async fn refusal(url: &str) -> String {
    let shown = assert_refused(LockClient::connect(url).await, url);
    assert!(!shown.contains("s3cret"), "{shown}");
    shown
}

#[tokio::test]
async fn a_server_that_rejects_the_login_names_its_place_in_the_url() {
    const IN_HOST: &str = "`user:password@host`";
    const OF_SENTINEL: &str = "`sentinel_user=…&sentinel_password=…`";
    const IN_OPTIONS: &str = "`unix:///path?user=…&pass=…`";
    let protected = || RedisServer::builder().password("right");
    let server = protected()
        .acl_user("alice", "on >right ~* &* +@all")
        .start();
    let node = protected().cluster_node(Duration::from_secs(5)).start();
    let sentinel = protected()
        .config("sentinel", "sentinel-pass right")
        .sentinel("orders", &server, 1, LONG)
        .config("sentinel", "auth-pass orders right")
        .start();
    let (address, socket) = (server.address(), server.unix_url());
    let service = |login: &str, password: &str| {
        let address = sentinel.address();
        format!("redis-sentinel://{login}{address}/orders?sentinel_password={password}")
    };
    let socket = socket.split('?').next().expect("a path");
    for (url, place) in [
        (format!("redis://{address}/"), IN_HOST),
        (
            format!("redis://:s3cret@{address}/?protocol=resp2"),
            IN_HOST,
        ),
        (format!("redis://alice@{address}/"), IN_HOST),
        (format!("redis://alice:s3cret@{address}/"), IN_HOST),
        (socket.to_owned(), IN_OPTIONS),
        (format!("{socket}?user=alice&pass=s3cret"), IN_OPTIONS),
        (format!("redis-cluster://{}", node.address()), IN_HOST),
        (service(":right@", "s3cret"), OF_SENTINEL),
        (service("", "right"), IN_HOST),
    ] {
        let shown = refusal(&url).await;
        assert!(shown.contains(place) && !shown.contains(".;"), "{shown}");
    }
}

#[tokio::test]
async fn a_url_that_does_not_fit_its_server_is_refused_with_the_way_out() {
    let server = RedisServer::start();
    let shown = refusal(&format!("{}99", server.url())).await;
    let reason = "database 99 of the URL: ERR DB index is out of range";
    assert!(shown.ends_with(reason), "{shown}");

    let shown = refusal(&format!("redis-sentinel://{}/orders", server.address())).await;
    let way_out = "; this server is not a Sentinel: connect to it by `redis://host:port`";
    assert!(shown.ends_with(way_out), "{shown}");
}

#[tokio::test]
async fn a_server_of_another_protocol_is_reported_in_one_line() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let _ = stream.read(&mut [0; 4096]).await;
            let reply = b"HTTP/1.1 400 Bad Request\r\n\r\n<!DOCTYPE HTML>\r\n";
            let _ = stream.write_all(reply).await;
        }
    });
    for url in [
        format!("redis://{address}/"),
        format!("redis-sentinel://{address}/orders"),
        format!("redis-cluster://{address}"),
    ] {
        let patient = LockClient::builder().connect_timeout(LONG);
        let patient = patient.response_timeout(LONG);
        let error = patient.connect(&url).await.expect_err(&url);
        assert!(error.is_outage(), "{error:?}");
        let shown = format!("{error:#}");
        let reason = ": the server does not speak the Redis protocol on this port";
        assert!(shown.ends_with(reason), "{shown}");
    }
}

#[tokio::test]
async fn an_error_for_a_url_shows_what_was_expected() {
    for (url, shown, hint) in [
        ("valkey://h/x", "`valkey://h/…`", "expected `valkey://[user"),
        (
            "memory://orders",
            "`memory://orders`",
            "expected `memory:[name]`",
        ),
        ("memory:a?protocol=resp2", "`memory:…`", "nor options"),
        ("http://h/", "`http:…`", "expected one of `redis://`, "),
        ("REDIS://h/", "`REDIS:…`", "in lower case"),
        ("", "`…`", "expected"),
    ] {
        let error = LockClient::connect(url).await.expect_err(url);
        assert!(
            matches!(error, LockError::InvalidOption { option: "url", .. }),
            "{error:?}"
        );
        let error = error.to_string();
        assert!(error.contains(shown) && error.contains(hint), "{error}");
    }
}
