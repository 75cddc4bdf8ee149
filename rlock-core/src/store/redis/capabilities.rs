//! Checks, when a client connects, which capabilities the server or its user lacks. Logs each once.

use std::sync::{Mutex, MutexGuard, PoisonError};

use redis::{
    Cmd, InfoDict, RedisError, RedisResult, Script, Value, aio::MultiplexedConnection, cmd, pipe,
};
use tokio::time::timeout;
use uuid::Uuid;

use super::{
    RedisOptions,
    address::Address,
    dial::boxed,
    errors::{is_busy, is_passing, wants_password, wants_reconnect},
    keyspace::Keyspace,
};

/// The name of a capability, and the consequence of its absence.
pub(super) type Capability = &'static str;

pub(super) const SCRIPTS: Capability = "scripts (EVALSHA): no lock can be taken";
/// The protocol that mixes notifications with replies.
pub(super) const RESP3: Capability =
    "RESP3: a lock that is deleted is noticed by the next renewal, not at once";
pub(super) const TRACKING: Capability =
    "CLIENT TRACKING: a lock that is deleted is noticed by the next renewal, not at once";
/// Subscriptions to the client's channel.
pub(super) const NOTIFICATIONS: Capability = "SUBSCRIBE: a waiter in another process asks again after a change of the \
    lock, or within five seconds";

/// A connection that is checked, and the client that it belongs to.
#[derive(Clone, Copy)]
pub(super) struct Checked<'a> {
    pub(super) address: &'a Address,
    pub(super) keyspace: &'a Keyspace,
    pub(super) options: &'a RedisOptions,
    pub(super) multiplexed: &'a MultiplexedConnection,
    /// The capabilities whose absence the set-up of the connection has shown.
    pub(super) missing: &'a [Capability],
}

/// The capabilities that were logged as missing; `None` until the server's configuration was checked.
#[derive(Default)]
pub(super) struct Checks(Mutex<Option<Vec<Capability>>>);

impl Checks {
    pub(super) fn is_first(&self) -> bool {
        self.logged().is_none()
    }

    /// Logs the missing capabilities that were not logged before.
    pub(super) async fn log(&self, checked: Checked<'_>) {
        let (address, logged) = (checked.address, self.logged().clone());
        let known = if let Some(known) = logged {
            known
        } else {
            let warned = boxed(warn(checked));
            let warned = timeout(checked.options.connect_timeout, warned).await;
            warned.unwrap_or_default()
        };
        let mut new = vec![SCRIPTS, RESP3, TRACKING, NOTIFICATIONS];
        new.retain(|one| checked.missing.contains(one) && !known.contains(one));
        let missing = new.join("; ");
        if new.contains(&SCRIPTS) {
            tracing::error!(%address, %missing, "the server cannot serve locks");
        } else if !missing.is_empty() {
            tracing::warn!(%address, %missing, "the server lacks capabilities: locks work without them");
        }
        *self.logged() = Some(checked.missing.to_vec());
    }

