//! Errors, with what to do about them.

mod lost;

use std::{error::Error, fmt, sync::Arc, time::Duration};

pub use self::lost::LostCause;
use crate::{escape_control::escape_control, info::Holder, mode::Mode};

/// The reason why a lock could not be acquired, kept or released.
///
/// `Debug` writes the same text as `Display`, and further sources, for `unwrap`, `expect` and a
/// `main` that returns the error.
///
/// # Examples
///
/// ```
/// use rlock_core::{LockClient, LockError};
///
/// async fn report(client: &LockClient) -> Result<(), LockError> {
///     match client.lock("report:daily").run(async { /* … */ }).await {
///         Ok(()) => println!("done"),
///         Err(LockError::Timeout { remaining, .. }) => println!("another process runs it: {remaining:?}"),
///         Err(LockError::Unavailable { source, .. }) => println!("the store is down: {source}"),
///         // The body may have run beside another holder.
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
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// The lock stayed taken for the whole wait. The text names the holder, if it is known: another
    /// call of this client, another client of this process, or another process. It also names the
    /// locks that this call holds.
    #[error(
        "lock `{}` was still taken after waiting {}{}{}; try again later, or allow more with `wait`",
        escape_control(key),
        shown(*.waited),
        rest(*.remaining),
        details
    )]
    #[non_exhaustive]
    Timeout {
        /// The requested key.
        key: String,
        /// How long the call waited.
        waited: Duration,
        /// The rest of the holder's lease, as of the last reply, if known. A live holder renews its
        /// lease.
        remaining: Option<Duration>,
        /// The holder, as it described itself. `None` if it did not reply during the wait, or if the
        /// call asked only once.
        holder: Option<Box<Holder>>,
        /// The part of the text that names the holder and the locks that this call holds, with hints.
        /// Empty if neither is known.
        details: Box<str>,
    },

    /// The lock was lost while it was held. Another call may hold it since then, so the body was no
    /// longer protected. Storage that checks the fencing token refuses its late writes.
    #[error("lock `{}` was lost while it was held: {cause}", escape_control(key))]
    #[non_exhaustive]
    Lost {
        /// The key of the lock.
        key: String,
        /// The cause of the loss.
        cause: LostCause,
    },

    /// The store did not reply in time. The client undoes the request in the background. A lock that
    /// remains ends with its lease.
    #[error(
        "could not {} after {}, the store is unavailable: {source}",
        escape_control(action),
        shown(*.waited)
    )]
    #[non_exhaustive]
    Unavailable {
        /// The action that failed, with its key.
        action: String,
        /// How long the client tried.
        waited: Duration,
        /// The last failure.
        source: Arc<dyn Error + Send + Sync>,
    },

    /// The store refuses the request, and would refuse it again: a missing permission, a wrong
    /// password, a key of a foreign type. Or the client does not trust the server's certificate.
    #[error("could not {}, the store refuses: {source}", escape_control(action))]
    #[non_exhaustive]
    Store {
        /// The action that failed, with its key.
        action: String,
        /// The refusal.
        source: Arc<dyn Error + Send + Sync>,
    },

    /// The key cannot be locked.
    #[error("invalid lock key `{}`: {reason}", escape_control(key))]
    #[non_exhaustive]
    InvalidKey {
        /// The key, shortened if it is very long.
        key: String,
        /// What is wrong with the value, and what to do instead.
        reason: String,
    },

    /// An option is out of bounds.
    #[error("invalid value {value} for `{option}`: {reason}")]
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
    #[error(
        "no lock client for `{}`: call `client.install()` at start-up, run inside `client.scope(…)`, \
         or name one with `client = …`",
        escape_control(key)
    )]
    #[non_exhaustive]
    NoClient {
        /// The template of the first key, as written in the attribute.
        key: String,
    },

    /// A blocking call was made on a thread that runs Tokio tasks, which it would block. Tasks of
    /// other executors are not detected. The body of a `block_on` of a multi-thread runtime, such as
    /// `main`, blocks no other task, and may make the call.
    #[error(
        "could not {}: the blocking call was made inside an async task; use the async call, or \
         wrap the synchronous code in `tokio::task::spawn_blocking`",
        escape_control(action)
    )]
    #[non_exhaustive]
    WouldBlock {
        /// The action that failed, with its key.
        action: String,
    },

    /// The call is inside a hold of the same key whose mode does not admit it: an exclusive call inside a shared hold or
    /// a permit, or a shared call and a permit inside each other. Waiting would never end, because the call itself keeps
    /// the lock.
    #[error(
        "lock `{}` is held by this call as {held}, and wanted as {wanted} inside that hold: acquire the exclusive lock \
         from the start, or release that hold first",
        escape_control(key)
    )]
    #[non_exhaustive]
    Upgrade {
        /// The key.
        key: String,
        /// The mode of the hold that the call is inside.
        held: Mode,
        /// The mode that the call asks for.
        wanted: Mode,
    },

    /// The client is [draining](crate::LockClient::drain). It serves the calls that began earlier, and
    /// calls inside a hold.
    #[error(
        "could not {}: its lock client is draining and takes no new calls; try another instance",
        escape_control(action)
    )]
    #[non_exhaustive]
    Draining {
        /// The action that failed, with its key.
        action: String,
    },

    /// The client was shut down.
    #[error(
        "could not {}: its lock client was shut down; connect a new one",
        escape_control(action)
    )]
    #[non_exhaustive]
    Closed {
        /// The action that failed, with its key.
        action: String,
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

    /// Adds the lock to an error about one of its options.
    pub(crate) fn of_lock(mut self, shown: &str) -> Self {
        if let Self::InvalidOption { reason, .. } = &mut self {
            *reason = format!("{reason} (lock `{}`)", escape_control(shown));
        }
        self
    }

    /// Returns the key of the failed call. Returns `None` for variants without a `key` field; their
    /// `action` names it. If the call acquires several keys, this is the key that caused the error;
    /// for [`NoClient`](Self::NoClient), it is the template of the first. With
    /// [`redact_keys`](crate::LockClientBuilder::redact_keys), it is the name of the lock.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::Timeout { key, .. }
            | Self::Lost { key, .. }
            | Self::InvalidKey { key, .. }
            | Self::Upgrade { key, .. }
            | Self::NoClient { key } => Some(key),
            _ => None,
        }
    }

    /// Returns the holder of the lock, as it described itself, for a [`Timeout`](Self::Timeout). `None`
    /// if it is not known.
    #[must_use]
    pub fn holder(&self) -> Option<&Holder> {
        match self {
            Self::Timeout { holder, .. } => holder.as_deref(),
            _ => None,
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
    /// Returns `false` for [`Store`](Self::Store), because the store would refuse the call again.
    #[must_use]
    pub fn is_outage(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    /// Returns whether this client no longer locks, because this process stops:
    /// [`Draining`](Self::Draining) or [`Closed`](Self::Closed). Another instance may serve the call.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        matches!(self, Self::Draining { .. } | Self::Closed { .. })
    }
}

impl fmt::Debug for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The text, then each source that it does not already contain.
        let mut text = self.to_string();
        let mut source = self.source();
        while let Some(error) = source {
            let reason = error.to_string();
            if !text.contains(&reason) {
                text = format!("{text}: {reason}");
            }
            source = error.source();
        }
        f.write_str(&text)
    }
}

