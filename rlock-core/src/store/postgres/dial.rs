//! Logs in to a Postgres server with the present credentials, over TLS if the URL requires it, and drives the connection.

use std::{future::poll_fn, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::timeout,
};
use tokio_postgres::{
    AsyncMessage, Client, Config, Connection, NoTls, Row, Socket, tls::MakeTlsConnect,
};

#[cfg(feature = "tls")]
use super::tls::Rustls;
use super::{address::PostgresEndpoint, errors::classify_connect, pooler};
use crate::store::{
    StoreError, credentials::Credentials, options::StoreOptions, tasks::AbortOnDrop,
};

/// The time of silence after which the system asks the server for a sign of life, and again after each third of it.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// The time without acknowledgement after which the system gives the connection up.
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);

/// Receives the payload of each notification.
pub(super) type Receive = Box<dyn FnMut(&str) + Send>;
/// Called when the session has ended.
pub(super) type Ended = Box<dyn FnOnce() + Send>;

impl PostgresEndpoint {
    /// Opens a session within a time. The session ends with the handle.
    pub(super) async fn dial(
        &self,
        options: &StoreOptions,
        within: Duration,
        receive: Receive,
        ended: Ended,
    ) -> Result<(Client, AbortOnDrop), StoreError> {
        let mut hosts = self.hosts();
        let share = within / u32::try_from(hosts.len().max(1)).unwrap_or(u32::MAX);
        let login = match &options.connection.credentials {
            Some(provider) => {
                let given = provider.ask().await;
                Some(given.map_err(|error| StoreError::new(true, false, error))?)
            }
            None => None,
        };
        let (user, password) = login.map(Credentials::into_parts).unzip();
        for host in &mut hosts {
            // An idle session that only listens learns so that its server or the way to it is gone.
            host.application_name("rlock")
                .connect_timeout(share)
                .keepalives_idle(KEEPALIVE)
                .keepalives_interval(KEEPALIVE / 3)
                .keepalives_retries(3)
                .tcp_user_timeout(UNACKNOWLEDGED);
            if let Some(password) = &password {
                host.password(password);
            }
            if let Some(Some(user)) = &user {
                host.user(user);
            }
        }
        #[cfg(feature = "tls")]
        if self.uses_tls() {
            let tls = options.connection.tls.current().await;
            let tls = tls.map_err(|error| StoreError::new(true, false, error))?;
            let tls = tls.rustls();
            let tls = Rustls(tls.map_err(|error| StoreError::new(false, false, error))?);
            let (client, connection) = first(&hosts, tls, share).await?;
            return Ok((client, drive(connection, receive, ended)));
        }
        let (client, connection) = first(&hosts, NoTls, share).await?;
        Ok((client, drive(connection, receive, ended)))
    }

    /// Opens a session in which to look at the server.
    pub(in crate::store) async fn look(
        &self,
        options: &StoreOptions,
    ) -> Result<LookingSession, StoreError> {
        let within = options.connect_timeout;
        let dialled = self.dial(options, within, Box::new(|_| {}), Box::new(|| {}));
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
        let row = self.client.query_typed_one(query, &[]).await;
        row.map_err(|error| classify_connect(&error))
    }

    /// Returns whether a pooler serves the session.
    pub(in crate::store) async fn is_pooled(&self) -> Result<bool, StoreError> {
        let process = pooler::process(&self.client).await;
        let process = process.map_err(|error| classify_connect(&error))?;
        Ok(process.is_behind_pooler)
    }
}

/// Connects to the first of these hosts that replies within its share of the time, and that grants locks.
async fn first<T>(
    hosts: &[Config],
    tls: T,
    share: Duration,
) -> Result<(Client, Connection<Socket, T::Stream>), StoreError>
where
    T: MakeTlsConnect<Socket> + Clone,
{
    let mut failed = StoreError::new(false, false, "the URL names no host");
    for host in hosts {
        failed = match timeout(share, host.connect(tls.clone())).await {
            Ok(Ok(dialled)) => return Ok(dialled),
            Ok(Err(error)) => classify_connect(&error),
            Err(_) => StoreError::no_reply(share).not_executed(),
        };
    }
    Err(failed)
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
