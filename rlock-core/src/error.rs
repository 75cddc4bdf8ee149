//! Why a call for a lock failed: the variants of [`LockError`], with their key and holder.

mod kind;
mod message;

use std::{error::Error, sync::Arc, time::Duration};

use rlock_proto::{
    escape_control::escape_control, key::InvalidKey, lost::LostCause, mode::LockMode,
};

pub use self::kind::ErrorKind;
use crate::info::Holder;

/// The reason why a lock could not be acquired, kept or released.
///
/// [`kind`](Self::kind) classifies the error by what its caller can do, and suggests statuses of HTTP and gRPC.
///
/// - `{}` names the lock and what to do. It contains no hosts, processes, addresses or texts of the store, so a
///   service can send it to its own callers. Only [`connect`](crate::LockClient::connect) and its variants name the
///   address that they were given.
/// - `{:#}` adds the holder, hints for the programmer, and the reason of the store. Use it in logs.
/// - `{:?}` is the variant with its fields, as `unwrap` and a `main` that returns the error show it.
///
/// # Examples
///
/// ```
/// use rlock_core::{LockClient, LockError};
///
/// async fn report(client: &LockClient) -> Result<(), LockError> {
///     match client.lock("report:daily").run(async { /* … */ }).await {
///         Ok(()) => println!("done"),
///         Err(LockError::Taken { remaining, .. }) => println!("another process runs it: {remaining:?}"),
///         Err(LockError::Unavailable { source, .. }) => println!("the store is down: {source}"),
///         // Another holder may have run at the same time as the body.
///         Err(LockError::Lost { key, cause, .. }) => println!("{key} was lost: {cause}"),
///         Err(error) => return Err(error),
///     }
///     Ok(())
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), LockError> {
/// # report(&LockClient::in_memory()).await
/// # }
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// The lock stayed taken for the whole wait. `{:#}` names the holder, if it is known: another call of this client,
    /// another client of this process, or another process. It also names the other locks of this client that the call
    /// holds.
    #[non_exhaustive]
    Taken {
        /// The requested key.
        key: String,
        /// How long the call waited.
        waited: Duration,
        /// How much of the holder's lease was left at the last reply, if known. A live holder renews its lease.
        remaining: Option<Duration>,
        /// The holder, as it described itself. `None` if it did not reply during the wait, or if the
        /// call asked only once.
        holder: Option<Box<Holder>>,
        /// The part of `{:#}` that names the holder, or says that it does not reply, and names the other locks that this
        /// call holds, with hints. Empty if neither is known.
        details: Box<str>,
    },

    /// The lock was lost while it was held. Another call may have held it since, so the rest of the body was not
    /// protected. Storage that checks the fencing token refuses its late writes as soon as the next holder has written.
    #[non_exhaustive]
    Lost {
        /// The key of the lock.
        key: String,
        /// The cause of the loss.
        cause: LostCause,
    },

    /// The store did not reply in time. The client undoes the request in the background, and if that fails, the lock
    /// ends with its lease.
    #[non_exhaustive]
    Unavailable {
        /// The action that failed, with its key.
        action: String,
        /// How long the client tried.
        waited: Duration,
        /// The last failure.
        source: Arc<dyn Error + Send + Sync>,
    },

    /// The store refuses the request and would refuse it again, for example because of a missing permission, a wrong
    /// password or a key of another type. Also if the client does not trust the server's certificate.
    #[non_exhaustive]
    Refused {
        /// The action that failed, with its key.
        action: String,
        /// The refusal.
        source: Arc<dyn Error + Send + Sync>,
    },

    /// The key cannot be locked.
    #[non_exhaustive]
    InvalidKey {
        /// The key, shortened if it is very long.
        key: String,
        /// What is wrong with the value, and what to do instead.
        reason: String,
    },

    /// An option is out of bounds.
    #[non_exhaustive]
    InvalidOption {
        /// The option's name.
        option: &'static str,
        /// The given value.
        value: String,
        /// What is wrong with the value, and what to do instead.
        reason: String,
    },

    /// An annotated function found no client.
    #[non_exhaustive]
    NoClient {
        /// The template of the first key, as written in the attribute.
        key: String,
    },

    /// A blocking call was made on a thread that runs Tokio tasks, which it would block. Tasks of other executors are
    /// not detected. The future of a `block_on` of a multi-thread runtime, such as an async `main`, may make the
    /// call, because it blocks no other task.
    #[non_exhaustive]
    BlockingInAsync {
        /// The action that failed, with its key.
        action: String,
    },

    /// The call is inside a hold of the same key whose mode does not admit it: an exclusive call inside a shared hold
    /// or a permit, a shared call inside a permit, a permit inside a shared hold, or more permits than the hold has. Waiting
    /// would never end, because the call itself keeps the lock.
    #[non_exhaustive]
    Upgrade {
        /// The key.
        key: String,
        /// The mode of the hold that the call is inside.
        held: LockMode,
        /// The mode that the call asks for.
        wanted: LockMode,
    },

    /// The client is [draining](crate::LockClient::drain). It still serves the calls that began earlier, and calls
    /// inside a hold.
    #[non_exhaustive]
    Draining {
        /// The action that failed, with its key.
        action: String,
    },

    /// The client was shut down.
    #[non_exhaustive]
    Closed {
        /// The action that failed, with its key.
        action: String,
        /// How long the call had waited when the shutdown ended it. `None` if the client was shut down before the call.
        waited: Option<Duration>,
    },

    /// A [`shutdown`](crate::LockClient::shutdown) or [`drain`](crate::LockClient::drain) ended while locks were in
    /// use, because a body has not stopped (it blocks its thread or does not await), or a
    /// [guard](crate::CurrentHold::guard) that it took was not dropped. Each lock ends with its lease.
    #[non_exhaustive]
    StillHeld {
        /// The keys of the locks.
        keys: Vec<String>,
        /// How long the shutdown waited for them.
        waited: Duration,
    },
}

