//! `rlock leader`: who leads an election.

use std::pin::pin;

use clap::Args;
use humantime::format_rfc3339_seconds;
use rlock_core::{
    Token,
    election::{Election, LeaderInfo},
};
use serde_json::json;

use crate::{
    connect::{StoreOptions, connect},
    describe,
    exit::{Failure, Status},
    manual, output,
    text::{self, escaped},
};

/// The options of `rlock leader`.
#[derive(Debug, Args)]
#[command(after_long_help = manual::help(manual::LEADER))]
pub(crate) struct LeaderOptions {
    /// The key of the election
    key: String,
    /// Prints who leads, then each change, until interrupted
    #[arg(long)]
    watch: bool,
}

pub(crate) async fn leader(
    options: &LeaderOptions,
    store: &StoreOptions,
    json: bool,
) -> Result<Status, Failure> {
    let client = connect(store).await?;
    let election = client.election(&options.key);
    if options.watch {
        return watch(&election, json).await;
    }
    let leader = election.leader().await?;
    output::text(shown(&election, leader.as_ref(), json).as_bytes())?;
    Ok(leader.map_or(Status::NOT_HELD, |_| Status::SUCCESS))
}

async fn watch(election: &Election, json: bool) -> Result<Status, Failure> {
    let mut changes = election.changes()?;
    let mut closed = pin!(output::closed());
    while let Some(change) = tokio::select! {
        change = changes.next() => change,
        () = &mut closed => None,
    } {
        if !output::is_read(shown(election, change.leader().as_ref(), json).as_bytes())? {
            break;
        }
    }
    Ok(Status::SUCCESS)
}

/// Shows a leader on one line.
fn shown(election: &Election, leader: Option<&LeaderInfo>, json: bool) -> String {
    let since = leader.and_then(|leader| leader.since);
    let since = since.map(|since| format_rfc3339_seconds(since).to_string());
    if json {
        let leader = leader.map(|leader| {
            json!({
                "term": leader.term.map(Token::as_u64),
                "value": leader.value,
                "since": since,
                "lease_left_ms": leader.lease_left.map(describe::millis),
                "holder": leader.holder.as_ref().map(describe::holder_object),
            })
        });
        return text::json(&json!({ "key": election.key(), "leader": leader })) + "\n";
    }
    let Some(leader) = leader else {
        return format!("election `{}` has no leader\n", escaped(election.key()));
    };
    let since = since.map_or_else(String::new, |since| format!(" since {since}"));
    let term = leader
        .term
        .map_or_else(|| "unknown".to_owned(), |term| term.to_string());
    let holder = leader.holder.as_ref().map_or_else(
        || {
            let left = leader.lease_left.map(text::time);
            let left = left.map_or_else(|| "no end".to_owned(), |left| left + " left");
            format!("a process that does not reply (lease: {left})")
        },
        |holder| escaped(&holder.to_string()).into_owned(),
    );
    let value = leader.value.as_deref().map(escaped);
    let value = value.map_or_else(String::new, |value| format!(", value {value}"));
    format!("term {term}{since}: {holder}{value}\n")
}