/// Shows a duration in milliseconds or, if it is short, in microseconds.
fn shown(duration: Duration) -> String {
    let unit = if duration < Duration::from_millis(10) {
        1_000
    } else {
        1_000_000
    };
    let nanos = duration.subsec_nanos();
    self::duration(Duration::new(duration.as_secs(), nanos - nanos % unit))
}

/// Shows a duration. `Debug` writes `0ns` for zero.
pub(crate) fn duration(duration: Duration) -> String {
    if duration.is_zero() {
        "0s".to_owned()
    } else {
        format!("{duration:?}")
    }
}

fn rest(remaining: Option<Duration>) -> String {
    remaining.map_or_else(String::new, |left| {
        format!(" (the holder's lease had {} left)", shown(left))
    })
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the handshake failed")]
    struct Outer(#[source] io::Error);

    fn error() -> LockError {
        LockError::Unavailable {
            action: "connect to h:1".to_owned(),
            waited: Duration::from_millis(20),
            source: Arc::new(Outer(io::Error::other("connection reset"))),
        }
    }

    #[test]
    fn debug_is_a_sentence_with_all_sources() {
        let shown = format!("{:?}", error());
        assert_eq!(shown, format!("{}: connection reset", error()));
    }

    #[test]
    fn durations_are_shown_in_their_largest_unit() {
        for (nanos, text) in [
            (0, "0s"),
            (999, "0s"),
            (2_091_500, "2.091ms"),
            (1_500_900_000, "1.5s"),
        ] {
            assert_eq!(shown(Duration::from_nanos(nanos)), text);
        }
    }

    #[test]
    fn a_source_that_the_text_names_is_not_repeated() {
        let error = LockError::Store {
            action: "acquire lock `k`".to_owned(),
            source: Arc::new(io::Error::other("no permission")),
        };
        assert_eq!(format!("{error:?}"), error.to_string());
    }
}
