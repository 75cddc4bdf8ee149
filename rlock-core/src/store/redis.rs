//! One Redis or Valkey server. Nothing above this module knows of it.

mod address;
mod connection;
mod errors;
mod link;
mod messages;
mod names;
mod near;
mod patience;
mod pipe;
mod script;
mod scripts;
mod server;

use std::{pin::pin, sync::Arc, time::Duration};

use redis::{Cmd, Value};
use tokio::{
    runtime::Handle,
    time::{Instant, timeout},
};
use uuid::Uuid;

use self::{
    address::Address,
    connection::Connection,
    errors::{classify, not_sent, unexpected, wants_reconnect},
    link::{Link, Part},
    names::Names,
    near::Near,
    patience::Patience,
    script::{LoadedScript, Shown},
    scripts::{FENCE_TTL, millis},
};
use super::{
    Acquired, Answer, BoxFuture, Claim, Entry, Listener, Release, Released, Renewal, Renewed,
    Route, Store, StoreError,
};
use crate::{error::LockError, key::Key, lease::Time};

/// A server that is merely busy may be silent for this long without being suspected.
const SHORTEST_SILENCE: Duration = Duration::from_millis(50);

#[derive(Debug, Clone)]
pub(crate) struct RedisOptions {
    /// Who is told of what concerns its owners.
    pub(crate) client: Uuid,
    pub(crate) prefix: String,
    pub(crate) tcp_nodelay: bool,
    pub(crate) connect_timeout: Duration,
    pub(crate) response_timeout: Duration,
}

pub(crate) struct RedisStore {
    home: Arc<Link>,
    near: Option<Near>,
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
        let started = Time::now();
        let RedisOptions {
            client,
            prefix,
            tcp_nodelay,
            connect_timeout,
            response_timeout,
        } = options;
        let address = Address::parse(url, tcp_nodelay)?;
        let action = format!("connect to {address}");
        let link = |part| {
            let names = Names::new(prefix.clone());
            let listener = Arc::clone(&listener);
            Link::new(address.clone(), names, part, listener, connect_timeout)
        };
        let home = link(Part::Home { client });
        let first = Arc::clone(&home);
        let mut connecting = Connecting(runtime.spawn(async move { first.connect().await }));
        let connected = match (&mut connecting.0).await {
            Ok(connected) => connected,
            Err(error) => Err(unexpected(error)),
        };
        connected.map_err(|error| error.into_lock_error(action, Time::now().since(started)))?;
        let near = if own_runtime {
            let part = Part::Near {
                home: Arc::clone(&home),
            };
            Near::connect(link(part), runtime).await
        } else {
            None
        };
        Ok(Arc::new(Self {
            home,
            near,
            patience: Patience::default(),
            response_timeout,
            process: std::process::id(),
        }))
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
        script: &LoadedScript,
        call: impl Fn() -> Cmd,
        (route, patience): (Route, Duration),
    ) -> Result<(Value, Time), StoreError> {
        self.not_inherited()?;
        let silence = self.silence();
        if let (Route::Near, Some(near)) = (route, &self.near)
            && let Some(connection) = near.link.present()
        {
            let (epoch, sent_at) = (connection.epoch, Time::now());
            let by = (patience, silence);
            let answer = self.exchange(&near.link, connection, script, call, by);
            let answer = answer.await.inspect_err(|error| {
                if error.maybe_executed {
                    near.link.give_up(epoch);
                }
            });
            return Ok((answer?, sent_at));
        }
        self.call_home(script, call, patience, silence).await
    }

    async fn call_home(
        &self,
        script: &LoadedScript,
        call: impl Fn() -> Cmd,
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
        let sent_at = Time::now();
        let left = patience.saturating_sub(started.elapsed());
        let answer = self.exchange(&self.home, connection, script, call, (left, silence));
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
        script: &LoadedScript,
        call: impl Fn() -> Cmd,
        (patience, silence): (Duration, Duration),
    ) -> Result<Value, StoreError> {
        let epoch = connection.epoch;
        let started = Instant::now();
        let (deadline, suspicious) = (started + patience, started + silence);
        let mut answer = pin!(script.send(call, &connection));
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
            let names = &self.home.names;
            let script = &self.home.scripts.acquire;
            let call = || {
                let mut call = script.call(claims.len());
                for claim in claims {
                    call.arg(Shown(names.lock(&claim.key)));
                }
                call.arg(millis(lease))
                    .arg(count)
                    .arg(millis(FENCE_TTL + lease))
                    .arg(u8::from(waits))
                    .arg(names.channels());
                for claim in claims {
                    call.arg(Shown(claim.owner));
                }
                call
            };
            let (answer, sent_at) = self.call(script, call, by).await?;
            scripts::read_acquired(answer, claims.len(), sent_at)
        })
    }

    fn release<'a>(&'a self, release: Release<'a>, by: (Route, Duration)) -> Answer<'a, Released> {
        Box::pin(async move {
            let names = &self.home.names;
            let Release {
                key,
                owner,
                token,
                count,
                keep,
                next,
            } = release;
            let lease = next.map_or(Duration::ZERO, |next| next.lease);
            let script = &self.home.scripts.release;
            let call = || {
                let mut call = script.call(1);
                call.arg(Shown(names.lock(key)))
                    .arg(Shown(owner))
                    .arg(count)
                    .arg(millis(keep))
                    .arg(token)
                    .arg(millis(FENCE_TTL + lease))
                    .arg(names.channels());
                if let Some(next) = next {
                    call.arg(Shown(next.owner))
                        .arg(millis(next.lease))
                        .arg(u8::from(next.first));
                }
                call
            };
            let (answer, sent_at) = self.call(script, call, by).await?;
            scripts::read_released(answer, next, sent_at)
        })
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
        timeout: Duration,
        silence: Duration,
    ) -> Answer<'a, Renewed> {
        Box::pin(async move {
            let names = &self.home.names;
            let script = &self.home.scripts.renew;
            let call = || {
                let mut call = script.call(batch.len());
                for renewal in batch {
                    call.arg(Shown(names.lock(&renewal.key)));
                }
                call.arg(millis(FENCE_TTL));
                for renewal in batch {
                    call.arg(Shown(renewal.owner)).arg(millis(renewal.lease));
                }
                call
            };
            // A lease cannot wait for the ordinary patience to run out.
            let silence = silence.max(SHORTEST_SILENCE).min(self.silence());
            let (answer, sent_at) = self.call_home(script, call, timeout, silence).await?;
            Ok(Renewed {
                held: scripts::read_renewed(answer, batch.len())?,
                sent_at,
            })
        })
    }

    fn inspect<'a>(&'a self, key: &'a Key, timeout: Duration) -> Answer<'a, Option<Entry>> {
        Box::pin(async move {
            let script = &self.home.scripts.inspect;
            let call = || {
                let mut call = script.call(1);
                call.arg(Shown(self.home.names.lock(key)));
                call
            };
            let (answer, _) = self
                .call_home(script, call, timeout, self.silence())
                .await?;
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
            tokio::join!(
                Arc::clone(&self.home).keep_up(),
                self.patience.run(),
                keep_told
            );
        })
    }
}
