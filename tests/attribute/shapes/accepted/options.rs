//! Forms of the options.

use std::time::Duration;

use crate::support::{pause, Error, LockClient, Runs};

pub mod facade {
    pub use rlock_core as locks;
}

pub const LEASE: Duration = Duration::from_secs(20);

//@ key = "a", lease = "1m30s", wait = "0s", watchdog = false, max_hold = "1h", on_lost = "continue"
pub async fn literals() -> Result<(), Error> {
    pause().await;
    Ok(())
}

//@ key = "b:<id>", lease = LEASE, wait = Duration::from_secs(id), watchdog = id > 1, max_hold = LEASE * 2, min_hold = Duration::from_millis(1)
pub async fn expressions(id: u64) -> Result<u64, Error> {
    pause().await;
    Ok(id)
}

//@ key = "d", wait = "forever", on_lost = "cancel", crate = crate::options::facade::locks
pub async fn by_another_path() -> Result<(), Error> {
    pause().await;
    Ok(())
}

//@ shared, key = ["config", "tenant:<ids[]>"], wait = "0s"
pub async fn shared_list(ids: &[u64]) -> Result<usize, Error> {
    pause().await;
    Ok(ids.len())
}

//@ key = shared "config"
pub async fn shared_key() -> Result<(), Error> {
    pause().await;
    Ok(())
}

//@ key = [shared "tenant:<id>", shared "order:<ids[]>", "export"], permits = 3
pub async fn mixed(id: u64, ids: &[u64]) -> Result<usize, Error> {
    pause().await;
    Ok(ids.len() + usize::from(id > 1))
}

pub async fn late(most: u32) -> u32 {
    pause().await;
    most
}

//@ key = "call", permits = late(most).await, retain = "0s"
pub async fn permits_by_expression(most: u32) -> Result<u32, Error> {
    pause().await;
    Ok(most)
}

//@ key = "client", client = locks.as_ref().unwrap_or(fallback)
pub async fn client_by_expression(locks: Option<LockClient>, fallback: &LockClient) -> Result<(), Error> {
    pause().await;
    drop(locks.as_ref().or(Some(fallback)).cloned());
    Ok(())
}

macro_rules! options {
    ($name:ident, $word:ident, $key:literal, $list:expr, $most:expr, $lease:expr, $keys:tt) => {
        pub mod $name {
            use crate::support::{pause, Error};

            //@ key = [$word $key, "tenant"], permits = $most
            pub async fn word() -> Result<(), Error> {
                pause().await;
                Ok(())
            }

            //@ key = $word $key, lease = $lease
            pub async fn only_word() -> Result<(), Error> {
                pause().await;
                Ok(())
            }

            //@ key = $list, $word
            pub async fn list() -> Result<(), Error> {
                pause().await;
                Ok(())
            }

            //@ key = $keys
            pub async fn tokens() -> Result<(), Error> {
                pause().await;
                Ok(())
            }
        }
    };
}

options!(by_macro, shared, "config", ["config", "tenant"], 1 + 1, "3s", [shared "config", "tenant"]);

pub fn runs(runs: &mut Runs) {
    run!(runs, "literals", literals());
    run!(runs, "expressions", expressions(1));
    run!(runs, "by_another_path", by_another_path());
    run!(runs, "shared_list", shared_list(&[1, 2]));
    run!(runs, "shared_key", shared_key());
    run!(runs, "mixed", mixed(1, &[2, 3]));
    run!(runs, "permits_by_expression", permits_by_expression(2));
    run!(runs, "client_by_expression", client_by_expression(None, &LockClient::in_memory()));
    run!(runs, "word", by_macro::word());
    run!(runs, "only_word", by_macro::only_word());
    run!(runs, "list", by_macro::list());
    run!(runs, "tokens", by_macro::tokens());
}
