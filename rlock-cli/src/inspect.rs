//! `rlock inspect`: one lock, its holder and its queue, once or whenever they change.

use std::{
    pin::pin,
    time::{Duration, SystemTime},
};

use clap::Args;
use humantime::format_rfc3339_seconds;
use rlock_core::{LockClient, inspect::LockInfo};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    connect::{StoreOptions, connect},
    describe, duration,
    exit::{Failure, Status},
    manual, output,
    terminal::Screen,
    text::{self, escaped, time},
};

/// The options of `rlock inspect`.
#[derive(Debug, Args)]
#[command(after_long_help = manual::help(manual::INSPECT))]
pub(crate) struct InspectOptions {
    /// The lock to inspect
    #[arg(value_name = "KEY")]
    key: String,
    /// Shows the lock until interrupted: on a terminal at each look, otherwise one line for each change
    #[arg(long)]
    watch: bool,
    /// With `--watch`: how often to look
    #[arg(
        short,
        long,
        value_name = "INTERVAL",
        default_value = "1s",
        requires = "watch",
        value_parser = duration::interval
    )]
    interval: Duration,
}

pub(crate) async fn inspect(
    options: &InspectOptions,
    store: &StoreOptions,
    json: bool,
) -> Result<Status, Failure> {
    let client = connect(store).await?;
    let info = client.inspect(&options.key).await?;
    if options.watch {
        return watch(options, &client, info, json).await;
    }
    if json {
        output::object(&object(&options.key, info.as_ref()))?;
    } else {
        output::text(page(&options.key, info.as_ref()).as_bytes())?;
    }
    Ok(if info.is_some() {
        Status::SUCCESS
    } else {
        Status::NOT_HELD
    })
}

/// Shows the lock until interrupted: on a terminal at each look, and otherwise at each change.
async fn watch(
    options: &InspectOptions,
    client: &LockClient,
    first: Option<LockInfo>,
    json: bool,
) -> Result<Status, Failure> {
    let (key, mut last) = (&options.key, None);
    let mut closed = pin!(output::closed());
    let mut look = Ok(first);
    loop {
        match look {
            Ok(info) => {
                let line = line(key, info.as_ref());
                let is_new = last.as_ref() != Some(&line);
                let shown = match Screen::of_stdout() {
                    Some(screen) if !json => screen.redrawn(&page(key, info.as_ref())),
                    _ if !is_new => String::new(),
                    _ if json => {
                        let mut object = object(key, info.as_ref());
                        object["time"] = now().into();
                        text::json(&object) + "\n"
                    }
                    _ => format!("{} {line}\n", now()),
                };
                if !output::is_read(shown.as_bytes())? {
                    return Ok(Status::SUCCESS);
                }
                last = Some(line);
            }
            // An outage ends some time.
            Err(error) => _ = Failure::from(error).report(),
        }
        tokio::select! {
            () = &mut closed => return Ok(Status::SUCCESS),
            () = sleep(options.interval) => {}
        }
        look = client.inspect(key).await;
    }
}

fn now() -> String {
    format_rfc3339_seconds(SystemTime::now()).to_string()
}

/// Describes the lock by what does not change with time alone.
fn line(key: &str, info: Option<&LockInfo>) -> String {
    let key = escaped(key);
    let Some(info) = info else {
        return format!("lock `{key}` is free");
    };
    let token = info.token().map(|token| format!(", token {token}"));
    let is_revoked = (info.holder.as_ref()).is_some_and(|holder| holder.revoked_for.is_some());
    format!(
        "lock `{key}`: {}{}, {} waiting{}",
        describe::holder(info),
        token.unwrap_or_default(),
        describe::waiters_text(info),
        if is_revoked { ", revoked" } else { "" },
    )
}

fn object(key: &str, info: Option<&LockInfo>) -> Value {
    let mut object = info.map_or_else(|| json!({ "key": key }), describe::object);
    object["free"] = info.is_none().into();
    if let Some(info) = info {
        object["address"] = info.address.clone().into();
        object["waiters"] = info.waiters.iter().map(describe::waiter_object).collect();
    }
    object
}

fn page(key: &str, info: Option<&LockInfo>) -> String {
    let free = || format!("lock `{}` is free\n", escaped(key));
    info.map_or_else(free, text)
}

