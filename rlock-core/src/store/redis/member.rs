//! What a quorum wants of its servers beyond what every store does.

use std::time::Duration;

use redis::{ServerErrorKind, Value, cmd, from_redis_value};
use tokio::time::{Instant, timeout, timeout_at};

use super::{
    RedisStore,
    errors::{classify, unexpected},
    script::{Exchange, Once, Request},
    scripts,
};
use crate::store::{Acquired, Claim, Route, StoreError};

impl RedisStore {
    /// Host and port, or the path of a socket, or a service and its Sentinels; never a password.
    pub(crate) fn address(&self) -> String {
        self.home.address.to_string()
    }

    /// Whether there is a connection, as far as is known.
    pub(crate) fn is_up(&self) -> bool {
        self.home.is_there()
    }

    /// Why there is none.
    pub(crate) fn why_down(&self) -> StoreError {
        self.home.why_down()
    }

    /// Waits for a connection; fails where the server refuses this client.
    pub(crate) async fn until_up(&self) -> Result<(), StoreError> {
        self.home.connection().await.map(|_| ())
    }

    /// Raises the token of a lock that its owner holds to this one; answers whether it does hold it.
    pub(crate) async fn raise(
        &self,
        claim: &Claim,
        token: u64,
        lease: Duration,
        patience: Duration,
    ) -> Result<bool, StoreError> {
        let request = Request {
            script: &self.calls.scripts.raise,
            call: || self.calls.raise(claim, token, lease),
            usual: None,
        };
        let (answer, _) = self.call(&request, (Route::Home, patience).into()).await?;
        from_redis_value(answer).map_err(unexpected)
    }

    /// Asks for locks by a request that is sent at once, and only once: a server that had lost the script
    /// has it again when this [fails for that](super::is_forgotten). `None`: it was sent with others, if
    /// that was `shared`, and nothing was done.
    pub(crate) async fn acquire_once(
        &self,
        claims: &[Claim],
        (lease, count): (Duration, u32),
        waits: bool,
        shared: bool,
        patience: Duration,
    ) -> Result<Option<Acquired>, StoreError> {
        let request = Once {
            script: &self.calls.scripts.acquire,
            call: || self.calls.acquire(claims, lease, count, waits),
            usual: shared
                .then(|| self.usual(claims, lease, count, waits))
                .flatten(),
        };
        let sent_at = self.clock.now();
        let answer = self.at_once(&request, patience).await?;
        if answer == Value::Nil {
            return Ok(None);
        }
        scripts::read_acquired(answer, claims.len(), sent_at, self.is_watched()).map(Some)
    }

    /// Sends a request by the first look at this, and fails where there is no connection: it is not sent
    /// later.
    async fn at_once(
        &self,
        request: &dyn Exchange,
        patience: Duration,
    ) -> Result<Value, StoreError> {
        self.process.is_present()?;
        let Some(connection) = self.home.present() else {
            return Err(self.why_down());
        };
        let by = (Route::Home, patience).into();
        self.exchange(&self.home, connection, request, by).await
    }

    /// Checks that the server replies, once it is connected.
    pub(crate) async fn answers_when_up(&self, patience: Duration) -> Result<(), StoreError> {
        self.process.is_present()?;
        let until = Instant::now() + patience;
        let up = timeout_at(until, self.until_up()).await;
        up.map_err(|_| self.why_down())??;
        self.answers(until.saturating_duration_since(Instant::now()))
            .await
    }

    /// Whether the server answers.
    pub(crate) async fn answers(&self, patience: Duration) -> Result<(), StoreError> {
        let Some(connection) = self.home.present() else {
            return Err(self.why_down());
        };
        let mut commands = connection.commands.clone();
        let ping = cmd("PING");
        let answer = timeout(patience, ping.query_async::<Value>(&mut commands)).await;
        let answer = answer.map_err(|_| {
            self.home.doubt(connection.epoch);
            StoreError::no_answer(patience)
        })?;
        match answer {
            // That is an answer too.
            Err(error) if error.kind() == ServerErrorKind::NoPerm.into() => Ok(()),
            answer => answer.map(drop).map_err(classify),
        }
    }
}
