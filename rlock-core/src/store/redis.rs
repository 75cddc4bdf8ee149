//! One Redis or Valkey server. Nothing above this module knows of it.

pub(super) mod address;
mod batch;
mod capabilities;
pub(super) mod commands;
pub(super) mod connection;
pub(super) mod errors;
mod for_quorum;
pub(super) mod fork_guard;
pub(super) mod highest_epoch;
pub(super) mod keyspace;
pub(super) mod link;
mod near;
mod notifications;
#[cfg(any(test, fuzzing))]
pub(crate) mod properties;
mod replicas;
mod replies;
pub(super) mod request;
mod roster;
mod sentinel;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "redis/tls_off.rs"]
mod tls;

use std::{sync::Arc, time::Duration};

use redis::{Cmd, Script, Value};
use tokio::{
    runtime::Handle,
    task::JoinHandle,
    time::{Instant, timeout, timeout_at},
};
use uuid::Uuid;

use self::{
    address::{Address, Manner},
    commands::{Batchable, Commands},
    connection::{AbortOnDrop, Connection},
    errors::{classify, unexpected, wants_reconnect},
    fork_guard::ForkGuard,
    keyspace::Keyspace,
    link::{Link, Role},
    near::Near,
    replicas::Witness,
    request::Request,
};
pub(crate) use self::{
    errors::is_forgotten,
    roster::{Roster, SameServer},
    tls::Tls,
};
use super::{
    Acquired, Answer, BoxFuture, Claim, Entry, Listener, Release, Released, Renewal, Renewed,
    Route, Store, StoreError, TokenBlock, endpoint::ServerEndpoint,
};
use crate::{clock::ClientClock, error::LockError, key::Key, lease::Time, options::Replicas};

/// A server that is merely busy may be silent for this long without being suspected.
pub(super) const SHORTEST_SILENCE: Duration = Duration::from_millis(50);

#[derive(Debug, Clone)]
pub(crate) struct RedisOptions {
    /// Receives the notifications for its owners.
    pub(crate) client: Uuid,
    pub(crate) clock: ClientClock,
    pub(crate) prefix: String,
    pub(crate) fence_retention: Duration,
    pub(crate) tcp_nodelay: bool,
    pub(crate) connect_timeout: Duration,
    pub(crate) response_timeout: Duration,
    pub(crate) replicas: Option<Replicas>,
    pub(crate) tls: Tls,
    /// Of the quorum that the server is part of.
    pub(crate) roster: Option<Arc<Roster>>,
}

impl RedisOptions {
    pub(super) fn manner(&self) -> Manner {
        Manner {
            nodelay: self.tcp_nodelay,
            tls: self.tls.clone(),
        }
    }
}

pub(crate) struct RedisStore {
    pub(super) commands: Arc<Commands>,
    clock: ClientClock,
    pub(super) home: Arc<Link>,
    near: Option<Near>,
    witness: Option<Witness>,
    response_timeout: Duration,
    fork_guard: ForkGuard,
}

/// How a request is sent.
#[derive(Clone, Copy)]
pub(super) struct By {
    pub(super) route: Route,
    pub(super) patience: Duration,
    /// How long a reply may be missing before another connection is looked for.
    pub(super) silence: Option<Duration>,
    /// The node does not have the slot yet, and must reply all the same.
    pub(super) asking: bool,
}

impl From<(Route, Duration)> for By {
    fn from((route, patience): (Route, Duration)) -> Self {
        Self {
            route,
            patience,
            silence: None,
            asking: false,
        }
    }
}

impl By {
    pub(super) fn renewal(timeout: Duration, silence: Duration) -> Self {
        Self {
            silence: Some(silence),
            ..(Route::Home, timeout).into()
        }
    }
}

