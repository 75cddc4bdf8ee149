//! Warns of features that the server lacks, of permissions that its user lacks (`permissions.lua`), and of eviction.
//! Requests go on without them: `errors` classifies what the server then refuses.

use redis::{Cmd, InfoDict, RedisResult, Script, aio::MultiplexedConnection, cmd, pipe};
use tokio::time::timeout;
use uuid::Uuid;

use super::{address::Address, dial::boxed};
use crate::store::{keyspace::Keyspace, options::StoreOptions};

/// The command without which a capability is missing; the name of the capability, with the consequence.
pub(super) type Capability = (&'static str, &'static str);

/// The protocol that mixes notifications with replies.
pub(super) const RESP3: Capability = (
    "hello",
    "RESP3: a lock that is deleted is noticed by the next renewal, not at once",
);
pub(super) const TRACKING: Capability = (
    "client|tracking",
    "CLIENT TRACKING: a lock that is deleted is noticed by the next renewal, not at once",
);
/// Subscriptions to the client's channel.
pub(super) const NOTIFICATIONS: Capability = (
    "subscribe",
    "SUBSCRIBE: a waiter in another process asks again after a change of the lock, or within five seconds",
);

/// Logs settings of the server that affect locks, and what it or its user lacks.
pub(super) async fn check(
    address: &Address,
    options: &StoreOptions,
    keyspace: &Keyspace,
    connection: &MultiplexedConnection,
    mut missing: Vec<Capability>,
) {
    let with_replicas = options.replicas.is_some();
    let warned = async {
        let eviction = warn_of_eviction(address, connection.clone());
        let refusals = warn_of_refusals(address, keyspace, connection.clone(), with_replicas);
        tokio::join!(boxed(eviction), boxed(refusals)).1
    };
    let refused = timeout(options.connect_timeout, warned).await;
    let refused = refused.unwrap_or_default();
    missing.retain(|(command, _)| !refused.iter().any(|name| name == command));
    if !missing.is_empty() {
        let missing = missing.iter().map(|(_, name)| *name);
        let missing = missing.collect::<Vec<_>>().join("; ");
        tracing::warn!(%address, %missing, "the server lacks features, so losses or waiters are noticed later: update it or its proxy");
    }
}

/// Returns the command that makes the server track the locks that a connection reads. The server reports changes by
/// other connections to this one, or to the connection with this id.
pub(in crate::store) fn tracking(reports_to: Option<i64>) -> Cmd {
    let mut track = cmd("CLIENT");
    track.arg("TRACKING").arg("ON");
    if let Some(id) = reports_to {
        track.arg("REDIRECT").arg(id);
    }
    track.arg("NOLOOP");
    track
}

/// Warns if the server may evict locks to make room. Logs nothing without the permission to ask.
async fn warn_of_eviction(address: &Address, mut connection: MultiplexedConnection) {
    let mut info = cmd("INFO");
    info.arg("memory");
    let Ok(memory) = info.query_async::<InfoDict>(&mut connection).await else {
        return;
    };
    let limit: u64 = memory.get("maxmemory").unwrap_or(0);
    let policy: String = memory.get("maxmemory_policy").unwrap_or_default();
    if limit > 0 && !policy.is_empty() && policy != "noeviction" {
        tracing::warn!(
            %address,
            policy,
            "the server may evict locks when its memory is full; use a server with \
             `maxmemory-policy noeviction` for locks"
        );
    }
}

/// The missing permissions that locks need, and the missing permissions that make locks quicker: commands, `~prefix*`
/// for the keys, and `&prefix*` for the channels.
pub(in crate::store) type RefusedPermissions = (Vec<String>, Vec<String>);

/// Returns the permissions that this user lacks. Servers before Redis 7 cannot tell.
///
/// Some services refuse a script without keys. A user without access to the keys may not call one with a key, and a node
/// of a cluster may not have the key's slot. So the script is called in both ways if the first one fails.
pub(in crate::store) async fn refused(
    connection: &mut MultiplexedConnection,
    keyspace: &Keyspace,
    with_replicas: bool,
) -> RedisResult<RefusedPermissions> {
    let script = Script::new(include_str!("scripts/permissions.lua"));
    let mut ask = async |with_key: bool| {
        let mut call = script.prepare_invoke();
        if with_key {
            call.key(any_lock(keyspace));
        }
        call.arg(&keyspace.prefix)
            .arg(keyspace.channel(Uuid::nil()))
            .arg(keyspace.are_of_cluster.then_some("cluster"))
            .arg(with_replicas.then_some("replicas"));
        // One round trip. If loading is refused, another client may have loaded the script.
        let mut requests = pipe();
        requests.load_script(&script).ignore().ignore_errors();
        requests.invoke_script(&call);
        let (refused,): (RedisResult<RefusedPermissions>,) =
            requests.query_async(connection).await?;
        refused
    };
    let key_first = !keyspace.are_of_cluster;
    match ask(key_first).await {
        // The second error is about the other way, so the first one is returned.
        Err(error) if !error.is_io_error() => ask(!key_first).await.map_err(|_| error),
        refused => refused,
    }
}

/// Returns the name of a lock, for scripts that need a key and do not use it.
fn any_lock(keyspace: &Keyspace) -> String {
    format!("{}{{any}}", keyspace.prefix)
}

/// Logs the permissions that the user lacks, and returns them. Scripts ignore most of these refusals.
async fn warn_of_refusals(
    address: &Address,
    keyspace: &Keyspace,
    mut connection: MultiplexedConnection,
    with_replicas: bool,
) -> Vec<String> {
    let refused = refused(&mut connection, keyspace, with_replicas).await;
    // If the check failed, the first request for a lock reports the error.
    let (mut needed, better) = refused.unwrap_or_default();
    if !needed.is_empty() {
        let permissions = needed.join(", ");
        tracing::error!(%address, permissions, "the server's user lacks permissions that locks need");
    }
    if !better.is_empty() {
        let permissions = better.join(", ");
        tracing::warn!(%address, permissions, "the server's user lacks permissions: locks work, but waiters or \
            losses are noticed later, checks are skipped, or locks cannot be shared");
    }
    needed.extend(better);
    needed
}
