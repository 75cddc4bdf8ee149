//! Options of what others learn of the client's locks.

use std::sync::Arc;

use super::LockClientBuilder;
use crate::options::{Identity, TraceId};

impl LockClientBuilder {
    /// Sets the name and the version of the service, which [inspection](crate::LockClient::inspect) shows
    /// of a holder. At most 256 characters each.
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
    /// A client that does not answer looks like one that is stuck. Others can still take its locks
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
}
