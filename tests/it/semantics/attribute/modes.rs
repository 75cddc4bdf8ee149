//! Shared locks and permits of annotated functions.

use std::time::Duration;

use rlock_core::{LockClient, LockError, Mode, distributed_lock};
use tokio::sync::Barrier;

use crate::common::{LONG, its_turn, ms};

/// Runs two calls that wait for each other inside their locks. Returns whether they met.
async fn met(
    client: &LockClient,
    limit: Duration,
    one: impl AsyncFnOnce(&Barrier) -> Result<(), LockError>,
    other: impl AsyncFnOnce(&Barrier) -> Result<(), LockError>,
) -> bool {
    let meeting = Barrier::new(2);
    let both = client.scope(async { tokio::join!(one(&meeting), other(&meeting)) });
    let Ok((one, other)) = tokio::time::timeout(limit, both).await else {
        return false;
    };
    one.and(other).expect("free");
    true
}

/// Returns whether two calls run at once. Each call gets the meeting as its last argument.
macro_rules! met {
    ($client:expr, $limit:expr, $one:ident($($a:expr),*), $other:ident($($b:expr),*)) => {{
        let one = async |meeting: &Barrier| $one($($a,)* meeting).await;
        let other = async |meeting: &Barrier| $other($($b,)* meeting).await;
        met(&$client, $limit, one, other).await
    }};
}

macro_rules! assert_meet {
    ($client:expr, $($calls:tt)+) => {
        assert!(met!($client, LONG, $($calls)+), "they do not run at once")
    };
}

macro_rules! assert_apart {
    ($client:expr, $($calls:tt)+) => {
        assert!(!met!($client, ms(200), $($calls)+), "they run at once")
    };
}

#[distributed_lock(key = "config:<id>", shared)]
async fn read(id: u8, meeting: &Barrier) -> Result<(), LockError> {
    meeting.wait().await;
    Ok(())
}

#[distributed_lock(key = shared "config:<id>")]
async fn read_by_word(id: u8, meeting: &Barrier) -> Result<(), LockError> {
    meeting.wait().await;
    Ok(())
}

#[distributed_lock(key = "config:<id>")]
async fn write(id: u8, meeting: &Barrier) -> Result<(), LockError> {
    meeting.wait().await;
    Ok(())
}

#[tokio::test]
async fn shared_calls_run_at_once_and_an_exclusive_one_does_not() {
    let client = LockClient::in_memory();
    assert_meet!(client, read(1), read(1));
    assert_meet!(client, read(1), read_by_word(1));
    assert_apart!(client, read(1), write(1));
    assert_apart!(client, write(1), read_by_word(1));
    assert_meet!(client, read(1), write(2));
}

#[distributed_lock(key = "config:<id>", wait = "20s", client = client)]
async fn set(client: LockClient, id: u8) -> Result<u8, LockError> {
    Ok(id)
}

#[distributed_lock(key = "config:<id>", shared, wait = "0s", client = client, if_taken = Ok(false))]
async fn try_read(client: &LockClient, id: u8) -> Result<bool, LockError> {
    Ok(true)
}

#[tokio::test]
async fn an_exclusive_call_waits_for_shared_holders_and_they_for_it() {
    let client = LockClient::in_memory();
    let reader = client.lock("config:1").shared();
    let reader = reader.acquire().await.expect("free");
    assert!(try_read(&client, 1).await.expect("a reply"));
    let writing = tokio::spawn(set(client.clone(), 1));
    tokio::time::sleep(ms(100)).await;
    assert!(!writing.is_finished(), "a reader is inside");
    assert!(
        !try_read(&client, 1).await.expect("a reply"),
        "it came after the writer"
    );
    reader.release().await.expect("held");
    assert_eq!(its_turn(writing).await, 1);

    let writer = client.lock("config:1").acquire().await.expect("free");
    assert!(!try_read(&client, 1).await.expect("a reply"));
    writer.release().await.expect("held");
    assert!(try_read(&client, 1).await.expect("a reply"));
}

