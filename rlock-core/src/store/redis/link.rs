//! The connection to the server: kept up in the background, replaced when it is found dead.

use std::{
    convert::Infallible,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::StreamExt;
use redis::{
    AsyncConnectionConfig, Client, ErrorKind, ProtocolVersion, PushInfo, PushKind, RedisError,
    RedisResult, Value,
    aio::{MultiplexedConnection, PubSubSink},
    cmd,
};
use tokio::{sync::watch, task::JoinHandle, time::timeout};

use super::{
    address::Address,
    errors::{classify, wants_password, wants_reconnect},
    names::Names,
    scripts::Scripts,
    server::warn_of_eviction,
    subscriptions::{FIRST_EPOCH, Subscriptions},
};
use crate::{
    store::{Listener, News, StoreError},
    wait::Backoff,
};

/// How long the first attempt to connect again may take.
const FIRST_PATIENCE: Duration = Duration::from_millis(250);

/// What connections are made from, and what they report to.
pub(super) struct Link {
    pub(super) names: Names,
    pub(super) scripts: Scripts,
    pub(super) subscriptions: Arc<Subscriptions>,
    address: Address,
    listener: Listener,
    connect_timeout: Duration,
    state: watch::Sender<State>,
    /// How many connections were tried so far.
    epochs: AtomicU64,
}

#[derive(Clone)]
enum State {
    Up(Connection),
    /// With the error of the last attempt to connect, if there was one.
    Down(Option<StoreError>),
}

/// A connection that was up when it was handed out.
#[derive(Clone)]
pub(super) struct Connection {
    /// Counts the connections of a link.
    pub(super) epoch: u64,
    pub(super) commands: MultiplexedConnection,
    /// A connection of its own for messages, where the protocol cannot mix them with answers.
    messages: Option<Messages>,
}

#[derive(Clone)]
struct Messages {
    sink: PubSubSink,
    _pump: Arc<Pump>,
}

/// The task that passes messages on; ends with its connection.
struct Pump(JoinHandle<()>);

impl Drop for Pump {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Link {
    /// Connects for the first time.
    pub(super) async fn connect(
        address: Address,
        names: Names,
        listener: Listener,
        connect_timeout: Duration,
    ) -> Result<Arc<Self>, StoreError> {
        let link = Arc::new(Self {
            names,
            scripts: Scripts::new(),
            subscriptions: Arc::default(),
            address,
            listener,
            connect_timeout,
            state: watch::Sender::new(State::Down(None)),
            epochs: AtomicU64::new(FIRST_EPOCH),
        });
        let mut connection = link.open(FIRST_EPOCH, connect_timeout).await?;
        // Nobody has to wait for a warning.
        let _ = timeout(connect_timeout, warn_of_eviction(&mut connection.commands)).await;
        link.state.send_replace(State::Up(connection));
        Ok(link)
    }

    /// The present connection, or the next one.
    ///
    /// Fails at once when the server refuses this client; while it cannot be reached, waits.
    pub(super) async fn connection(&self) -> Result<Connection, StoreError> {
        if let State::Up(connection) = &*self.state.borrow() {
            return Ok(connection.clone());
        }
        let mut state = self.state.subscribe();
        let settled = state.wait_for(|state| match state {
            State::Up(_) => true,
            State::Down(error) => error.as_ref().is_some_and(|error| !error.transient),
        });
        // The sender lives in `self`, so this cannot fail.
        match settled.await.map(|state| state.clone()) {
            Ok(State::Up(connection)) => Ok(connection),
            Ok(State::Down(error)) => Err(error.unwrap_or_else(Self::not_connected)),
            Err(_) => Err(Self::not_connected()),
        }
    }

    /// Why there is no connection.
    pub(super) fn why_down(&self) -> StoreError {
        match &*self.state.borrow() {
            State::Down(Some(error)) => error.clone(),
            _ => Self::not_connected(),
        }
    }

    fn not_connected() -> StoreError {
        let error = classify(RedisError::from((ErrorKind::Io, "not connected")));
        StoreError {
            maybe_executed: false,
            ..error
        }
    }

    /// Gives up a connection that failed, unless it was replaced already.
    pub(super) fn give_up(&self, epoch: u64) {
        let given_up = self.state.send_if_modified(|state| match state {
            State::Up(connection) if connection.epoch == epoch => {
                tracing::debug!(address = %self.address, epoch, "connection given up");
                *state = State::Down(None);
                true
            }
            _ => false,
        });
        if given_up {
            self.subscriptions.interrupted();
        }
    }

    /// Keeps a connection up; runs for as long as the client lives.
    pub(super) async fn keep_up(self: Arc<Self>) {
        let mut state = self.state.subscribe();
        loop {
            if state
                .wait_for(|state| matches!(state, State::Down(_)))
                .await
                .is_err()
            {
                return;
            }
            let mut backoff = Backoff::default();
            // What an outage swallowed is not waited for: a short patience finds its end sooner.
            let mut patience = FIRST_PATIENCE.min(self.connect_timeout);
            loop {
                let epoch = self.epochs.fetch_add(1, Ordering::Relaxed) + 1;
                match self.open(epoch, patience).await {
                    Ok(connection) => {
                        self.subscriptions.begin_anew(epoch);
                        self.state.send_replace(State::Up(connection));
                        // What happened meanwhile was not told.
                        (self.listener)(News::AllChanged);
                        tracing::debug!(address = %self.address, epoch, "connected again");
                        break;
                    }
                    Err(error) => {
                        tracing::debug!(address = %self.address, %error, "connecting failed");
                        self.state.send_replace(State::Down(Some(error)));
                        tokio::time::sleep(backoff.next()).await;
                        patience = (patience * 2).min(self.connect_timeout);
                    }
                }
            }
        }
    }

    async fn open(
        self: &Arc<Self>,
        epoch: u64,
        patience: Duration,
    ) -> Result<Connection, StoreError> {
        let opening = async {
            let opened = self.open_with(self.address.preferred(), epoch).await;
            match (opened, self.address.fallback()) {
                (Err(error), Some(older)) if refuses_protocol(&error) => {
                    tracing::debug!(address = %self.address, "the server does not speak RESP3");
                    self.open_with(older, epoch).await
                }
                (opened, _) => opened,
            }
        };
        let opened = timeout(patience, opening).await.unwrap_or_else(|_| {
            let waited = format!("no connection within {patience:?}");
            Err(RedisError::from((ErrorKind::Io, "time-out", waited)))
        });
        // A request that waits for a connection has not been sent.
        opened.map_err(|error| StoreError {
            maybe_executed: false,
            ..classify(error)
        })
    }

    async fn open_with(self: &Arc<Self>, client: &Client, epoch: u64) -> RedisResult<Connection> {
        // Time-outs are ours: one for the whole of connecting, one for each request.
        let mut config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None);
        let pushes = speaks_resp3(client);
        if pushes {
            let link = Arc::downgrade(self);
            config = config.set_push_sender(move |push| {
                receive(&link, epoch, push);
                Ok::<(), Infallible>(())
            });
        }
        let mut commands = client
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        let messages = if pushes {
            track_changes(&mut commands).await?;
            None
        } else {
            Some(self.open_messages(client, epoch).await?)
        };
        self.load_scripts(&mut commands).await?;
        Ok(Connection {
            epoch,
            commands,
            messages,
        })
    }

    async fn open_messages(self: &Arc<Self>, client: &Client, epoch: u64) -> RedisResult<Messages> {
        let (sink, mut stream) = client.get_async_pubsub().await?.split();
        let link = Arc::downgrade(self);
        let pump = tokio::spawn(async move {
            while let (Some(message), Some(link)) = (stream.next().await, link.upgrade()) {
                link.subscriptions.released(message.get_channel_name());
            }
            if let Some(link) = link.upgrade() {
                link.give_up(epoch);
            }
        });
        Ok(Messages {
            sink,
            _pump: Arc::new(Pump(pump)),
        })
    }

    /// Loads the scripts ahead, which saves the first calls a round trip; without the permission
    /// they are loaded when they are missed.
    async fn load_scripts(&self, commands: &mut MultiplexedConnection) -> RedisResult<()> {
        for script in self.scripts.all() {
            server_may_refuse(script.load_async(commands).await.map(|_| ()))?;
        }
        Ok(())
    }
}

impl Connection {
    pub(super) async fn subscribe(&mut self, channels: &[String]) -> RedisResult<()> {
        match &mut self.messages {
            Some(messages) => messages.sink.subscribe(channels).await,
            None => self.commands.subscribe(channels).await,
        }
    }

    pub(super) async fn unsubscribe(&mut self, channels: &[String]) -> RedisResult<()> {
        match &mut self.messages {
            Some(messages) => messages.sink.unsubscribe(channels).await,
            None => self.commands.unsubscribe(channels).await,
        }
    }
}

fn speaks_resp3(client: &Client) -> bool {
    client.get_connection_info().redis_settings().protocol() != ProtocolVersion::RESP2
}

fn refuses_protocol(error: &RedisError) -> bool {
    let refused = matches!(
        error.kind(),
        ErrorKind::RESP3NotSupported | ErrorKind::Server(_) | ErrorKind::Extension
    );
    refused && !wants_password(error)
}

/// Asks to be told when somebody else changes a lock that was read on this connection.
async fn track_changes(commands: &mut MultiplexedConnection) -> RedisResult<()> {
    let mut track = cmd("CLIENT");
    track.arg("TRACKING").arg("ON").arg("NOLOOP");
    let tracking = track.query_async::<Value>(commands).await.map(|_| ());
    if let Err(error) = &tracking {
        tracing::debug!(%error, "no tracking: the watchdog's renewals find losses");
    }
    server_may_refuse(tracking)
}

/// Lets an answer pass that refuses, but not a connection that failed.
fn server_may_refuse(outcome: RedisResult<()>) -> RedisResult<()> {
    match outcome {
        Err(error) if wants_reconnect(&error) || error.is_io_error() => Err(error),
        Err(error) if wants_password(&error) => Err(error),
        _ => Ok(()),
    }
}

/// Takes what the server sends without being asked.
fn receive(link: &Weak<Link>, epoch: u64, push: PushInfo) {
    let Some(link) = link.upgrade() else {
        return;
    };
    match (push.kind, push.data.as_slice()) {
        (PushKind::Message, [Value::BulkString(channel), ..]) => {
            if let Ok(channel) = std::str::from_utf8(channel) {
                link.subscriptions.released(channel);
            }
        }
        (PushKind::Invalidate, [Value::Array(names)]) => {
            for name in names {
                if let Value::BulkString(name) = name
                    && let Some(key) = link.names.key(name)
                {
                    (link.listener)(News::Changed(key));
                }
            }
        }
        // Without names: everything was flushed.
        (PushKind::Invalidate, _) => (link.listener)(News::AllChanged),
        (PushKind::Disconnection, _) => link.give_up(epoch),
        _ => {}
    }
}
