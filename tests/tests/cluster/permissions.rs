//! What a client may do at the nodes of a cluster, beyond what it may do at one server:
//! `docs/security.md` has the list.

use std::collections::{BTreeSet, HashMap};

use rlock_core::LockClient;
use rlock_tests::{MASTERS, RedisCluster, RedisServer, within};

use crate::{
    assert_soon_in_line,
    common::{LASTING, LONG, acquiring, connect, ms, name},
    keys,
    messages::has_shards,
};

const OF_A_SERVER: &str = "~lock:* +evalsha +script|load +get +hdel +hexists +hget +hset +incrby +pexpire \
    +pttl +set +time &lock:* +publish +subscribe +zadd +zpopmin +zrange +zrem +zscore +client|id \
    +client|tracking +exists +incr +hgetall +info";
const OF_A_CLUSTER: &str = "+cluster|slots +cluster|info +cluster|myid +asking";
const OF_MESSAGES: &str = "+spublish +ssubscribe +sunsubscribe";

async fn cluster() -> RedisCluster {
    let rules = format!("on >secret resetchannels {OF_A_SERVER} {OF_A_CLUSTER}");
    RedisCluster::of(&RedisServer::builder().acl_user("locker", &rules)).await
}

async fn locker(cluster: &RedisCluster) -> LockClient {
    let url = cluster.url();
    connect(&url.replace("redis-cluster://", "redis-cluster://locker:secret@")).await
}

/// What was refused at any node, but for what only tells who connects.
async fn refused(cluster: &RedisCluster) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for n in 0..2 * MASTERS {
        let log: Vec<HashMap<String, redis::Value>> =
            cluster.node(n).command(&["ACL", "LOG"]).await;
        for entry in log {
            if let redis::Value::BulkString(object) = &entry["object"] {
                all.insert(String::from_utf8_lossy(object).into_owned());
            }
        }
    }
    all.retain(|object| !["client", "client|setinfo"].contains(&object.as_str()));
    all
}

/// Locks at each master are taken, entered, handed over and given back; that of the first moves meanwhile.
async fn use_locks(cluster: &RedisCluster) {
    let (one, other) = (locker(cluster).await, locker(cluster).await);
    for key in keys(cluster, "k").await {
        for _ in 0..2 {
            let lock = one.lock(&key).lease(LASTING).wait(LONG);
            let guard = lock.acquire().await.expect("free");
            let nested = guard.scope(lock.acquire()).await.expect("enters");
            nested.release().await.expect("held");
            let next = acquiring(other.lock(&key).lease(LASTING).wait(LONG));
            assert_soon_in_line(cluster, &key, 1).await;
            guard.release().await.expect("held");
            // By its timer it would ask again after five.
            let next = within(ms(4000), "its turn", next).await.expect("no panic");
            next.expect("its turn").release().await.expect("held");
        }
    }
    let key = cluster.key_at(0, "moves").await;
    let slot = cluster.slot_of(&name(&key)).await;
    let lock = one.lock(&key).lease(ms(1500)).wait(LONG);
    let guard = lock.acquire().await.expect("free");
    cluster.begin_to_move(slot, 0, 1).await;
    cluster.move_key(&name(&key), 0, 1).await;
    tokio::time::sleep(ms(3000)).await;
    assert!(guard.is_valid(), "renewed where it is now");
    cluster.end_to_move(slot, 0, 1).await;
    guard.release().await.expect("held");
}

#[tokio::test]
async fn the_permissions_of_a_server_and_some_more_are_enough_at_a_cluster() {
    let cluster = cluster().await;
    if has_shards(cluster.node(0)).await {
        for n in 0..2 * MASTERS {
            cluster.node(n).set_user("locker", OF_MESSAGES).await;
        }
    }
    use_locks(&cluster).await;
    assert_eq!(refused(&cluster).await, BTreeSet::new());
}

#[tokio::test]
async fn who_may_not_use_messages_by_slot_is_told_by_others() {
    let cluster = cluster().await;
    use_locks(&cluster).await;
    let refused = refused(&cluster).await;
    let by_slot = ["spublish", "ssubscribe"].map(str::to_owned);
    assert!(refused.is_subset(&by_slot.into()), "{refused:?}");
}
