//! One Redis or Valkey server. Nothing above this module knows of it.

mod abilities;
mod address;
mod calls;
mod cluster;
mod connection;
mod errors;
mod hosts;
mod link;
mod load;
mod member;
mod messages;
mod names;
mod near;
mod newest;
mod pipe;
mod process;
#[cfg(any(test, fuzzing))]
pub(crate) mod properties;
mod query;
mod replicas;
mod roster;
mod script;
mod scripts;
mod sentinel;
mod server;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "redis/tls_off.rs"]
mod tls;
mod tracking;

use std::{sync::Arc, time::Duration};

use redis::Value;
use tokio::{
    runtime::Handle,
    time::{Instant, timeout, timeout_at},
};
use uuid::Uuid;

use self::{
    address::Address,
    calls::{Calls, Usual},
    connection::Connection,
    errors::{classify, unexpected, wants_reconnect},
    link::{Link, Part},
    names::Names,
    near::Near,
    process::Process,
    replicas::Witness,
    script::{Exchange, Request},
};
pub(crate) use self::{
    cluster::ClusterStore,
    errors::is_forgotten,
    roster::{Roster, SameServer},
    tls::Tls,
};
use super::{
    Acquired, Answer, BoxFuture, Claim, Entry, Listener, Release, Released, Renewal, Renewed,
    Route, Store, StoreError, TokenBlock,
};
use crate::{clock::ClientClock, error::LockError, key::Key, lease::Time, options::Replicas};

/// A server that is merely busy may be silent for this long without being suspected.
const SHORTEST_SILENCE: Duration = Duration::from_millis(50);

#[derive(Debug, Clone)]
pub(crate) struct RedisOptions {
    /// Who is told of what concerns its owners.
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

pub(crate) struct RedisStore {
    calls: Arc<Calls>,
    clock: ClientClock,
    home: Arc<Link>,
    near: Option<Near>,
    witness: Option<Witness>,
    response_timeout: Duration,
    process: Process,
    /// Several requests of the usual kind are served by one script. Not in a cluster, where their locks
    /// lie in different slots.
    gathers: bool,
}

/// How a request is to go.
#[derive(Clone, Copy)]
struct By {
    route: Route,
    patience: Duration,
    /// How long an answer may be missing before another connection is looked for.
    silence: Option<Duration>,
    /// The node does not have the slot yet, and is to answer all the same.
    asking: bool,
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
    fn renewal(timeout: Duration, silence: Duration) -> Self {
        Self {
            silence: Some(silence),
            ..(Route::Home, timeout).into()
        }
    }
}

impl RedisStore {
    /// Connects; the connection lives on `runtime`.
    pub(crate) async fn connect(
        url: &str,
        options: RedisOptions,
        listener: Listener,
        runtime: &Handle,
        near_on: Option<Handle>,
    ) -> Result<Arc<Self>, LockError> {
        let (clock, started) = (options.clock.clone(), options.clock.now());
        let mut store = Self::prepare(url, options, &listener)?;
        let action = format!("connect to {}", store.home.address);
        let connected = store.connect_home(runtime).await;
        connected.map_err(|error| error.into_lock_error(action, clock.now().since(started)))?;
        if let Some(callers) = near_on {
            store.near = Some(Near::connect(store.home.near(), &callers, runtime).await);
        }
        Ok(Arc::new(store))
    }

    /// Makes a store that connects in the background.
    pub(crate) fn lazy(
        url: &str,
        options: RedisOptions,
        listener: &Listener,
        near_on: Option<Handle>,
    ) -> Result<Arc<Self>, LockError> {
        let mut store = Self::prepare(url, options, listener)?;
        if let Some(runtime) = near_on {
            store.near = Some(Near::behind(store.home.near(), &store.home, &runtime));
        }
        Ok(Arc::new(store))
    }

    /// A store that is not connected. Its background connects it, unless that is done before.
    pub(crate) fn prepare(
        url: &str,
        options: RedisOptions,
        listener: &Listener,
    ) -> Result<Self, LockError> {
        let address = Address::parse_with(url, options.tcp_nodelay, options.tls.clone())?;
        let calls = Arc::new(Calls::new(
            Names::new(options.prefix.clone()),
            options.fence_retention,
        ));
        let home = home(&address, &options, &calls, listener);
        Ok(Self::new(&address, options, calls, home, None))
    }

    /// A node of a cluster: connects when it is kept up.
    fn of_cluster(
        address: &Address,
        options: &RedisOptions,
        calls: &Arc<Calls>,
        listener: &Listener,
        near_on: Option<&Handle>,
    ) -> Self {
        let home = home(address, options, calls, listener);
        let near = near_on.map(|runtime| Near::behind(home.near(), &home, runtime));
        Self {
            gathers: false,
            ..Self::new(address, options.clone(), Arc::clone(calls), home, near)
        }
    }

