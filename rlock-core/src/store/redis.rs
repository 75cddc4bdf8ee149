//! One Redis or Valkey server. Nothing above this module knows of it.

mod address;
mod connection;
mod errors;
mod link;
mod names;
mod scripts;
mod server;
mod subscriptions;

use std::{future::Future, pin::pin, sync::Arc, time::Duration};

use redis::{RedisResult, ScriptInvocation, Value};
use tokio::{
    runtime::Handle,
    time::{Instant, timeout, timeout_at},
};

use self::{
    address::Address,
    connection::Connection,
    errors::{classify, unexpected, wants_reconnect},
    link::Link,
    names::Names,
    scripts::{FENCE_TTL, RECORD_TTL, millis},
    subscriptions::Subscription,
};
use super::{
    Acquired, Answer, BoxFuture, Claim, Entry, Listener, Released, Renewal, Renewed, Store,
    StoreError, Watch,
};
use crate::{error::LockError, key::Key, lease::Time, owner::OwnerId};

/// A server that is merely busy may be silent for this long without being suspected.
const SHORTEST_SILENCE: Duration = Duration::from_millis(50);

#[derive(Debug, Clone)]
pub(crate) struct RedisOptions {
    pub(crate) prefix: String,
    pub(crate) connect_timeout: Duration,
    pub(crate) response_timeout: Duration,
}

pub(crate) struct RedisStore {
    link: Arc<Link>,
    response_timeout: Duration,
}

impl RedisStore {
    /// Connects; the connection lives on `runtime`.
    pub(crate) async fn connect(
        url: &str,
        options: RedisOptions,
        listener: Listener,
        runtime: &Handle,
    ) -> Result<Arc<Self>, LockError> {
        let started = Time::now();
        let address = Address::parse(url)?;
        let action = format!("connect to {address}");
        let RedisOptions {
            prefix,
            connect_timeout,
            response_timeout,
        } = options;
        let link = Link::connect(address, Names::new(prefix), listener, connect_timeout);
        let mut connecting = Connecting(runtime.spawn(link));
        let link = match (&mut connecting.0).await {
            Ok(link) => link,
            Err(error) => Err(unexpected(error)),
        };
        let link =
            link.map_err(|error| error.into_lock_error(action, Time::now().since(started)))?;
        Ok(Arc::new(Self {
            link,
            response_timeout,
        }))
    }

    /// Sends a script and reads its answer; also says when it was sent.
    ///
    /// When nothing comes for `silence`, another connection is looked for, because the other side may
    /// be gone without a word; the answer is still taken if it comes after all.
    async fn call(
        &self,
        script: &ScriptInvocation<'_>,
        patience: Duration,
        silence: Duration,
    ) -> Result<(Value, Time), StoreError> {
        let deadline = Instant::now() + patience;
        let connection = timeout_at(deadline, self.link.connection()).await;
        let Connection {
            epoch,
            mut commands,
            ..
        } = connection.map_err(|_| self.link.why_down())??;
        let sent_at = Time::now();
        let mut answer = pin!(script.invoke_async::<Value>(&mut commands));
        let suspicious = Instant::now() + silence;
        let mut outcome = timeout_at(deadline.min(suspicious), answer.as_mut()).await;
        if outcome.is_err() && suspicious < deadline {
            self.link.doubt(epoch);
            outcome = timeout_at(deadline, answer).await;
        }
        match outcome {
            Ok(Ok(answer)) => Ok((answer, sent_at)),
            Ok(Err(error)) => {
                if wants_reconnect(&error) {
                    self.link.give_up(epoch);
                }
                Err(classify(error))
            }
            Err(_) => Err(StoreError::no_answer(patience)),
        }
    }

    /// How long an answer may be missing before its connection is given up. Less than the
    /// time-out, so that the next try finds another.
    fn silence(&self) -> Duration {
        self.response_timeout / 2
    }

    /// A release is sent again for at most two response time-outs.
    fn record_ttl(&self) -> Duration {
        RECORD_TTL.max(self.response_timeout * 2 + RECORD_TTL / 2)
    }

    async fn keep_subscribed(&self) {
        loop {
            self.link.subscriptions.work.notified().await;
            while let Err(()) = self.subscribe_as_wanted().await {}
        }
    }

