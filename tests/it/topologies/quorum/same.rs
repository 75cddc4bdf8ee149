//! One server with two addresses, which would vote twice.

use rlock_core::{LockClient, LockError, StoreUrl};
use rlock_testkit::{Proxy, RedisServer, SERVICE, Trio, eventually};

use crate::common::{
    LONG, assert_invalid, assert_unavailable, builder, connect,
    log::{keep_log, logged_with},
    ms, resp2,
};

/// Returns the log lines about a server that does not count.
fn not_counted(proxy: &Proxy) -> Vec<String> {
    logged_with(&[&proxy.address(), "is not counted"])
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
        [resp2(&one), other],
    ] {
        let error = builder()
            .connect(StoreUrl::quorum(&urls))
            .await
            .expect_err("it is one");
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
async fn a_server_that_is_found_to_be_another_one_later_is_not_counted_and_that_is_said() {
    keep_log();
    let [one, second, third] = [0; 3].map(|_| RedisServer::start());
    let proxy = Proxy::in_front_of(&third);
    let urls = [one.url(), second.url(), proxy.url()];
    let client = connect(StoreUrl::quorum(urls)).await;
    proxy.lead_to(&one);
    proxy.reset();
    eventually(LONG, "the log names it", async || {
        !not_counted(&proxy).is_empty()
    })
    .await;
    assert_soon_serves(&client, "two are enough").await;
    let line = not_counted(&proxy).concat();
    assert!(line.contains("ERROR"), "{line}");
    let (address, other) = (proxy.address(), one.address());
    let why = format!("{address} leads to the same server as {other}");
    assert!(line.contains(&why), "{line}");
    second.kill();
    eventually(LONG, "one of three replies", async || {
        let said = assert_unavailable(serves(&client).await, "one has two votes");
        said.contains("1 of 3 servers replied")
    })
    .await;
    proxy.lead_to(&third);
    proxy.reset();
    assert_soon_serves(&client, "it is counted where it is another").await;
}

#[tokio::test]
async fn addresses_that_change_places_are_counted_where_they_lead_then() {
    let [one, other, third] = [0; 3].map(|_| RedisServer::start());
    let proxies = [Proxy::in_front_of(&one), Proxy::in_front_of(&other)];
    let urls = [proxies[0].url(), proxies[1].url(), third.url()];
    let client = connect(StoreUrl::quorum(urls)).await;
    proxies[0].lead_to(&other);
    proxies[1].lead_to(&one);
    proxies.iter().for_each(Proxy::reset);
    third.pause();
    assert_soon_serves(&client, "both are counted").await;
}

/// Two Sentinels that name the same master are not two servers.
#[tokio::test]
async fn a_restarted_server_and_a_promoted_server_are_counted() {
    let trio = Trio::start().await;
    let sentinels = &trio.sentinels[..2];
    let urls = sentinels.iter().map(|sentinel| {
        let address = sentinel.address();
        format!("redis-sentinel://{address}/{SERVICE}")
    });
    let outcome = builder().connect(StoreUrl::quorum(urls)).await;
    let said = assert_invalid(outcome, "they share a master");
    for sentinel in sentinels {
        assert!(said.contains(&sentinel.address()), "{said}");
    }
    let [one, other] = [0; 2].map(|_| RedisServer::start());
    let urls = [trio.url(), one.url(), other.url()];
    let client = connect(StoreUrl::quorum(urls)).await;
    trio.lose_master().await;
    trio.failed_over().await;
    one.kill();
    assert_soon_serves(&client, "the promoted one is counted").await;
    one.restart();
    other.kill();
    assert_soon_serves(&client, "the restarted one is counted").await;
}