    fn new(
        address: &Address,
        options: RedisOptions,
        calls: Arc<Calls>,
        home: Arc<Link>,
        near: Option<Near>,
    ) -> Self {
        let witness = options.replicas.map(|asked| {
            let calls = Arc::clone(&calls);
            Witness::new(address.clone(), calls, asked, options.response_timeout)
        });
        Self {
            calls,
            clock: options.clock,
            home,
            near,
            witness,
            response_timeout: options.response_timeout,
            process: Process::present(),
            gathers: true,
        }
    }

    /// Connects for the first time; the connection lives on `runtime`.
    pub(crate) async fn connect_home(&self, runtime: &Handle) -> Result<(), StoreError> {
        let home = Arc::clone(&self.home);
        connecting(runtime.spawn(async move { home.connect().await })).await
    }

    /// Sends a request and reads its answer; also says when it was sent.
    ///
    /// A runtime that stands still, or ends, takes its connection along: then the next request goes by
    /// the other one.
    async fn call(&self, request: &dyn Exchange, by: By) -> Result<(Value, Time), StoreError> {
        self.process.is_present()?;
        if let (Route::Near, Some(near)) = (by.route, &self.near)
            && let Some(connection) = near.link.present()
        {
            let (epoch, sent_at) = (connection.epoch, self.clock.now());
            let answer = self.exchange(&near.link, connection, request, by);
            let answer = answer.await.inspect_err(|error| {
                if error.maybe_executed {
                    near.link.give_up(epoch);
                }
            });
            return Ok((answer?, sent_at));
        }
        let started = Instant::now();
        let connection = match self.home.present() {
            Some(connection) => connection,
            None => timeout(by.patience, self.home.connection())
                .await
                .map_err(|_| self.home.why_down())??,
        };
        let sent_at = self.clock.now();
        let patience = by.patience.saturating_sub(started.elapsed());
        let by = By { patience, ..by };
        let answer = self.exchange(&self.home, connection, request, by);
        Ok((answer.await?, sent_at))
    }

    /// Sends a request by this connection and reads its answer.
    ///
    /// When nothing comes for a while, another connection is looked for, because the other side may
    /// be gone without a word; the answer is still taken if it comes after all.
    async fn exchange(
        &self,
        link: &Link,
        connection: Connection,
        request: &dyn Exchange,
        by: By,
    ) -> Result<Value, StoreError> {
        let By {
            patience, asking, ..
        } = by;
        let silence = by.silence.unwrap_or_else(|| self.silence());
        let epoch = connection.epoch;
        let started = Instant::now();
        let (deadline, suspicious) = (started + patience, started + silence);
        let mut answer = request.send(&connection, asking);
        let mut outcome = timeout_at(deadline.min(suspicious), &mut answer).await;
        if outcome.is_err() && suspicious <= deadline {
            link.doubt(epoch);
            outcome = timeout_at(deadline, &mut answer).await;
        }
        match outcome {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                if wants_reconnect(&error) {
                    link.give_up(epoch);
                }
                Err(classify(error))
            }
            Err(_) => Err(StoreError::no_answer(patience)),
        }
    }

    /// Returns whether the server reports changes of the keys read here.
    fn is_watched(&self) -> bool {
        let home = self.home.present();
        home.is_some_and(|connection| connection.is_told)
    }

    /// The callers' own way, if the present call comes from their runtime and that link will do.
    fn near_if(&self, will_do: impl FnOnce(&Link) -> bool) -> Route {
        match &self.near {
            Some(near) if near.is_callers() && will_do(&near.link) => Route::Near,
            _ => Route::Home,
        }
    }

    /// How long an answer may be missing before its connection is given up. Less than the
    /// time-out, so that the next try finds another.
    fn silence(&self) -> Duration {
        self.response_timeout / 2
    }

