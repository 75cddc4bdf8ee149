//! Opens TCP, TLS and socket connections.

use redis::{AsyncConnectionConfig, Client, RedisResult, aio::MultiplexedConnection};

use crate::store::BoxFuture;

/// Boxes a future to keep its caller's future small.
pub(super) fn boxed<'a, T>(future: impl Future<Output = T> + Send + 'a) -> BoxFuture<'a, T> {
    Box::pin(future)
}

/// The number of requests that a connection queues. When the queue is full, a free place goes to the next request
/// even if its future is not polled. Until it is polled, later requests are sent first, or wait.
const QUEUE: usize = 1 << 20;

/// Returns a configuration without time-outs. The link limits each attempt to connect, and the store each request.
pub(super) fn without_time_outs() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_pipeline_buffer_size(QUEUE)
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

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, Mutex},
        time::Duration,
    };

    use futures_util::FutureExt;
    use redis::cmd;
    use tokio::{net::TcpListener, time::timeout};

    use super::*;

    /// Starts a server that confirms every command. Returns its URL, and what it has read.
    async fn server() -> (String, Arc<Mutex<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("redis://{}", listener.local_addr().expect("bound"));
        let received = Arc::<Mutex<String>>::default();
        let log = Arc::clone(&received);
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.expect("a client");
            let mut bytes = [0; 4096];
            loop {
                stream.readable().await.expect("open");
                let read = match stream.try_read(&mut bytes) {
                    Ok(0) => return,
                    Ok(read) => String::from_utf8_lossy(&bytes[..read]).into_owned(),
                    Err(_) => continue,
                };
                let replies = "+OK\r\n".repeat(read.matches('*').count());
                log.lock().expect("no panic").push_str(&read);
                stream.try_write(replies.as_bytes()).expect("few replies");
            }
        });
        (url, received)
    }

    /// The earlier requests are not polled again.
    #[tokio::test]
    async fn a_request_overtakes_none_of_many_earlier_ones_and_waits_for_none() {
        let (url, received) = server().await;
        let client = Client::open(url).expect("a URL");
        let connection = plain(&client).await.expect("it listens");
        let send = |name: String| {
            let mut connection = connection.clone();
            boxed(async move { connection.send_packed_command(cmd("PING").arg(name)).await })
        };
        let mut earlier: Vec<_> = (0..1000).map(|n| send(format!("earlier-{n}"))).collect();
        for request in &mut earlier {
            let reply = tokio::task::unconstrained(request).now_or_never();
            assert!(reply.is_none(), "nothing has been written yet");
        }
        let last = timeout(Duration::from_secs(10), send("last".to_owned()));
        last.await.expect("it has a place").expect("a reply");
        let received = received.lock().expect("no panic").clone();
        let before = received.split("last").next().unwrap_or_default();
        assert_eq!(before.matches("earlier").count(), 1000);
    }
}
