//! One server with two addresses, which would vote twice.

use rlock_core::{LockClient, LockError};
use rlock_testkit::{Proxy, RedisServer, SERVICE, Trio, eventually};

use crate::common::{
    LASTING, LONG, assert_soon_free,
    log::{keep_log, logged_of},
    ms, name, resp2,
};

/// Returns the log lines about a server that does not count.
fn not_counted(proxy: &Proxy) -> Vec<String> {
    let mut lines = logged_of(&proxy.address());
    lines.retain(|line| line.contains("is not counted"));
    lines
}

/// Acquires and releases a lock.
async fn serves(client: &LockClient) -> Result<(), LockError> {
    let guard = client.lock("k").wait(ms(500)).acquire().await?;
    guard.release().await
}

async fn assert_soon_serves(client: &LockClient, what: &str) {
    eventually(LONG, what, async || serves(client).await.is_ok()).await;
}

#[tokio::test]
async fn a_server_that_is_named_by_two_addresses_is_refused_and_both_are_said() {
    let server = RedisServer::start();
    let proxies = [Proxy::in_front_of(&server), Proxy::in_front_of(&server)];
    let [one, other] = proxies.each_ref().map(Proxy::url);
    let by_name = format!("redis://localhost:{}/", server.port());
    for urls in [
        [server.url(), by_name],
        [server.url(), server.unix_url()],
        [one.clone(), other.clone()],
        [resp2(&one), other],
        [resp2(&server.url()), resp2(&one)],
    ] {
        let error = LockClient::quorum(&urls).await.expect_err("it is one");
        let LockError::InvalidOption { option, value, .. } = &error else {
            panic!("{error:?}");
        };
        assert_eq!(*option, "urls");
        for url in &urls {
            let (_, address) = url.split_once("://").expect("a scheme");
            let address = address.split(['?']).next().expect("something");
            let address = format!("`{}`", address.trim_end_matches('/'));
            assert!(value.contains(&address), "{error}");
        }
        assert!(error.to_string().contains("same server"), "{error}");
    }
}

#[tokio::test]
async fn a_server_that_is_found_to_be_another_one_later_is_not_counted_and_that_is_said_once() {
    keep_log();
    let [one, second, third] = [0; 3].map(|_| RedisServer::start());
    let proxy = Proxy::in_front_of(&third);
    let urls = [one.url(), second.url(), proxy.url()];
    let client = LockClient::quorum(urls).await.expect("all servers are up");
    serves(&client).await.expect("free");
    let held = client.lock("held").lease(LASTING).acquire().await;
    let held = held.expect("free");
    eventually(LONG, "all have it", async || {
        third.exists(&name("held")).await
    })
    .await;
    proxy.lead_to(&one);
    proxy.reset();
    eventually(LONG, "the log names it", async || {
        !not_counted(&proxy).is_empty()
    })
    .await;
    serves(&client).await.expect("two are enough");
    tokio::time::sleep(ms(1500)).await;
    assert_eq!(not_counted(&proxy).len(), 1, "{:?}", not_counted(&proxy));
    let line = not_counted(&proxy).concat();
    assert!(line.contains("ERROR"), "{line}");
    let (address, other) = (proxy.address(), one.address());
    let why = format!("{address} leads to the same server as {other}");
    assert!(line.contains(&why), "{line}");
    held.release().await.expect("held");
    second.kill();
    let error = serves(&client).await.expect_err("one has two votes");
    let text = error.to_string();
    assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    assert!(text.contains("1 of 3 servers replied"), "{text}");
    proxy.lead_to(&third);
    proxy.reset();
    assert_soon_serves(&client, "it is counted where it is another").await;
    // Pending releases of the server are done.
    assert_soon_free(&third, "held").await;
}

#[tokio::test]
async fn addresses_that_change_places_are_counted_where_they_lead_then() {
    let [one, other, third] = [0; 3].map(|_| RedisServer::start());
    let proxies = [Proxy::in_front_of(&one), Proxy::in_front_of(&other)];
    let urls = [proxies[0].url(), proxies[1].url(), third.url()];
    let client = LockClient::quorum(urls).await.expect("all servers are up");
    for round in 0..3 {
        let (first, second) = if round % 2 == 0 {
            (&other, &one)
        } else {
            (&one, &other)
        };
        proxies[0].lead_to(first);
        proxies[1].lead_to(second);
        for proxy in &proxies {
            proxy.reset();
        }
        third.pause();
        assert_soon_serves(&client, "both are counted").await;
        third.resume();
    }
}

#[tokio::test]
async fn a_restarted_server_and_a_promoted_server_are_counted() {
    let trio = Trio::start().await;
    let [one, other] = [0; 2].map(|_| RedisServer::start());
    let urls = [trio.url(), one.url(), other.url()];
    let client = LockClient::quorum(urls).await.expect("all servers are up");
    trio.replica.catch_up_with(&trio.master).await;
    trio.master.kill();
    trio.failed_over().await;
    one.kill();
    assert_soon_serves(&client, "the promoted one is counted").await;
    one.restart();
    other.kill();
    assert_soon_serves(&client, "the one that runs anew is counted").await;
}

#[tokio::test]
async fn two_services_with_the_same_master_are_refused() {
    let trio = Trio::start().await;
    let url = |which: usize| {
        let address = trio.sentinels[which].address();
        format!("redis-sentinel://{address}/{SERVICE}")
    };
    let error = LockClient::quorum([url(0), url(1)]).await;
    let error = error.expect_err("they share a master");
    assert!(
        matches!(error, LockError::InvalidOption { .. }),
        "{error:?}"
    );
    for sentinel in &trio.sentinels[..2] {
        assert!(error.to_string().contains(&sentinel.address()), "{error}");
    }
}