    /// Keeps the connections up, for as long as it is polled.
    async fn keep_up(&self) {
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

    async fn acquire(
        &self,
        claims: &[Claim],
        lease: Duration,
        count: u32,
        waits: bool,
        by: By,
    ) -> Result<Acquired, StoreError> {
        let request = Request {
            script: &self.calls.scripts.acquire,
            call: || self.calls.acquire(claims, lease, count, waits),
            usual: self.usual(claims, lease, count, waits),
        };
        let (answer, sent_at) = self.call(&request, by).await?;
        scripts::read_acquired(answer, claims.len(), sent_at, self.is_watched())
    }

    /// The same request, if it may share a script with others.
    fn usual(&self, claims: &[Claim], lease: Duration, count: u32, waits: bool) -> Option<Usual> {
        match claims {
            [claim] if count == 1 && self.gathers => Some(Usual::Acquire {
                claim: claim.clone(),
                lease,
                waits,
            }),
            _ => None,
        }
    }

    async fn release(&self, release: &Release<'_>, by: By) -> Result<Released, StoreError> {
        let gives_back = release.count == 0 && release.keep.is_zero();
        let is_usual = gives_back && release.next.is_none() && self.gathers;
        let usual = is_usual.then(|| Usual::Release {
            key: release.key.clone(),
            owner: release.owner,
            token: release.token,
        });
        let request = Request {
            script: &self.calls.scripts.release,
            call: || self.calls.release(release),
            usual,
        };
        let (answer, sent_at) = self.call(&request, by).await?;
        scripts::read_released(&answer, release.next, sent_at, self.is_watched())
    }

    async fn renew(&self, batch: &[Renewal], by: By) -> Result<Renewed, StoreError> {
        let request = Request {
            script: &self.calls.scripts.renew,
            call: || self.calls.renew(batch),
            usual: None,
        };
        let (answer, sent_at) = self.call(&request, self.soon_doubted(by)).await?;
        scripts::read_renewed(answer, batch.len(), sent_at)
    }

    /// A lease cannot wait for the ordinary patience to run out.
    fn soon_doubted(&self, by: By) -> By {
        let silence = by.silence.unwrap_or_default().max(SHORTEST_SILENCE);
        let silence = Some(silence.min(self.silence()));
        By { silence, ..by }
    }

    async fn extend(
        &self,
        claim: &Claim,
        tokens: u64,
        by: By,
    ) -> Result<Option<TokenBlock>, StoreError> {
        let request = Request {
            script: &self.calls.scripts.extend,
            call: || self.calls.extend(claim, tokens),
            usual: None,
        };
        let (answer, _) = self.call(&request, by).await?;
        scripts::read_extended(answer)
    }

    async fn inspect(&self, key: &Key, by: By) -> Result<Option<Entry>, StoreError> {
        let request = Request {
            script: &self.calls.scripts.inspect,
            call: || self.calls.inspect(key),
            usual: None,
        };
        let (answer, _) = self.call(&request, by).await?;
        scripts::read_entry(answer)
    }
}

/// The link of the background.
fn home(
    address: &Address,
    options: &RedisOptions,
    calls: &Arc<Calls>,
    listener: &Listener,
) -> Arc<Link> {
    let mut beyond = Vec::new();
    if calls.names.are_of_cluster() {
        beyond.push("cluster");
    }
    if options.replicas.is_some() {
        beyond.push("replicas");
    }
    let part = Part::Home {
        client: options.client,
        roster: options.roster.clone(),
        beyond,
    };
    let (calls, listener) = (Arc::clone(calls), Arc::clone(listener));
    Link::new(
        address.clone(),
        calls,
        part,
        listener,
        options.connect_timeout,
    )
}

/// Returns the result of a connection task. Dropping this future ends the task.
pub(crate) async fn connecting<T>(
    task: tokio::task::JoinHandle<Result<T, StoreError>>,
) -> Result<T, StoreError> {
    match (&mut Connecting(task).0).await {
        Ok(connected) => connected,
        Err(error) => Err(unexpected(error)),
    }
}

/// The task that connects; ends with the wish to.
struct Connecting<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for Connecting<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Store for RedisStore {
    fn route(&self) -> Route {
        self.near_if(|_| true)
    }

    fn told_by(&self) -> Route {
        self.near_if(Link::hears)
    }

    fn still_told_by(&self) -> Route {
        self.near_if(|link| !link.is_deaf())
    }

    fn acquire<'a>(
        &'a self,
        claims: &'a [Claim],
        lease: Duration,
        count: u32,
        waits: bool,
        by: (Route, Duration),
    ) -> Answer<'a, Acquired> {
        Box::pin(self.acquire(claims, lease, count, waits, by.into()))
    }

    fn release<'a>(&'a self, release: Release<'a>, by: (Route, Duration)) -> Answer<'a, Released> {
        Box::pin(async move { self.release(&release, by.into()).await })
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
        timeout: Duration,
        silence: Duration,
    ) -> Answer<'a, Renewed> {
        Box::pin(self.renew(batch, By::renewal(timeout, silence)))
    }

    fn replicate<'a>(&'a self, claims: &'a [Claim], lease: Duration) -> Answer<'a, ()> {
        Box::pin(async move {
            self.process.is_present()?;
            match &self.witness {
                Some(witness) => witness.confirm(claims, lease).await,
                None => Err(StoreError::no_replicas()),
            }
        })
    }

    fn is_present(&self) -> Result<(), StoreError> {
        self.process.is_present()
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
        Box::pin(self.extend(claim, tokens, (Route::Home, timeout).into()))
    }

    fn place(&self) -> String {
        self.address()
    }

    fn ping(&self, timeout: Duration) -> Answer<'_, ()> {
        Box::pin(self.answers_when_up(timeout))
    }

    fn inspect<'a>(&'a self, key: &'a Key, timeout: Duration) -> Answer<'a, Option<Entry>> {
        Box::pin(self.inspect(key, (Route::Home, timeout).into()))
    }

    fn background(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move { self.keep_up().await })
    }
}
