//! Connects to a server in order to examine it, and says why that failed.

use redis::{
    AsyncConnectionConfig, Cmd, ConnectionInfo, FromRedisValue, ProtocolVersion, RedisError,
    RedisResult, aio::MultiplexedConnection,
};

use crate::store::{
    endpoint::address,
    options::StoreOptions,
    redis::{
        address::{Server, elsewhere},
        errors::{NO_RESP3, without_kind},
    },
};

/// A server, and how a client connects to it.
#[derive(Clone)]
pub(super) struct Peer {
    info: ConnectionInfo,
    pub(super) options: StoreOptions,
    pub(super) is_of_cluster: bool,
}

/// A connection, and why it has not the newer protocol.
pub(super) struct Opened {
    pub(super) connection: MultiplexedConnection,
    pub(super) no_resp3: Option<String>,
}

impl Peer {
    pub(super) fn new(info: ConnectionInfo, options: &StoreOptions) -> Self {
        Self {
            info,
            options: options.clone(),
            is_of_cluster: false,
        }
    }

    /// Returns a Sentinel, whose login is in its URL.
    pub(super) fn sentinel(info: ConnectionInfo, options: &StoreOptions) -> Self {
        let mut sentinel = Self::new(info, options);
        sentinel.options.connection.credentials = None;
        sentinel
    }

    /// Returns a node of a cluster. The host is a placeholder.
    pub(super) fn node(info: ConnectionInfo, options: &StoreOptions) -> Self {
        Self {
            is_of_cluster: true,
            ..Self::new(info, options)
        }
    }

    /// Returns the server at another address with the same login.
    pub(super) fn at(&self, host: String, port: u16) -> Self {
        Self {
            info: elsewhere(&self.info, host, port),
            ..self.clone()
        }
    }

    /// Returns host and port, or the path of a socket.
    pub(super) fn address(&self) -> String {
        address(&self.info)
    }

    /// Returns why a connection to this server failed, and the way out if it is known.
    pub(super) fn why(&self, error: RedisError) -> String {
        let is_late = error.is_timeout() && !self.wants_resp2();
        let way_out = if is_late { NO_RESP3 } else { "" };
        format!("{}{way_out}", self.server().classify(error))
    }

    /// Connects with RESP3, or with RESP2 if the URL asks for it or the server does not know the newer protocol.
    pub(super) async fn open(&self) -> RedisResult<Opened> {
        let why = if self.wants_resp2() {
            "the URL asks for RESP2".to_owned()
        } else {
            match self.open_with(ProtocolVersion::RESP3).await {
                Ok(connection) => {
                    return Ok(Opened {
                        connection,
                        no_resp3: None,
                    });
                }
                Err(error) if error.is_io_error() => return Err(error),
                Err(error) => without_kind(&error),
            }
        };
        // A wrong password fails here again, with the same reason.
        let connection = self.open_with(ProtocolVersion::RESP2).await?;
        let no_resp3 = Some(why);
        Ok(Opened {
            connection,
            no_resp3,
        })
    }

    /// Connects, and sends one command.
    pub(super) async fn query<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        let mut opened = self.open().await?;
        command.query_async(&mut opened.connection).await
    }

    async fn open_with(&self, protocol: ProtocolVersion) -> RedisResult<MultiplexedConnection> {
        let limits = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.options.connect_timeout))
            .set_response_timeout(Some(self.options.response_timeout));
        let client = self.server().with_login().await?.client(protocol)?;
        client
            .get_multiplexed_async_connection_with_config(&limits)
            .await
    }

    fn server(&self) -> Server {
        Server::new(self.info.clone(), self.options.connection.clone())
    }

    fn wants_resp2(&self) -> bool {
        self.info.redis_settings().protocol() == ProtocolVersion::RESP2
    }
}