impl RedisStore {
    /// Connects; the connection lives on `runtime`.
    pub(crate) async fn connect(
        endpoint: &ServerEndpoint,
        options: RedisOptions,
        listener: Listener,
        runtime: &Handle,
        near_on: Option<Handle>,
    ) -> Result<Arc<Self>, LockError> {
        let (clock, started) = (options.clock.clone(), options.clock.now());
        let mut store = Self::prepare(endpoint, options, &listener)?;
        let action = format!("connect to {}", store.address());
        let connected = store.connect_home(runtime).await;
        connected.map_err(|error| error.into_lock_error(action, clock.now().since(started)))?;
        if let Some(callers) = near_on {
            let near = store.near.insert(Near::new(&store.home, &callers));
            near.connected(runtime).await;
        }
        Ok(Arc::new(store))
    }

    /// Makes a store that connects in the background.
    pub(crate) fn lazy(
        endpoint: &ServerEndpoint,
        options: RedisOptions,
        listener: &Listener,
        near_on: Option<Handle>,
    ) -> Result<Arc<Self>, LockError> {
        let mut store = Self::prepare(endpoint, options, listener)?;
        store.near = near_on.map(|runtime| Near::new(&store.home, &runtime));
        Ok(Arc::new(store))
    }

    /// Makes a store that is not connected. Its background connects it, unless that is done before.
    pub(crate) fn prepare(
        endpoint: &ServerEndpoint,
        options: RedisOptions,
        listener: &Listener,
    ) -> Result<Self, LockError> {
        let address = Address::new(endpoint, options.manner()).map_err(|error| {
            classify(error).into_lock_error(format!("connect to {endpoint}"), Duration::ZERO)
        })?;
        let keyspace = Keyspace::new(options.prefix.clone());
        let commands = Arc::new(Commands::new(keyspace, options.fence_retention));
        Ok(Self::new(address, options, commands, listener))
    }

    /// Makes the store of a node in a cluster, which connects when it is kept up.
    pub(super) fn of_cluster(
        address: &Address,
        options: &RedisOptions,
        commands: &Arc<Commands>,
        listener: &Listener,
        near_on: Option<&Handle>,
    ) -> Self {
        let commands = Arc::clone(commands);
        let mut store = Self::new(address.clone(), options.clone(), commands, listener);
        store.near = near_on.map(|runtime| Near::new(&store.home, runtime));
        store
    }

    fn new(
        address: Address,
        options: RedisOptions,
        commands: Arc<Commands>,
        listener: &Listener,
    ) -> Self {
        let mut beyond = Vec::new();
        if commands.keyspace.are_of_cluster() {
            beyond.push("cluster");
        }
        if options.replicas.is_some() {
            beyond.push("replicas");
        }
        let role = Role::Home {
            client: options.client,
            roster: options.roster,
            beyond,
        };
        let response_timeout = options.response_timeout;
        let witness = options.replicas.map(|asked| {
            let commands = Arc::clone(&commands);
            Witness::new(address.clone(), commands, asked, response_timeout)
        });
        Self {
            commands: Arc::clone(&commands),
            clock: options.clock,
            home: Link::new(
                address,
                commands,
                role,
                Arc::clone(listener),
                options.connect_timeout,
            ),
            near: None,
            witness,
            response_timeout,
            fork_guard: ForkGuard::new(),
        }
    }

    /// Connects for the first time; the connection lives on `runtime`.
    pub(crate) async fn connect_home(&self, runtime: &Handle) -> Result<(), StoreError> {
        let home = Arc::clone(&self.home);
        connecting(runtime.spawn(async move { home.connect().await })).await
    }

    /// Sends a request and returns its reply, and when it was sent.
    ///
    /// A runtime that stands still, or ends, takes its connection along: then the next request goes by
    /// the other one.
    pub(super) async fn call(
        &self,
        request: &Request<'_>,
        by: By,
    ) -> Result<(Value, Time), StoreError> {
        self.fork_guard.check()?;
        if let (Route::Near, Some(near)) = (by.route, &self.near)
            && let Some(connection) = near.link.present()
        {
            let sent_at = self.clock.now();
            let reply = self.exchange(&near.link, &connection, request, by).await;
            let reply = reply.inspect_err(|error| {
                if error.maybe_executed {
                    near.link.give_up(connection.epoch);
                }
            });
            return Ok((reply?, sent_at));
        }
        let started = Instant::now();
        let connection = match self.home.present() {
            Some(connection) => connection,
            None => timeout(by.patience, self.home.connection())
                .await
                .map_err(|_| self.home.why_down())??,
        };
        let sent_at = self.clock.now();
        let by = By {
            patience: by.patience.saturating_sub(started.elapsed()),
            ..by
        };
        let reply = self.exchange(&self.home, &connection, request, by).await;
        Ok((reply?, sent_at))
    }