/// Shows a lock, one fact per line.
fn text(info: &LockInfo) -> String {
    let mut facts = vec![("key", escaped(&info.key).into_owned())];
    facts.push(("holder", holder(info)));
    let columns = Screen::of_stdout().map_or(usize::MAX, |screen| screen.columns);
    let value = describe::value(info, columns.saturating_sub(10));
    facts.extend(value.map(|value| ("value", value)));
    facts.extend(describe::mode(info).map(|mode| ("mode", mode)));
    let address = info.address.as_deref().map(escaped);
    facts.extend(address.map(|address| ("address", format!("{address}, still connected"))));
    let named = info.holder.as_ref().map(|holder| {
        [
            ("function", holder.function.as_ref()),
            ("label", holder.label.as_ref()),
            ("trace", holder.trace_id.as_ref()),
        ]
    });
    for (name, value) in named.into_iter().flatten() {
        facts.extend(value.map(|value| (name, escaped(value).into_owned())));
    }
    if info.holder.is_some() {
        facts.push(("held for", describe::held_for(info)));
    }
    let revoked_for = info.holder.as_ref().and_then(|holder| holder.revoked_for);
    let not_stopped = |since| {
        (
            "revoked",
            format!("{} ago, and its body has not stopped yet", time(since)),
        )
    };
    facts.extend(revoked_for.map(not_stopped));
    facts.push(("lease", lease(info)));
    facts.extend(info.token().map(|token| ("token", token.to_string())));
    facts.push(("depth", info.depth.to_string()));
    facts.push(("owner", escaped(&info.owner).into_owned()));
    let others = info.other_owners.iter();
    facts.extend(others.map(|owner| ("", format!("{owner}, another holder"))));
    facts.push(("waiters", waiters(info)));
    for (place, owner) in (1..).zip(&info.queued_owners) {
        let name = if place == 1 { "queue" } else { "" };
        let waiter = info.waiters.iter().find(|waiter| waiter.owner == *owner);
        let who = waiter.map_or_else(String::new, |waiter| {
            let (service, version) = (waiter.service.as_deref(), waiter.version.as_deref());
            let client = client(service, version, &waiter.host, waiter.pid);
            format!("{client}, owner ")
        });
        facts.push((name, format!("{place}. {who}{owner}")));
    }
    let line = |(name, value): &(&str, String)| format!("{name:<9} {value}\n");
    facts.iter().map(line).collect()
}

/// Describes the holder of the lock, even one that does not reply.
fn holder(info: &LockInfo) -> String {
    let Some(holder) = &info.holder else {
        let free = match info.ttl {
            Some(left) => format!("the lock is free in {}", time(left)),
            None => "the lock has no lease, and does not become free".to_owned(),
        };
        return match () {
            () if describe::is_kept(info) => format!("none: min_hold keeps the lock taken; {free}"),
            () if !info.is_held() => {
                format!(
                    "not a client of rlock: other software wrote this lock; {free}; to free it, delete its key on the server"
                )
            }
            () => format!(
                "does not reply: its process has ended, is stuck or cut off; {free} unless renewed"
            ),
        };
    };
    let (service, version) = (holder.service.as_deref(), holder.version.as_deref());
    let client = client(service, version, &holder.host, holder.pid);
    let retained = if info.retained {
        ", which retains the lock for its next call and does not use it"
    } else {
        ""
    };
    format!("{client}{retained}")
}

/// Describes a client: `billing 1.4.2 on node-3 (pid 4711)`.
fn client(service: Option<&str>, version: Option<&str>, host: &str, pid: u32) -> String {
    let version = version.map_or_else(String::new, |version| format!(" {}", escaped(version)));
    let service = service.map_or_else(String::new, |service| {
        format!("{}{version} on ", escaped(service))
    });
    format!("{service}{} (pid {pid})", escaped(host))
}

fn lease(info: &LockInfo) -> String {
    let left = match info.ttl {
        Some(left) => format!("{} left", time(left)),
        None => "without end".to_owned(),
    };
    match info.holder.as_ref().map(|holder| holder.renewals) {
        Some(0) => format!("{left}, not renewed yet"),
        Some(1) => format!("{left}, renewed once"),
        Some(renewals) => format!("{left}, renewed {renewals} times"),
        None => left,
    }
}

fn waiters(info: &LockInfo) -> String {
    let local = info.holder.as_ref().map_or(0, |holder| holder.waiter_count);
    let more = if describe::is_cut(info) {
        "at least "
    } else {
        ""
    };
    let processes = match info.queued_owners.len() {
        1 => "1 other process".to_owned(),
        queued => format!("{more}{queued} other processes"),
    };
    match (local, info.queued_owners.len()) {
        (0, 0) => "none".to_owned(),
        (0, _) => processes,
        (local, 0) => format!("{local} in the holder's process"),
        (local, _) => format!("{local} in the holder's process, {processes}"),
    }
}