    fn logged(&self) -> MutexGuard<'_, Option<Vec<Capability>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns `None` if the server refuses the command. Returns an error if the connection failed, or if the server is
/// busy. A connection that is set up while a script runs would never receive notifications.
pub(super) fn unless_refused<T>(outcome: RedisResult<T>) -> RedisResult<Option<T>> {
    let has_failed = |error: &RedisError| {
        wants_reconnect(error) || error.is_io_error() || wants_password(error) || is_busy(error)
    };
    match outcome {
        Err(error) if has_failed(&error) => Err(error),
        outcome => Ok(outcome.ok()),
    }
}

/// Returns a call of a script that does not exist, to check whether scripts can be called.
pub(super) fn absent_script() -> Cmd {
    let mut call = cmd("EVALSHA");
    call.arg("0".repeat(40)).arg(0);
    call
}

/// Returns whether scripts can be called, by the reply to [`absent_script`].
pub(super) fn runs_scripts(reply: RedisResult<Value>) -> RedisResult<bool> {
    match reply {
        // The script is absent, or the server cannot check yet, for example while it loads its data.
        Err(error) if is_passing(&error) => Ok(true),
        reply => unless_refused(reply).map(|reply| reply.is_some()),
    }
}

/// Returns the command that makes the server track the locks that a connection reads. The server reports changes by
/// other connections to this one, or to the connection with this id.
pub(super) fn tracking(reports_to: Option<i64>) -> Cmd {
    let mut track = cmd("CLIENT");
    track.arg("TRACKING").arg("ON");
    if let Some(id) = reports_to {
        track.arg("REDIRECT").arg(id);
    }
    track.arg("NOLOOP");
    track
}

/// Logs settings and missing permissions that affect locks. Returns the capabilities that are missing because of these
/// permissions.
async fn warn(checked: Checked<'_>) -> Vec<Capability> {
    let eviction = warn_of_eviction(checked.multiplexed.clone());
    let refusals = warn_of_refusals(checked);
    tokio::join!(boxed(eviction), boxed(refusals)).1
}

/// Warns if the server may evict locks to make room. Logs nothing without the permission to ask.
async fn warn_of_eviction(mut connection: MultiplexedConnection) {
    let mut info = cmd("INFO");
    info.arg("memory");
    let Ok(memory) = info.query_async::<InfoDict>(&mut connection).await else {
        return;
    };
    let limit: u64 = memory.get("maxmemory").unwrap_or(0);
    let policy: String = memory.get("maxmemory_policy").unwrap_or_default();
    if limit > 0 && !policy.is_empty() && policy != "noeviction" {
        tracing::warn!(
            policy,
            "the server may evict locks when its memory is full; use a server with \
             `maxmemory-policy noeviction` for locks"
        );
    }
}

/// The missing permissions that locks need, and the missing permissions that make locks quicker: commands, `~prefix*`
/// for the keys, and `&prefix*` for the channels.
pub(in crate::store) type Refused = (Vec<String>, Vec<String>);

/// Returns the permissions that this user lacks. Servers before Redis 7 cannot tell.
pub(in crate::store) async fn refused(
    connection: &mut MultiplexedConnection,
    keyspace: &Keyspace,
    with_replicas: bool,
) -> RedisResult<Refused> {
    let script = Script::new(include_str!("scripts/permissions.lua"));
    let mut call = script.arg(&keyspace.prefix);
    call.arg(keyspace.channel(Uuid::nil()))
        .arg(keyspace.are_of_cluster.then_some("cluster"))
        .arg(with_replicas.then_some("replicas"));
    // One round trip. If loading is refused, another client may have loaded the script.
    let mut requests = pipe();
    requests.load_script(&script).ignore().ignore_errors();
    requests.invoke_script(&call);
    let (refused,): (RedisResult<Refused>,) = requests.query_async(connection).await?;
    refused
}

/// Logs the permissions that the user lacks. Scripts ignore most of these refusals.
async fn warn_of_refusals(checked: Checked<'_>) -> Vec<Capability> {
    let (address, with_replicas) = (checked.address, checked.options.replicas.is_some());
    let mut connection = checked.multiplexed.clone();
    let refused = refused(&mut connection, checked.keyspace, with_replicas).await;
    let Ok((needed, better)) = refused else {
        // The first request for a lock reports the error.
        return Vec::new();
    };
    if !needed.is_empty() {
        let permissions = needed.join(", ");
        tracing::error!(%address, permissions, "the server's user lacks permissions that locks need");
    }
    if !better.is_empty() {
        let permissions = better.join(", ");
        tracing::warn!(%address, permissions, "the server's user lacks permissions: locks work, but waiters or \
            losses are noticed later, or checks are skipped");
    }
    let is_refused = |command: &str| needed.iter().chain(&better).any(|name| name == command);
    let capabilities = [("client|tracking", TRACKING), ("subscribe", NOTIFICATIONS)];
    let refused = capabilities
        .into_iter()
        .filter(|(command, _)| is_refused(command));
    refused.map(|(_, capability)| capability).collect()
}
