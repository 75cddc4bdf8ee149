//! The address of the server that has the locks, and its connection settings.

use std::{fmt, sync::Arc, time::Duration};

use redis::{Client, ConnectionAddr, ConnectionInfo, ProtocolVersion, RedisResult};

use super::{sentinel::Sentinels, tls::Tls};
use crate::store::endpoint::ServerEndpoint;

/// How long a connection is idle before the system probes the peer.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// How long sent bytes may stay unacknowledged before the system closes the connection.
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);

/// Explains where the login is in a URL that names hosts.
pub(in crate::store) const LOGIN: &str = "user and password stand before the host in the URL: \
    `user:password@host`, or `:password@host` for the user `default`";

/// The address of the server that has the locks.
#[derive(Clone)]
pub(in crate::store) struct Address {
    shown: String,
    place: Place,
}

#[derive(Clone)]
enum Place {
    Server(Arc<Server>),
    /// The current master.
    Master(Arc<Sentinels>),
}

/// A server, with RESP3 preferred.
pub(in crate::store) struct Server {
    resp3: Option<Client>,
    resp2: Client,
}

/// The settings of connections that a URL does not contain.
#[derive(Clone)]
pub(in crate::store) struct Manner {
    pub(super) nodelay: bool,
    pub(super) tls: Tls,
}

impl Address {
    pub(in crate::store) fn new(endpoint: &ServerEndpoint, manner: Manner) -> RedisResult<Self> {
        let place = match endpoint {
            ServerEndpoint::Fixed(info) => Place::Server(Arc::new(Server::new(info, &manner)?)),
            ServerEndpoint::Master {
                service,
                sentinels,
                master,
            } => {
                let sentinels = Sentinels::new(service, sentinels, master, manner)?;
                Place::Master(Arc::new(sentinels))
            }
        };
        Ok(Self {
            shown: endpoint.to_string(),
            place,
        })
    }

    /// Returns the server that has the locks now. The caller waits for `patience` to be connected.
    pub(super) async fn server(&self, patience: Duration) -> RedisResult<Arc<Server>> {
        match &self.place {
            Place::Server(server) => Ok(Arc::clone(server)),
            Place::Master(sentinels) => sentinels.master(patience).await.map(Arc::new),
        }
    }
}

impl Server {
    pub(in crate::store) fn new(info: &ConnectionInfo, manner: &Manner) -> RedisResult<Self> {
        let client = |protocol| {
            let info = with_settings(info, protocol, manner.nodelay);
            manner.tls.open(info)
        };
        let wants_resp3 = info.redis_settings().protocol() == ProtocolVersion::RESP3;
        let resp3 = wants_resp3.then(|| client(ProtocolVersion::RESP3));
        Ok(Self {
            resp3: resp3.transpose()?,
            resp2: client(ProtocolVersion::RESP2)?,
        })
    }

    pub(super) fn preferred(&self) -> &Client {
        self.resp3.as_ref().unwrap_or(&self.resp2)
    }

    /// Returns the client for connections without push messages.
    pub(super) fn without_pushes(&self) -> &Client {
        &self.resp2
    }

    /// Explains where the login is in this URL.
    pub(super) fn login(&self) -> &'static str {
        match self.resp2.get_connection_info().addr() {
            ConnectionAddr::Unix(_) => {
                "user and password stand behind the `?` of the URL: `unix:///path?user=…&pass=…`"
            }
            _ => LOGIN,
        }
    }

    /// Returns the client to try if the server refuses the preferred protocol.
    pub(super) fn fallback(&self) -> Option<&Client> {
        self.resp3.is_some().then_some(&self.resp2)
    }
}

/// Shows host and port, or the path of a socket; never a password.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

fn with_settings(
    info: &ConnectionInfo,
    protocol: ProtocolVersion,
    nodelay: bool,
) -> ConnectionInfo {
    let keepalive = socket2::TcpKeepalive::new()
        .with_time(KEEPALIVE)
        .with_interval(KEEPALIVE / 3);
    let tcp = info
        .tcp_settings()
        .clone()
        .set_nodelay(nodelay)
        .set_keepalive(keepalive);
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    let tcp = tcp.set_user_timeout(UNACKNOWLEDGED);
    let redis = info.redis_settings().clone().set_protocol(protocol);
    let redis = redis.set_lib_name("rlock", env!("CARGO_PKG_VERSION"));
    let info = info.clone();
    info.set_tcp_settings(tcp).set_redis_settings(redis)
}

/// Returns the connection to another server that is otherwise the same.
pub(in crate::store) fn elsewhere(
    info: &ConnectionInfo,
    host: String,
    port: u16,
) -> ConnectionInfo {
    let addr = match info.addr() {
        ConnectionAddr::TcpTls {
            insecure,
            tls_params,
            ..
        } => ConnectionAddr::TcpTls {
            host,
            port,
            insecure: *insecure,
            tls_params: tls_params.clone(),
        },
        _ => ConnectionAddr::Tcp(host, port),
    };
    info.clone().set_addr(addr)
}
