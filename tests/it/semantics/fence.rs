//! Which holds have a fence, and in which order.

use std::time::{Duration, SystemTime};

use rlock_core::{LockClient, current, fencing::token_at};

#[tokio::test]
async fn a_guard_and_a_nested_call_have_the_fence_of_their_hold() {
    let client = LockClient::in_memory();
    let lock = client.lock("order:42");
    let guard = lock.acquire().await.expect("free");
    let fence = guard.fence();
    assert_eq!((fence.key(), fence.token()), ("order:42", guard.token()));
    let nested = async { current().expect("inside").fence() };
    let nested = guard.scope(lock.run(nested)).await.expect("enters");
    assert_eq!(nested, fence);
    guard.release().await.expect("held");
    let next = lock.acquire().await.expect("free").fence();
    assert!(next.token() > fence.token());
    assert!(fence.check(Some(next.token().as_i64())).is_err());
}

#[tokio::test]
async fn each_exclusive_lock_has_a_fence_in_ascending_order_of_the_keys() {
    let client = LockClient::in_memory();
    let accounts = client.lock_all(["b", "a"]).and_shared(["config"]);
    let guard = accounts.acquire().await.expect("free");
    let keys: Vec<String> = guard
        .fences()
        .iter()
        .map(|fence| fence.key().to_owned())
        .collect();
    assert_eq!(keys, ["a", "b"]);
    for fence in guard.fences() {
        assert_eq!(guard.token_of(fence.key()), Some(fence.token()));
    }
    guard.release().await.expect("held");
    let one = client.lock("a").and_shared(["config"]).acquire().await;
    assert_eq!(one.expect("free").fence().key(), "a");
}

#[tokio::test]
#[should_panic(expected = "there are 2 exclusive locks, each with a fence of its own")]
async fn several_locks_have_no_single_fence() {
    let guard = LockClient::in_memory().lock_all(["a", "b"]).acquire().await;
    let _ = guard.expect("free").fence();
}

#[tokio::test]
#[should_panic(expected = "a shared lock or a permit has no fence")]
async fn a_shared_lock_has_no_fence() {
    let guard = LockClient::in_memory()
        .lock("config")
        .shared()
        .acquire()
        .await;
    let _ = guard.expect("free").fence();
}

#[tokio::test]
async fn permits_and_downgraded_locks_have_no_fences() {
    let client = LockClient::in_memory();
    let permit = client
        .lock("pool")
        .permits(2)
        .acquire()
        .await
        .expect("free");
    assert!(permit.fences().is_empty());
    let guard = client.lock("config").acquire().await.expect("free");
    guard.downgrade().expect("held");
    assert!(guard.fences().is_empty());
}

/// Pages of the book delete old rows by their tokens.
#[tokio::test]
async fn tokens_count_128_in_a_hundred_microseconds() {
    let minute = Duration::from_secs(60);
    let now = SystemTime::now();
    let guard = LockClient::in_memory().lock("order:42").acquire().await;
    let token = guard.expect("free").fence().token();
    assert!(
        (token_at(now)..token_at(now + minute)).contains(&token),
        "{token}"
    );
    assert_eq!(
        token_at(SystemTime::UNIX_EPOCH + minute).as_u64(),
        76_800_000
    );
    assert_eq!(token_at(SystemTime::UNIX_EPOCH - minute).as_u64(), 1);
}

#[tokio::test]
async fn a_redacted_key_is_in_the_text_of_its_fence_only() {
    let client = LockClient::builder().redact_keys(true).in_memory();
    let guard = client.expect("a client").lock("user:jane").acquire().await;
    let fence = guard.expect("free").fence();
    assert!(fence.to_string().starts_with("user:jane@"));
    let stale = fence.check(None).unwrap_err();
    for text in [
        format!("{fence:?}"),
        stale.to_string(),
        format!("{stale:?}"),
    ] {
        assert!(
            !text.contains("jane") && text.contains("<redacted>"),
            "{text}"
        );
    }
}
