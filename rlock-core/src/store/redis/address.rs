//! Which server to connect to, asking Sentinels if needed, and with which settings.

use std::{fmt, sync::Arc, time::Duration};

use futures_util::future::join_all;
use redis::{
    Client, ConnectionAddr, ConnectionInfo, ErrorKind, ProtocolVersion, RedisError, RedisResult,
};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout, timeout_at},
};

use super::{
    dial::boxed,
    errors::{
        classify_connect, not_sent, refuses_protocol, timed_out, wants_password, without_kind,
    },
    sentinel::{self, Master, Named},
};
use crate::{
    store::{StoreError, endpoint::ServerEndpoint, options::ConnectionSettings},
    wording::shown,
};

/// The idle time after which the system probes the peer.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// The error if a minority of the Sentinels names another master than the one that the client knows.
const UNCONFIRMED: &str =
    "no majority of the Sentinels confirms another master than the one that this client knows";

/// How long a promotion may take from its announcement: a Sentinel looks at the replica once a second.
const PROMOTED: Duration = Duration::from_secs(2);
/// How long a promotion that is late is not expected once more, although the Sentinel still tries.
const LATE: Duration = Duration::from_secs(10);

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
#[derive(Default)]
pub(super) struct Promotions {
    /// The master that the latest one made.
    master: Master,
    /// How often the master was another one than before. Unlike the epochs, which begin again when the Sentinels are set up
    /// again, it never returns to an earlier value.
    count: u64,
    /// Until when acquires wait for the next one, if a Sentinel has begun it.
    next_by: Option<Instant>,
}

/// A server, and how connections to it are made.
pub(in crate::store) struct Server {
    pub(super) info: ConnectionInfo,
    /// Its promotion, as this client counts them, if Sentinels named it.
    pub(super) promotion: u64,
    settings: ConnectionSettings,
}

