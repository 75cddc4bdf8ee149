//! The parts of a URL: the servers, and the client's login.

use std::time::Duration;

use rlock_core::{LockClient, LockError};
use rlock_testkit::{RedisServer, RedisServerBuilder, port};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::common::{LONG, hold, ms};

/// A user that accepts any password, even an empty one.
const RULES: &str = "on nopass ~* &* +@all";

fn with_alice() -> RedisServerBuilder {
    RedisServer::builder().acl_user("alice", RULES)
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
    rlock_testkit::eventually(LONG, user, async || users(server).await == [user]).await;
    guard.release().await.expect("held");
}

#[tokio::test]
async fn a_user_without_a_password_is_that_user_to_one_server() {
    let server = with_alice().start();
    let (address, socket) = (server.address(), server.unix_url());
    for url in [
        format!("redis://alice@{address}/"),
        format!("redis://alice:@{address}/"),
        format!("redis://alice@{address}/?protocol=resp2"),
        format!("redis://alice@{address}/3"),
        format!("valkey://alice@{address}/"),
        format!("{socket}?user=alice"),
        format!("{socket}?user=alice&pass="),
        format!("{socket}?user=alice&protocol=resp2"),
    ] {
        let client = LockClient::connect(&url).await.expect(&url);
        assert_all_are("alice", &server, &client).await;
        client.shutdown().await.expect("it replies");
        drop(client);
        rlock_testkit::eventually(LONG, "its connections end", async || {
            users(&server).await.is_empty()
        })
        .await;
    }
    let client = LockClient::connect(&server.url()).await.expect("open");
    assert_all_are("default", &server, &client).await;
}

#[tokio::test]
async fn a_user_without_a_password_is_that_user_by_tls() {
    let server = with_alice().tls().start();
    let url = format!("rediss://alice@127.0.0.1:{}/", server.tls_port());
    let client = LockClient::builder().tls_ca(server.ca_pem()).connect(&url);
    let client = client.await.expect("trusted");
    assert_all_are("alice", &server, &client).await;
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
    for options in ["", "&sentinel_password=", "&protocol=resp2"] {
        let client = LockClient::connect(&url(options)).await.expect(options);
        assert_all_are("alice", &master, &client).await;
    }
    let nobody = format!("redis-sentinel://alice@{address}/orders");
    let error = LockClient::connect(&nobody).await.expect_err("refused");
    assert!(matches!(error, LockError::Store { .. }), "{error}");
}

#[tokio::test]
async fn a_user_without_a_password_is_that_user_to_all_nodes_of_a_cluster() {
    let node = with_alice().cluster_node(Duration::from_secs(5)).start();
    node.serve_slots(0..=16383).await;
    let url = format!("redis-cluster://alice@{}", node.address());
    let client = LockClient::connect(&url).await.expect("up");
    assert_all_are("alice", &node, &client).await;
}

#[tokio::test]
async fn a_user_without_a_password_is_that_user_to_all_servers_of_a_quorum() {
    let servers = [(); 3].map(|()| with_alice().start());
    let urls = servers
        .each_ref()
        .map(|server| format!("redis://alice@{}/", server.address()));
    let client = LockClient::quorum(urls).await.expect("up");
    for server in &servers {
        assert_all_are("alice", server, &client).await;
    }
}

/// Returns the error of a client that its servers refuse.
async fn refusal(url: &str) -> String {
    let error = LockClient::connect(url).await.expect_err(url);
    assert!(matches!(error, LockError::Store { .. }), "{url}: {error}");
    let shown = error.to_string();
    assert!(!shown.contains("s3cret"), "{shown}");
    shown
}

