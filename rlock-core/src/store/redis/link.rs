//! The connection to the server: kept up in the background, replaced when it is found dead.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use redis::{ErrorKind, RedisError, Value, aio::MultiplexedConnection};
use tokio::{sync::watch, time::timeout};
use uuid::Uuid;

use super::{
    abilities::Missing,
    address::Address,
    calls::Calls,
    connection::{Connection, boxed},
    errors::{classify, classify_login, not_sent, wants_password},
    messages,
    roster::{Roster, SameServer},
    sentinel::LOGIN as SENTINELS_LOGIN,
    server::{warn_of_eviction, warn_of_refusals},
};
use crate::{
    owner::near_name,
    store::{Listener, News, StoreError},
    wait::Backoff,
};

/// The number of a link's first connection.
const FIRST_EPOCH: u64 = 1;
/// How long the first attempt to connect again may take.
const FIRST_PATIENCE: Duration = Duration::from_millis(250);

/// The pause before the next attempt at a server that refused this client.
const REFUSED: Duration = Duration::from_secs(2);
/// A connection that was lost has been replaced by then, if it can be.
const REPLACED: Duration = Duration::from_secs(1);

/// What connections are made from, and what they report to.
pub(super) struct Link {
    pub(super) calls: Arc<Calls>,
    part: Part,
    listener: Listener,
    pub(super) address: Address,
    connect_timeout: Duration,
    state: watch::Sender<State>,
    /// How many connections were tried so far.
    epochs: AtomicU64,
    /// When the connection was lost that was up last, or there was one again.
    turned: Mutex<Instant>,
    /// What was said to be missing.
    said: Mutex<Missing>,
    /// Whether the first connection has checked the server's configuration.
    is_checked: AtomicBool,
}

/// What a link is for.
pub(super) enum Part {
    /// Everything that must not be held up, and messages for this client.
    Home {
        client: Uuid,
        /// Of the quorum that the server is part of.
        roster: Option<Arc<Roster>>,
        /// What is asked of the server beyond what every store asks, as `scripts/permissions.lua` names it.
        beyond: Vec<&'static str>,
    },
    /// The requests of one runtime's tasks, and messages for them.
    Near { home: Arc<Link> },
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
    /// By which name the client is told here.
    fn listener_name(&self) -> Uuid {
        match &self.part {
            Part::Home { client, .. } => *client,
            Part::Near { home } => near_name(home.listener_name()),
        }
    }

    /// The channel to listen to.
    pub(super) fn channel(&self) -> String {
        let channels = self.calls.names.channels();
        format!("{channels}{}", self.listener_name())
    }

    /// A message came over that channel.
    pub(super) fn heard(&self, message: &[u8]) {
        if let Some(news) = messages::read(&self.calls.names, self.listener_name(), message) {
            (self.listener)(news);
        }
    }

    /// The server says that another connection changed these; `None`: everything.
    pub(super) fn changed(&self, names: Option<&[Value]>) {
        let Some(names) = names else {
            return (self.listener)(News::AllChanged);
        };
        for name in names {
            if let Value::BulkString(name) = name
                && let Some(key) = self.calls.names.key(name)
            {
                (self.listener)(News::Changed(key));
            }
        }
    }

    /// Where the server is to send its news of changes, if not here.
    pub(super) fn news_go_to(&self) -> Option<i64> {
        match &self.part {
            Part::Home { .. } => None,
            Part::Near { home } => home.present()?.id,
        }
    }

    /// Of the quorum that the server is part of.
    pub(super) fn roster(&self) -> Option<&Arc<Roster>> {
        match &self.part {
            Part::Home { roster, .. } => roster.as_ref(),
            Part::Near { .. } => None,
        }
    }

    pub(super) fn is_home(&self) -> bool {
        matches!(self.part, Part::Home { .. })
    }

