//! Questions to servers to which the client is not connected yet: they wait for a connection, as an acquire does.

use rlock_core::{LockClient, LockGuard, StoreUrl};
use rlock_testkit::{MASTERS, Proxy, RedisCluster, RedisServer, within};

use crate::common::{LONG, builder, ms};

/// Asks with a client that cannot connect, then lets it connect to these servers, and asserts that each question finds the
/// lock.
async fn assert_patient(asking: LockClient, held: &LockGuard, back: &[&Proxy]) {
    let key = held.key().to_owned();
    let mut asked = Box::pin(async move {
        let (mut clients, mut scan) = (asking.list("*"), asking.list("*").scan(true));
        tokio::join!(
            asking.ping(),
            asking.inspect(&key),
            clients.try_next(),
            scan.try_next()
        )
    });
    // All are asked first. Then one that does not wait has long enough to fail.
    let early = tokio::time::timeout(ms(300), &mut asked).await;
    assert!(early.is_err(), "no server can be reached");
    for proxy in back {
        proxy.pass();
    }
    let (pinged, shown, listed, scanned) = within(LONG, "the servers are back", asked).await;
    pinged.expect("a reply");
    for info in [shown, listed, scanned] {
        let owner = info.expect("a reply").map(|info| info.owner);
        assert_eq!(owner, Some(held.owner()));
    }
}

async fn hold(client: &LockClient) -> LockGuard {
    let lock = client.lock("k").lease(LONG * 4);
    lock.acquire().await.expect("free")
}

#[tokio::test]
async fn a_quorum_is_asked_once_a_majority_is_connected() {
    let servers: Vec<_> = (0..3).map(|_| RedisServer::start()).collect();
    let proxies: Vec<_> = servers.iter().map(Proxy::in_front_of).collect();
    let urls = || proxies.iter().map(Proxy::url);
    let client = builder()
        .connect(StoreUrl::quorum(urls()))
        .await
        .expect("it is up");
    let held = hold(&client).await;
    proxies.iter().for_each(Proxy::refuse);
    let asking = builder()
        .response_timeout(LONG)
        .connect_lazy(StoreUrl::quorum(urls()));
    let asking = asking.expect("valid addresses");
    assert_patient(asking, &held, &[&proxies[0], &proxies[2]]).await;
    held.release().await.expect("held");
}

/// The clients have been asked, and then the connections end.
#[tokio::test]
async fn a_scan_of_a_quorum_goes_on_once_a_majority_is_back() {
    let servers: Vec<_> = (0..3).map(|_| RedisServer::start()).collect();
    let proxies: Vec<_> = servers.iter().map(Proxy::in_front_of).collect();
    let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
    let silent = builder()
        .inspectable(false)
        .connect(StoreUrl::quorum(&urls))
        .await;
    let held = hold(&silent.expect("it is up")).await;
    let asking = builder().response_timeout(LONG);
    let asking = asking
        .connect(StoreUrl::quorum(proxies.iter().map(Proxy::url)))
        .await;
    let asking = asking.expect("it is up");
    let known = asking.lock("known").lease(LONG * 4).acquire().await;
    let known = known.expect("free");
    let mut list = asking.list("*").scan(true);
    let first = list.try_next().await.expect("a reply");
    assert_eq!(first.map(|info| info.key), Some("known".to_owned()));
    for proxy in &proxies {
        proxy.cut_off();
    }
    let scan = tokio::spawn(async move { list.try_next().await });
    // The scan begins when the silent client has not answered for a second.
    tokio::time::sleep(ms(2500)).await;
    assert!(!scan.is_finished(), "no server can be reached");
    proxies[0].pass();
    proxies[2].pass();
    let scanned = within(LONG, "a majority is back", scan).await;
    let info = scanned.expect("no panic").expect("a reply");
    assert_eq!(info.map(|info| info.key), Some("k".to_owned()));
    proxies[1].pass();
    known.release().await.expect("held");
    held.release().await.expect("held");
}

#[tokio::test]
async fn a_cluster_is_asked_once_its_masters_are_connected() {
    let cluster = RedisCluster::of(&RedisServer::builder().behind_proxy()).await;
    let client = builder().connect(&cluster.url()).await.expect("it is up");
    let held = hold(&client).await;
    let proxies: Vec<_> = (0..2 * MASTERS)
        .map(|n| &**cluster.node(n).front())
        .collect();
    for proxy in &proxies {
        proxy.refuse();
    }
    let asking = builder().response_timeout(LONG);
    let asking = asking.connect_lazy(cluster.url()).expect("a valid address");
    assert_patient(asking, &held, &proxies).await;
    held.release().await.expect("held");
}
