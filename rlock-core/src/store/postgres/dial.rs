//! Logs in to a Postgres server with the present credentials, over TLS if the URL requires it, and drives the connection.

use std::{future::poll_fn, time::Duration};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::{AsyncMessage, Client, Connection, NoTls, Row};

#[cfg(feature = "tls")]
use super::tls::Rustls;
use super::{address::PostgresEndpoint, errors::classify_connect};
use crate::store::{
    StoreError,
    redis::{RedisOptions, dial::AbortOnDrop},
};

/// The time of silence after which the system asks the server for a sign of life, and again after each third of it.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// The time without acknowledgement after which the system gives the connection up.
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);

/// Gets the payload of each notification.
pub(super) type Receive = Box<dyn FnMut(&str) + Send>;
/// Called when the session has ended.
pub(super) type Ended = Box<dyn FnOnce() + Send>;

impl PostgresEndpoint {
    /// Opens a session with this name. The session ends with the handle.
    pub(super) async fn dial(
        &self,
        options: &RedisOptions,
        name: &str,
        receive: Receive,
        ended: Ended,
    ) -> Result<(Client, AbortOnDrop), StoreError> {
        let mut config = self.config.clone();
        // An idle session that only listens learns so that its server or the way to it is gone.
        config
            .application_name(name)
            .keepalives_idle(KEEPALIVE)
            .keepalives_interval(KEEPALIVE / 3)
            .keepalives_retries(3)
            .tcp_user_timeout(UNACKNOWLEDGED);
        if let Some(provider) = &options.connection.credentials {
            let given = provider.ask().await;
            let given = given.map_err(|error| StoreError::new(true, false, error))?;
            let (user, password) = given.into_parts();
            config.password(password);
            if let Some(user) = user {
                config.user(user);
            }
        }
        #[cfg(feature = "tls")]
        if self.uses_tls() {
            let tls = options.connection.tls.current().await;
            let tls = tls.map_err(|error| StoreError::new(true, false, error))?;
            let tls = tls.rustls();
            let tls = Rustls(tls.map_err(|error| StoreError::new(false, false, error))?);
            let dialled = config.connect(tls).await;
            let (client, connection) = dialled.map_err(|error| classify_connect(&error))?;
            return Ok((client, drive(connection, receive, ended)));
        }
        let dialled = config.connect(NoTls).await;
        let (client, connection) = dialled.map_err(|error| classify_connect(&error))?;
        Ok((client, drive(connection, receive, ended)))
    }

    /// Opens a session in which to look at the server.
    pub(in crate::store) async fn look(
        &self,
        options: &RedisOptions,
    ) -> Result<LookingSession, StoreError> {
        let dialled = self.dial(options, "rlock", Box::new(|_| {}), Box::new(|| {}));
        let (client, driver) = dialled.await?;
        Ok(LookingSession {
            client,
            _driver: driver,
        })
    }
}

/// A session that only looks at the server.
pub(in crate::store) struct LookingSession {
    client: Client,
    _driver: AbortOnDrop,
}

impl LookingSession {
    /// Asks for one row.
    pub(in crate::store) async fn ask(&self, query: &str) -> Result<Row, StoreError> {
        let row = self.client.query_one(query, &[]).await;
        row.map_err(|error| classify_connect(&error))
    }
}

fn drive<S, T>(mut connection: Connection<S, T>, mut receive: Receive, ended: Ended) -> AbortOnDrop
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    AbortOnDrop::new(&tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
            if let AsyncMessage::Notification(notification) = message {
                receive(notification.payload());
            }
        }
        drop(connection);
        ended();
    }))
}
