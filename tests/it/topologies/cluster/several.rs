//! Several keys, whose locks lie at different masters.

use rlock_core::{LockClient, LockError, distributed_lock};
use rlock_testkit::within;

use super::{assert_soon_clear, assert_soon_queued, client, keys, shared};
use crate::common::{LASTING, LONG, hold, its_turn};

/// The lease is longer than the test waits for a lock.
#[distributed_lock(key = ["<a>", "<b>", "<c>"], lease = "180s", wait = "180s", client = client)]
async fn all_three(client: &LockClient, a: &str, b: &str, c: &str) -> Result<(), LockError> {
    tokio::task::yield_now().await;
    Ok(())
}

#[tokio::test]
async fn a_call_that_waits_for_one_of_several_keys_keeps_no_other() {
    let cluster = shared().await;
    let (one, other) = (client(cluster).await, client(cluster).await);
    let keys = keys(cluster, "waits").await;
    for taken in &keys {
        let held = hold(&other, taken).await;
        let waiting = tokio::spawn({
            let (one, keys) = (one.clone(), keys.clone());
            async move { all_three(&one, &keys[0], &keys[1], &keys[2]).await }
        });
        assert_soon_queued(cluster, taken, 1).await;
        for key in keys.iter().filter(|key| *key != taken) {
            let lock = other.lock(key).lease(LASTING).wait(LONG);
            let free = within(LONG, "it is free", lock.acquire()).await;
            free.expect("free").release().await.expect("held");
        }
        held.release().await.expect("held");
        its_turn(waiting).await;
        for key in &keys {
            assert_soon_clear(cluster, key).await;
        }
    }
}
