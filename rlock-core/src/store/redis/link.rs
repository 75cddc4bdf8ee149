//! Keeps the connection to a server up: the background replaces it, with backoff, when it fails or is silent.

use std::{
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use redis::{ProtocolVersion, RedisResult, ServerErrorKind, Value};
use rlock_proto::store::{KeyFilter, Listener, Notification};
use tokio::{sync::watch, time::timeout};

use super::{
    RedisOptions,
    address::{Address, LOGIN},
    capabilities,
    commands::{Commands, Operation},
    connection::{Connection, Inbox, Opening},
    dial::boxed,
    errors::{
        IsFormerMaster, IsReplica, NO_RESP3, classify_connect, not_yet, refuses_protocol,
        unless_refused,
    },
    for_quorum::SameServer,
    sentinel::LOGIN as SENTINELS_LOGIN,
};
use crate::{
    backoff::Backoff,
    metrics,
    store::{SendOptions, StoreError, retry_within},
    wording::shown,
};

/// The time-out of the first attempt to reconnect.
const FIRST_TIMEOUT: Duration = Duration::from_millis(250);
/// How long a reply of the Sentinels is trusted. If opening a connection takes longer, the link asks them again.
const NAMED: Duration = Duration::from_millis(100);
/// The pause before the next attempt after a server refused this client.
const REFUSED: Duration = Duration::from_secs(2);

/// A connection that is replaced when it fails, and the receiver of its events.
pub(in crate::store) struct Link {
    pub(super) commands: Arc<Commands>,
    pub(super) address: Address,
    pub(super) options: RedisOptions,
    /// The background link, if this is the callers' link.
    background: Option<Arc<Link>>,
    /// Counts the background link.
    metrics: Option<metrics::ConnectionMetrics>,
    pub(super) listener: Listener,
    state: watch::Sender<LinkState>,
    /// The number of attempts to connect so far.
    epochs: AtomicU64,
    /// The epoch of the latest connection that ended by itself.
    ended: AtomicU64,
    has_connected: AtomicBool,
}

#[derive(Default)]
struct LinkState {
    connection: Option<Arc<Connection>>,
    /// Whether the connection has been silent for a while. It is used until it fails or is replaced.
    is_doubtful: bool,
    /// The error of the last attempt to connect, if it failed.
    error: Option<StoreError>,
}

/// The time from the loss of a connection until a later one has served a change.
#[derive(Default)]
struct Outage {
    backoff: Backoff,
    is_logged: bool,
    is_logged_as_replica: bool,
    is_end_logged: bool,
}

impl LinkState {
    fn up(connection: Arc<Connection>) -> Self {
        Self {
            connection: Some(connection),
            ..Self::default()
        }
    }

    fn is_up(&self) -> bool {
        self.connection.is_some() && !self.is_doubtful
    }

    fn is_of(&self, epoch: u64) -> bool {
        let connection = self.connection.as_ref();
        connection.is_some_and(|connection| connection.epoch == epoch)
    }
}

impl Link {
    pub(super) fn new(
        address: Address,
        commands: Arc<Commands>,
        options: RedisOptions,
        listener: Listener,
        background: Option<Arc<Self>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            commands,
            address,
            metrics: (background.is_none())
                .then(|| metrics::ConnectionMetrics::new(options.server)),
            options,
            background,
            listener,
            state: watch::Sender::default(),
            epochs: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            has_connected: AtomicBool::new(false),
        })
    }

    pub(super) fn is_background(&self) -> bool {
        self.background.is_none()
    }

    /// Returns the client's channel, to which the background connection subscribes.
    pub(super) fn channel(&self) -> Option<String> {
        let channel = || self.commands.keyspace.channel(self.options.client);
        self.is_background().then(channel)
    }

    /// Returns the reader of the messages of the connection with this epoch, whose server has this promotion.
    pub(super) fn inbox(self: &Arc<Self>, epoch: u64, promotion: u64) -> Inbox {
        let link = Arc::downgrade(self);
        let listener = move |event| match (event, link.upgrade()) {
            (Notification::Disconnected, Some(link)) => {
                link.ended.fetch_max(epoch, Ordering::SeqCst);
                link.give_up(epoch);
            }
            (event, Some(link)) if promotion == link.address.promotion() => (link.listener)(event),
            _ => {}
        };
        Inbox {
            listener: Arc::new(listener),
            commands: Arc::clone(&self.commands),
            client: self.options.client,
        }
    }

    /// Returns the id of the connection to which the server sends its reports of changes, if not this one.
    pub(super) fn reports_to(&self) -> Option<i64> {
        self.background.as_ref()?.present()?.id
    }

    pub(super) fn present(&self) -> Option<Arc<Connection>> {
        self.state.borrow().connection.clone()
    }

    /// Returns the connection, unless it is silent.
    pub(super) fn replying(&self) -> Option<Arc<Connection>> {
        let state = self.state.borrow();
        state.connection.clone().filter(|_| state.is_up())
    }

    /// Gives up the present connection if it leads to another server than the one of `link`.
    pub(super) fn follow(&self, link: &Self) {
        if let (Some(present), Some(other)) = (self.present(), link.present())
            && present.server != other.server
        {
            self.give_up(present.epoch);
        }
    }

    /// Gives up the present connection if a Sentinel has named another master since it was opened.
    pub(super) fn leave_former_master(&self) {
        let latest = self.address.promotion();
        if let Some(former) = self.present().filter(|present| present.promotion != latest) {
            self.give_up_for(former.epoch, Some(not_yet(IsFormerMaster)));
        }
    }

    /// Returns whether there is a connection that is not silent.
    pub(in crate::store) fn is_up(&self) -> bool {
        self.state.borrow().is_up()
    }

    /// Resolves when [`is_up`](Self::is_up) returns this value.
    pub(in crate::store) async fn until(&self, is_up: bool) {
        self.wait_for(|state| state.is_up() == is_up).await;
    }

    /// Resolves when there is a connection with another epoch.
    pub(super) async fn next_connection(&self, epoch: u64) -> Arc<Connection> {
        let is_another = |state: &LinkState| state.is_up() && !state.is_of(epoch);
        match self.wait_for(is_another).await {
            Some(connection) => connection,
            None => std::future::pending().await,
        }
    }

    /// Returns the current connection, or the next one. Waits while the server is unreachable or silent. Returns an error
    /// at once if the server refuses this client.
    pub(super) async fn connection(&self) -> Result<Arc<Connection>, StoreError> {
        let refused = |error: &StoreError| !error.transient;
        let is_settled =
            |state: &LinkState| state.is_up() || state.error.as_ref().is_some_and(refused);
        let connection = self.wait_for(is_settled).await;
        connection.ok_or_else(|| self.why_down())
    }

    /// Sends a request over this connection. Repeats it if the server had lost the script. A repetition takes the
    /// current connection, as a later release of the same owner does. Over a replaced connection, the server might execute
    /// the repetition after that release.
    pub(super) async fn send(
        &self,
        connection: &Connection,
        call: Operation<'_>,
        send: SendOptions,
    ) -> RedisResult<Value> {
        let (mut current, mut with_text) = (None::<Arc<Connection>>, false);
        let mut repeats = 0..3;
        loop {
            if call.is_void() {
                // A reply that grants nothing: no caller reads it.
                return Ok(Value::Array(vec![Value::Int(-1)]));
            }
            let connection = current.as_deref().unwrap_or(connection);
            let reply = connection.send(call, send.asking, with_text);
            let lost = match reply.await {
                Err(error) if error.kind() == ServerErrorKind::NoScript.into() => {
                    // `EVAL` loads the script that it runs, even behind a proxy without `SCRIPT`.
                    let loaded = boxed(connection.load_scripts()).await;
                    with_text = unless_refused(loaded)?.is_none();
                    error
                }
                reply => {
                    if reply.is_ok() && call.writes() {
                        connection.usage.succeed();
                    }
                    return reply;
                }
            };
            // Without a connection, the request is not repeated.
            current = match (repeats.next(), self.present()) {
                (Some(_), Some(present)) => Some(present),
                _ => return Err(lost),
            };
        }
    }

    async fn wait_for(&self, is_met: impl FnMut(&LinkState) -> bool) -> Option<Arc<Connection>> {
        let mut state = self.state.subscribe();
        // The sender lives in `self`, so this cannot fail.
        let state = state.wait_for(is_met).await.ok()?;
        state.connection.clone()
    }

    pub(super) fn why_down(&self) -> StoreError {
        let state = self.state.borrow();
        let why = match state.connection {
            Some(_) => "the server does not reply",
            None => "not connected",
        };
        (state.error.clone()).unwrap_or_else(|| not_yet(why))
    }

    /// Ends the link and its connection.
    pub(super) fn end(&self) {
        self.state.send_replace(LinkState::default());
        // Changes of the keys that it read are no longer reported.
        (self.listener)(Notification::SomeChanged(KeyFilter::All));
    }

    /// Gives up a connection that failed. Does nothing if it was replaced already.
    pub(super) fn give_up(&self, epoch: u64) {
        self.give_up_for(epoch, None);
    }

    /// Gives up a connection whose server refuses to write, because it is a replica. Returns `false` if the connection was
    /// replaced already.
    pub(super) fn give_up_replica(&self, epoch: u64) -> bool {
        self.give_up_for(epoch, Some(not_yet(IsReplica)))
    }

    fn give_up_for(&self, epoch: u64, error: Option<StoreError>) -> bool {
        let given_up = self.state.send_if_modified(|state| {
            let is_present = state.is_of(epoch);
            if is_present {
                *state = LinkState {
                    error,
                    ..LinkState::default()
                };
            }
            is_present
        });
        if given_up {
            tracing::debug!(address = %self.address, epoch, "connection given up");
            if self.is_background() {
                (self.listener)(Notification::Disconnected);
            }
        }
        given_up
    }

    /// Marks a connection as silent, which opens another one.
    pub(super) fn doubt(&self, epoch: u64) {
        self.state.send_if_modified(|state| {
            state.is_of(epoch) && !mem::replace(&mut state.is_doubtful, true)
        });
    }

    /// Uses a silent connection again, because it has replied.
    pub(super) fn trust(&self, epoch: u64) {
        self.state
            .send_if_modified(|state| state.is_of(epoch) && mem::take(&mut state.is_doubtful));
    }

    /// Connects for the first time. Asks a replica again within the connect time-out, because a balancer or the Sentinels may
    /// lead the next connection to the master.
    pub(in crate::store) async fn connect(self: &Arc<Self>) -> Result<(), StoreError> {
        let within = self.options.connect_timeout;
        let connection = retry_within(within, |left| async move {
            match self.open(left).await {
                Err(error) if !is_replica(&error) => Ok(Err(error)),
                opened => opened.map(Ok),
            }
        });
        let connection = connection.await??;
        self.check(&connection).await;
        self.begin(connection);
        self.is_counted_up(true);
        Ok(())
    }

    /// Uses this connection from now on.
    fn begin(&self, connection: Arc<Connection>) {
        let epoch = connection.epoch;
        self.has_connected.store(true, Ordering::Relaxed);
        self.state.send_replace(LinkState::up(connection));
        // It may have ended before it was the present one, and an idle client sends no request that would notice.
        if self.ended.load(Ordering::SeqCst) == epoch {
            self.give_up(epoch);
        }
        self.leave_former_master();
    }

    /// Keeps a connection up for as long as the client lives.
    pub(super) async fn keep_up(self: Arc<Self>) {
        let address = &self.address;
        let mut usage = self
            .present()
            .map(|connection| Arc::clone(&connection.usage));
        let mut outage = Outage::default();
        loop {
            self.until(false).await;
            self.is_counted_up(false);
            let (was_up, began) = (usage.is_some(), Instant::now());
            if usage.as_ref().is_some_and(|usage| usage.has_served()) {
                outage = Outage::default();
            }
            if usage.as_ref().is_some_and(|usage| !usage.is_idle(began)) {
                let why = self.state.borrow().error.clone();
                self.log(&mut outage, why.as_ref());
            }
            if usage.is_some_and(|usage| !usage.has_served()) {
                tokio::time::sleep(outage.backoff.next()).await;
            }
            let connection = self.reconnect(was_up, &mut outage).await;
            usage = Some(Arc::clone(&connection.usage));
            self.begin(Arc::clone(&connection));
            self.is_counted_up(true);
            // Changes during the outage were not reported.
            (self.listener)(Notification::SomeChanged(KeyFilter::All));
            tracing::debug!(%address, epoch = connection.epoch, "connected");
            if was_up && let Some(metrics) = &self.metrics {
                metrics.reconnected();
                if outage.is_logged && !mem::replace(&mut outage.is_end_logged, true) {
                    tracing::info!(%address, after = %shown(began.elapsed()), "connected again");
                }
            }
            if !was_up {
                tokio::select! {
                    () = self.check(&connection) => {}
                    // The connection may fail before the checks end.
                    () = self.until(false) => {}
                }
            }
        }
    }

    /// Logs that the connection is lost or silent: one line for the server, not one for each lock or connection.
    fn log(&self, outage: &mut Outage, why: Option<&StoreError>) {
        let (address, is_silent) = (&self.address, self.present().is_some());
        if !self.is_background() {
            return;
        }
        let was_logged = mem::replace(&mut outage.is_logged, true);
        if why.is_some_and(|error| error.source.is::<IsFormerMaster>()) {
            tracing::info!(%address, "a Sentinel names another master, connecting to it");
        } else if why.is_some_and(is_replica) {
            if !mem::replace(&mut outage.is_logged_as_replica, true) {
                tracing::warn!(%address, "the server is a replica, connecting again until it is a master");
            }
        } else if was_logged {
            tracing::debug!(%address, is_silent, "connection lost before it served a change");
        } else if is_silent {
            tracing::info!(%address, "the server is silent, connecting again");
        } else {
            tracing::info!(%address, "connection lost, connecting again");
        }
    }

    /// Logs what the server lacks.
    async fn check(&self, connection: &Connection) {
        if self.is_background() {
            let (options, keyspace) = (&self.options, &self.commands.keyspace);
            let (multiplexed, missing) = (&connection.multiplexed, connection.missing.clone());
            let check = capabilities::check(&self.address, options, keyspace, multiplexed, missing);
            boxed(check).await;
        }
    }

    fn is_counted_up(&self, is_up: bool) {
        if let Some(metrics) = &self.metrics {
            metrics.is_up(is_up);
        }
    }

    /// Retries until there is another connection.
    async fn reconnect(self: &Arc<Self>, was_up: bool, outage: &mut Outage) -> Arc<Connection> {
        let (address, longest) = (&self.address, self.options.connect_timeout);
        // The discovery of a cluster reports nodes that cannot be reached.
        let is_of_cluster = self.commands.keyspace.are_of_cluster;
        let mut is_missed = was_up || is_of_cluster || !self.is_background();
        let mut is_same = false;
        // With a short time-out, the end of an outage is noticed sooner.
        let mut timeout = FIRST_TIMEOUT.min(longest);
        loop {
            let error = match self.open(timeout).await {
                Ok(connection) => return connection,
                Err(error) => error,
            };
            if error.source.is::<SameServer>() && !mem::replace(&mut is_same, true) {
                tracing::error!(%error, "a server of the quorum is not counted");
            }
            tracing::debug!(%address, %error, "connecting failed");
            if !mem::replace(&mut is_missed, true) {
                tracing::warn!(%address, %error, "the server cannot be reached yet");
                outage.is_logged_as_replica = is_replica(&error);
            }
            // Servers count and log wrong passwords.
            let refused = (!error.transient).then_some(REFUSED);
            let pause = refused.unwrap_or_else(|| outage.backoff.next());
            if was_up && (is_replica(&error) || !outage.is_logged) {
                self.log(outage, Some(&error));
            }
            // A connection that is only silent may still reply.
            self.state.send_if_modified(|state| {
                let is_down = state.connection.is_none();
                if is_down {
                    state.error = Some(error);
                }
                is_down
            });
            tokio::time::sleep(pause).await;
            timeout = (timeout * 2).min(longest);
        }
    }

    async fn open(self: &Arc<Self>, within: Duration) -> Result<Arc<Connection>, StoreError> {
        let epoch = self.epochs.fetch_add(1, Ordering::Relaxed) + 1;
        let opening = async {
            // The Sentinels name the current master.
            let master = async || {
                let server = self.address.server(within).await;
                server.map_err(|error| classify_connect(error, SENTINELS_LOGIN))
            };
            let (server, named) = (master().await?, Instant::now());
            let server = server.with_login().await;
            let server = server.map_err(|error| classify_connect(error, LOGIN))?;
            let open = |protocol| {
                let opening = Opening {
                    epoch,
                    options: &self.options,
                    inbox: self.inbox(epoch, server.promotion),
                    channel: self.channel(),
                    redirects_to: self.reports_to(),
                };
                boxed(Connection::open(opening, &server, protocol))
            };
            let mut opened = open(server.protocol()).await;
            if server.protocol() != ProtocolVersion::RESP2
                && opened.as_ref().is_err_and(refuses_protocol)
            {
                opened = open(ProtocolVersion::RESP2).await;
            }
            let opened = opened.map_err(|error| server.classify(error))?;
            // The Sentinels may have replaced a silent server, which does not know it yet.
            if named.elapsed() > NAMED && master().await?.info.addr() != server.info.addr() {
                return Err(not_yet(IsFormerMaster));
            }
            if opened.is_replica {
                return Err(not_yet(IsReplica));
            }
            Ok(opened)
        };
        let late = |_| Err(not_yet(self.silence(within)));
        let opened = timeout(within, boxed(opening)).await.unwrap_or_else(late);
        // The request that waits for this connection has not been sent.
        let mut opened = opened.map_err(StoreError::not_executed)?;
        if let (Some(run_ids), Some(run_id)) = (&self.options.run_ids, opened.run_id.take()) {
            let registration = run_ids.enter(self.address.to_string(), run_id);
            // Transient, because the address may lead to another server a moment later.
            opened.registration = Some(registration.map_err(not_yet)?);
        }
        Ok(Arc::new(opened))
    }
}

impl Link {
    /// Describes a server that did not reply to an attempt to connect. A server that has replied before speaks the protocol.
    fn silence(&self, within: Duration) -> String {
        let mut error = format!("no reply within {}", shown(within));
        if !self.has_connected.load(Ordering::Relaxed) && self.is_background() {
            if self.address.endpoint.uses_tls() {
                error += "; the server may not speak TLS on this port";
            }
            if self.address.protocol() != ProtocolVersion::RESP2 {
                error += NO_RESP3;
            }
        }
        error
    }
}

fn is_replica(error: &StoreError) -> bool {
    error.source.is::<IsReplica>()
}
