//! The URLs of stores: what each names, and how errors show it without its secrets.

mod parts;

use std::fmt;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

pub(crate) use self::parts::redacted;
use self::parts::{SEVERAL, UrlKind, UrlParts, no_scheme};
use super::{quorum::MOST_SERVERS, tls::Tls};
use crate::{error::LockError, escape_control::escape_control};

/// The store that a URL names.
pub enum Endpoint {
    /// The embedded store of this name. An empty name stands for a new store.
    Memory(String),
    /// One server.
    Server(ServerEndpoint),
    /// A Redis Cluster.
    Cluster(ClusterEndpoint),
    /// Independent servers, of which a majority grants a lock.
    Quorum(Vec<ServerEndpoint>),
}

/// One server that has the locks.
///
/// The protocol of a connection is RESP3, unless the URL asks for RESP2.
#[derive(Clone)]
pub enum ServerEndpoint {
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
pub struct ClusterEndpoint {
    /// Host and port of the nodes that the URL names.
    pub nodes: Vec<(String, u16)>,
    /// The connection to each node. Its host is a placeholder.
    pub node: ConnectionInfo,
}

/// The port of a Sentinel whose URL names none.
const SENTINEL_PORT: &str = ":26379";

impl Endpoint {
    /// Parses the URL of a store.
    ///
    /// # Errors
    ///
    /// [`LockError::InvalidOption`], without the password of the URL.
    pub fn parse(url: &str) -> Result<Self, LockError> {
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
    pub fn quorum(urls: &[impl AsRef<str>]) -> Result<Self, LockError> {
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
            Self::Server(server) => vec![server.server()],
            Self::Cluster(cluster) => vec![&cluster.node],
            Self::Quorum(servers) => servers.iter().map(ServerEndpoint::server).collect(),
        }
    }

    /// Returns whether all connections use TLS.
    pub(crate) fn uses_tls(&self) -> bool {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use redis::ProtocolVersion;

    use super::*;

    fn server(url: &str) -> ServerEndpoint {
        match Endpoint::parse(url) {
            Ok(Endpoint::Server(server)) => server,
            Ok(_) => panic!("{url} names no server"),
            Err(error) => panic!("{error}"),
        }
    }

    fn fixed(url: &str) -> ConnectionInfo {
        match server(url) {
            ServerEndpoint::Fixed(info) => info,
            ServerEndpoint::Master { .. } => panic!("{url} names Sentinels"),
        }
    }

    /// Returns the error for a URL, which never shows the password.
    fn refusal(url: &str) -> String {
        let error = Endpoint::parse(url).err().expect(url);
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains("s3cret"), "{shown}");
        shown
    }

    #[test]
    fn errors_and_addresses_never_show_a_password() {
        for (url, address) in [
            ("redis://user:s3cret@127.0.0.1:7/2", "127.0.0.1:7"),
            ("redis://u:s3cret@[::1]:7/", "[::1]:7"),
            ("unix:///run/a%0d%0ab.sock", "/run/a\\r\\nb.sock"),
            (
                "redis-sentinel://app:s3cret@one,two:1,[::1]:2/orders/3?sentinel_password=s3cret",
                "orders (one:26379, two:1, [::1]:2)",
            ),
        ] {
            assert_eq!(server(url).to_string(), address);
        }
        for (url, reason) in [
            (
                "redis://u:s3cret@h:99999/",
                "Redis URL did not parse; expected `redis://",
            ),
            ("redis://u@h:s3cret/", "Redis URL did not parse"),
            ("redis://u:s3cret@[::1]:abc/", "Redis URL did not parse"),
            ("redis://u:s3cret@::1:7/", "Redis URL did not parse"),
            (
                "redis://u:s3cret@h/-1",
                "`-1` is not a number of a database",
            ),
            (
                "redis-sentinel://u:s3cret@one/orders/-2",
                "`-2` is not a number",
            ),
            (
                "redis://u:s3cret@h/not-a-number",
                "Invalid database number; expected `redis://",
            ),
            (
                "redis://u:s3cret@h/?protocol=9",
                "Invalid protocol version; expected",
            ),
            ("redis:s3cret", "Missing hostname; expected `redis://"),
            ("unix:s3cret", "expected `unix:///path"),
            ("redis-sentinel://u:s3cret@one,two", "names no service"),
            (
                "redis-sentinel://u:s3cret@one,,two/orders",
                "host without a name",
            ),
            ("redis-sentinel://u:s3cret@one:99999/orders", "expected"),
            ("redis-sentinel://u:s3cret@one/orders/x", "expected"),
            ("redis-cluster://u:s3cret@one,,two", "host without a name"),
            ("redis-cluster://u:s3cret@", "host without a name"),
            (
                "redis-cluster://u:s3cret@one:99999",
                "`redis-cluster://…@one:99999`",
            ),
            ("redis-cluster://u:s3cret@one,two/1", "one database"),
            ("redis-cluster:one", "expected `redis-cluster://[user:"),
        ] {
            let shown = refusal(url);
            assert!(shown.contains(reason), "{shown}");
        }
    }

