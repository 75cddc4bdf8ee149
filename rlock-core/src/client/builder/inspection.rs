//! Options that set what other clients and logs show of this client's locks.

use std::sync::Arc;

use super::LockClientBuilder;
use crate::options::{Identity, TraceId};

impl LockClientBuilder {
    /// Sets the name and the version of the service, which [inspection](crate::LockClient::inspect) shows
    /// of a holder. Accepts 1 to 256 characters each.
    ///
    /// # Errors
    ///
    /// Making the client returns [`LockError::InvalidOption`](crate::LockError::InvalidOption) for an empty
    /// or longer name or version.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = rlock_core::LockClient::builder()
    ///     .service(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"))
    ///     .in_memory()?;
    /// let held = client.lock("order:42").acquire().await?;
    /// let info = client.inspect("order:42").await?.expect("held");
    /// let holder = info.holder.expect("this client");
    /// assert_eq!(holder.service.as_deref(), Some(env!("CARGO_PKG_NAME")));
    /// # drop(held);
    /// # Ok(())
    /// # }
    /// ```
    pub fn service(mut self, name: impl Into<String>, version: impl Into<String>) -> Self {
        self.options.identity = Identity {
            service: Some(name.into()),
            version: Some(version.into()),
        };
        self
    }

    /// Enables or disables answers to other clients: who holds a lock, which locks this client
    /// holds, and requests to release one. Enabled by default.
    ///
    /// A client that does not reply looks like one that is stuck. Others can still take its locks
    /// by [`force_release`](crate::LockClient::force_release).
    pub fn answers(mut self, enabled: bool) -> Self {
        self.options.answers = enabled;
        self
    }

    /// Sets a function that returns the id of the current trace. It is called in each call that
    /// acquires a lock, and [inspection](crate::LockClient::inspect) shows the id of the holder's call. Must
    /// not block.
    ///
    /// # Panics
    ///
    /// A panic of the function is a panic of the call.
    pub fn trace_id(
        mut self,
        current: impl Fn() -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.options.trace_id = Some(TraceId(Arc::new(current)));
        self
    }

    /// Leaves keys out of spans, logs and errors, because keys can be personal data. Disabled by default.
    ///
    /// The [name](crate::Lock::name) of the lock takes the place of its key, or `<redacted>` if it has none. The
    /// attribute sets its key template as the name. This concerns the text and the fields of each
    /// [`LockError`](crate::LockError), and the `Debug` of locks and guards. Methods such as
    /// [`LockGuard::key`](crate::LockGuard::key) return the key. The server stores keys as always.
    ///
    /// # Examples
    ///
    /// ```
    /// use rlock_core::LockClient;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = LockClient::builder().redact_keys(true).in_memory()?;
    /// let lock = client.lock("patient:ann@example.com").name("patient:<email>");
    /// let guard = lock.acquire().await?;
    /// assert_eq!(guard.key(), "patient:ann@example.com");
    /// client.shutdown().await?;
    /// let error = guard.release().await.expect_err("lost");
    /// assert!(error.to_string().starts_with("lock `patient:<email>` was lost"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn redact_keys(mut self, redact: bool) -> Self {
        self.options.redact_keys = redact;
        self
    }
}
