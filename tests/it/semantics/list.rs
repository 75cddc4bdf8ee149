//! Lists of all locks, as streams.

use futures_util::{StreamExt, TryStreamExt};
use rlock_core::{LockClient, LockError, inspect::LockInfo};

use crate::common::assert_invalid;

#[tokio::test]
async fn a_list_is_a_stream_that_ends_after_its_last_lock() {
    let client = LockClient::in_memory();
    let held = client.lock_all(["a", "b", "c"]).acquire().await;
    let held = held.expect("free");
    let mut list = client.list("*");
    let locks: Vec<LockInfo> = list.by_ref().try_collect().await.expect("a reply");
    let mut keys: Vec<_> = locks.iter().map(|info| info.key.as_str()).collect();
    keys.sort_unstable();
    assert!(held.keys().eq(keys));
    assert!(list.next().await.is_none());
    assert_eq!(list.missed(), 0);
}

#[tokio::test]
async fn a_list_ends_at_its_first_error() {
    let client = LockClient::in_memory();
    let held = client.lock("k").acquire().await.expect("free");
    let mut invalid = client.list("*".repeat(3_000));
    assert_invalid(invalid.next().await.expect("an error"), "too long");
    assert!(invalid.next().await.is_none());

    let mut closed = client.list("*");
    held.release().await.expect("held");
    client.shutdown().await.expect("in good order");
    let error = closed.try_next().await.expect_err("closed");
    assert!(matches!(error, LockError::Closed { .. }), "{error:?}");
    assert!(closed.try_next().await.expect("ended").is_none());
}
