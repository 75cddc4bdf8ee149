//! Tests of the fixtures whose failure would let tests of the product pass: faults that do not happen, looks that see nothing,
//! and witnesses that miss an overlap. Other faults of a fixture show in the tests that use it.

mod proxies;
mod servers;
mod simultaneous;
mod witnesses;

use std::any::Any;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisResult};
use rlock_testkit::RedisServer;

/// The limit after which a test counts as hanging.
const LONG: Duration = Duration::from_secs(60);

/// The time after which a server counts as silent. A reply that comes later is ignored, so it fails no test.
const SILENCE: Duration = Duration::from_millis(300);

async fn connect(url: &str) -> MultiplexedConnection {
    try_connect(url, LONG).await.expect("a connection")
}

async fn try_connect(url: &str, limit: Duration) -> RedisResult<MultiplexedConnection> {
    let limits = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(limit))
        .set_response_timeout(Some(limit));
    let client = Client::open(url)?;
    client
        .get_multiplexed_async_connection_with_config(&limits)
        .await
}

async fn incr(connection: &mut MultiplexedConnection) -> RedisResult<u64> {
    redis::cmd("INCR").arg("n").query_async(connection).await
}

/// Returns how often the server has executed `INCR n`.
async fn n(server: &RedisServer) -> u64 {
    let n: Option<u64> = server.command(&["GET", "n"]).await;
    n.unwrap_or(0)
}

/// Returns the message of a panic.
fn message(panic: Box<dyn Any + Send>) -> String {
    *panic.downcast().expect("a message")
}
