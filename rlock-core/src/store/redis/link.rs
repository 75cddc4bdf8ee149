//! The connection to the server that requests use now, and when a failed, silent or former one is given up.

mod opening;
mod upkeep;

use std::{
    mem,
    sync::{Arc, Mutex, PoisonError, atomic::AtomicU64},
};

use redis::{RedisResult, ServerErrorKind, Value};
use rlock_proto::store::{KeyFilter, Listener, Notification};
use tokio::sync::watch;

use super::{
    address::Address,
    commands::{Commands, Operation},
    connection::Connection,
    dial::boxed,
    errors::{IsFormerMaster, IsReplica, not_yet, unless_refused},
    usage::Usage,
};
use crate::{
    metrics,
    store::{SendOptions, StoreError, options::StoreOptions},
};

/// A connection that is replaced when it fails, and the receiver of its events.
pub(in crate::store) struct Link {
    pub(super) commands: Arc<Commands>,
    pub(super) address: Address,
    pub(super) options: StoreOptions,
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
    /// How the latest connection was used, also after it was given up.
    latest: Mutex<Option<Arc<Usage>>>,
}

#[derive(Default)]
struct LinkState {
    connection: Option<Arc<Connection>>,
    /// Whether the connection has been silent for a while. It is used until it fails or is replaced.
    is_doubtful: bool,
    /// The error of the last attempt to connect, if it failed.
    error: Option<StoreError>,
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
        options: StoreOptions,
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
            latest: Mutex::default(),
        })
    }

    pub(super) fn is_background(&self) -> bool {
        self.background.is_none()
    }

    /// Returns how the latest connection was used, also after it was given up, or `None` before the first one.
    fn latest_usage(&self) -> Option<Arc<Usage>> {
        let latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest.clone()
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
}
