#![deny(warnings)]
//! Every form of every option.

use std::time::Duration;

use rlock_core::{LockClient, LockError, distributed_lock};

mod facade {
    pub use rlock_core as locks;
}

type Outcome<T = ()> = Result<T, LockError>;

const LEASE: Duration = Duration::from_secs(20);

#[distributed_lock(
    key = "a",
    lease = "1m30s",
    wait = "0s",
    watchdog = false,
    max_hold = "1h"
)]
async fn literals() -> Outcome {
    Ok(())
}

#[distributed_lock(
    key = "b:<seconds>",
    lease = LEASE,
    wait = Duration::from_secs(seconds),
    watchdog = seconds > 1,
    max_hold = LEASE * 2,
    at_least = Duration::from_millis(1),
)]
async fn expressions(seconds: u64) -> Outcome {
    Ok(())
}

#[distributed_lock(key = "c", wait = "forever", on_lost = "continue")]
async fn words() -> Outcome {
    Ok(())
}

#[distributed_lock(key = "d", on_lost = "cancel", crate = crate::facade::locks)]
async fn by_another_path() -> Outcome {
    Ok(())
}

#[distributed_lock(key = ["account:<from>", "account:<to>"])]
async fn two_keys(from: u8, to: u8) -> Outcome<u8> {
    Ok(from + to)
}

#[distributed_lock(key = ["account:<from>"])]
async fn one_key_in_a_list(from: u8) -> Outcome<u8> {
    Ok(from)
}

#[distributed_lock(key = "config", shared)]
async fn shared() -> Outcome {
    Ok(())
}

#[distributed_lock(shared, key = ["config", "tenant:<ids[]>"], wait = "0s")]
async fn shared_list(ids: &[u8]) -> Outcome {
    Ok(())
}

#[distributed_lock(key = shared "config")]
async fn shared_key() -> Outcome {
    Ok(())
}

#[distributed_lock(key = [shared "tenant:<tenant>", shared "order:<ids[]>", "export"], permits = 3)]
async fn mixed(tenant: u8, ids: &[u8]) -> Outcome {
    Ok(())
}

#[distributed_lock(key = "call", permits = late(most).await, retain = "0s")]
async fn permits_by_expression(most: u32) -> Outcome {
    Ok(())
}

macro_rules! locked {
    ($name:ident, $word:ident, $key:literal, $list:expr, $most:expr, $keys:tt) => {
        mod $name {
            use super::*;

            #[distributed_lock(key = [$word $key, "tenant"], permits = $most)]
            pub(crate) async fn word() -> Outcome {
                Ok(())
            }

            #[distributed_lock(key = $word $key, lease = "3s")]
            pub(crate) async fn only_word() -> Outcome {
                Ok(())
            }

            #[distributed_lock(key = $list, $word)]
            pub(crate) async fn list() -> Outcome {
                Ok(())
            }

            #[distributed_lock(key = $keys)]
            pub(crate) async fn tokens() -> Outcome {
                Ok(())
            }
        }
    };
}

locked!(by_macro, shared, "config", ["config", "tenant"], 1 + 1, [shared "config", "tenant"]);

async fn late<T>(value: T) -> T {
    tokio::task::yield_now().await;
    value
}

#[distributed_lock(
    key = ["late:<id>", "late:<ids[]>:<id:02>"],
    client = late(&locks).await,
    lease = late(LEASE).await,
    watchdog = late(id > 0).await,
    if_taken = Ok(0),
)]
async fn awaited(id: u8, ids: &[u8], locks: LockClient) -> Outcome<u8> {
    Ok(id)
}

#[distributed_lock(key = "hold", guard = lock)]
async fn hold(id: u8) -> Outcome<u64> {
    Ok(lock.fencing_token() + u64::from(id))
}

#[distributed_lock(key = "client", client = locks.as_ref().unwrap_or(&fallback))]
async fn client_by_expression(locks: Option<LockClient>, fallback: LockClient) -> Outcome {
    Ok(())
}

async fn all() -> Outcome {
    literals().await?;
    expressions(1).await?;
    words().await?;
    by_another_path().await?;
    two_keys(1, 2).await?;
    two_keys(1, 1).await?;
    one_key_in_a_list(1).await?;
    shared().await?;
    shared_list(&[1, 2]).await?;
    shared_key().await?;
    mixed(1, &[2, 3]).await?;
    permits_by_expression(2).await?;
    by_macro::word().await?;
    by_macro::only_word().await?;
    by_macro::list().await?;
    by_macro::tokens().await?;
    assert!(hold(1).await? > 1);
    let client = LockClient::in_memory();
    client_by_expression(Some(client.clone()), client.clone()).await?;
    assert_eq!(awaited(1, &[2, 3], client.clone()).await?, 1);
    client_by_expression(None, client).await?;
    Ok(())
}

#[tokio::main]
async fn main() {
    assert!(literals().await.is_err(), "there is no client yet");
    // All futures are `Send`.
    let all = async { LockClient::in_memory().scope(all()).await };
    tokio::spawn(all).await.unwrap().unwrap();
}
