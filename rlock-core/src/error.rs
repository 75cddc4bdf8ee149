//! What can go wrong, and what to do about it.

use std::{error::Error, fmt, sync::Arc, time::Duration};

use crate::printable::Printable;

/// Why a lock could not be taken, kept or given back.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// The lock stayed taken for as long as the caller was willing to wait.
    #[error(
        "lock `{}` was still taken after waiting {}{}; try again later, or allow more with `wait`",
        Printable(key),
        Shown(*.waited),
        Remaining(*.remaining)
    )]
    Timeout {
        /// The key that was asked for.
        key: String,
        /// How long the call waited.
        waited: Duration,
        /// What was left of the holder's lease when it was last asked for, if that is known. A
        /// holder that is alive renews it.
        remaining: Option<Duration>,
    },

    /// The lock was held and is not any more. Another may have taken it since, so what the body
    /// did after that moment was not protected; a fencing token lets storage refuse it.
    #[error("lock `{}` was lost while it was held: {cause}", Printable(key))]
    Lost {
        /// The key that was held.
        key: String,
        /// What ended the hold.
        cause: LostCause,
    },

    /// The store did not answer in time. Whatever the request left behind is cleaned up in the
    /// background, and ends with its lease at the latest.
    #[error(
        "could not {} within {}, the store is unavailable: {source}",
        Printable(action),
        Shown(*.waited)
    )]
    Unavailable {
        /// What was tried, and on which key.
        action: String,
        /// How long it was tried.
        waited: Duration,
        /// The last failure.
        source: Arc<dyn Error + Send + Sync>,
    },

    /// The store refused, and would refuse again: no permission, wrong password, a key of a
    /// foreign type.
    #[error("could not {}, the store refuses: {source}", Printable(action))]
    Store {
        /// What was tried, and on which key.
        action: String,
        /// The refusal.
        source: Arc<dyn Error + Send + Sync>,
    },

    /// The key cannot be locked.
    #[error("invalid lock key `{}`: {reason}", Printable(key))]
    InvalidKey {
        /// The key, shortened if it is very long.
        key: String,
        /// What is wrong with it, and the way out.
        reason: String,
    },

    /// An option is out of bounds.
    #[error("invalid value {value} for `{option}`: {reason}")]
    InvalidOption {
        /// The option's name.
        option: &'static str,
        /// The value that was given.
        value: String,
        /// What is wrong with it, and the way out.
        reason: String,
    },

    /// An annotated function found no client.
    #[error(
        "no lock client for `{}`: call `client.install()` at start-up, run inside `client.scope(…)`, \
         or name one with `client = …`",
        Printable(key)
    )]
    NoClient {
        /// The key that was to be locked.
        key: String,
    },

    /// A blocking call was made inside an async task, where it would stop the whole executor.
    #[error(
        "could not {}: the blocking call was made inside an async task; use the async call, or \
         wrap the synchronous code in `tokio::task::spawn_blocking`",
        Printable(action)
    )]
    WouldBlock {
        /// What was tried, and on which key.
        action: String,
    },

    /// The client was shut down.
    #[error("could not {}: its lock client was shut down", Printable(action))]
    Closed {
        /// What was tried, and on which key.
        action: String,
    },
}

/// What ended a hold before it was released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostCause {
    /// The store says that the owner does not hold the lock: it expired there, was deleted, evicted
    /// or flushed.
    Removed,
    /// The lease ran out before a renewal was confirmed, or there was no watchdog to renew it.
    Expired,
    /// The hold reached its `max_hold`.
    MaxHold,
    /// The client was shut down.
    Closed,
}

impl fmt::Display for LostCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Removed => {
                "the store no longer has it (expired, deleted, evicted or flushed there)"
            }
            Self::Expired => "its lease ran out before a renewal was confirmed",
            Self::MaxHold => "it reached its `max_hold`",
            Self::Closed => "its lock client was shut down",
        })
    }
}

/// A duration to the digit that matters to a reader.
struct Shown(Duration);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digit = if self.0 < Duration::from_millis(10) {
            1_000
        } else {
            1_000_000
        };
        let nanos = self.0.subsec_nanos();
        write!(
            f,
            "{:?}",
            Duration::new(self.0.as_secs(), nanos - nanos % digit)
        )
    }
}

struct Remaining(Option<Duration>);

impl fmt::Display for Remaining {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(left) => write!(f, " (the holder's lease had {} left)", Shown(left)),
            None => Ok(()),
        }
    }
}