/// Classifies an error of an attempt to connect. `login` explains where the URL contains user and password. With
/// a provider, a refused login is transient, because the provider may have other credentials by now.
pub(in crate::store) fn classify_login(
    settings: &ConnectionSettings,
    error: RedisError,
    login: &'static str,
) -> StoreError {
    if settings.credentials.is_none() {
        return classify_connect(error, login);
    }
    let is_transient = wants_password(&error);
    let mut error = classify_connect(
        error,
        "the provider of `credentials` is asked at each attempt",
    );
    error.transient |= is_transient;
    error
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
        let (known, count) = {
            let told = self.promotions.borrow();
            (told.master.clone(), told.count)
        };
        let (named, is_majority) = sentinel::master(service, &clients, &known, within).await?;
        let promotion = self.learn(&named, is_majority.then_some(count));
        let promotion = promotion.ok_or_else(|| RedisError::from((ErrorKind::Io, UNCONFIRMED)))?;
        let Master { host, port, .. } = named.master;
        Ok(Server {
            promotion,
            ..Server::new(elsewhere(master, host, port), settings)
        })
    }

    /// Returns the number of the latest promotion that Sentinels have reported.
    pub(super) fn promotion(&self) -> u64 {
        self.promotions.borrow().count
    }

    /// Stores the master that a Sentinel names, and returns the number of its promotion, or `None` if the client knows another
    /// master. An isolated Sentinel may name a former one. So this one counts only if its epoch is higher, or if a majority
    /// replied and none of them knew the promotion with the number `replaced`, because they were set up again.
    pub(super) fn learn(&self, named: &Named, replaced: Option<u64>) -> Option<u64> {
        let mut promotion = None;
        self.promotions.send_if_modified(|told| {
            let is_later = told.count == 0 || named.master.epoch > told.master.epoch;
            let is_news = told.master != named.master && (is_later || replaced == Some(told.count));
            if is_news {
                *told = Promotions {
                    master: named.master.clone(),
                    count: told.count + 1,
                    next_by: None,
                };
            }
            if told.master == named.master {
                promotion = Some(told.count);
                // The Sentinel may have lost the race to promote a replica, and still name the former master.
                let is_due = |by| Instant::now() > by + LATE;
                if named.is_promoting && told.next_by.is_none_or(is_due) {
                    told.next_by = Some(Instant::now() + PROMOTED);
                }
            }
            is_news
        });
        promotion
    }

    /// Handles the reply of one Sentinel. If it contradicts what the client knows, all are asked.
    async fn hear(&self, named: Named, within: Duration) {
        if self.learn(&named, None).is_some() {
            return;
        }
        // The provider of a certificate may take as long as the Sentinels.
        let longest = within.max(sentinel::SHORTEST_TIMEOUT) * 2;
        let asked = timeout(longest, self.server(within)).await;
        let late = |_| Err(timed_out(format!("no master within {}", shown(longest))));
        if let Err(error) = asked.unwrap_or_else(late) {
            tracing::debug!(address = %self, %error, "asking all Sentinels failed");
        }
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
                    let tls = timeout(within, self.settings.tls.current()).await;
                    let late = |_| {
                        Err(timed_out(format!(
                            "no certificate within {}",
                            shown(within)
                        )))
                    };
                    let sentinel = tls.unwrap_or_else(late)?.open(info)?;
                    let hear = |named| boxed(self.hear(named, within));
                    sentinel::listen(&sentinel, service, within, hear).await
                });
                if let Err(error) = listening.await {
                    tracing::debug!(address = %self, %error, "listening to a Sentinel failed");
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
        // Linux closes a connection whose sent bytes are not acknowledged for this time.
        #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
        let tcp = tcp.set_user_timeout(Duration::from_secs(10));
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
        classify_login(&self.settings, error, login)
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

    fn named(epoch: u64, is_promoting: bool) -> Named {
        let host = format!("the-one-of-{epoch}");
        Named {
            master: Master {
                epoch,
                host,
                port: 6379,
            },
            is_promoting,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn acquires_wait_for_a_promotion_that_has_begun_until_it_comes_or_is_late() {
        let address = address();
        address.learn(&named(1, false), None);
        assert_eq!(address.next_promotion_by(), None);
        address.learn(&named(1, true), None);
        let by = address.next_promotion_by().expect("it has begun");
        tokio::join!(biased; address.until_promoted(by), async {
            // A Sentinel that has not heard of it yet.
            address.learn(&named(1, false), None);
            assert_eq!(address.next_promotion_by(), Some(by));
            address.learn(&named(2, false), None);
        });
        assert!(Instant::now() < by, "no time has passed");
        assert_eq!(address.next_promotion_by(), None);
        // A Sentinel that has lost the race, and whose report comes late.
        address.learn(&named(1, true), None);
        assert_eq!(address.next_promotion_by(), None);
        address.learn(&named(2, true), None);
        let by = address.next_promotion_by().expect("it has begun");
        address.until_promoted(by).await;
        // The replica does not obey, and the Sentinel tries for minutes.
        address.learn(&named(2, true), None);
        assert_eq!(address.next_promotion_by(), None, "it is late");
        sleep(LATE * 2).await;
        address.learn(&named(2, true), None);
        assert_ne!(address.next_promotion_by(), None, "it is another one");
    }

    #[test]
    fn a_promotion_that_was_reported_while_all_sentinels_were_asked_counts() {
        let address = address();
        let fifth = address.learn(&named(5, false), None).expect("the first");
        assert_eq!(address.learn(&named(4, false), None), None);
        let sixth = address.learn(&named(6, false), None).expect("a later one");
        // The Sentinels were set up again, and count from 1.
        assert_eq!(address.learn(&named(1, false), Some(fifth)), None);
        let first = address.learn(&named(1, false), Some(sixth));
        assert_eq!(first, Some(address.promotion()));
        assert!(
            first > Some(sixth),
            "no connection is taken for a later one"
        );
    }
}
