//! `rlock wait`: waits until no call holds a lock, and takes nothing.

use std::time::Duration;

use clap::Args;
use rlock_core::{LockClient, inspect::LockInfo};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::{
    connect::{StoreOptions, connect},
    duration::{Limit, WaitOption},
    exit::{Failure, Status},
    manual, output,
};

/// The options of `rlock wait`.
#[derive(Debug, Args)]
#[command(after_long_help = manual::help(manual::WAIT))]
pub(crate) struct WaitOptions {
    /// The lock to wait for
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
    #[command(flatten)]
    pub(crate) limit: WaitOption,
}

/// The pauses between two looks at the lock: each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Inspects the lock until the wait is over, within the limit. Returns whether it is over.
pub(crate) async fn until(
    client: &LockClient,
    key: &str,
    limit: Limit,
    is_over: impl Fn(Option<LockInfo>) -> bool,
) -> Result<bool, Failure> {
    let started = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        let info = client.inspect(key).await?;
        let left = limit.left(started).unwrap_or(Duration::MAX);
        let is_over = is_over(info);
        if is_over || left.is_zero() {
            return Ok(is_over);
        }
        sleep(pause.min(left)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

pub(crate) async fn wait(
    options: &WaitOptions,
    store: &StoreOptions,
    json: bool,
) -> Result<Status, Failure> {
    let client = connect(store).await?;
    let started = Instant::now();
    // No call holds a retained lock.
    let is_free = |info: Option<LockInfo>| info.is_none_or(|info| info.retained);
    let is_free = until(&client, &options.key, options.limit.wait, is_free).await?;
    if json {
        let waited = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let object = json!({ "key": options.key, "free": is_free, "waited_ms": waited });
        output::object(&object)?;
    }
    if is_free {
        return Ok(Status::SUCCESS);
    }
    let message = format!("lock `{}` is still taken", options.key);
    Err(Failure::new(Status::TAKEN, message))
}
