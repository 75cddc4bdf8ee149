//! Credentials that change: a provider is asked for them at each attempt to connect.

use std::{error::Error, fmt, panic::AssertUnwindSafe, sync::Arc};

use futures_util::FutureExt;
use redis::{ConnectionInfo, ErrorKind, RedisError, RedisResult};

use super::BoxFuture;
use crate::error::LockError;

/// A user of a server, and its password, for [`LockClientBuilder::credentials`](crate::LockClientBuilder::credentials).
///
/// `Debug` does not show the password.
#[derive(Clone)]
pub struct Credentials {
    user: Option<String>,
    password: String,
}

impl Credentials {
    /// Returns credentials of this user.
    #[must_use]
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self {
            user: Some(user.into()),
            password: password.into(),
        }
    }

    /// Returns credentials of the user `default`.
    #[must_use]
    pub fn password(password: impl Into<String>) -> Self {
        Self {
            user: None,
            password: password.into(),
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

type Given = Result<Credentials, Box<dyn Error + Send + Sync>>;

/// The provider of a client's credentials.
#[derive(Clone)]
pub(crate) struct Provider(Arc<dyn Fn() -> BoxFuture<'static, Given> + Send + Sync>);

impl Provider {
    pub(crate) fn new<F, E>(provider: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<Credentials, E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        Self(Arc::new(move || {
            let given = provider();
            Box::pin(async { given.await.map_err(Into::into) })
        }))
    }

    /// Checks that no URL has a login as well.
    pub(crate) fn check<'a>(
        servers: impl IntoIterator<Item = &'a ConnectionInfo>,
    ) -> Result<(), LockError> {
        let has_login = |info: &ConnectionInfo| {
            let settings = info.redis_settings();
            settings.username().is_some() || settings.password().is_some()
        };
        let mut servers = servers.into_iter().peekable();
        let reason = if servers.peek().is_none() {
            "the embedded store has no login; leave the option out"
        } else if servers.any(has_login) {
            "the URL also has a user or a password; leave them out of the URL"
        } else {
            return Ok(());
        };
        Err(LockError::invalid_option(
            "credentials",
            "(a provider)",
            reason,
        ))
    }

    /// Returns the connection with the present credentials. A panic of the provider becomes an error, because it would
    /// end the task that keeps the connection up.
    pub(super) async fn log_in(&self, info: ConnectionInfo) -> RedisResult<ConnectionInfo> {
        let failed = |reason: String| {
            let what = "the provider of credentials failed";
            RedisError::from((ErrorKind::Io, what, reason))
        };
        let given = AssertUnwindSafe(async { (self.0)().await }).catch_unwind();
        let given = given.await.map_err(|_| failed("it panicked".to_owned()))?;
        let Credentials { user, password } = given.map_err(|error| failed(error.to_string()))?;
        let mut settings = info.redis_settings().clone().set_password(password);
        if let Some(user) = user {
            settings = settings.set_username(user);
        }
        Ok(info.set_redis_settings(settings))
    }
}