    /// Resolves when there is another connection than the one of this epoch; answers it.
    pub(super) async fn another(&self, epoch: u64) -> Connection {
        let mut state = self.state.subscribe();
        loop {
            if let State::Up(connection) = &*state.borrow_and_update()
                && connection.epoch != epoch
            {
                return connection.clone();
            }
            if state.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    pub(super) fn new(
        address: Address,
        calls: Arc<Calls>,
        part: Part,
        listener: Listener,
        connect_timeout: Duration,
    ) -> Arc<Self> {
        Arc::new(Self {
            calls,
            part,
            address,
            listener,
            connect_timeout,
            state: watch::Sender::new(State::Down(None)),
            epochs: AtomicU64::new(FIRST_EPOCH),
            turned: Mutex::new(Instant::now()),
            said: Mutex::default(),
            is_checked: AtomicBool::new(false),
        })
    }

    /// One to the same server, for the callers' runtime.
    pub(super) fn near(self: &Arc<Self>) -> Arc<Self> {
        let part = Part::Near {
            home: Arc::clone(self),
        };
        Self::new(
            self.address.clone(),
            Arc::clone(&self.calls),
            part,
            Arc::clone(&self.listener),
            self.connect_timeout,
        )
    }

    /// Connects for the first time.
    pub(super) async fn connect(self: &Arc<Self>) -> Result<(), StoreError> {
        let connection = self.open(FIRST_EPOCH, self.connect_timeout).await?;
        self.check(&connection).await;
        self.comes_up(connection);
        Ok(())
    }

    /// Logs what a connected server or its user lacks.
    async fn check(&self, connection: &Connection) {
        if !self.is_home() {
            return;
        }
        if !self.is_checked.load(Ordering::Relaxed) {
            // No caller waits for a warning.
            let _ = timeout(self.connect_timeout, boxed(self.warn(&connection.commands))).await;
            self.is_checked.store(true, Ordering::Relaxed);
        }
        self.tell_missing(connection);
    }

    /// Returns whether the background waits for the first connection. A cluster finds its nodes
    /// elsewhere.
    fn is_awaited(&self) -> bool {
        let was_there = self.is_checked.load(Ordering::Relaxed);
        self.is_home() && !was_there && !self.calls.names.are_of_cluster()
    }

    /// Says what is amiss with the server, as far as it affects locks.
    async fn warn(&self, commands: &MultiplexedConnection) {
        let (mut one, mut other) = (commands.clone(), commands.clone());
        let lock = self.calls.names.example();
        let channel = self.channel();
        let beyond = match &self.part {
            Part::Home { beyond, .. } => beyond.as_slice(),
            Part::Near { .. } => &[],
        };
        let refusals = warn_of_refusals(&mut other, &self.address, (&lock, &channel), beyond);
        let ((), refused) = tokio::join!(boxed(warn_of_eviction(&mut one)), boxed(refusals));
        *self.said() = Missing::of_commands(&refused);
    }

    /// Says what the server does not do, unless that was said before.
    fn tell_missing(&self, connection: &Connection) {
        let mut said = self.said();
        connection.missing.beyond(*said).tell(&self.address);
        *said = connection.missing;
    }

    fn said(&self) -> MutexGuard<'_, Missing> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The present connection, if there is one.
    pub(super) fn present(&self) -> Option<Connection> {
        match &*self.state.borrow() {
            State::Up(connection) | State::Doubtful(connection) => Some(connection.clone()),
            State::Down(_) => None,
        }
    }

    /// Whether messages come by this link.
    pub(super) fn hears(&self) -> bool {
        matches!(&*self.state.borrow(), State::Up(connection) if connection.listens)
    }

    /// Whether it is in vain to wait for messages by this link. While it is being replaced, or the
    /// client's own is lost too, they may come again, and places in line are kept.
    pub(super) fn is_deaf(&self) -> bool {
        match (&*self.state.borrow(), &self.part) {
            (State::Up(connection), _) => !connection.listens,
            (_, Part::Near { home }) => {
                let for_long = |link: &Self| link.turned().elapsed() >= REPLACED;
                for_long(self) && home.is_up() && for_long(home)
            }
            (_, Part::Home { .. }) => false,
        }
    }

    fn turned(&self) -> MutexGuard<'_, Instant> {
        self.turned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn comes_up(&self, connection: Connection) {
        *self.turned() = Instant::now();
        self.state.send_replace(State::Up(connection));
    }

    /// Nobody keeps it up any more.
    pub(super) fn ends(&self) {
        *self.turned() = Instant::now();
        self.state.send_replace(State::Down(None));
        // Nor does anybody tell of changes to what was read by it.
        self.changed(None);
    }

    /// Whether there is a connection to use.
    pub(super) fn is_there(&self) -> bool {
        !matches!(&*self.state.borrow(), State::Down(_))
    }

    /// Whether there is a connection, and nothing against it.
    pub(super) fn is_up(&self) -> bool {
        matches!(&*self.state.borrow(), State::Up(_))
    }

    /// Resolves when there is a connection and nothing against it, or when that is not so.
    pub(super) async fn until(&self, is_up: bool) {
        let mut state = self.state.subscribe();
        let so = state.wait_for(|state| matches!(state, State::Up(_)) == is_up);
        // The sender lives in `self`, so this cannot fail.
        let _ = so.await;
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
                if matches!(state, State::Up(_)) {
                    *self.turned() = Instant::now();
                }
                *state = State::Down(None);
                true
            }
            _ => false,
        });
        if given_up && self.is_home() {
            (self.listener)(News::Disconnected);
        }
    }

    /// Looks for another connection beside one that is silent.
    pub(super) fn doubt(&self, epoch: u64) {
        self.state.send_if_modified(|state| match state {
            State::Up(connection) if connection.epoch == epoch => {
                *self.turned() = Instant::now();
                *state = State::Doubtful(connection.clone());
                true
            }
            _ => false,
        });
    }

    /// Keeps a connection up; runs for as long as the client lives.
    pub(super) async fn keep_up(self: Arc<Self>) {
        let mut state = self.state.subscribe();
        let mut was_up = self.is_there();
        loop {
            let Ok(silent) = state
                .wait_for(|state| !matches!(state, State::Up(_)))
                .await
                .map(|state| matches!(&*state, State::Doubtful(_)))
            else {
                return;
            };
            let outage = was_up.then(|| self.outage_begins(silent));
            let mut backoff = Backoff::default();
            let (mut is_said, mut is_missed) = (false, false);
            // What an outage swallowed is not waited for: a short patience finds its end sooner.
            let mut patience = FIRST_PATIENCE.min(self.connect_timeout);
            loop {
                let epoch = self.epochs.fetch_add(1, Ordering::Relaxed) + 1;
                match self.open(epoch, patience).await {
                    Ok(connection) => {
                        self.comes_up(connection.clone());
                        // What happened meanwhile was not told.
                        (self.listener)(News::AllChanged);
                        self.connected(epoch, outage);
                        was_up = true;
                        tokio::select! {
                            () = self.check(&connection) => {}
                            // A caller needs another connection sooner.
                            () = self.until(false) => {}
                        }
                        break;
                    }
                    Err(error) => {
                        if error.source.is::<SameServer>() && !std::mem::replace(&mut is_said, true)
                        {
                            tracing::error!(%error, "a server of the quorum is not counted");
                        }
                        tracing::debug!(address = %self.address, %error, "connecting failed");
                        if self.is_awaited() && !is_missed {
                            tracing::warn!(address = %self.address, %error, "the server cannot be reached yet");
                        }
                        if !std::mem::replace(&mut is_missed, true) && !self.is_home() {
                            // Whoever is told here asks by the other connection meanwhile.
                            (self.listener)(News::Disconnected);
                        }
                        // Servers count wrong passwords.
                        let pause = if error.transient {
                            backoff.next()
                        } else {
                            REFUSED
                        };
                        self.state.send_if_modified(|state| match state {
                            State::Down(last) => {
                                *last = Some(error);
                                true
                            }
                            // It may still answer.
                            State::Up(_) | State::Doubtful(_) => false,
                        });
                        tokio::time::sleep(pause).await;
                        patience = (patience * 2).min(self.connect_timeout);
                    }
                }
            }
        }
    }

    /// Logs the start of an outage: one line for the server, for any number of locks.
    fn outage_begins(&self, silent: bool) -> Instant {
        let address = &self.address;
        if !self.is_home() {
            tracing::debug!(%address, silent, "the callers' connection is lost");
        } else if silent {
            tracing::info!(%address, "the server is silent, connecting again");
        } else {
            tracing::info!(%address, "connection lost, connecting again");
        }
        Instant::now()
    }

    /// Logs the first connection, or the end of an outage.
    fn connected(&self, epoch: u64, outage: Option<Instant>) {
        let address = &self.address;
        let Some(began) = outage else {
            tracing::debug!(%address, epoch, "connected");
            return;
        };
        let after = began.elapsed();
        if self.is_home() {
            tracing::info!(%address, ?after, "connected again");
        } else {
            tracing::debug!(%address, ?after, "the callers' connection is back");
        }
    }

    async fn open(
        self: &Arc<Self>,
        epoch: u64,
        patience: Duration,
    ) -> Result<Connection, StoreError> {
        let opening = async {
            let server = self.address.server(patience).await.map_err(|error| {
                // This server was looked up by way of the Sentinels.
                classify_login(error, SENTINELS_LOGIN)
            })?;
            let opened = boxed(Connection::open(self, server.preferred(), epoch)).await;
            let opened = match (opened, server.fallback()) {
                (Err(error), Some(older)) if refuses_protocol(&error) => {
                    let opened = boxed(Connection::open(self, older, epoch)).await;
                    opened.map(|mut opened| {
                        opened.missing.resp3 = true;
                        opened
                    })
                }
                (opened, _) => opened,
            };
            opened.map_err(|error| classify_login(error, server.login()))
        };
        let opened = timeout(patience, boxed(opening)).await.unwrap_or_else(|_| {
            let waited = format!("no connection within {patience:?}");
            let error = RedisError::from((ErrorKind::Io, "time-out", waited));
            Err(classify(error))
        });
        // A request that waits for a connection has not been sent.
        let mut opened = opened.map_err(|error| StoreError {
            maybe_executed: false,
            ..error
        })?;
        if let (Some(roster), Some(run_id)) = (self.roster(), opened.run_id.take()) {
            let presence = roster.enter(self.address.to_string(), run_id);
            // It may lead elsewhere a moment later, and what is owed to that server is not forgotten.
            let presence = presence.map_err(|error| StoreError {
                transient: true,
                ..not_sent(error)
            });
            opened.presence = Some(Arc::new(presence?));
        }
        Ok(opened)
    }
}

fn refuses_protocol(error: &RedisError) -> bool {
    let refused = matches!(
        error.kind(),
        ErrorKind::RESP3NotSupported | ErrorKind::Server(_) | ErrorKind::Extension
    );
    refused && !wants_password(error)
}
