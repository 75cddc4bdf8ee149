//! What is worth knowing of the server when a client connects.

use redis::{InfoDict, aio::MultiplexedConnection, cmd};

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