#[tokio::test]
async fn a_nested_call_is_shared_with_its_caller_but_cannot_become_exclusive() {
    #[distributed_lock(key = "config:<id>", shared)]
    async fn outer(client: &LockClient, id: u8) -> Result<u8, LockError> {
        assert!(try_read(client, id).await?);
        set(client.clone(), id).await
    }
    let client = LockClient::in_memory();
    let nested = client.scope(outer(&client, 1)).await;
    let error = nested.expect_err("it would wait for its caller");
    assert!(
        matches!(error, LockError::Upgrade { ref key, held: Mode::Shared, .. } if key == "config:1"),
        "{error:?}"
    );
}

#[distributed_lock(key = "export", permits = 2)]
async fn export(meeting: &Barrier) -> Result<(), LockError> {
    meeting.wait().await;
    Ok(())
}

#[distributed_lock(key = "export", permits = limit, wait = "0s", client = client, if_taken = Ok(false))]
fn try_export(client: &LockClient, limit: u32) -> Result<bool, LockError> {
    Ok(true)
}

/// Runs a synchronous call on a thread where it may block.
async fn on_a_thread<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    let call = tokio::task::spawn_blocking(call);
    call.await.expect("no panic")
}

#[tokio::test]
async fn as_many_calls_run_at_once_as_there_are_permits() {
    let client = LockClient::in_memory();
    assert_meet!(client, export(), export());

    let attempt = |limit| {
        let client = client.clone();
        on_a_thread(move || try_export(&client, limit))
    };
    let permit = client.lock("export").permits(2);
    let first = permit.acquire().await.expect("free");
    assert!(attempt(2).await.expect("a reply"));
    assert!(!attempt(1).await.expect("a reply"), "one is taken");
    let second = permit.acquire().await.expect("free");
    assert!(!attempt(2).await.expect("a reply"), "both are taken");
    assert!(attempt(3).await.expect("a reply"));
    first.release().await.expect("held");
    assert!(attempt(2).await.expect("a reply"));
    second.release().await.expect("held");

    let none = attempt(0).await.expect_err("no call would ever be let in");
    assert!(
        matches!(
            none,
            LockError::InvalidOption {
                option: "permits",
                ..
            }
        ),
        "{none:?}"
    );
}

/// `LockError::InvalidOption` refuses a permit that is retained.
#[tokio::test]
async fn a_permit_is_not_retained_whatever_its_client_does_by_default() {
    let client = LockClient::builder().retain(LONG).in_memory();
    let client = client.expect("valid options");
    assert_meet!(client, export(), export());
    assert!(client.inspect("export").await.expect("a reply").is_none());
}

#[distributed_lock(key = [shared "tenant:<tenant>", "order:<id>"])]
async fn pay(tenant: u8, id: u8, meeting: &Barrier) -> Result<(), LockError> {
    meeting.wait().await;
    Ok(())
}

#[distributed_lock(key = "tenant:<tenant>")]
async fn close(tenant: u8, meeting: &Barrier) -> Result<(), LockError> {
    meeting.wait().await;
    Ok(())
}

#[distributed_lock(key = ["tenant:<tenant>", shared "tenant:<tenant>"])]
async fn close_by_both(tenant: u8, meeting: &Barrier) -> Result<(), LockError> {
    meeting.wait().await;
    Ok(())
}

#[tokio::test]
async fn one_key_of_a_list_is_shared() {
    let client = LockClient::in_memory();
    assert_meet!(client, pay(1, 1), pay(1, 2));
    assert_apart!(client, pay(1, 1), pay(2, 1));
    assert_apart!(client, pay(1, 1), close(1));
    assert_meet!(client, pay(1, 1), close(2));
    assert_apart!(client, pay(1, 1), close_by_both(1));
}

#[distributed_lock(key = [shared "account:<ids[]>", "export:<name>"], permits = 2)]
async fn report(ids: &[u8], name: &str, meeting: &Barrier) -> Result<(), LockError> {
    meeting.wait().await;
    Ok(())
}

#[tokio::test]
async fn a_list_is_shared_while_permits_limit_the_other_keys() {
    let client = LockClient::in_memory();
    assert_meet!(client, report(&[1, 2], "a"), report(&[2, 3], "b"));
    assert_meet!(client, report(&[1], "a"), report(&[2], "a"));
    let permit = client.lock("export:a").permits(2).acquire();
    let permit = permit.await.expect("free");
    assert_apart!(client, report(&[1], "a"), report(&[2], "a"));
    permit.release().await.expect("held");
}
