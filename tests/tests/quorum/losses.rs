//! Holds that servers lose by themselves.

use futures_util::future::join_all;
use rlock_core::LostCause;

use crate::{
    common::{LASTING, assert_lost, name},
    five::{ALL, SOON, Servers},
};

#[tokio::test]
async fn what_a_minority_loses_is_mended_and_what_a_majority_loses_is_lost() {
    let five = Servers::five();
    let client = five.client().await;
    let lock = client.lock("k").lease(LASTING);
    let guard = lock.acquire().await.expect("free");
    let inner = guard.scope(lock.acquire()).await.expect("enters");
    five.assert_soon_count(&guard, &ALL, 2).await;
    for lost in [[0, 1], [3, 4]] {
        for n in lost {
            five.0[n].del(&name("k")).await;
        }
        five.assert_soon_count(&guard, &ALL, 2).await;
        assert!(guard.is_valid());
    }
    // Fast enough, so that no server is mended in between.
    let lock = name("k");
    let mut connections = Vec::new();
    for server in &five.0[..3] {
        connections.push(server.connection().await);
    }
    let deleted = connections.iter_mut().map(async |connection| {
        let mut delete = redis::cmd("DEL");
        let deleted = delete.arg(&lock).query_async::<u32>(connection).await;
        deleted.expect("an answer")
    });
    assert_eq!(join_all(deleted).await, [1, 1, 1]);
    assert_lost(&guard, SOON, LostCause::Removed).await;
    drop(inner);
}
