//! The connection to the server: kept up in the background, replaced when it is found dead.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::{ErrorKind, RedisError};
use tokio::{sync::watch, time::timeout};
use uuid::Uuid;

use super::{
    address::Address,
    connection::Connection,
    errors::{classify, wants_password},
    messages,
    names::Names,
    scripts::Scripts,
    server::warn_of_eviction,
};
use crate::{
    store::{Listener, News, StoreError},
    wait::Backoff,
};

/// The number of a link's first connection.
const FIRST_EPOCH: u64 = 1;
/// How long the first attempt to connect again may take.
const FIRST_PATIENCE: Duration = Duration::from_millis(250);

/// What connections are made from, and what they report to.
pub(super) struct Link {
    pub(super) names: Names,
    pub(super) scripts: Scripts,
    pub(super) client: Uuid,
    pub(super) listener: Listener,
    address: Address,
    connect_timeout: Duration,
    state: watch::Sender<State>,
    /// How many connections were tried so far.
    epochs: AtomicU64,
}

#[derive(Clone)]
enum State {
    Up(Connection),
    /// Silent for a while. It is used until it fails, or until another is there.
    Doubtful(Connection),
    /// With the error of the last attempt to connect, if there was one.
    Down(Option<StoreError>),
}

impl Link {
    /// The channel that this client listens to.
    pub(super) fn channel(&self) -> String {
        format!("{}{}", self.names.channels(), self.client)
    }

    /// A message came over that channel.
    pub(super) fn heard(&self, message: &[u8]) {
        if let Some(news) = messages::read(&self.names, self.client, message) {
            (self.listener)(news);
        }
    }

    /// Connects for the first time.
    pub(super) async fn connect(
        address: Address,
        client: Uuid,
        names: Names,
        listener: Listener,
        connect_timeout: Duration,
    ) -> Result<Arc<Self>, StoreError> {
        let link = Arc::new(Self {
            names,
            scripts: Scripts::new(),
            client,
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

    /// The present connection, if there is one.
    pub(super) fn present(&self) -> Option<Connection> {
        match &*self.state.borrow() {
            State::Up(connection) | State::Doubtful(connection) => Some(connection.clone()),
            State::Down(_) => None,
        }
    }

    /// The present connection, or the next one.
    ///
    /// Fails at once when the server refuses this client; while it cannot be reached, waits.
    pub(super) async fn connection(&self) -> Result<Connection, StoreError> {
        let mut state = self.state.subscribe();
        let settled = state.wait_for(|state| match state {
            State::Up(_) | State::Doubtful(_) => true,
            State::Down(error) => error.as_ref().is_some_and(|error| !error.transient),
        });
        // The sender lives in `self`, so this cannot fail.
        match settled.await.map(|state| state.clone()) {
            Ok(State::Up(connection) | State::Doubtful(connection)) => Ok(connection),
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
            State::Up(connection) | State::Doubtful(connection) if connection.epoch == epoch => {
                tracing::debug!(address = %self.address, epoch, "connection given up");
                *state = State::Down(None);
                true
            }
            _ => false,
        });
        if given_up {
            (self.listener)(News::Disconnected);
        }
    }

    /// Looks for another connection beside one that is silent.
    pub(super) fn doubt(&self, epoch: u64) {
        self.state.send_if_modified(|state| match state {
            State::Up(connection) if connection.epoch == epoch => {
                *state = State::Doubtful(connection.clone());
                true
            }
            _ => false,
        });
    }

    /// Keeps a connection up; runs for as long as the client lives.
    pub(super) async fn keep_up(self: Arc<Self>) {
        let mut state = self.state.subscribe();
        loop {
            if state
                .wait_for(|state| !matches!(state, State::Up(_)))
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
                        self.state.send_replace(State::Up(connection));
                        // What happened meanwhile was not told.
                        (self.listener)(News::AllChanged);
                        tracing::debug!(address = %self.address, epoch, "connected again");
                        break;
                    }
                    Err(error) => {
                        tracing::debug!(address = %self.address, %error, "connecting failed");
                        self.state.send_if_modified(|state| match state {
                            State::Down(last) => {
                                *last = Some(error);
                                true
                            }
                            // It may still answer.
                            State::Up(_) | State::Doubtful(_) => false,
                        });
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
            let opened = Connection::open(self, self.address.preferred(), epoch).await;
            match (opened, self.address.fallback()) {
                (Err(error), Some(older)) if refuses_protocol(&error) => {
                    tracing::debug!(address = %self.address, "the server does not speak RESP3");
                    Connection::open(self, older, epoch).await
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
}

fn refuses_protocol(error: &RedisError) -> bool {
    let refused = matches!(
        error.kind(),
        ErrorKind::RESP3NotSupported | ErrorKind::Server(_) | ErrorKind::Extension
    );
    refused && !wants_password(error)
}
