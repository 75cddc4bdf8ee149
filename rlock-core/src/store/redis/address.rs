//! The address of the server that has the locks, and its connection settings.

use std::{fmt, time::Duration};

use redis::{Client, ConnectionAddr, ConnectionInfo, ProtocolVersion, RedisError, RedisResult};

use super::{
    errors::{classify_connect, not_sent, wants_password, without_kind},
    sentinel,
};
use crate::store::{
    StoreError, credentials::Credentials, endpoint::ServerEndpoint, provider::Provider, tls::Tls,
};

/// The idle time after which the system probes the peer.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// The time after which Linux closes a connection whose sent bytes are not acknowledged.
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);

/// Advice about the login in a URL with hosts.
pub(in crate::store) const LOGIN: &str = "user and password stand before the host in the URL: \
    `user:password@host`, or `:password@host` for the user `default`";

/// The address of the server that has the locks.
#[derive(Clone)]
pub(in crate::store) struct Address {
    pub(super) endpoint: ServerEndpoint,
    pub(super) settings: ConnectionSettings,
}

/// The connection settings that a URL does not contain.
#[derive(Clone)]
pub(crate) struct ConnectionSettings {
    pub(crate) nodelay: bool,
    pub(crate) tls: Tls,
    pub(crate) credentials: Option<Provider<Credentials>>,
}

/// A server, and how connections to it are made.
pub(in crate::store) struct Server {
    pub(super) info: ConnectionInfo,
    settings: ConnectionSettings,
}

impl Default for ConnectionSettings {
    fn default() -> Self {
        Self {
            nodelay: true,
            tls: Tls::default(),
            credentials: None,
        }
    }
}

impl ConnectionSettings {
    /// Classifies an error of an attempt to connect. `login` explains where the URL contains user and password. With
    /// a provider, a refused login is transient, because the provider may have other credentials by now.
    pub(in crate::store) fn classify(&self, error: RedisError, login: &'static str) -> StoreError {
        if self.credentials.is_none() {
            return classify_connect(error, login);
        }
        let is_transient = wants_password(&error);
        let mut error =
            classify_connect(error, "the provider of `credentials` will be asked again");
        error.transient |= is_transient;
        error
    }
}

impl Address {
    pub(in crate::store) fn new(endpoint: ServerEndpoint, settings: ConnectionSettings) -> Self {
        Self { endpoint, settings }
    }

    pub(super) fn database(&self) -> i64 {
        self.endpoint.server().redis_settings().db()
    }

    /// Returns the protocol to try first.
    pub(super) fn protocol(&self) -> ProtocolVersion {
        self.endpoint.server().redis_settings().protocol()
    }

    /// Returns the server that has the locks now. The caller's connection attempt ends after `within`.
    pub(super) async fn server(&self, within: Duration) -> RedisResult<Server> {
        let info = match &self.endpoint {
            ServerEndpoint::Fixed(info) => info.clone(),
            ServerEndpoint::Master {
                service,
                sentinels,
                master,
            } => {
                let tls = self.settings.tls.current().await?;
                let clients = sentinels.iter().map(|info| tls.open(info.clone()));
                let clients = clients.collect::<RedisResult<Vec<_>>>()?;
                let (host, port) = sentinel::master(service, &clients, within).await?;
                elsewhere(master, host, port)
            }
        };
        Ok(Server::new(info, self.settings.clone()))
    }
}

impl Server {
    pub(in crate::store) fn new(info: ConnectionInfo, settings: ConnectionSettings) -> Self {
        Self { info, settings }
    }

    /// Asks the providers for the present credentials and the present certificate of the client, if there are any.
    pub(in crate::store) async fn with_login(mut self) -> RedisResult<Self> {
        self.settings.tls = self.settings.tls.current().await?;
        if let Some(provider) = &self.settings.credentials {
            self.info = provider.log_in(self.info).await?;
        }
        Ok(self)
    }

    /// Returns the protocol to try first.
    pub(super) fn protocol(&self) -> ProtocolVersion {
        self.info.redis_settings().protocol()
    }

    /// Returns the client for connections with this protocol.
    pub(in crate::store) fn client(&self, protocol: ProtocolVersion) -> RedisResult<Client> {
        let keepalive = socket2::TcpKeepalive::new()
            .with_time(KEEPALIVE)
            .with_interval(KEEPALIVE / 3);
        let tcp = self.info.tcp_settings().clone();
        let tcp = tcp
            .set_nodelay(self.settings.nodelay)
            .set_keepalive(keepalive);
        #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
        let tcp = tcp.set_user_timeout(UNACKNOWLEDGED);
        let redis = self.info.redis_settings().clone().set_protocol(protocol);
        let redis = redis.set_lib_name("rlock", env!("CARGO_PKG_VERSION"));
        let info = self.info.clone();
        let info = info.set_tcp_settings(tcp).set_redis_settings(redis);
        self.settings.tls.open(info)
    }

    /// Classifies an error of an attempt to connect, with advice about this URL.
    pub(in crate::store) fn classify(&self, error: RedisError) -> StoreError {
        if (error.to_string()).starts_with("Redis server refused to switch database") {
            let (number, said) = (self.info.redis_settings().db(), without_kind(&error));
            return not_sent(format!("database {number} of the URL: {said}"));
        }
        let login = match self.info.addr() {
            ConnectionAddr::Unix(_) => {
                "user and password stand behind the `?` of the URL: `unix:///path?user=…&pass=…`"
            }
            _ => LOGIN,
        };
        self.settings.classify(error, login)
    }
}

/// Shows host and port, or the path of a socket. Never shows a password.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.endpoint.fmt(f)
    }
}

/// Returns the connection to another server that is otherwise the same.
pub(in crate::store) fn elsewhere(
    info: &ConnectionInfo,
    host: String,
    port: u16,
) -> ConnectionInfo {
    let mut addr = info.addr().clone();
    if let ConnectionAddr::Tcp(h, p)
    | ConnectionAddr::TcpTls {
        host: h, port: p, ..
    } = &mut addr
    {
        (*h, *p) = (host, port);
    }
    info.clone().set_addr(addr)
}