impl LockError {
    #[cold]
    pub(crate) fn invalid_key(key: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::InvalidKey {
            key: key.into(),
            reason: reason.into(),
        }
    }

    #[cold]
    pub(crate) fn of_key(error: InvalidKey) -> Self {
        Self::invalid_key(error.key, error.reason)
    }

    #[cold]
    pub(crate) fn invalid_option(
        option: &'static str,
        value: impl Into<String>,
        reason: impl Into<String>,
    ) -> Self {
        Self::InvalidOption {
            option,
            value: value.into(),
            reason: reason.into(),
        }
    }

    /// Returns the error of a call that began after the shutdown.
    pub(crate) fn closed(action: String) -> Self {
        let waited = None;
        Self::Closed { action, waited }
    }

    /// Adds the lock to an error about one of its options.
    pub(crate) fn of_lock(mut self, shown: &str) -> Self {
        if let Self::InvalidOption { reason, .. } = &mut self {
            *reason = format!("{reason} (lock `{}`)", escape_control(shown));
        }
        self
    }

    /// Returns the key of the failed call, or `None` for variants without a field for it, whose `action` names it. If
    /// the call acquires several keys, this is the key that caused the error; for [`NoClient`](Self::NoClient), it is
    /// the template of the first. With [`redact_keys`](crate::LockClientBuilder::redact_keys), it is the label of the
    /// lock.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::Taken { key, .. }
            | Self::Lost { key, .. }
            | Self::InvalidKey { key, .. }
            | Self::Upgrade { key, .. }
            | Self::NoClient { key } => Some(key),
            Self::StillHeld { keys, .. } => keys.first().map(String::as_str),
            _ => None,
        }
    }

    /// Returns the holder of the lock, as it described itself, for a [`Taken`](Self::Taken), or `None` if it is
    /// not known.
    #[must_use]
    pub fn holder(&self) -> Option<&Holder> {
        match self {
            Self::Taken { holder, .. } => holder.as_deref(),
            _ => None,
        }
    }
}
