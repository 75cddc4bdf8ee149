//! `Credentials`: a user and password from the user's provider, asked for at each attempt to connect.

use std::fmt;

use redis::{ConnectionInfo, RedisResult};

use super::{endpoint::Endpoint, provider::Provider};
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

    /// Returns the user, if there is one, and the password.
    #[cfg(feature = "postgres")]
    pub(super) fn into_parts(self) -> (Option<String>, String) {
        (self.user, self.password)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// Returns an error if a URL has a login, because the provider gives it.
pub(crate) fn check(store: &Endpoint) -> Result<(), LockError> {
    let reason = if matches!(store, Endpoint::Memory(_)) {
        "the embedded store has no login; leave the option out"
    } else if store.has_login() {
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

impl Provider<Credentials> {
    /// Returns the connection with the present credentials.
    pub(super) async fn log_in(&self, info: ConnectionInfo) -> RedisResult<ConnectionInfo> {
        let Credentials { user, password } = self.ask().await?;
        let mut settings = info.redis_settings().clone().set_password(password);
        if let Some(user) = user {
            settings = settings.set_username(user);
        }
        Ok(info.set_redis_settings(settings))
    }
}
