//! What a quorum asks of its members beyond the store trait.

use std::time::Duration;

use redis::{ServerErrorKind, Value, cmd, from_redis_value};
use tokio::time::{Instant, timeout_at};

use super::{
    RedisStore,
    errors::{classify, unexpected},
    replies,
    request::Request,
};
use crate::store::{Acquired, Claim, Route, StoreError};

impl RedisStore {
    /// Returns host and port, the path of a socket, or a service and its Sentinels; never a password.
    pub(crate) fn address(&self) -> String {
        self.home.address.to_string()
    }

    /// Returns whether there is a connection, as far as is known.
    pub(crate) fn is_up(&self) -> bool {
        self.home.present().is_some()
    }

    /// Returns why there is no connection.
    pub(crate) fn why_down(&self) -> StoreError {
        self.home.why_down()
    }

    /// Waits for a connection. Fails if the server refuses this client.
    pub(crate) async fn until_up(&self) -> Result<(), StoreError> {
        self.home.connection().await.map(drop)
    }

    /// Raises the token of a lock to this one. Returns whether the owner holds the lock.
    pub(crate) async fn raise(
        &self,
        claim: &Claim,
        token: u64,
        lease: Duration,
        patience: Duration,
    ) -> Result<bool, StoreError> {
        let call = || self.commands.raise(claim, token, lease);
        let script = &self.commands.scripts.raise;
        let by = (Route::Home, patience).into();
        let (reply, _) = self.run(script, &call, None, by).await?;
        from_redis_value(reply).map_err(unexpected)
    }

    /// Acquires locks by a request that is sent at the first poll, and only once. Fails if there is no connection. A
    /// server that had lost the script has it again when this [fails for that](super::is_forgotten). Returns `None` if
    /// the request was batched, which `shared` allows, and nothing was done.
    pub(crate) async fn acquire_once(
        &self,
        claims: &[Claim],
        (lease, count): (Duration, u32),
        waits: bool,
        shared: bool,
        patience: Duration,
    ) -> Result<Option<Acquired>, StoreError> {
        self.fork_guard.check()?;
        let connection = self.home.present().ok_or_else(|| self.why_down())?;
        let batchable = self.batchable(claims, lease, count, waits);
        let request = Request::Script {
            script: &self.commands.scripts.acquire,
            call: &|| self.commands.acquire(claims, lease, count, waits),
            batchable: batchable.filter(|_| shared),
            once: true,
        };
        let (by, sent_at) = ((Route::Home, patience).into(), self.clock.now());
        match self.exchange(&self.home, &connection, &request, by).await? {
            Value::Nil => Ok(None),
            reply => {
                replies::read_acquired(reply, claims.len(), sent_at, self.is_watched()).map(Some)
            }
        }
    }

    /// Checks that the server replies, once it is connected.
    pub(crate) async fn answers_when_up(&self, patience: Duration) -> Result<(), StoreError> {
        self.fork_guard.check()?;
        let until = Instant::now() + patience;
        let up = timeout_at(until, self.home.connection()).await;
        let connection = up.map_err(|_| self.why_down())??;
        let mut commands = connection.commands.clone();
        let ping = cmd("PING");
        let reply = timeout_at(until, ping.query_async::<Value>(&mut commands)).await;
        let reply = reply.map_err(|_| {
            self.home.doubt(connection.epoch);
            StoreError::no_answer(patience)
        })?;
        match reply {
            // A refusal is a reply, too.
            Err(error) if error.kind() == ServerErrorKind::NoPerm.into() => Ok(()),
            reply => reply.map(drop).map_err(classify),
        }
    }
}
