//! The address of the server that has the locks, and its connection settings.

use std::{fmt, sync::Arc, time::Duration};

use futures_util::future::join_all;
use redis::{Client, ConnectionAddr, ConnectionInfo, ProtocolVersion, RedisError, RedisResult};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout_at},
};

use super::{
    dial::boxed,
    errors::{classify_connect, not_sent, refuses_protocol, wants_password, without_kind},
    sentinel,
};
use crate::store::{
    StoreError, credentials::Credentials, endpoint::ServerEndpoint, provider::Provider, tls::Tls,
};

/// The idle time after which the system probes the peer.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// The time after which Linux closes a connection whose sent bytes are not acknowledged.
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);

/// How long a promotion may take from its announcement: a Sentinel looks at the replica once a second.
const PROMOTED: Duration = Duration::from_secs(2);

/// Advice about the login in a URL with hosts.
pub(in crate::store) const LOGIN: &str = "user and password stand before the host in the URL: \
    `user:password@host`, or `:password@host` for the user `default`";

/// The address of the server that has the locks.
#[derive(Clone)]
pub(in crate::store) struct Address {
    pub(super) endpoint: ServerEndpoint,
    pub(super) settings: ConnectionSettings,
    /// What the Sentinels have reported. All links of a store share it.
    promotions: Arc<watch::Sender<Promotions>>,
}

/// What Sentinels have reported about promotions.
#[derive(Clone, Copy, Default)]
pub(super) struct Promotions {
    /// The epoch of the latest one.
    latest: u64,
    /// Until when acquires wait for the next one, if a Sentinel has begun it.
    next_by: Option<Instant>,
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
    /// The epoch of its promotion, if Sentinels named it.
    pub(super) promotion: u64,
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
        Self {
            endpoint,
            settings,
            promotions: Arc::default(),
        }
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
        let settings = self.settings.clone();
        let (service, sentinels, master) = match &self.endpoint {
            ServerEndpoint::Fixed(info) => return Ok(Server::new(info.clone(), settings)),
            ServerEndpoint::Master {
                service,
                sentinels,
                master,
            } => (service, sentinels, master),
        };
        let tls = self.settings.tls.current().await?;
        let clients = sentinels.iter().map(|info| tls.open(info.clone()));
        let clients = clients.collect::<RedisResult<Vec<_>>>()?;
        let known = self.promotion();
        let named = sentinel::master(service, &clients, known, within).await?;
        self.learn(known, named.promotion);
        if named.is_promoting {
            self.expect();
        }
        Ok(Server {
            promotion: named.promotion,
            ..Server::new(elsewhere(master, named.host, named.port), settings)
        })
    }

    /// Returns the epoch of the latest promotion that a Sentinel has reported.
    pub(super) fn promotion(&self) -> u64 {
        self.promotions.borrow().latest
    }

    /// Stores the epoch of a promotion. If no Sentinel confirms the one that was `known`, because they were set up again,
    /// this one replaces it.
    fn learn(&self, known: u64, promotion: u64) {
        self.promotions.send_if_modified(|told| {
            let Promotions { latest, .. } = *told;
            let is_news = promotion > latest || (promotion < known && latest == known);
            if is_news {
                *told = Promotions {
                    latest: promotion,
                    next_by: None,
                };
            }
            is_news
        });
    }

    /// Makes acquires wait, because a Sentinel has begun to promote a replica.
    fn expect(&self) {
        let by = Instant::now() + PROMOTED;
        self.promotions.send_if_modified(|told| {
            told.next_by = Some(by);
            false
        });
    }

    /// Returns until when acquires wait for the next promotion, because the new master may lack the locks that this one grants
    /// until then.
    pub(super) fn next_promotion_by(&self) -> Option<Instant> {
        let next_by = self.promotions.borrow().next_by;
        next_by.filter(|by| *by > Instant::now())
    }

    /// Waits for the next promotion until this time.
    pub(super) async fn until_promoted(&self, by: Instant) {
        let mut promotions = self.promotions.subscribe();
        let promoted = promotions.wait_for(|told| told.next_by.is_none());
        let _ = timeout_at(by, promoted).await;
    }

    /// Learns of promotions while it is polled. `within` limits each attempt to connect to a Sentinel.
    pub(super) async fn keep_listening(&self, within: Duration) {
        let ServerEndpoint::Master {
            service, sentinels, ..
        } = &self.endpoint
        else {
            return;
        };
        let listening = sentinels.iter().map(async |info| {
            let mut protocol = ProtocolVersion::RESP3;
            loop {
                let redis = info.redis_settings().clone().set_protocol(protocol);
                let info = info.clone().set_redis_settings(redis);
                let listening = boxed(async {
                    let sentinel = self.settings.tls.current().await?.open(info)?;
                    let (address, learn) = (self.clone(), |promotion| self.learn(0, promotion));
                    let expect = move || address.expect();
                    sentinel::listen(&sentinel, service, within, learn, expect).await
                });
                if let Err(error) = listening.await {
                    tracing::debug!(address = %self, %error, "listening to a Sentinel failed");
                    // With RESP2, a connection with a subscription takes no questions, so the Sentinel is only asked.
                    let is_too_old = refuses_protocol(&error) && protocol == ProtocolVersion::RESP3;
                    protocol = if is_too_old {
                        ProtocolVersion::RESP2
                    } else {
                        ProtocolVersion::RESP3
                    };
                }
                sleep(sentinel::EACH).await;
            }
        });
        join_all(listening).await;
    }

    /// Returns what the Sentinels report.
    pub(super) fn promotions(&self) -> watch::Receiver<Promotions> {
        self.promotions.subscribe()
    }
}

impl Server {
    pub(in crate::store) fn new(info: ConnectionInfo, settings: ConnectionSettings) -> Self {
        Self {
            info,
            promotion: 0,
            settings,
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::endpoint::Endpoint;

    fn address() -> Address {
        let Ok(Endpoint::Server(endpoint)) = Endpoint::parse("redis-sentinel://one,two/orders")
        else {
            panic!("a service");
        };
        Address::new(endpoint, ConnectionSettings::default())
    }

    #[tokio::test(start_paused = true)]
    async fn acquires_wait_for_a_promotion_that_has_begun_until_it_comes_or_is_late() {
        let address = address();
        assert_eq!(address.next_promotion_by(), None);
        address.expect();
        let by = address.next_promotion_by().expect("it has begun");
        tokio::join!(biased; address.until_promoted(by), async {
            // A Sentinel that has not heard of it yet.
            address.learn(0, 0);
            assert_eq!(address.next_promotion_by(), Some(by));
            address.learn(0, 1);
        });
        assert!(Instant::now() < by, "no time has passed");
        assert_eq!(address.next_promotion_by(), None);
        address.expect();
        let by = address.next_promotion_by().expect("it has begun");
        address.until_promoted(by).await;
        assert_eq!(address.next_promotion_by(), None, "it is late");
    }

    #[test]
    fn an_isolated_sentinel_does_not_lead_back_to_a_former_master() {
        let address = address();
        address.learn(0, 5);
        address.learn(0, 4);
        assert_eq!(address.promotion(), 5);
        // A promotion that was reported while all Sentinels were asked counts.
        address.learn(4, 3);
        assert_eq!(address.promotion(), 5);
        // The Sentinels were set up again, and count from 1.
        address.learn(5, 1);
        assert_eq!(address.promotion(), 1);
    }
}
