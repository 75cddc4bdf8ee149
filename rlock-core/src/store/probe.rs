//! The servers that URLs name, and what their users may do. For `rlock doctor`, which opens connections of its own.

use redis::{
    Client, ConnectionInfo, ProtocolVersion, RedisError, RedisResult, aio::MultiplexedConnection,
};

use super::{
    endpoint::address,
    redis::{
        address::{ConnectionSettings, Server, elsewhere},
        capabilities,
        errors::{DECLARED_ONLY, NO_RESP3, is_undeclared},
        keyspace::Keyspace,
    },
};
use crate::escape_control::escape_control;

/// A server, and how to log in there.
#[derive(Clone)]
pub struct Probed(ConnectionInfo);

impl From<ConnectionInfo> for Probed {
    fn from(info: ConnectionInfo) -> Self {
        Self(info)
    }
}

impl Probed {
    /// Returns the server at another address with the same login.
    #[must_use]
    pub fn at(&self, host: String, port: u16) -> Self {
        Self(elsewhere(&self.0, host, port))
    }

    /// Returns host and port, or the path of a socket.
    #[must_use]
    pub fn address(&self) -> String {
        escape_control(&address(&self.0))
    }

    /// Returns why a connection to this server failed, and the way out if it is known.
    #[must_use]
    pub fn why(&self, error: RedisError) -> String {
        let server = Server::new(self.0.clone(), ConnectionSettings::default());
        let is_late = error.is_timeout() && !self.is_resp2();
        let way_out = if is_late { NO_RESP3 } else { "" };
        format!("{}{way_out}", server.classify(error))
    }

    /// Returns whether the URL asks for RESP2.
    #[must_use]
    pub fn is_resp2(&self) -> bool {
        self.0.redis_settings().protocol() == ProtocolVersion::RESP2
    }

    /// Returns the client for connections with this protocol, which are made as those of a `LockClient`.
    ///
    /// # Errors
    ///
    /// If the certificates of the system cannot be read.
    pub fn client(&self, protocol: ProtocolVersion) -> RedisResult<Client> {
        Server::new(self.0.clone(), ConnectionSettings::default()).client(protocol)
    }
}

/// Returns what to do about a refusal that no permission explains, if that is known.
#[must_use]
pub fn way_out(error: &RedisError) -> Option<&'static str> {
    is_undeclared(error).then_some(DECLARED_ONLY)
}

/// Returns the permissions that this user lacks: those that locks need, and those that make locks quicker. Each is a
/// command, `~prefix*` for the keys, or `&prefix*` for the channels. Servers before Redis 7 name none, because they
/// cannot tell.
///
/// # Errors
///
/// Those of the server, also if its user may not load scripts.
pub async fn refused(
    connection: &mut MultiplexedConnection,
    prefix: &str,
    is_of_cluster: bool,
) -> RedisResult<(Vec<String>, Vec<String>)> {
    let prefix = prefix.to_owned();
    let keyspace = if is_of_cluster {
        Keyspace::at_node(prefix, "any")
    } else {
        Keyspace::new(prefix)
    };
    capabilities::refused(connection, &keyspace, false).await
}
