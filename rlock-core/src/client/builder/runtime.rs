//! The options about runtimes: where the background runs, and a connection on the callers' runtime.

use tokio::runtime::Handle;

use super::LockClientBuilder;

/// Where the client's background tasks run.
#[derive(Clone, Default)]
pub(super) enum Background {
    /// On the client's own thread.
    #[default]
    Own,
    On(Handle),
    /// On the runtime that the client is made in, with that runtime's clock.
    TokioTime,
}

impl LockClientBuilder {
    /// Runs the background tasks on this runtime instead of a thread of the client, which keeps a
    /// thread for timers only. Such a client opens no [second connection](Self::caller_connection).
    ///
    /// Nothing is renewed or released while the runtime is blocked, while no `block_on` drives a
    /// current-thread runtime, or after the runtime has shut down. Calls still end in time, with
    /// [`LockError::Unavailable`](crate::LockError::Unavailable).
    ///
    /// # Errors
    ///
    /// Making the client returns [`LockError::InvalidOption`](crate::LockError::InvalidOption) if the
    /// runtime has no timers or, for a store on a server, no I/O. The runtimes of `#[tokio::main]` and
    /// `Runtime::new` have both.
    ///
    /// # Panics
    ///
    /// In a program built with `panic = "abort"`, a missing driver cannot be detected beforehand. A
    /// task of the client panics then.
    pub fn runtime(mut self, runtime: Handle) -> Self {
        self.background = Background::On(runtime);
        self
    }

    /// Enables or disables a second connection to a server or cluster, on the Tokio runtime that
    /// the client is made in. Enabled by default if that runtime has timers and I/O.
    ///
    /// Tasks on that runtime send their requests over the second connection, without waking another
    /// thread. With a server nearby, this saves a third of the latency of an uncontended lock.
    /// Renewals and background releases use the connection on the client's own thread. A quorum
    /// opens no second connection.
    ///
    /// Tokio panics on a runtime without timers or I/O. The client therefore tries the runtime once,
    /// when it is made, and catches the panic; its message is printed. With `panic = "abort"` the
    /// client does not try, and opens the second connection only with `caller_connection(true)`.
    ///
    /// # Panics
    ///
    /// With `panic = "abort"` and `caller_connection(true)`, a task of the client panics on a
    /// runtime without timers or I/O.
    pub fn caller_connection(mut self, enabled: bool) -> Self {
        self.caller_connection = Some(enabled);
        self
    }

    /// Uses the clock of the Tokio runtime that the client is made in, and runs the background
    /// tasks there. In tests with the embedded store, `tokio::time::pause` and
    /// `tokio::time::advance` then control leases and waits.
    ///
    /// Clients that share a named embedded store must all use this option, or none. Blocking calls
    /// wait in real time, because a paused clock stands still while a thread is blocked.
    ///
    /// # Errors
    ///
    /// Making the client returns [`LockError::InvalidOption`](crate::LockError::InvalidOption) outside of
    /// a Tokio runtime. It also does so for a server, because a server's leases end by the server's
    /// clock.
    ///
    /// # Panics
    ///
    /// Tasks of the client panic on a runtime without timers.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use rlock_core::{LockClient, LockError};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), LockError> {
    /// let client = LockClient::builder().tokio_time().in_memory()?;
    /// let held = client.lock("order:42").acquire().await?;
    /// // Returns at once if the clock is paused.
    /// let brief = client.lock("order:42").wait(Duration::from_millis(10));
    /// assert!(matches!(brief.acquire().await, Err(LockError::Timeout { .. })));
    /// # drop(held);
    /// # Ok(())
    /// # }
    /// ```
    pub fn tokio_time(mut self) -> Self {
        self.background = Background::TokioTime;
        self
    }
}
