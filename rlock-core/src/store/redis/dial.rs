//! Opens connections, and ends tasks that are dropped.

use std::{io, time::Duration};

use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, RedisResult,
    aio::{MultiplexedConnection, PubSub},
    parse_redis_value,
};
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    net::TcpStream,
    task::{AbortHandle, JoinHandle},
    time::timeout,
};

use super::errors::unexpected;
use crate::store::{BoxFuture, StoreError};

/// The limits for a server that has closed a connection to give its reason on another one: time, and length in bytes.
const GREETING: Duration = Duration::from_millis(100);
const LONGEST_GREETING: usize = 512;

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
    boxed(async move {
        let opened = client.get_multiplexed_async_connection_with_config(config);
        explained(client, opened.await).await
    })
}

/// Opens a connection for subscriptions.
pub(super) async fn pubsub(client: &Client) -> RedisResult<PubSub> {
    explained(client, client.get_async_pubsub().await).await
}

/// Replaces the error of a connection that the server closed by the server's reason.
///
/// A server with too many clients gives its reason and closes the connection at once. redis-rs sends the login, notices
/// that the connection is closed, and does not read the reason. A connection that sends nothing can read it.
async fn explained<T>(client: &Client, opened: RedisResult<T>) -> RedisResult<T> {
    match opened {
        Err(error) if error.is_connection_dropped() => {
            let greeting = timeout(GREETING, greeting(client.get_connection_info().addr())).await;
            let refusal = greeting.ok().and_then(|greeting| {
                let reason = greeting.ok()?;
                parse_redis_value(&reason).ok()?.extract_error().err()
            });
            Err(refusal.unwrap_or(error))
        }
        opened => opened,
    }
}

/// Reads what the server sends before any request. Over TLS, it sends nothing before the handshake.
async fn greeting(addr: &ConnectionAddr) -> io::Result<Vec<u8>> {
    let mut reason = Vec::with_capacity(LONGEST_GREETING);
    let mut stream: Box<dyn AsyncRead + Send + Unpin> = match addr {
        ConnectionAddr::Tcp(host, port) => {
            Box::new(TcpStream::connect((host.as_str(), *port)).await?)
        }
        #[cfg(unix)]
        ConnectionAddr::Unix(path) => Box::new(UnixStream::connect(path).await?),
        _ => return Ok(reason),
    };
    while !reason.ends_with(b"\r\n") && reason.len() < LONGEST_GREETING {
        if stream.read_buf(&mut reason).await? == 0 {
            break;
        }
    }
    Ok(reason)
}
