//! Values whose `Display` or `Debug` returns an error, in keys.

use std::fmt;

use rlock_core::{LockClient, LockError, distributed_lock, key};

/// Writes the start of its text, and fails before the number, except for the account 1.
#[derive(Clone, Copy)]
struct Account(u64);

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("acc-")?;
        match self.0 {
            1 => f.write_str("1"),
            _ => Err(fmt::Error),
        }
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[distributed_lock(key = "account:<account>:<day>", client = client)]
async fn one(client: &LockClient, account: Account, day: u8) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = "account:<account:?>", client = client)]
fn formatted(client: &LockClient, account: Account) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = ["ledger", "account:<accounts[].0>:<day>"], client = client)]
async fn list(
    client: &LockClient,
    accounts: &[(Account, u8)],
    day: Account,
) -> Result<(), LockError> {
    Ok(())
}

#[distributed_lock(key = shared "account:<accounts[]:?>", client = client)]
async fn shared_list(client: &LockClient, accounts: &[Account]) -> Result<(), LockError> {
    Ok(())
}

/// Asserts that the key is refused because of this placeholder.
#[track_caller]
fn assert_refused(outcome: Result<(), LockError>, shown: &str, placeholder: &str) {
    let Err(LockError::InvalidKey { key, reason, .. }) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(key, shown);
    assert!(reason.contains(placeholder), "{reason}");
}

#[tokio::test]
async fn a_value_that_cannot_be_formatted_makes_its_key_invalid() {
    let client = LockClient::in_memory();
    let (good, bad) = (Account(1), Account(2));
    one(&client, good, 7).await.expect("free");
    assert_refused(
        one(&client, bad, 7).await,
        "account:<account>:7",
        "`<account>`",
    );
    let blocking = client.clone();
    let outcome = tokio::task::spawn_blocking(move || formatted(&blocking, bad)).await;
    assert_refused(
        outcome.expect("no panic"),
        "account:<account:?>",
        "`<account:?>`",
    );
    list(&client, &[(good, 1), (good, 2)], good)
        .await
        .expect("free");
    assert_refused(
        list(&client, &[(good, 1), (bad, 2)], good).await,
        "account:<accounts[].0>:acc-1",
        "`<accounts[].0>`",
    );
    assert_refused(
        list(&client, &[(good, 1)], bad).await,
        "account:acc-1:<day>",
        "`<day>`",
    );
    assert_refused(
        shared_list(&client, &[good, bad]).await,
        "account:<accounts[]:?>",
        "`<accounts[]:?>`",
    );
}

#[tokio::test]
async fn a_hidden_key_stays_hidden_though_a_value_cannot_be_formatted() {
    let client = LockClient::builder().redact_keys(true).in_memory();
    let client = client.expect("valid options");
    assert_refused(
        one(&client, Account(2), 7).await,
        "account:<account>:<day>",
        "`<account>`",
    );
}

#[test]
#[should_panic(expected = "formatting the value of `<account>` returned an error")]
fn a_value_that_cannot_be_formatted_makes_no_key() {
    let account = Account(2);
    let _ = key!("account:<account>");
}