    #[test]
    fn several_urls_in_one_text_are_refused_with_the_forms_that_they_can_have() {
        for url in [
            "redis://u:s3cret@a,redis://u:s3cret@b",
            "redis://u:s3cret@a/ rediss://b/",
            "redis://u:s3cret@a,b:7/0",
            "valkey://a/;\n valkey://b/",
            "unix:///a.sock,unix:///b.sock",
            "memory:a redis://b",
            "redis-cluster://a redis-cluster://b",
            "redis-sentinel://a/s,redis-sentinel://b/s",
        ] {
            let shown = refusal(url);
            for form in [
                "`StoreUrl::quorum([…])`",
                "`RLOCK_URL`",
                "`redis-cluster://a,b`",
                "`redis-sentinel://a,b/service`",
            ] {
                assert!(shown.contains(form), "{shown}");
            }
        }
        fixed("redis://u:a,b%3A%2F%2Fc@h/");
    }

    #[test]
    fn nodes_of_a_cluster_share_a_login() {
        let url = "redis-cluster://app:s3cret@one,two:1,[::1]:2/?protocol=resp2";
        let Ok(Endpoint::Cluster(ClusterEndpoint { nodes, node })) = Endpoint::parse(url) else {
            panic!("{url} names a cluster");
        };
        let nodes: Vec<_> = nodes
            .iter()
            .map(|(host, port)| (host.as_str(), *port))
            .collect();
        assert_eq!(nodes, [("one", 6379), ("two", 1), ("::1", 2)]);
        assert_eq!(node.redis_settings().password(), Some("s3cret"));
        assert_eq!(node.redis_settings().protocol(), ProtocolVersion::RESP2);
    }

    #[test]
    fn a_password_that_is_cut_is_refused_before_it_passes_for_an_address() {
        for (url, hint) in [
            ("redis://user:12/s3cret@h/", "%2F"),
            ("redis://user:12?s3cret@h/", "%3F"),
            ("redis://user:12#s3cret@h/", "%23"),
            ("redis://user:12#s3cret", "%23"),
            ("redis-cluster://u:12/s3cret@one", "%2F"),
            ("unix:///redis.sock?pass=12#s3cret", "%23"),
        ] {
            let shown = refusal(url);
            assert!(shown.contains(hint), "{shown}");
        }
        let whole = fixed("redis://user:12%2Fs3%40cret@h/");
        assert_eq!(whole.redis_settings().password(), Some("12/s3@cret"));
        fixed("unix:///redis.sock?user=u&pass=s3@cret");
    }

