//! The servers that URLs name, and what their users may do. For `rlock doctor`, which opens connections of its own.

use redis::{
    Client, ConnectionInfo, ProtocolVersion, RedisError, RedisResult, aio::MultiplexedConnection,
};

use super::{
    endpoint::{Endpoint, ServerEndpoint, address},
    redis::{
        address::{ConnectionSettings, Server, elsewhere},
        capabilities,
        keyspace::Keyspace,
    },
};
use crate::{error::LockError, escape_control::escape_control};

/// A server, and how to log in there.
#[derive(Clone)]
pub struct Probed(ConnectionInfo);

/// The servers of a store.
pub enum Named {
    /// The embedded store, which has none.
    Memory,
    /// One server.
    Server(Probed),
    /// The Sentinels of a service.
    Sentinels {
        /// The name of the service.
        service: String,
        /// Those that the URL names.
        sentinels: Vec<Probed>,
        /// The master. Its address is a placeholder.
        master: Probed,
    },
    /// Some nodes of a cluster.
    Cluster(Vec<Probed>),
    /// Independent servers or services.
    Quorum(Vec<Self>),
}

impl Named {
    /// Returns the servers of this URL, or of the quorum of several.
    ///
    /// # Errors
    ///
    /// [`LockError::InvalidOption`] as from a connection to them. The message has no password.
    pub fn parse(urls: &[String]) -> Result<Self, LockError> {
        Ok(match urls {
            [url] => Self::of(Endpoint::parse(url)?),
            urls => Self::of(Endpoint::quorum(urls)?),
        })
    }

    fn of(endpoint: Endpoint) -> Self {
        match endpoint {
            Endpoint::Memory(_) => Self::Memory,
            Endpoint::Server(server) => Self::of_server(server),
            Endpoint::Quorum(servers) => {
                Self::Quorum(servers.into_iter().map(Self::of_server).collect())
            }
            Endpoint::Cluster(cluster) => {
                let node = Probed(cluster.node);
                let nodes = cluster.nodes.into_iter();
                Self::Cluster(nodes.map(|(host, port)| node.at(host, port)).collect())
            }
        }
    }

    fn of_server(server: ServerEndpoint) -> Self {
        match server {
            ServerEndpoint::Fixed(info) => Self::Server(Probed(info)),
            ServerEndpoint::Master {
                service,
                sentinels,
                master,
            } => Self::Sentinels {
                service,
                sentinels: sentinels.into_iter().map(Probed).collect(),
                master: Probed(master),
            },
        }
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
        server.classify(error).to_string()
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
