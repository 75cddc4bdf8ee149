//! Shared locks and permits of annotated functions.

use rlock_core::{LockClient, LockError, LockMode, distributed_lock};

use crate::common::LONG;

/// Returns the modes in which the locks are held.
async fn modes(client: &LockClient, keys: &[&str]) -> Result<Vec<LockMode>, LockError> {
    let mut modes = Vec::new();
    for key in keys {
        modes.push(client.inspect(key).await?.expect("held").mode());
    }
    Ok(modes)
}

type Modes = Result<Vec<LockMode>, LockError>;

#[distributed_lock(key = "config:<id>", shared, client = client)]
async fn read(client: &LockClient, id: u8) -> Modes {
    modes(client, &["config:1"]).await
}

#[distributed_lock(key = [shared "tenant:<tenant>", "order:<id>"], client = client)]
async fn pay(client: &LockClient, tenant: u8, id: u8) -> Modes {
    modes(client, &["tenant:1", "order:2"]).await
}

#[distributed_lock(key = ["tenant:<from>", shared "tenant:<to>"], client = client)]
async fn merge(client: &LockClient, from: u8, to: u8) -> Modes {
    modes(client, &["tenant:1"]).await
}

#[distributed_lock(key = [shared "account:<ids[]>", "export:<name>"], permits = most, take = most - 1, client = client)]
async fn report(client: &LockClient, ids: &[u8], name: &str, most: u32) -> Modes {
    modes(client, &["account:1", "account:2", "export:a"]).await
}

#[tokio::test]
async fn each_key_is_locked_in_the_mode_that_the_attribute_names() {
    use LockMode::{Exclusive, Shared};

    // The client retains locks by default, but never a permit.
    let client = LockClient::builder().default_retain(LONG).in_memory();
    let client = client.expect("valid options");
    assert_eq!(read(&client, 1).await.expect("free"), [Shared]);
    assert_eq!(pay(&client, 1, 2).await.expect("free"), [Shared, Exclusive]);
    assert_eq!(merge(&client, 1, 1).await.expect("free"), [Exclusive]);
    let of_report = report(&client, &[1, 2], "a", 3).await.expect("free");
    let permits = LockMode::Permits { take: 2, of: 3 };
    assert_eq!(of_report, [Shared, Shared, permits]);
    let none = report(&client, &[1], "a", 1).await;
    let error = none.expect_err("it takes no permit").to_string();
    assert!(error.contains("`take`"), "{error}");
    assert!(client.inspect("export:a").await.expect("a reply").is_none());
}
