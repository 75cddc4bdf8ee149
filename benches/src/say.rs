//! A line of a worker process for the process that started it.

use anyhow::Result;
use serde::Serialize;

/// Replies to the process that started this worker.
pub(crate) fn say(what: &impl Serialize) -> Result<()> {
    println!("{}", serde_json::to_string(what)?);
    Ok(())
}
