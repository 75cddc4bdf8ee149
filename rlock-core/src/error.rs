//! What can go wrong, and what to do about it.

mod debug;
mod holder;

use std::{error::Error, fmt, sync::Arc, time::Duration};

pub(crate) use self::holder::{Holder, whole_millis};
use crate::printable::Printable;

/// Why a lock could not be taken, kept or given back.
///
/// `Debug` writes the same text as `Display`, for `unwrap`, `expect` and a `main` that returns the
/// error. `{:#?}` writes the fields.
///
/// # Examples
///
/// A job that is skipped if another machine runs it, postponed during an outage, and fails
/// otherwise:
///
/// ```
/// use rlock_core::LockError;
///
/// fn without_lock(error: LockError) -> Result<&'static str, LockError> {
///     match error {
///         error if error.is_contention() => Ok("skipped"),
///         error if error.is_outage() => Ok("postponed"),
///         error => Err(error),
///     }
/// }
/// ```
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// The lock stayed taken for as long as the caller was willing to wait.
    #[error(
        "lock `{}` was still taken after waiting {}{}{}; try again later, or allow more with `wait`",
        Printable(key),
        Shown(*.waited),
        Remaining(*.remaining),
        Holder::advice(*.remaining)
    )]
    Timeout {
        /// The key that was asked for.
        key: String,
        /// How long the call waited.
        waited: Duration,
        /// The remainder of the holder's lease in milliseconds, as of the last reply, if known. A
        /// live holder renews its lease.
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

    /// A blocking call inside a Tokio task, which would stop the whole executor. The client does
    /// not detect tasks of other executors, nor `tokio::task::unconstrained` directly under the
    /// `block_on` of a multi-thread runtime.
    #[error(
        "could not {}: the blocking call was made inside an async task; use the async call, or \
         wrap the synchronous code in `tokio::task::spawn_blocking`",
        Printable(action)
    )]
    WouldBlock {
        /// What was tried, and on which key.
        action: String,
    },

    /// The client is [draining](crate::LockClient::drain). Only calls inside of a hold may acquire
    /// locks.
    #[error(
        "could not {}: its lock client is draining, and grants no new locks",
        Printable(action)
    )]
    Draining {
        /// The action that failed, with its key.
        action: String,
    },

    /// The client was shut down.
    #[error("could not {}: its lock client was shut down", Printable(action))]
    Closed {
        /// What was tried, and on which key.
        action: String,
    },
}

impl LockError {
    /// Returns the key of the failed call. Returns `None` for variants without a `key` field; their
    /// `action` names it. If the call acquires several keys, this is the key that caused the error.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = rlock_core::LockClient::in_memory();
    /// let error = client.lock("a{b").acquire().await.expect_err("one brace");
    /// assert_eq!(error.key(), Some("a{b"));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::Timeout { key, .. }
            | Self::Lost { key, .. }
            | Self::InvalidKey { key, .. }
            | Self::NoClient { key } => Some(key),
            Self::Unavailable { .. }
            | Self::Store { .. }
            | Self::InvalidOption { .. }
            | Self::WouldBlock { .. }
            | Self::Draining { .. }
            | Self::Closed { .. } => None,
        }
    }

    /// Returns whether the lock stayed taken for the whole `wait`: [`Timeout`](Self::Timeout). The
    /// body did not run. A job that another machine runs can be skipped.
    ///
    /// Returns `false` for a lock that was [`Lost`](Self::Lost), because its body ran.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// use std::time::Duration;
    ///
    /// let client = rlock_core::LockClient::in_memory();
    /// let guard = client.lock("night").acquire().await?;
    /// let second = client.lock("night").wait(Duration::ZERO).acquire().await;
    /// assert!(second.expect_err("taken").is_contention());
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn is_contention(&self) -> bool {
        matches!(self, Self::Timeout { .. })
    }

    /// Returns whether the store was unreachable, or temporarily unable to serve:
    /// [`Unavailable`](Self::Unavailable). The same call may succeed later.
    ///
    /// If an acquire fails this way, the body did not run. If a
    /// [release](crate::LockGuard::release) fails this way, the lock ends with its lease.
    ///
    /// Returns `false` for [`Store`](Self::Store), which the store would return again.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use rlock_core::LockClient;
    ///
    /// let nobody_listens = LockClient::connect("redis://127.0.0.1:1/").await;
    /// assert!(nobody_listens.expect_err("refused").is_outage());
    /// # }
    /// ```
    #[must_use]
    pub fn is_outage(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }
}

/// The reason why a hold is no longer valid.
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
    /// The hold was released: its call ended, or its guard was released or dropped.
    ///
    /// Only [`CurrentHold::lost`](crate::CurrentHold::lost) resolves to this cause, because a
    /// `CurrentHold` can outlive its call. No [`LockError::Lost`] has this cause, and the client
    /// logs nothing.
    Released,
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
            Self::Released => "it was released",
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
