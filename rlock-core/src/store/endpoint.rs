//! Parses the URLs of stores: which servers each names, with which login, and whether they use TLS.

mod parts;
#[cfg(test)]
mod tests;

use std::fmt;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};
use rlock_proto::{escape_control::escape_control, quorum::MOST_SERVERS};

pub(crate) use self::parts::redacted;
use self::parts::{SEVERAL, UrlKind, UrlParts, no_scheme};
#[cfg(feature = "postgres")]
use super::postgres::PostgresEndpoint;
use super::tls::Tls;
use crate::error::LockError;

/// The store that a URL names.
pub(crate) enum Endpoint {
    /// The embedded store of this name. An empty name stands for a new store.
    Memory(String),
    /// One server.
    Server(ServerEndpoint),
    /// A Redis Cluster.
    Cluster(ClusterEndpoint),
    /// A Postgres database.
    #[cfg(feature = "postgres")]
    Postgres(PostgresEndpoint),
    /// Independent servers, of which a majority grants a lock.
    Quorum(Vec<ServerEndpoint>),
}

/// One server that has the locks.
///
/// The protocol of a connection is RESP3, unless the URL asks for RESP2.
#[derive(Clone)]
pub(crate) enum ServerEndpoint {
    /// The server at this address.
    Fixed(ConnectionInfo),
    /// The master of a service, as its Sentinels know it.
    Master {
        /// The name of the service.
        service: String,
        /// The Sentinels that the URL names.
        sentinels: Vec<ConnectionInfo>,
        /// The connection to the master. Its host is a placeholder.
        master: ConnectionInfo,
    },
}

/// The Redis Cluster to which these nodes belong.
#[derive(Clone)]
pub(crate) struct ClusterEndpoint {
    /// Host and port of the nodes that the URL names.
    pub(crate) nodes: Vec<(String, u16)>,
    /// The connection to each node. Its host is a placeholder.
    pub(crate) node: ConnectionInfo,
}

/// The port of a Sentinel whose URL names none.
const SENTINEL_PORT: &str = ":26379";

impl Endpoint {
    /// Parses the URL of a store.
    ///
    /// # Errors
    ///
    /// [`LockError::InvalidOption`], without the password of the URL.
    pub(crate) fn parse(url: &str) -> Result<Self, LockError> {
        Self::read(url).map_err(|reason| invalid(url, reason))
    }

    fn read(url: &str) -> Result<Self, String> {
        let parts = UrlParts::of(url).ok_or_else(|| no_scheme(url))?;
        if parts.are_of_several(url) {
            return Err(SEVERAL.to_owned());
        }
        if parts.tls && !Tls::IS_SUPPORTED {
            return Err("TLS needs the feature `tls` of rlock-core".to_owned());
        }
        let read = parts.check().and_then(|()| parts.endpoint(url));
        read.map_err(|reason| {
            let (form, _) = parts.kind.form();
            format!("{reason}; expected `{}:{form}`", parts.scheme)
        })
    }

    /// Parses the URLs of a quorum.
    ///
    /// # Errors
    ///
    /// [`LockError::InvalidOption`], without the passwords of the URLs.
    pub(crate) fn quorum(urls: &[impl AsRef<str>]) -> Result<Self, LockError> {
        if urls.is_empty() {
            let way_out = "a quorum needs servers: three, or five, that do not fail together";
            return Err(LockError::invalid_option("urls", "[]", way_out));
        }
        if urls.len() > MOST_SERVERS {
            let way_out = "a quorum has 32 servers at most; three or five are enough";
            let given = format!("{} URLs", urls.len());
            return Err(LockError::invalid_option("urls", given, way_out));
        }
        let mut servers: Vec<ServerEndpoint> = Vec::with_capacity(urls.len());
        for url in urls {
            let url = url.as_ref();
            let Self::Server(server) = Self::parse(url)? else {
                let reason = "a quorum is made of single servers: `redis://`, `unix://` or `redis-sentinel://`";
                return Err(invalid(url, reason.to_owned()));
            };
            let address = server.to_string();
            if servers.iter().any(|other| other.to_string() == address) {
                let way_out =
                    "each server is named once, because one that votes twice is not a majority";
                let given = format!("`{address}`, twice");
                return Err(LockError::invalid_option("urls", given, way_out));
            }
            servers.push(server);
        }
        Ok(Self::Quorum(servers))
    }

    /// Returns the connections to the servers that have the locks. Hosts may be placeholders.
    pub(crate) fn servers(&self) -> Vec<&ConnectionInfo> {
        match self {
            Self::Memory(_) => Vec::new(),
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => Vec::new(),
            Self::Server(server) => vec![server.server()],
            Self::Cluster(cluster) => vec![&cluster.node],
            Self::Quorum(servers) => servers.iter().map(ServerEndpoint::server).collect(),
        }
    }

    /// Returns whether the URL of a server that has the locks has a user or a password.
    pub(crate) fn has_login(&self) -> bool {
        #[cfg(feature = "postgres")]
        if let Self::Postgres(database) = self {
            return database.has_login();
        }
        self.servers().into_iter().any(|info| {
            let settings = info.redis_settings();
            settings.username().is_some() || settings.password().is_some()
        })
    }

    /// Returns whether all connections use TLS.
    pub(crate) fn uses_tls(&self) -> bool {
        #[cfg(feature = "postgres")]
        if let Self::Postgres(database) = self {
            return database.uses_tls();
        }
        let servers = self.servers();
        !servers.is_empty() && servers.into_iter().all(is_tls)
    }
}