    /// Sends a request by this connection and returns its reply.
    ///
    /// After a while without a reply another connection is looked for, because the other side may be gone without a
    /// word. A late reply still counts.
    async fn exchange(
        &self,
        link: &Link,
        connection: &Connection,
        request: &Request<'_>,
        by: By,
    ) -> Result<Value, StoreError> {
        let started = Instant::now();
        let silence = by.silence.unwrap_or_else(|| self.silence());
        let (deadline, suspicious) = (started + by.patience, started + silence);
        let mut reply = Box::pin(request.send(connection, by.asking));
        let mut outcome = timeout_at(deadline.min(suspicious), &mut reply).await;
        if outcome.is_err() && suspicious <= deadline {
            link.doubt(connection.epoch);
            outcome = timeout_at(deadline, &mut reply).await;
        }
        match outcome {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(error)) => {
                if wants_reconnect(&error) {
                    link.give_up(connection.epoch);
                }
                Err(classify(error))
            }
            Err(_) => Err(StoreError::no_answer(by.patience)),
        }
    }

    /// Calls a script.
    async fn run(
        &self,
        script: &Script,
        call: &(dyn Fn() -> Cmd + Sync),
        batchable: Option<Batchable>,
        by: By,
    ) -> Result<(Value, Time), StoreError> {
        let request = Request::Script {
            script,
            call,
            batchable,
            once: false,
        };
        self.call(&request, by).await
    }

    /// Returns whether the server reports changes of the keys read here.
    fn is_watched(&self) -> bool {
        let home = self.home.present();
        home.is_some_and(|connection| connection.is_told)
    }

    /// How long a reply may be missing before its connection is given up. Less than the
    /// time-out, so that the next try finds another.
    fn silence(&self) -> Duration {
        self.response_timeout / 2
    }

    /// Returns the request in its batchable form, if it has one. In a cluster, locks lie in different slots.
    fn batchable(
        &self,
        claims: &[Claim],
        lease: Duration,
        count: u32,
        waits: bool,
    ) -> Option<Batchable> {
        match claims {
            [claim] if count == 1 && !self.commands.keyspace.are_of_cluster() => {
                Some(Batchable::Acquire {
                    claim: claim.clone(),
                    lease,
                    waits,
                })
            }
            _ => None,
        }
    }

    /// Keeps the connections up, for as long as it is polled.
    pub(super) async fn keep_up(&self) {
        let keep_told = async {
            if let Some(near) = &self.near {
                near.keep_told(&self.home).await;
            }
        };
        let ask_replicas = async {
            if let Some(witness) = &self.witness {
                witness.run().await;
            }
        };
        tokio::join!(Arc::clone(&self.home).keep_up(), keep_told, ask_replicas);
    }

    pub(super) async fn acquire_by(
        &self,
        claims: &[Claim],
        lease: Duration,
        count: u32,
        waits: bool,
        by: By,
    ) -> Result<Acquired, StoreError> {
        let call = || self.commands.acquire(claims, lease, count, waits);
        let batchable = self.batchable(claims, lease, count, waits);
        let script = &self.commands.scripts.acquire;
        let (reply, sent_at) = self.run(script, &call, batchable, by).await?;
        replies::read_acquired(reply, claims.len(), sent_at, self.is_watched())
    }

    pub(super) async fn release_by(
        &self,
        release: &Release<'_>,
        by: By,
    ) -> Result<Released, StoreError> {
        let is_plain = release.count == 0 && release.keep.is_zero() && release.next.is_none();
        let is_batchable = is_plain && !self.commands.keyspace.are_of_cluster();
        let batchable = is_batchable.then(|| Batchable::Release {
            key: release.key.clone(),
            owner: release.owner,
            token: release.token,
        });
        let call = || self.commands.release(release);
        let script = &self.commands.scripts.release;
        let (reply, sent_at) = self.run(script, &call, batchable, by).await?;
        replies::read_released(&reply, release.next, sent_at, self.is_watched())
    }

    pub(super) async fn renew_by(&self, batch: &[Renewal], by: By) -> Result<Renewed, StoreError> {
        // A lease cannot wait until the ordinary time-out is over.
        let silence = by.silence.unwrap_or_default().max(SHORTEST_SILENCE);
        let by = By {
            silence: Some(silence.min(self.silence())),
            ..by
        };
        let call = || self.commands.renew(batch);
        let script = &self.commands.scripts.renew;
        let (reply, sent_at) = self.run(script, &call, None, by).await?;
        replies::read_renewed(reply, batch.len(), sent_at)
    }

    pub(super) async fn extend_by(
        &self,
        claim: &Claim,
        tokens: u64,
        by: By,
    ) -> Result<Option<TokenBlock>, StoreError> {
        let call = || self.commands.extend(claim, tokens);
        let script = &self.commands.scripts.extend;
        let (reply, _) = self.run(script, &call, None, by).await?;
        replies::read_extended(reply)
    }

    pub(super) async fn inspect_by(&self, key: &Key, by: By) -> Result<Option<Entry>, StoreError> {
        let call = || self.commands.inspect(key);
        let script = &self.commands.scripts.inspect;
        let (reply, _) = self.run(script, &call, None, by).await?;
        replies::read_entry(reply)
    }
}

