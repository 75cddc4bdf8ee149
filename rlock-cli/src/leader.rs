//! `rlock leader`: who leads an election, and the request to resign.

use std::pin::pin;

use clap::Args;
use humantime::format_rfc3339_seconds;
use rlock_core::{
    LockClient, Token,
    election::{Election, LeaderInfo},
};
use serde_json::json;

use crate::{
    connect::{StoreOptions, connect},
    describe,
    exit::{Failure, Status},
    manual, output, question,
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
    /// Asks the leader to resign after its current work
    #[arg(long, conflicts_with = "watch")]
    resign: bool,
    /// Does not ask on the terminal
    #[arg(short, long, requires = "resign")]
    yes: bool,
}

pub(crate) async fn leader(
    options: &LeaderOptions,
    store: &StoreOptions,
    json: bool,
) -> Result<Status, Failure> {
    let asks = options.resign && !options.yes;
    if asks {
        question::can_be_asked("asks the leader to resign")?;
    }
    let client = connect(store).await?;
    let election = client.election(&options.key);
    if options.watch {
        return watch(&election, json).await;
    }
    if options.resign {
        if asks && let Some(reason) = refusal(&client, &options.key).await? {
            return refused(&election, json, reason);
        }
        return resign(&election, json).await;
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

/// Asks on the terminal whether the leader is to resign. Returns the reason if it is not.
async fn refusal(client: &LockClient, key: &str) -> Result<Option<&'static str>, Failure> {
    let Some(info) = client.inspect(key).await? else {
        return Ok(Some(NO_LEADER));
    };
    let (shown, taken) = (escaped(key), describe::taken(&info));
    let plan =
        format!("lock `{shown}` is {taken}; asking its leader to resign after its current work");
    question::refusal(client, key, &info, &plan).await
}

const NO_LEADER: &str = "there is none, it does not reply, or `rlock run` holds the lock";

async fn resign(election: &Election, json: bool) -> Result<Status, Failure> {
    if !election.request_resign().await? {
        return refused(election, json, NO_LEADER);
    }
    let key = election.key();
    if json {
        output::object(&json!({ "key": key, "received": true }))?;
    } else {
        let key = escaped(key);
        let text = format!(
            "the leader of `{key}` was asked to resign, and does so after its current work\n"
        );
        output::text(text.as_bytes())?;
    }
    Ok(Status::SUCCESS)
}

/// Ends the command, because no leader was asked to resign.
fn refused(election: &Election, json: bool, reason: &str) -> Result<Status, Failure> {
    let key = election.key();
    if json {
        output::object(&json!({ "key": key, "received": false }))?;
    }
    let message = format!("no leader of `{key}` has received the request: {reason}");
    Err(Failure::new(Status::NOT_HELD, message))
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