impl ServerEndpoint {
    pub(crate) fn uses_tls(&self) -> bool {
        is_tls(self.server())
    }

    /// Returns the connection to the server. The host of a master is a placeholder.
    pub(crate) fn server(&self) -> &ConnectionInfo {
        match self {
            Self::Fixed(info) | Self::Master { master: info, .. } => info,
        }
    }
}

fn is_tls(info: &ConnectionInfo) -> bool {
    matches!(info.addr(), ConnectionAddr::TcpTls { .. })
}

/// Shows the address without secrets: host and port, the path of a socket, or a service.
impl fmt::Display for ServerEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = match self {
            Self::Fixed(info) => address(info),
            Self::Master {
                service, sentinels, ..
            } => {
                let hosts = sentinels.iter().map(address);
                let hosts = hosts.collect::<Vec<_>>().join(", ");
                format!("{service} ({hosts})")
            }
        };
        f.write_str(&escape_control(&address))
    }
}

/// Returns `host:port` with an IPv6 address in brackets, or the path of a socket.
pub(super) fn address(info: &ConnectionInfo) -> String {
    match host_and_port(info) {
        Some((host, port)) if host.contains(':') => format!("[{host}]:{port}"),
        _ => info.addr().to_string(),
    }
}

fn host_and_port(info: &ConnectionInfo) -> Option<(String, u16)> {
    match info.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            Some((host.clone(), *port))
        }
        _ => None,
    }
}

/// Reads the parts of a URL.
impl UrlParts<'_> {
    fn endpoint(&self, url: &str) -> Result<Endpoint, String> {
        let scheme = if self.tls { "rediss" } else { "redis" };
        let Self { login, query, .. } = self;
        let path = self.path.strip_prefix('/').unwrap_or_default();
        Ok(match self.kind {
            UrlKind::Memory => Endpoint::Memory(self.path.to_owned()),
            #[cfg(feature = "postgres")]
            UrlKind::Postgres => Endpoint::Postgres(PostgresEndpoint::parse(url, query)?),
            #[cfg(not(feature = "postgres"))]
            UrlKind::Postgres => {
                return Err("Postgres needs the feature `postgres` of rlock-core".to_owned());
            }
            UrlKind::Server | UrlKind::Socket => {
                let (address, _) = url.split_once('?').unwrap_or((url, ""));
                Endpoint::Server(ServerEndpoint::Fixed(connection(address, query)?))
            }
            UrlKind::Cluster => {
                let node = |host: &str| connection(&format!("{scheme}://{login}{host}/"), query);
                let nodes = self.each_host(node)?;
                if !matches!(path, "" | "0") {
                    return Err("a cluster has one database, and its number is 0".to_owned());
                }
                Endpoint::Cluster(ClusterEndpoint {
                    nodes: nodes.iter().filter_map(host_and_port).collect(),
                    node: node("node")?,
                })
            }
            UrlKind::Sentinels => {
                let option = |name| self.option(name).unwrap_or_default();
                let login_there = match (option("sentinel_user"), option("sentinel_password")) {
                    ("", "") => String::new(),
                    (user, password) => format!("{user}:{password}@"),
                };
                let sentinels = self.each_host(|host| {
                    let before_port = host.trim_end_matches(|c: char| c.is_ascii_digit());
                    let has_port = before_port.ends_with(':');
                    let port = if has_port { "" } else { SENTINEL_PORT };
                    let url = format!("{scheme}://{login_there}{host}{port}/");
                    connection(&url, "protocol=resp2")
                })?;
                let (service, database) = path.split_once('/').unwrap_or((path, ""));
                if service.is_empty() {
                    return Err("it names no service".to_owned());
                }
                Endpoint::Server(ServerEndpoint::Master {
                    service: service.to_owned(),
                    sentinels,
                    master: connection(&format!("{scheme}://{login}master/{database}"), query)?,
                })
            }
        })
    }

    fn each_host(
        &self,
        connection: impl Fn(&str) -> Result<ConnectionInfo, String>,
    ) -> Result<Vec<ConnectionInfo>, String> {
        let connect = |host| match host {
            "" => Err("it names a host without a name".to_owned()),
            host => connection(host),
        };
        self.hosts.split(',').map(connect).collect()
    }
}

/// Parses the URL of one server. Its options follow the default, and the last value of an option counts.
fn connection(url: &str, options: &str) -> Result<ConnectionInfo, String> {
    let parsed = format!("{url}?protocol=resp3&{options}").into_connection_info();
    let info = parsed.map_err(|error| {
        // The detail behind the kind of the error may be a part of a password.
        let error = error.to_string();
        let (reason, _) = error.split_once(" - ").unwrap_or((&error, ""));
        reason.to_owned()
    })?;
    let database = info.redis_settings().db();
    if database < 0 {
        return Err(format!("`{database}` is not a number of a database"));
    }
    // Without a password, redis-rs skips the login and stays the user `default`. A user with
    // `nopass` may log in with any password.
    let settings = info.redis_settings().clone();
    if settings.username().is_some() && settings.password().is_none() {
        return Ok(info.set_redis_settings(settings.set_password("")));
    }
    Ok(info)
}

/// Returns the error for a URL, which shows the URL without its secrets.
fn invalid(url: &str, reason: String) -> LockError {
    LockError::invalid_option("url", format!("`{}`", redacted(url)), reason)
}