    #[test]
    fn unknown_options_are_refused_with_the_names_of_the_known_ones() {
        for (url, known) in [
            ("redis://h/?db=3", "`protocol`;"),
            ("redis://h/?protocol=resp3&s3cret", "`protocol`;"),
            ("unix:///redis.sock?db=3&pass=x&s3cret=1", "`user`, `pass`;"),
            ("unix:///redis.sock?password=s3cret", "`user`, `pass`;"),
            (
                "redis-sentinel://h/orders?sentinel_pasword=s3cret",
                "`sentinel_user`, `sentinel_password`;",
            ),
            ("redis-cluster://h/?&sentinel_user=s3cret", "`protocol`;"),
        ] {
            let shown = refusal(url);
            assert!(shown.contains("is not known; known are"), "{shown}");
            assert!(shown.contains(known), "{shown}");
        }
        for url in [
            "redis://h/?protocol=s3cret",
            "redis://h/?protocol=2&protocol=s3cret",
        ] {
            let shown = refusal(url);
            assert!(shown.contains("Invalid protocol version;"), "{shown}");
        }
        for url in [
            "redis://u:s3cret@h/3",
            "redis://h?protocol=2",
            "redis://h/?",
            "unix:///redis.sock?db=3&user=u&pass=s3cret&protocol=resp2",
            "redis-sentinel://h/orders/3?sentinel_user=u&sentinel_password=p&protocol=3",
            "redis-cluster://h/?protocol=resp2",
        ] {
            assert!(Endpoint::parse(url).is_ok(), "{url}");
        }
    }

    #[test]
    #[cfg(feature = "tls")]
    fn verification_cannot_be_switched_off() {
        let shown = refusal("rediss://h/#insecure");
        assert!(shown.contains("always verified"), "{shown}");
    }

    #[test]
    fn the_url_may_ask_for_the_older_protocol() {
        for (url, protocol) in [
            ("redis://h/", ProtocolVersion::RESP3),
            ("redis://h/?protocol=3", ProtocolVersion::RESP3),
            ("redis://h/?protocol=resp2", ProtocolVersion::RESP2),
            ("redis://h/?protocol=3&protocol=2", ProtocolVersion::RESP2),
            ("unix:///s?db=1&protocol=2", ProtocolVersion::RESP2),
        ] {
            assert_eq!(fixed(url).redis_settings().protocol(), protocol, "{url}");
        }
    }

    proptest! {
        #[test]
        fn no_password_is_shown_wherever_it_stands(before in "[ -~]{0,4}", after in "[ -~]{0,4}") {
            let password = format!("{before}S3CRET{after}");
            let encode = |text, byte| format!("{text}%{byte:02x}");
            let encoded = password.bytes().fold(String::new(), encode);
            for password in [&password, &encoded] {
                let mut urls = vec![
                    format!("redis://:{password}@h/"),
                    format!("redis://u:{password}@h:1/2"),
                    format!("rediss://u:{password}@h/"),
                    format!("redis://u:{password}@h:99999/"),
                    format!("redis://u:{password}@h/no-number"),
                    format!("redis://u:{password}@"),
                    format!("redis:u:{password}@h"),
                    format!("unix:///redis.sock?user=u&pass={password}"),
                    format!("unix:///redis.sock?pass={password}&db=none"),
                    format!("unix://u:{password}@h/redis.sock"),
                    format!("u:{password}@h:6379/0"),
                    format!("{password}@h:6379"),
                    format!("{password}://@h"),
                    format!("http://u:{password}@h/"),
                ];
                // The text before an `@` is a login, and the text after it is a host.
                if !password.contains('@') {
                    urls.push(format!("redis://u:{password}"));
                }
                for url in urls {
                    let shown = match Endpoint::parse(&url) {
                        Ok(Endpoint::Server(server)) => server.to_string(),
                        Ok(_) => panic!("{url} names a server"),
                        Err(error) => format!("{error} {error:?}"),
                    };
                    let shown = shown.to_lowercase();
                    prop_assert!(!shown.contains("s3cret") && !shown.contains("%53%33"), "{shown}");
                }
            }
        }
    }
}
