//! `rlock extend`: extends a lock by its token, for example a detached one.

use std::time::Duration;

use clap::Args;
use rlock_core::Token;
use serde_json::json;

use crate::{
    connect::{StoreOptions, connect},
    describe, duration,
    exit::{Failure, Status},
    manual, output,
    text::{escaped, time},
};

/// The options of `rlock extend`.
#[derive(Debug, Args)]
#[command(after_long_help = manual::help(manual::EXTEND))]
pub(crate) struct ExtendOptions {
    /// The lock to extend
    #[arg(value_name = "KEY")]
    key: String,
    /// The token of its current hold; a later hold is not touched
    #[arg(long, value_name = "N")]
    token: Token,
    /// How long the lock stays taken from now on, unless its present lease ends later
    #[arg(short, long, value_name = "DURATION", value_parser = duration::lease)]
    lease: Duration,
}

pub(crate) async fn extend(
    options: &ExtendOptions,
    store: &StoreOptions,
    json: bool,
) -> Result<Status, Failure> {
    let (client, key, token) = (connect(store).await?, &options.key, options.token);
    if client.extend_if(key, token, options.lease).await? {
        if json {
            output::object(&json!({ "key": key, "extended": true }))?;
        } else {
            let (key, lease) = (escaped(key), time(options.lease));
            output::text(format!("lock `{key}`: extended for {lease} from now on\n").as_bytes())?;
        }
        return Ok(Status::SUCCESS);
    }
    let why = match client.inspect(key).await? {
        None => "it is free".to_owned(),
        Some(info) => describe::other_token(token, &info),
    };
    let reason = format!("lock `{key}` is not extended: {why}");
    if json {
        output::object(&json!({ "key": key, "extended": false, "reason": reason }))?;
    }
    Err(Failure::new(Status::NOT_HELD, reason))
}
