//! Opens connections, and ends tasks that are dropped.

use redis::{AsyncConnectionConfig, Client, RedisResult, aio::MultiplexedConnection};
use tokio::task::{AbortHandle, JoinHandle};

use super::errors::unexpected;
use crate::store::{BoxFuture, StoreError};

/// A handle that ends its task when dropped.
pub(in crate::store) struct AbortOnDrop(AbortHandle);

impl AbortOnDrop {
    pub(in crate::store) fn new<T>(task: &JoinHandle<T>) -> Self {
        Self(task.abort_handle())
    }

    pub(in crate::store) fn abort(&self) {
        self.0.abort();
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.abort();
    }
}

/// Returns the result of a connection task. Dropping this future ends the task.
pub(crate) async fn connecting<T>(
    task: JoinHandle<Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let _task = AbortOnDrop::new(&task);
    task.await.unwrap_or_else(|error| Err(unexpected(error)))
}

/// Boxes a future to keep its caller's future small.
pub(super) fn boxed<'a, T>(future: impl Future<Output = T> + Send + 'a) -> BoxFuture<'a, T> {
    Box::pin(future)
}

/// Returns a configuration without time-outs. The link limits each attempt to connect, and the store each request.
pub(super) fn without_time_outs() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
}

/// Opens a connection for a few commands, without push messages.
pub(in crate::store) async fn plain(client: &Client) -> RedisResult<MultiplexedConnection> {
    multiplexed(client, &without_time_outs()).await
}

/// Opens a connection. The future is boxed, so that it is compiled once for all callers.
pub(super) fn multiplexed<'a>(
    client: &'a Client,
    config: &'a AsyncConnectionConfig,
) -> BoxFuture<'a, RedisResult<MultiplexedConnection>> {
    boxed(client.get_multiplexed_async_connection_with_config(config))
}
