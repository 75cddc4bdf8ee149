//! `rlock wait`: waits until no call holds a lock, and takes nothing.

use std::time::Duration;

use clap::Args;
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

pub(crate) async fn wait(
    options: &WaitOptions,
    store: &StoreOptions,
    json: bool,
) -> Result<Status, Failure> {
    let client = connect(store).await?;
    let started = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        let info = client.inspect(&options.key).await?;
        let left = match options.limit.wait {
            Limit::For(limit) => limit.saturating_sub(started.elapsed()),
            Limit::Forever => Duration::MAX,
        };
        // No call holds a retained lock.
        let is_free = info.is_none_or(|info| info.retained);
        if is_free || left.is_zero() {
            if json {
                let waited = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
                let object = json!({ "key": options.key, "free": is_free, "waited_ms": waited });
                output::object(&object)?;
            }
            return if is_free {
                Ok(Status::SUCCESS)
            } else {
                Err(Failure::new(
                    Status::TAKEN,
                    format!("lock `{}` is still taken", options.key),
                ))
            };
        }
        sleep(pause.min(left)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