#[tokio::test]
async fn a_server_that_rejects_the_login_names_its_place_in_the_url() {
    let server = RedisServer::builder()
        .password("right")
        .acl_user("alice", "on >right ~* &* +@all")
        .start();
    let (address, socket) = (server.address(), server.unix_url());
    let socket = socket.split('?').next().expect("a path");
    for query in ["", "?protocol=resp2"] {
        for login in ["", ":s3cret@", "alice@", "alice:s3cret@"] {
            let shown = refusal(&format!("redis://{login}{address}/{query}")).await;
            assert!(shown.contains("`user:password@host`"), "{shown}");
            assert!(!shown.contains(".;"), "{shown}");
        }
    }
    for query in ["", "?user=alice", "?user=alice&pass=s3cret"] {
        let shown = refusal(&format!("{socket}{query}")).await;
        assert!(shown.contains("`unix:///path?user=…&pass=…`"), "{shown}");
    }
}

#[tokio::test]
async fn a_sentinel_that_rejects_the_login_names_its_place_in_the_url() {
    let master = RedisServer::builder().password("right").start();
    let sentinel = RedisServer::builder()
        .password("right")
        .config("sentinel", "sentinel-pass right")
        .sentinel("orders", &master, 1, LONG)
        .config("sentinel", "auth-pass orders right")
        .start();
    let address = sentinel.address();
    for query in ["", "?sentinel_password=s3cret"] {
        let url = format!("redis-sentinel://:right@{address}/orders{query}");
        let shown = refusal(&url).await;
        assert!(
            shown.contains("`sentinel_user=…&sentinel_password=…`"),
            "{shown}"
        );
    }
    let url = format!("redis-sentinel://{address}/orders?sentinel_password=right");
    let shown = refusal(&url).await;
    assert!(shown.contains("`user:password@host`"), "{shown}");
}

#[tokio::test]
async fn a_cluster_that_rejects_the_login_names_its_place_in_the_url() {
    let node = RedisServer::builder()
        .password("right")
        .cluster_node(Duration::from_secs(5))
        .start();
    let shown = refusal(&format!("redis-cluster://{}", node.address())).await;
    assert!(shown.contains("`user:password@host`"), "{shown}");
}

#[tokio::test]
async fn a_database_that_is_not_there_is_named() {
    let server = RedisServer::start();
    let shown = refusal(&format!("{}99", server.url())).await;
    assert!(
        shown.ends_with("database 99 of the URL: ERR DB index is out of range"),
        "{shown}"
    );
}

#[tokio::test]
async fn a_server_that_is_no_sentinel_is_reported_with_the_way_out() {
    let server = RedisServer::start();
    let shown = refusal(&format!("redis-sentinel://{}/orders", server.address())).await;
    let way_out = "; this server is no Sentinel: connect to it by `redis://host:port`";
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
        let error = LockClient::connect(&url).await.expect_err(&url);
        assert!(error.is_outage(), "{error:?}");
        let shown = error.to_string();
        let reason = ": the server does not speak the Redis protocol on this port";
        assert!(shown.ends_with(reason), "{shown}");
    }
}

#[tokio::test]
async fn a_server_without_tls_is_suspected_where_tls_is_asked_for() {
    let server = RedisServer::start();
    let url = server.url().replace("redis://", "rediss://");
    let builder = LockClient::builder().connect_timeout(ms(300));
    let error = builder.connect(&url).await.expect_err("no TLS");
    assert!(error.is_outage(), "{error:?}");
    let shown = error.to_string();
    let reason = ": no connection within 300ms; the server may not speak TLS on this port";
    assert!(shown.ends_with(reason), "{shown}");
}

#[tokio::test]
async fn an_attempt_that_fails_by_itself_says_after_what_time_and_where() {
    let port = port::number(&port::listen());
    for (url, host) in [
        (format!("redis://[::1]:{port}/"), format!("[::1]:{port}")),
        (
            format!("redis-cluster://[::1]:{port}"),
            format!("the cluster of [::1]:{port}"),
        ),
        (
            format!("redis://localhost:{port}/"),
            format!("localhost:{port}"),
        ),
    ] {
        let error = LockClient::connect(&url).await.expect_err(&url);
        assert!(error.is_outage(), "{error:?}");
        let shown = error.to_string();
        let begin = format!("could not connect to {host} after ");
        assert!(shown.starts_with(&begin), "{shown}");
    }
}

