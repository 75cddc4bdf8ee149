//! One Redis or Valkey server. Nothing above this module knows of it.

mod abilities;
mod address;
mod calls;
mod connection;
mod errors;
mod link;
mod load;
mod member;
mod messages;
mod names;
mod near;
mod patience;
mod pipe;
#[cfg(any(test, fuzzing))]
pub(crate) mod properties;
mod replicas;
mod script;
mod scripts;
mod sentinel;
mod server;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "redis/tls_off.rs"]
mod tls;

use std::{pin::pin, sync::Arc, time::Duration};

use redis::{Cmd, Value};
use tokio::{
    runtime::Handle,
    time::{Instant, timeout},
};
use uuid::Uuid;

#[cfg(feature = "tls")]
pub(crate) use self::address::speaks_tls;
pub(crate) use self::tls::Tls;
use self::{
    address::Address,
    calls::{Calls, Usual},
    connection::Connection,
    errors::{classify, not_sent, unexpected, wants_reconnect},
    link::{Link, Part},
    near::Near,
    patience::Patience,
    replicas::Witness,
    script::Request,
};
use super::{
    Acquired, Answer, BoxFuture, Claim, Entry, Kept, Listener, Release, Released, Renewal, Renewed,
    Route, Store, StoreError,
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
    pub(crate) tcp_nodelay: bool,
    pub(crate) connect_timeout: Duration,
    pub(crate) response_timeout: Duration,
    pub(crate) replicas: Option<Replicas>,
    pub(crate) tls: Tls,
}

pub(crate) struct RedisStore {
    calls: Arc<Calls>,
    clock: ClientClock,
    home: Arc<Link>,
    near: Option<Near>,
    witness: Option<Witness>,
    patience: Patience,
    response_timeout: Duration,
    /// Whose connections these are.
    process: u32,
}

impl RedisStore {
    /// Connects; the connection lives on `runtime`.
    pub(crate) async fn connect(
        url: &str,
        options: RedisOptions,
        listener: Listener,
        runtime: &Handle,
        own_runtime: bool,
    ) -> Result<Arc<Self>, LockError> {
        let (clock, started) = (options.clock.clone(), options.clock.now());
        let mut store = Self::prepare(url, options, listener)?;
        let action = format!("connect to {}", store.home.address);
        let connected = store.connect_home(runtime).await;
        connected.map_err(|error| error.into_lock_error(action, clock.now().since(started)))?;
        if own_runtime {
            let part = Part::Near {
                home: Arc::clone(&store.home),
            };
            store.near = Near::connect(store.home.sibling(part), runtime).await;
        }
        Ok(Arc::new(store))
    }

    /// A store that is not connected. Its background connects it, unless that is done before.
    pub(crate) fn prepare(
        url: &str,
        options: RedisOptions,
        listener: Listener,
    ) -> Result<Self, LockError> {
        let RedisOptions {
            client,
            clock,
            prefix,
            tcp_nodelay,
            connect_timeout,
            response_timeout,
            replicas,
            tls,
        } = options;
        let address = Address::parse_with(url, tcp_nodelay, tls)?;
        let calls = Arc::new(Calls::new(prefix));
        let part = Part::Home { client };
        let witness = replicas.map(|asked| {
            let calls = Arc::clone(&calls);
            Witness::new(address.clone(), calls, asked, response_timeout)
        });
        Ok(Self {
            home: Link::new(address, Arc::clone(&calls), part, listener, connect_timeout),
            calls,
            clock,
            near: None,
            witness,
            patience: Patience::default(),
            response_timeout,
            process: std::process::id(),
        })
    }

    /// Connects for the first time; the connection lives on `runtime`.
    pub(crate) async fn connect_home(&self, runtime: &Handle) -> Result<(), StoreError> {
        let home = Arc::clone(&self.home);
        let mut connecting = Connecting(runtime.spawn(async move { home.connect().await }));
        match (&mut connecting.0).await {
            Ok(connected) => connected,
            Err(error) => Err(unexpected(error)),
        }
    }

    /// Refuses to work in a process that was forked off: it shares the connections and the owners' names
    /// of its parent, and has none of its threads.
    fn not_inherited(&self) -> Result<(), StoreError> {
        let present = std::process::id();
        if present == self.process {
            return Ok(());
        }
        Err(not_sent(format!(
            "this client belongs to process {}, which forked this one ({present}); connect anew after a fork",
            self.process
        )))
    }

    /// Sends a script and reads its answer; also says when it was sent.
    ///
    /// A runtime that stands still, or ends, takes its connection along: then the next request goes by
    /// the other one.
    async fn call(
        &self,
        request: Request<'_, impl Fn() -> Cmd>,
        (route, patience): (Route, Duration),
    ) -> Result<(Value, Time), StoreError> {
        self.not_inherited()?;
        let silence = self.silence();
        if let (Route::Near, Some(near)) = (route, &self.near)
            && let Some(connection) = near.link.present()
        {
            let (epoch, sent_at) = (connection.epoch, self.clock.now());
            let by = (patience, silence);
            let answer = self.exchange(&near.link, connection, &request, by);
            let answer = answer.await.inspect_err(|error| {
                if error.maybe_executed {
                    near.link.give_up(epoch);
                }
            });
            return Ok((answer?, sent_at));
        }
        self.call_home(request, patience, silence).await
    }