    /// Sends what is to be subscribed and left; `Err` if it is to be looked at once more.
    async fn subscribe_as_wanted(&self) -> Result<(), ()> {
        let Ok(mut connection) = self.link.connection().await else {
            // Refused by the server: the next connection begins anew.
            tokio::time::sleep(self.response_timeout).await;
            return Err(());
        };
        let epoch = connection.epoch;
        let subscriptions = &self.link.subscriptions;
        let work = subscriptions.work();
        if !work.unsubscribe.is_empty() {
            let left = connection.unsubscribe(&work.unsubscribe);
            if within(self.response_timeout, left).await.is_none() {
                self.link.give_up(epoch);
            }
        }
        if work.subscribe.is_empty() {
            return Ok(());
        }
        match within(self.response_timeout, connection.subscribe(&work.subscribe)).await {
            Some(Ok(())) => subscriptions.settled(epoch, &work.subscribe, true),
            Some(Err(error)) if !wants_reconnect(&error) => {
                tracing::warn!(%error, "the server refuses subscriptions: waiters go by timers alone");
                subscriptions.settled(epoch, &work.subscribe, false);
            }
            _ => self.link.give_up(epoch),
        }
        Ok(())
    }
}

/// The answer, if it comes in time.
async fn within<T>(
    patience: Duration,
    answer: impl Future<Output = RedisResult<T>>,
) -> Option<RedisResult<T>> {
    timeout(patience, answer).await.ok()
}

/// The task that connects; ends with the wish to.
struct Connecting<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for Connecting<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Store for RedisStore {
    fn acquire<'a>(
        &'a self,
        claims: &'a [Claim],
        lease: Duration,
        count: u32,
        timeout: Duration,
    ) -> Answer<'a, Acquired> {
        Box::pin(async move {
            let mut script = self.link.scripts.acquire.arg(millis(lease));
            script.arg(count).arg(millis(FENCE_TTL + lease));
            for claim in claims {
                let lock = self.link.names.lock(&claim.key);
                script
                    .key(&lock)
                    .key(Names::fence(&lock))
                    .arg(claim.owner.to_string());
            }
            let (answer, sent_at) = self.call(&script, timeout, self.silence()).await?;
            scripts::read_acquired(answer, claims.len(), sent_at)
        })
    }

    fn release<'a>(
        &'a self,
        key: &'a Key,
        owner: OwnerId,
        count: u32,
        keep: Duration,
        timeout: Duration,
    ) -> Answer<'a, Released> {
        Box::pin(async move {
            let lock = self.link.names.lock(key);
            let mut script = self.link.scripts.release.key(&lock);
            script
                .key(Names::record(&lock, owner))
                .arg(owner.to_string())
                .arg(count);
            script
                .arg(millis(keep))
                .arg(Names::channel(&lock))
                .arg(millis(self.record_ttl()));
            let (answer, _) = self.call(&script, timeout, self.silence()).await?;
            scripts::read_released(answer)
        })
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
        timeout: Duration,
        silence: Duration,
    ) -> Answer<'a, Renewed> {
        Box::pin(async move {
            let mut script = self.link.scripts.renew.arg(millis(FENCE_TTL));
            for renewal in batch {
                let lock = self.link.names.lock(&renewal.key);
                script.key(&lock).key(Names::fence(&lock));
                script
                    .arg(renewal.owner.to_string())
                    .arg(millis(renewal.lease));
            }
            // A lease cannot wait for the ordinary patience to run out.
            let silence = silence.max(SHORTEST_SILENCE).min(self.silence());
            let (answer, sent_at) = self.call(&script, timeout, silence).await?;
            Ok(Renewed {
                held: scripts::read_renewed(answer, batch.len())?,
                sent_at,
            })
        })
    }

    fn inspect<'a>(&'a self, key: &'a Key, timeout: Duration) -> Answer<'a, Option<Entry>> {
        Box::pin(async move {
            let lock = self.link.names.lock(key);
            let mut script = self.link.scripts.inspect.key(&lock);
            script.key(Names::fence(&lock));
            let (answer, _) = self.call(&script, timeout, self.silence()).await?;
            scripts::read_entry(answer)
        })
    }

    fn watch(self: Arc<Self>, key: &Key) -> Box<dyn Watch> {
        let channel = Names::channel(&self.link.names.lock(key));
        Box::new(RedisWatch(self.link.subscriptions.want(channel)))
    }

    fn background(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            tokio::join!(Arc::clone(&self.link).keep_up(), self.keep_subscribed());
        })
    }
}

struct RedisWatch(Subscription);

impl Watch for RedisWatch {
    fn ready(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(self.0.settled())
    }

    fn woken(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(self.0.released())
    }
}