/// Returns the result of a connection task. Dropping this future ends the task.
pub(crate) async fn connecting<T>(
    task: JoinHandle<Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let _task = AbortOnDrop::new(&task);
    task.await.unwrap_or_else(|error| Err(unexpected(error)))
}

impl Store for RedisStore {
    fn route(&self) -> Route {
        match &self.near {
            Some(near) if near.is_callers() => Route::Near,
            _ => Route::Home,
        }
    }

    fn acquire<'a>(
        &'a self,
        claims: &'a [Claim],
        lease: Duration,
        count: u32,
        waits: bool,
        by: (Route, Duration),
    ) -> Answer<'a, Acquired> {
        Box::pin(self.acquire_by(claims, lease, count, waits, by.into()))
    }

    fn release<'a>(&'a self, release: Release<'a>, by: (Route, Duration)) -> Answer<'a, Released> {
        Box::pin(async move { self.release_by(&release, by.into()).await })
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
        timeout: Duration,
        silence: Duration,
    ) -> Answer<'a, Renewed> {
        Box::pin(self.renew_by(batch, By::renewal(timeout, silence)))
    }

    fn replicate<'a>(&'a self, claims: &'a [Claim], lease: Duration) -> Answer<'a, ()> {
        Box::pin(async move {
            self.fork_guard.check()?;
            match &self.witness {
                Some(witness) => witness.confirm(claims, lease).await,
                None => Err(StoreError::no_replicas()),
            }
        })
    }

    fn is_present(&self) -> Result<(), StoreError> {
        self.fork_guard.check()
    }

    fn extends(&self) -> bool {
        true
    }

    fn extend<'a>(
        &'a self,
        claim: &'a Claim,
        tokens: u64,
        timeout: Duration,
    ) -> Answer<'a, Option<TokenBlock>> {
        Box::pin(self.extend_by(claim, tokens, (Route::Home, timeout).into()))
    }

    fn place(&self) -> String {
        self.address()
    }

    fn ping(&self, timeout: Duration) -> Answer<'_, ()> {
        Box::pin(self.answers_when_up(timeout))
    }

    fn inspect<'a>(&'a self, key: &'a Key, timeout: Duration) -> Answer<'a, Option<Entry>> {
        Box::pin(self.inspect_by(key, (Route::Home, timeout).into()))
    }

    fn background(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move { self.keep_up().await })
    }
}