    async fn call_home(
        &self,
        request: Request<'_, impl Fn() -> Cmd>,
        patience: Duration,
        silence: Duration,
    ) -> Result<(Value, Time), StoreError> {
        self.not_inherited()?;
        let started = Instant::now();
        let connection = match self.home.present() {
            Some(connection) => connection,
            None => timeout(patience, self.home.connection())
                .await
                .map_err(|_| self.home.why_down())??,
        };
        let sent_at = self.clock.now();
        let left = patience.saturating_sub(started.elapsed());
        let answer = self.exchange(&self.home, connection, &request, (left, silence));
        Ok((answer.await?, sent_at))
    }

    /// Sends a script by this connection and reads its answer.
    ///
    /// When nothing comes for `silence`, another connection is looked for, because the other side may
    /// be gone without a word; the answer is still taken if it comes after all.
    async fn exchange(
        &self,
        link: &Link,
        connection: Connection,
        request: &Request<'_, impl Fn() -> Cmd>,
        (patience, silence): (Duration, Duration),
    ) -> Result<Value, StoreError> {
        let epoch = connection.epoch;
        let started = Instant::now();
        let (deadline, suspicious) = (started + patience, started + silence);
        let mut answer = pin!(request.send(&connection));
        let mut outcome = self
            .patience
            .by(deadline.min(suspicious), answer.as_mut())
            .await;
        if outcome.is_none() && suspicious <= deadline {
            link.doubt(epoch);
            outcome = self.patience.by(deadline, answer).await;
        }
        match outcome {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(error)) => {
                if wants_reconnect(&error) {
                    link.give_up(epoch);
                }
                Err(classify(error))
            }
            None => Err(StoreError::no_answer(patience)),
        }
    }

    /// How long an answer may be missing before its connection is given up. Less than the
    /// time-out, so that the next try finds another.
    fn silence(&self) -> Duration {
        self.response_timeout / 2
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
        Box::pin(async move {
            let usual = match claims {
                [claim] if count == 1 => Some(Usual::Acquire {
                    claim: claim.clone(),
                    lease,
                    waits,
                }),
                _ => None,
            };
            let request = Request {
                script: &self.calls.scripts.acquire,
                call: || self.calls.acquire(claims, lease, count, waits),
                usual,
            };
            let (answer, sent_at) = self.call(request, by).await?;
            scripts::read_acquired(answer, claims.len(), sent_at)
        })
    }

    fn release<'a>(&'a self, release: Release<'a>, by: (Route, Duration)) -> Answer<'a, Released> {
        Box::pin(async move {
            let Release { key, owner, .. } = release;
            let gives_back = release.count == 0 && release.keep.is_zero();
            let usual = (gives_back && release.next.is_none()).then(|| Usual::Release {
                key: key.clone(),
                owner,
                token: release.token,
            });
            let request = Request {
                script: &self.calls.scripts.release,
                call: || self.calls.release(&release),
                usual,
            };
            let (answer, sent_at) = self.call(request, by).await?;
            scripts::read_released(answer, release.next, sent_at)
        })
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
        timeout: Duration,
        silence: Duration,
    ) -> Answer<'a, Renewed> {
        Box::pin(async move {
            let request = Request {
                script: &self.calls.scripts.renew,
                call: || self.calls.renew(batch),
                usual: None,
            };
            // A lease cannot wait for the ordinary patience to run out.
            let silence = silence.max(SHORTEST_SILENCE).min(self.silence());
            let (answer, sent_at) = self.call_home(request, timeout, silence).await?;
            let held = scripts::read_renewed(answer, batch.len())?;
            Ok(Renewed {
                kept: held.into_iter().map(Kept::by_one).collect(),
                sent_at,
            })
        })
    }

    fn replicate<'a>(&'a self, claims: &'a [Claim], lease: Duration) -> Answer<'a, ()> {
        Box::pin(async move {
            self.not_inherited()?;
            match &self.witness {
                Some(witness) => witness.confirm(claims, lease).await,
                None => Err(StoreError::no_replicas()),
            }
        })
    }

    fn inspect<'a>(&'a self, key: &'a Key, timeout: Duration) -> Answer<'a, Option<Entry>> {
        Box::pin(async move {
            let request = Request {
                script: &self.calls.scripts.inspect,
                call: || self.calls.inspect(key),
                usual: None,
            };
            let (answer, _) = self.call_home(request, timeout, self.silence()).await?;
            scripts::read_entry(answer)
        })
    }

    fn background(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
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
            tokio::join!(
                Arc::clone(&self.home).keep_up(),
                self.patience.run(),
                keep_told,
                ask_replicas
            );
        })
    }
}
