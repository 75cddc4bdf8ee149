//! Several keys of different masters: a master that fails during the acquire, and the order of the
//! requests.

use std::time::Duration;

use rlock_core::{LockClient, LockError, distributed_lock};
use rlock_testkit::{RedisCluster, RedisServer, eventually, within};

use super::{assert_soon_clear, assert_soon_free, shared};
use crate::common::{LONG, connect, fence, name};

/// The lease is longer than the test waits for a release.
#[distributed_lock(key = ["<a>", "<b>"], lease = "180s", wait = "0s", client = client)]
async fn both(client: &LockClient, a: &str, b: &str) -> Result<(), LockError> {
    tokio::task::yield_now().await;
    Ok(())
}

/// Starts a cluster whose second master has no replica, with a client and keys of the first two
/// masters. The first master's lock is acquired first.
async fn two_masters(response_timeout: Duration) -> (RedisCluster, LockClient, [String; 2]) {
    let user = RedisServer::builder().acl_user("locker", "on >secret ~* &* +@all");
    let cluster = RedisCluster::of(&user).await;
    cluster
        .replica_of(1)
        .config_set("cluster-replica-no-failover", "yes")
        .await;
    let url = cluster.url();
    let url = url.replace("redis-cluster://", "redis-cluster://locker:secret@");
    let client = LockClient::builder().response_timeout(response_timeout);
    let client = client.connect(&url).await.expect("it is there");
    let keys = [cluster.key_at(0, "k").await, cluster.key_at(1, "k").await];
    both(&client, &keys[0], &keys[1]).await.expect("free");
    (cluster, client, keys)
}

/// Returns the fence of a lock, which counts its grants.
async fn last_token(server: &RedisServer, key: &str) -> u64 {
    let fence = fence(key);
    server.command(&["GET", &fence]).await
}

#[tokio::test]
async fn a_lock_is_released_when_the_master_of_the_next_one_fails() {
    let (cluster, client, [first, second]) = two_masters(Duration::from_secs(10)).await;
    let (one, other) = (cluster.node(0), cluster.node(1));
    for dies in [false, true] {
        let before = last_token(one, &first).await;
        if dies {
            other.kill();
        } else {
            other.set_user("locker", "-evalsha").await;
        }
        let error = both(&client, &first, &second).await;
        let error = error.expect_err("one of them cannot be had");
        let is_right = match error {
            LockError::Refused { .. } => !dies,
            LockError::Unavailable { .. } => dies,
            _ => false,
        };
        assert!(is_right, "dies {dies}: {error:?}");
        let after = last_token(one, &first).await;
        assert!(after > before, "dies {dies}: the first was granted");
        assert_soon_free(&cluster, &first).await;
        if !dies {
            other.set_user("locker", "+evalsha").await;
        }
        for key in [&first, &second] {
            assert_soon_clear(&cluster, key).await;
        }
    }
    // While a call waits for the failed master, other calls get the lock at the first one.
    let before = last_token(one, &first).await;
    let waits = client.lock_all([first.clone(), second]).wait(LONG);
    let waits = tokio::spawn(async move { waits.acquire().await });
    eventually(LONG, "the first was granted", async || {
        last_token(one, &first).await > before
    })
    .await;
    let other = client.lock(first.clone()).shared().wait(LONG);
    drop(other.acquire().await.expect("its turn"));
    waits.abort();
}

#[tokio::test]
async fn a_call_that_is_cancelled_between_two_masters_leaves_nothing_at_either() {
    let (cluster, client, [first, second]) = two_masters(LONG).await;
    let (one, other) = (cluster.node(0), cluster.node(1));
    other.pause();
    let call = tokio::spawn({
        let (client, first, second) = (client.clone(), first.clone(), second.clone());
        async move { both(&client, &first, &second).await }
    });
    eventually(LONG, "the first is taken", async || {
        one.exists(&name(&first)).await
    })
    .await;
    call.abort();
    assert!(call.await.expect_err("aborted").is_cancelled());
    eventually(LONG, "the first is released", async || {
        !one.exists(&name(&first)).await
    })
    .await;
    // The node now executes the requests that it received during its pause.
    other.resume();
    cluster.settled().await;
    for key in [&first, &second] {
        assert_soon_clear(&cluster, key).await;
    }
}

#[distributed_lock(key = ["a{<tag>}", "<b>", "c{<tag>}"], wait = "60s", client = client)]
async fn around(client: &LockClient, tag: &str, b: &str) -> Result<(), LockError> {
    tokio::task::yield_now().await;
    Ok(())
}

#[distributed_lock(key = ["<b>", "c{<tag>}"], wait = "60s", client = client)]
async fn upwards(client: &LockClient, tag: &str, b: &str) -> Result<(), LockError> {
    tokio::task::yield_now().await;
    Ok(())
}

/// With different orders, two calls for the same locks could block each other again and again.
#[tokio::test]
async fn slots_are_asked_in_the_same_order_whatever_the_names_of_the_keys() {
    let cluster = shared().await;
    let client = connect(&cluster.url()).await;
    let tag = cluster.key_at(0, "tag").await;
    let between = cluster.key_at(0, "b").await;
    let slots = [
        cluster.slot_of(&format!("{{{tag}}}")).await,
        cluster.slot_of(&format!("{{{between}}}")).await,
    ];
    assert_ne!(slots[0], slots[1], "choose another key");
    let mut watch = cluster.node(0).watch_commands().await;
    let mut orders = Vec::new();
    for is_around in [true, false] {
        let done = async {
            if is_around {
                around(&client, &tag, &between).await
            } else {
                upwards(&client, &tag, &between).await
            }
        };
        let done = within(LONG, "they are free", done).await;
        done.expect("its turn");
        let is_of = |words: &[String], tag: &str| {
            let tag = format!("{{{tag}}}");
            words.iter().any(|word| word.contains(&tag))
        };
        // The first two requests acquire the locks, one for each slot. The releases follow.
        let order: Vec<bool> = watch
            .seen()
            .await
            .iter()
            .filter(|command| command.is("EVALSHA"))
            .map(|command| [&tag, &between].map(|one| is_of(&command.words, one)))
            .filter(|which| which.contains(&true))
            .map(|[is_tag, _]| is_tag)
            .take(2)
            .collect();
        assert_ne!(order[0], order[1], "a request for each slot");
        orders.push(order[0]);
        watch.clear().await;
    }
    assert_eq!(orders, [slots[0] < slots[1]; 2], "{slots:?}");
}
