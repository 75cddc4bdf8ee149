//! What is worth knowing of the server when a client connects.

use redis::{InfoDict, RedisResult, Script, aio::MultiplexedConnection, cmd, pipe};

use super::address::Address;

/// Says so when the server may throw locks away to make room. Without the permission to ask,
/// nothing is said.
pub(super) async fn warn_of_eviction(commands: &mut MultiplexedConnection) {
    let mut info = cmd("INFO");
    info.arg("memory");
    let Ok(memory) = info.query_async::<InfoDict>(commands).await else {
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

/// Commands that locks need, and those that make them quicker.
type Refused = (Vec<String>, Vec<String>);

/// Says what the user may not do, and answers it; inside of scripts most of that would pass in silence.
/// Where this is refused too, the first request for a lock says so. `beyond` names what the client is for,
/// beside locks on one server.
pub(super) async fn warn_of_refusals(
    commands: &mut MultiplexedConnection,
    address: &Address,
    (lock, channel): (&str, &str),
    beyond: &[&str],
) -> Vec<String> {
    let script = Script::new(include_str!("scripts/permissions.lua"));
    let mut call = script.arg(lock);
    // Together they cost one round trip. Where loading is refused, another client may have done it.
    let mut requests = pipe();
    requests.load_script(&script).ignore().ignore_errors();
    requests.invoke_script(call.arg(channel).arg(beyond));
    let answers: RedisResult<(RedisResult<Refused>,)> = requests.query_async(commands).await;
    let Ok((Ok((mut needed, better)),)) = answers else {
        return Vec::new();
    };
    if !needed.is_empty() {
        let commands = needed.join(", ");
        tracing::error!(%address, commands, "the server's user lacks permissions that locks need");
    }
    if !better.is_empty() {
        let commands = better.join(", ");
        tracing::warn!(%address, commands, "the server's user lacks permissions: locks work, but waiters or \
            losses are noticed later, or questions stay open");
    }
    needed.extend(better);
    needed
}