#[tokio::test]
async fn an_error_for_a_url_shows_its_scheme_and_its_hosts() {
    for (url, shown, hint) in [
        (
            "redis://app:s3cret@cache.internal:99999/3",
            "`redis://…@cache.internal:99999/…`",
            "did not parse; expected `redis://[user:password@]host",
        ),
        (
            "redis://h:6379/orders",
            "`redis://h:6379/…`",
            "database number",
        ),
        (
            "redis://h/?db=3",
            "`redis://h/…`",
            "is not known; known are `protocol`",
        ),
        ("valkey://h/x", "`valkey://h/…`", "expected `valkey://[user"),
        (
            "unix:///run/redis.sock?password=s3cret",
            "`unix:…`",
            "is not known; known are `protocol`, `db`, `user`, `pass`",
        ),
        (
            "unix:///run/redis.sock?db=x",
            "`unix:…`",
            "expected `unix:///path/to/socket",
        ),
        (
            "unix://redis.sock",
            "`unix://redis.sock`",
            "expected `unix:///path/to/socket",
        ),
        (
            "redis-sentinel://app:s3cret@one,two:26380",
            "`redis-sentinel://…@one,two:26380`",
            "names no service",
        ),
        (
            "redis-cluster://one,two/1",
            "`redis-cluster://one,two/…`",
            "one database",
        ),
        (
            "memory://orders",
            "`memory://orders`",
            "expected `memory:[name]`",
        ),
        ("memory:a?protocol=resp2", "`memory:…`", "nor options"),
        ("memory:a#b", "`memory:…`", "nor options"),
        ("redis://h/-1", "`redis://h/…`", "`-1` is no number"),
        ("http://h/", "`http:…`", "expected one of `redis://`, "),
        ("h:6379", "`…`", "expected one of `redis://`, "),
        ("REDIS://h/", "`REDIS:…`", "in lower case"),
    ] {
        let error = LockClient::connect(url).await.expect_err(url).to_string();
        assert!(error.contains(shown) && error.contains(hint), "{error}");
        assert!(!error.contains("s3cret"), "{error}");
    }
}

#[tokio::test]
async fn all_schemes_that_are_documented_lead_to_the_server() {
    let server = RedisServer::start();
    let (address, socket) = (server.address(), server.unix_url());
    let path = socket.strip_prefix("unix://").expect("a path");
    for url in [
        format!("redis://{address}/"),
        format!("valkey://{address}/"),
        format!("unix://{path}"),
        format!("redis+unix://{path}"),
        format!("valkey+unix://{path}"),
    ] {
        let client = LockClient::connect(&url).await.expect(&url);
        hold(&client, "k").await.release().await.expect("held");
    }
}

#[tokio::test]
async fn a_quorum_that_is_not_reached_says_of_each_server_how_it_is() {
    let server = RedisServer::start();
    let urls = [
        "redis://127.0.0.1:1/".to_owned(),
        "redis://127.0.0.1:2/".to_owned(),
        server.url(),
    ];
    // On a busy machine the third reply may be too late to be counted.
    let counts = "1 of 3 servers replied, 2 are needed";
    rlock_testkit::eventually(LONG, counts, async || {
        let error = LockClient::quorum(urls.clone())
            .await
            .expect_err("one is no majority");
        assert!(error.is_outage(), "{error:?}");
        let shown = error.to_string();
        let counted = shown.contains(counts);
        assert!(
            counted || shown.contains("0 of 3 servers replied, 2 are needed"),
            "{shown}"
        );
        assert_ne!(counted, shown.contains(&server.address()), "{shown}");
        counted
    })
    .await;
}
