//! The connection to a server that is examined.

use std::time::Duration;

use redis::{
    AsyncConnectionConfig, ProtocolVersion, RedisError, RedisResult, aio::MultiplexedConnection,
};
use rlock_core::__private::probe::Probed;

/// How long a server may take to accept a connection, and to reply.
const PATIENCE: Duration = Duration::from_secs(5);

/// A connection, and why it has not the newer protocol.
pub(super) struct Opened {
    pub(super) connection: MultiplexedConnection,
    pub(super) no_resp3: Option<String>,
}

/// Connects with RESP3, or with RESP2 if the URL asks for it or the server does not know the newer protocol.
pub(super) async fn open(server: &Probed) -> RedisResult<Opened> {
    let resp2 = async || with(server, ProtocolVersion::RESP2).await;
    if server.is_resp2() {
        return Ok(Opened {
            connection: resp2().await?,
            no_resp3: Some("the URL asks for RESP2".to_owned()),
        });
    }
    match with(server, ProtocolVersion::RESP3).await {
        Ok(connection) => Ok(Opened {
            connection,
            no_resp3: None,
        }),
        Err(error) if error.is_io_error() => Err(error),
        // A wrong password fails here again, with the same reason.
        Err(error) => Ok(Opened {
            connection: resp2().await?,
            no_resp3: Some(reason(&error)),
        }),
    }
}

async fn with(server: &Probed, protocol: ProtocolVersion) -> RedisResult<MultiplexedConnection> {
    let limits = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE));
    let client = server.client(protocol)?;
    client
        .get_multiplexed_async_connection_with_config(&limits)
        .await
}

/// Returns the message of the server or the system, without the kind of the error.
pub(super) fn reason(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        // redis-rs appends the name of the kind.
        _ => error
            .to_string()
            .replacen(&format!(" - {:?}", error.kind()), "", 1),
    }
}
