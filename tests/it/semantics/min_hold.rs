//! What keeps a lock for its `min_hold`, and what releases it at once.

use std::{panic::AssertUnwindSafe, thread};

use futures_util::FutureExt;
use rlock_core::{ErrorKind, Lock, LockClient, LockError, distributed_lock, testing};
use rlock_testkit::eventually;

use crate::common::{LASTING, LONG, running};

fn job(client: &LockClient) -> Lock {
    client.lock("job").lease(LASTING).min_hold(LONG * 60)
}

/// Asserts that the lock is kept, or is free, once its last holder has left. Frees it.
async fn assert_kept(client: &LockClient, is_kept: bool, what: &str) {
    let mut info = None;
    eventually(LONG, what, async || {
        info = client.inspect("job").await.expect("a reply");
        info.as_ref().is_none_or(|info| !info.is_held())
    })
    .await;
    assert_eq!(info.is_some(), is_kept, "{what}: {info:?}");
    let taken = client.force_release("job").await.expect("a reply");
    assert_eq!(taken, is_kept, "{what}");
}

#[tokio::test]
async fn a_body_keeps_its_lock_only_if_it_succeeds() {
    let client = LockClient::in_memory();
    let lock = job(&client);
    lock.run(async {}).await.expect("free");
    assert_kept(&client, true, "no `Result`").await;
    let returned = lock.run(async { Ok::<_, u8>("done") }).await.expect("free");
    assert_eq!(returned, Ok("done"));
    assert_kept(&client, true, "`Ok`").await;
    let returned = lock.run(async { Err::<(), _>("refused") }).await;
    assert_eq!(returned.expect("free"), Err("refused"));
    assert_kept(&client, false, "`Err`").await;
    let panics = AssertUnwindSafe(lock.run(async { panic!("in the body") }));
    panics.catch_unwind().await.expect_err("it panics");
    assert_kept(&client, false, "a panic").await;
    let (cancelled, ()) = running(&lock, || ()).await;
    cancelled.abort();
    cancelled.await.expect_err("cancelled");
    assert_kept(&client, false, "a cancelled body").await;
    let (asked, ()) = running(&lock, || ()).await;
    let is_asked = client.revoke("job").await.expect("a reply");
    assert!(is_asked);
    let outcome = asked.await.expect("no panic");
    assert!(outcome.expect_err("its lock is lost").is_lost());
    assert_kept(&client, false, "a body that lost its lock").await;
}

#[tokio::test]
async fn of_several_keys_all_are_free_after_a_failure() {
    let client = LockClient::in_memory();
    let locks = client.lock_all(["a", "b"]).min_hold(LONG * 60);
    let returned = locks.run(async { Err::<(), _>("refused") }).await;
    assert_eq!(returned.expect("free"), Err("refused"));
    let both = locks.try_acquire().await.expect("a reply");
    assert!(both.is_some());
}

#[tokio::test]
async fn a_synchronous_body_keeps_its_lock_only_if_it_succeeds() {
    let client = LockClient::in_memory();
    for (outcome, is_kept) in [(Ok(()), true), (Err("refused"), false)] {
        let lock = job(&client);
        let call = thread::spawn(move || lock.run_blocking(|| outcome));
        let returned = call.join().expect("no panic").expect("free");
        assert_eq!(returned, outcome);
        assert_kept(&client, is_kept, "a closure").await;
    }
}

#[distributed_lock(key = "job", min_hold = "1h", client = client)]
async fn annotated(client: &LockClient, succeeds: bool) -> Result<u8, LockError> {
    if succeeds {
        Ok(1)
    } else {
        Err(testing::error(ErrorKind::Invalid, "k"))
    }
}

#[derive(Debug, PartialEq)]
struct Refused;

#[distributed_lock(key = "job", min_hold = "1h", client = client, on_error = |_| Err(Refused))]
async fn with_its_own_error(client: &LockClient, succeeds: bool) -> Result<(), Refused> {
    if succeeds { Ok(()) } else { Err(Refused) }
}

#[tokio::test]
async fn an_annotated_function_keeps_its_lock_only_if_it_succeeds() {
    let client = LockClient::in_memory();
    for succeeds in [true, false] {
        assert_eq!(annotated(&client, succeeds).await.is_ok(), succeeds);
        assert_kept(&client, succeeds, "the function").await;
        let returned = with_its_own_error(&client, succeeds).await;
        assert_eq!(returned.is_ok(), succeeds);
        assert_kept(&client, succeeds, "the function with `on_error`").await;
    }
}

#[tokio::test]
async fn a_guard_keeps_its_lock_unless_it_is_marked_as_failed() {
    let client = LockClient::in_memory();
    let guard = async || job(&client).acquire().await.expect("free");
    guard().await.release().await.expect("held");
    assert_kept(&client, true, "a released guard").await;
    drop(guard().await);
    assert_kept(&client, true, "a dropped guard").await;
    let mut failed = guard().await;
    failed.mark_failed();
    failed.release().await.expect("held");
    assert_kept(&client, false, "a guard marked as failed").await;
    let mut failed = guard().await;
    failed.mark_failed();
    drop(failed);
    assert_kept(&client, false, "a dropped guard marked as failed").await;
}
