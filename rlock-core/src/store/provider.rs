//! Calls the user's functions for values that change between two connections: credentials and client certificates.

use std::{error::Error, panic::AssertUnwindSafe, sync::Arc};

use futures_util::FutureExt;
use redis::{ErrorKind, RedisError, RedisResult};

use super::BoxFuture;

type Provided<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// A provider of values, such as credentials.
pub(crate) struct Provider<T> {
    /// What an error says about a provider that failed.
    failure: &'static str,
    ask: Arc<dyn Fn() -> BoxFuture<'static, Provided<T>> + Send + Sync>,
}

impl<T> Clone for Provider<T> {
    fn clone(&self) -> Self {
        Self {
            failure: self.failure,
            ask: Arc::clone(&self.ask),
        }
    }
}

impl<T: 'static> Provider<T> {
    pub(crate) fn new<F, E>(
        failure: &'static str,
        provider: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let ask = Arc::new(move || -> BoxFuture<'static, Provided<T>> {
            let given = provider();
            Box::pin(async { given.await.map_err(Into::into) })
        });
        Self { failure, ask }
    }

    /// Returns the present value. A panic of the provider becomes an error, because it would end the task that keeps the
    /// connection up.
    pub(super) async fn ask(&self) -> RedisResult<T> {
        let given = AssertUnwindSafe(async { (self.ask)().await }).catch_unwind();
        let given = given.await;
        let given = given.map_err(|_| self.failed("it panicked".to_owned()))?;
        given.map_err(|error| self.failed(error.to_string()))
    }

    /// Returns the error of a provider that gave no usable value. It is transient, because the next one may be usable.
    pub(super) fn failed(&self, reason: String) -> RedisError {
        RedisError::from((ErrorKind::Io, self.failure, reason))
    }
}
