//! One Redis or Valkey server. Nothing above this module knows of it.

mod address;
mod connection;
mod errors;
mod link;
mod messages;
mod names;
mod patience;
mod script;
mod scripts;
mod server;

use std::{pin::pin, sync::Arc, time::Duration};

use redis::{Cmd, Value};
use tokio::{
    runtime::Handle,
    time::{Instant, timeout_at},
};
use uuid::Uuid;

use self::{
    address::Address,
    connection::Connection,
    errors::{classify, unexpected, wants_reconnect},
    link::Link,
    names::Names,
    patience::Patience,
    script::{LoadedScript, Shown},
    scripts::{FENCE_TTL, millis},
};
use super::{
    Acquired, Answer, BoxFuture, Claim, Entry, Listener, Release, Released, Renewal, Renewed,
    Store, StoreError,
};
use crate::{error::LockError, key::Key, lease::Time};

/// A server that is merely busy may be silent for this long without being suspected.
const SHORTEST_SILENCE: Duration = Duration::from_millis(50);

#[derive(Debug, Clone)]
pub(crate) struct RedisOptions {
    /// Who is told of what concerns its owners.
    pub(crate) client: Uuid,
    pub(crate) prefix: String,
    pub(crate) connect_timeout: Duration,
    pub(crate) response_timeout: Duration,
}

pub(crate) struct RedisStore {
    link: Arc<Link>,
    patience: Patience,
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
            client,
            prefix,
            connect_timeout,
            response_timeout,
        } = options;
        let link = Link::connect(
            address,
            client,
            Names::new(prefix),
            listener,
            connect_timeout,
        );
        let mut connecting = Connecting(runtime.spawn(link));
        let link = match (&mut connecting.0).await {
            Ok(link) => link,
            Err(error) => Err(unexpected(error)),
        };
        let link =
            link.map_err(|error| error.into_lock_error(action, Time::now().since(started)))?;
        Ok(Arc::new(Self {
            link,
            patience: Patience::default(),
            response_timeout,
        }))
    }

    /// Sends a script and reads its answer; also says when it was sent.
    ///
    /// When nothing comes for `silence`, another connection is looked for, because the other side may
    /// be gone without a word; the answer is still taken if it comes after all.
    async fn call(
        &self,
        script: &LoadedScript,
        call: &Cmd,
        patience: Duration,
        silence: Duration,
    ) -> Result<(Value, Time), StoreError> {
        let started = Instant::now();
        let deadline = started + patience;
        let Connection {
            epoch,
            mut commands,
            ..
        } = match self.link.present() {
            Some(connection) => connection,
            None => timeout_at(deadline, self.link.connection())
                .await
                .map_err(|_| self.link.why_down())??,
        };
        let sent_at = Time::now();
        let mut answer = pin!(script.send(call, &mut commands));
        let suspicious = started + silence;
        let until = deadline.min(suspicious);
        let mut outcome = self.patience.by(until, answer.as_mut()).await;
        if outcome.is_none() && suspicious < deadline {
            self.link.doubt(epoch);
            outcome = self.patience.by(deadline, answer).await;
        }
        match outcome {
            Some(Ok(answer)) => Ok((answer, sent_at)),
            Some(Err(error)) => {
                if wants_reconnect(&error) {
                    self.link.give_up(epoch);
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
    fn acquire<'a>(
        &'a self,
        claims: &'a [Claim],
        lease: Duration,
        count: u32,
        waits: bool,
        timeout: Duration,
    ) -> Answer<'a, Acquired> {
        Box::pin(async move {
            let names = &self.link.names;
            let script = &self.link.scripts.acquire;
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
            let (answer, sent_at) = self.call(script, &call, timeout, self.silence()).await?;
            scripts::read_acquired(answer, claims.len(), sent_at)
        })
    }

    fn release<'a>(&'a self, release: Release<'a>, timeout: Duration) -> Answer<'a, Released> {
        Box::pin(async move {
            let names = &self.link.names;
            let Release {
                key,
                owner,
                token,
                count,
                keep,
                next,
            } = release;
            let lease = next.map_or(Duration::ZERO, |next| next.lease);
            let script = &self.link.scripts.release;
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
            let (answer, sent_at) = self.call(script, &call, timeout, self.silence()).await?;
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
            let names = &self.link.names;
            let script = &self.link.scripts.renew;
            let mut call = script.call(batch.len());
            for renewal in batch {
                call.arg(Shown(names.lock(&renewal.key)));
            }
            call.arg(millis(FENCE_TTL));
            for renewal in batch {
                call.arg(Shown(renewal.owner)).arg(millis(renewal.lease));
            }
            // A lease cannot wait for the ordinary patience to run out.
            let silence = silence.max(SHORTEST_SILENCE).min(self.silence());
            let (answer, sent_at) = self.call(script, &call, timeout, silence).await?;
            Ok(Renewed {
                held: scripts::read_renewed(answer, batch.len())?,
                sent_at,
            })
        })
    }

    fn inspect<'a>(&'a self, key: &'a Key, timeout: Duration) -> Answer<'a, Option<Entry>> {
        Box::pin(async move {
            let script = &self.link.scripts.inspect;
            let mut call = script.call(1);
            call.arg(Shown(self.link.names.lock(key)));
            let (answer, _) = self.call(script, &call, timeout, self.silence()).await?;
            scripts::read_entry(answer)
        })
    }

    fn background(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            tokio::join!(Arc::clone(&self.link).keep_up(), self.patience.run());
        })
    }
}
