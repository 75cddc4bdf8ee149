//! Errors, with what to do about them.

mod kind;

use std::{error::Error, fmt, sync::Arc, time::Duration};

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
    /// or a permit, a shared call inside a permit, or a permit inside a shared hold. Waiting would never end, because
    /// the call itself keeps the lock.
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

    /// Returns what the error means for the caller, for a service that maps errors to statuses.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Taken { .. } => ErrorKind::Contention,
            Self::Unavailable { .. } => ErrorKind::Outage,
            Self::Draining { .. }
            | Self::Closed { .. }
            | Self::StillHeld { .. }
            | Self::Lost {
                cause: LostCause::Closed,
                ..
            } => ErrorKind::Closing,
            Self::Lost { .. } => ErrorKind::Lost,
            Self::InvalidKey { .. } | Self::InvalidOption { .. } => ErrorKind::Invalid,
            Self::Refused { .. }
            | Self::NoClient { .. }
            | Self::BlockingInAsync { .. }
            | Self::Upgrade { .. } => ErrorKind::Misuse,
        }
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

    /// Returns whether the [kind](Self::kind) is [`Contention`](ErrorKind::Contention): the lock stayed taken for the whole
    /// `wait`. The body did not run. A job that another machine runs can be skipped.
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
        self.kind() == ErrorKind::Contention
    }

    /// Returns whether the [kind](Self::kind) is [`Outage`](ErrorKind::Outage): the store was unreachable, or temporarily
    /// unable to serve. The same call may succeed later.
    ///
    /// If an acquire fails this way, the body did not run. If a
    /// [release](crate::LockGuard::release) fails this way, the lock ends with its lease.
    ///
    /// Returns `false` for [`Refused`](Self::Refused), because the store would refuse the call again.
    #[must_use]
    pub fn is_outage(&self) -> bool {
        self.kind() == ErrorKind::Outage
    }

    /// Returns whether the [kind](Self::kind) is [`Closing`](ErrorKind::Closing): this client takes no more locks,
    /// because its process is stopping. Another instance may serve the call. If the variant is [`Lost`](Self::Lost),
    /// the shutdown stopped the body of the call, which may have done a part of its work.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.kind() == ErrorKind::Closing
    }

    /// Returns whether the [kind](Self::kind) is [`Lost`](ErrorKind::Lost): the lock was lost while the body ran, so another
    /// call may have run at the same time.
    ///
    /// Returns `false` if a shutdown stopped the body, for which [`is_closing`](Self::is_closing) returns `true`.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.kind() == ErrorKind::Lost
    }
}

impl fmt::Display for LockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_full = f.alternate();
        match self {
            Self::Taken {
                key,
                waited,
                remaining,
                details,
                ..
            } => {
                let (key, waited) = (escape_control(key), shown(*waited));
                write!(f, "lock `{key}` was still taken after waiting {waited}")?;
                if is_full {
                    write!(f, "{}{details}", rest(*remaining))?;
                }
                f.write_str("; try again later, or allow more with `wait`")
            }
            Self::Lost { key, cause } => {
                let key = escape_control(key);
                write!(f, "lock `{key}` was lost while it was held: {cause}")?;
                match cause {
                    LostCause::Released => Ok(()),
                    _ => f.write_str("; check what the body has done before you repeat it"),
                }
            }
            Self::Unavailable {
                action,
                waited,
                source,
            } => {
                let (action, waited) = (escape_control(action), shown(*waited));
                write!(
                    f,
                    "could not {action} after {waited}, the store is unavailable"
                )?;
                if is_full {
                    write_reasons(f, &**source)
                } else {
                    f.write_str("; try again later")
                }
            }
            Self::Refused { action, source } => {
                write!(f, "could not {}, the store refuses", escape_control(action))?;
                if is_full {
                    write_reasons(f, &**source)
                } else {
                    f.write_str("; it would refuse again, until its set-up is changed")
                }
            }
            Self::InvalidKey { key, reason } => {
                write!(f, "invalid lock key `{}`: {reason}", escape_control(key))
            }
            Self::InvalidOption {
                option,
                value,
                reason,
            } => write!(f, "invalid value {value} for `{option}`: {reason}"),
            Self::NoClient { key } => write!(
                f,
                "no lock client for `{}`: call `client.install()` at start-up, run inside `client.scope(…)`, which a \
                 spawned task leaves unless you spawn it with `in_current_scope()`, or name one with `client = …`",
                escape_control(key)
            ),
            Self::BlockingInAsync { action } => write!(
                f,
                "could not {}: the blocking call was made inside an async task; use the async call, or \
                 wrap the synchronous code in `tokio::task::spawn_blocking`",
                escape_control(action)
            ),
            Self::Upgrade { key, held, wanted } => write!(
                f,
                "this call already holds lock `{}` as {held}, and asked for it as {wanted} inside that hold: acquire \
                 the exclusive lock from the start, or release that hold first",
                escape_control(key)
            ),
            Self::Draining { action } => write!(
                f,
                "could not {}: its lock client is draining and takes no new calls; try another instance",
                escape_control(action)
            ),
            Self::Closed { action, waited } => write_closed(f, action, *waited),
            Self::StillHeld { keys, waited } => write!(
                f,
                "could not release lock {} within {} of the shutdown, because a body has not stopped or its guard was \
                 not dropped: make bodies await, or check `is_valid()`; each lock ends with its lease",
                names(keys.iter().map(String::as_str)),
                shown(*waited)
            ),
        }
    }
}

fn write_closed(f: &mut fmt::Formatter<'_>, action: &str, waited: Option<Duration>) -> fmt::Result {
    let action = escape_control(action);
    write!(f, "could not {action}: its lock client was shut down")?;
    match waited {
        None => f.write_str("; connect a new one"),
        Some(waited) => {
            let waited = shown(waited);
            write!(
                f,
                " after this call had waited {waited}; try another instance"
            )
        }
    }
}

/// Writes an error, then each of its sources that the text does not already contain.
fn write_reasons(f: &mut fmt::Formatter<'_>, error: &(dyn Error + 'static)) -> fmt::Result {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let reason = error.to_string();
        if !text.contains(&reason) {
            text = format!("{text}: {reason}");
        }
        source = error.source();
    }
    write!(f, ": {text}")
}

/// Names the first of these locks, which are shown as [`Key::shown`](crate::key::Key::shown) returns them.
pub(crate) fn names<'k>(locks: impl ExactSizeIterator<Item = &'k str>) -> String {
    const MOST: usize = 3;
    let more = locks.len().saturating_sub(MOST);
    let named: Vec<_> = (locks.take(MOST))
        .map(|lock| format!("`{}`", escape_control(lock)))
        .collect();
    let named = named.join(", ");
    match more {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// Shows a duration rounded to milliseconds or, if it is short, to microseconds: `5s`, `1.5s`, `250ms`.
pub(crate) fn shown(duration: Duration) -> String {
    let unit = if duration < Duration::from_millis(10) {
        1_000
    } else {
        1_000_000
    };
    let half = Duration::from_nanos(unit / 2);
    let rounded = duration.saturating_add(half);
    let over = u64::from(rounded.subsec_nanos()) % unit;
    self::duration(rounded.saturating_sub(Duration::from_nanos(over)))
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
    #[error("the handshake with 10.0.0.7:6379 failed")]
    struct Outer(#[source] io::Error);

    fn lost(cause: LostCause) -> LockError {
        let key = "k".to_owned();
        LockError::Lost { key, cause }
    }

    fn refused(source: impl Error + Send + Sync + 'static) -> LockError {
        LockError::Refused {
            action: "acquire lock `k`".to_owned(),
            source: Arc::new(source),
        }
    }

    fn still_held(keys: &[&str]) -> LockError {
        LockError::StillHeld {
            keys: keys.iter().map(ToString::to_string).collect(),
            waited: Duration::from_millis(20),
        }
    }

    #[test]
    fn each_variant_has_the_kind_that_its_caller_acts_on() {
        use ErrorKind::{Closing, Invalid, Lost, Misuse};
        let action = || "acquire lock `k`".to_owned();
        for (error, kind) in [
            (lost(LostCause::Removed), Lost),
            (lost(LostCause::Expired), Lost),
            (lost(LostCause::MaxHold), Lost),
            (lost(LostCause::Revoked), Lost),
            (lost(LostCause::Closed), Closing),
            (LockError::closed(action()), Closing),
            (LockError::Draining { action: action() }, Closing),
            (still_held(&["k"]), Closing),
            (
                LockError::invalid_option("lease", "1ns", "it is short"),
                Invalid,
            ),
            (refused(io::Error::other("NOPERM")), Misuse),
            (LockError::BlockingInAsync { action: action() }, Misuse),
        ] {
            assert_eq!(error.kind(), kind, "{error:?}");
        }
    }

    #[test]
    fn the_text_for_a_caller_has_no_reason_of_the_store_and_the_full_one_has_all() {
        let reset = || Outer(io::Error::other("connection reset"));
        let unavailable = LockError::Unavailable {
            action: "acquire lock `k`".to_owned(),
            waited: Duration::from_millis(20),
            source: Arc::new(reset()),
        };
        assert_eq!(
            unavailable.to_string(),
            "could not acquire lock `k` after 20ms, the store is unavailable; try again later"
        );
        let reasons = "the handshake with 10.0.0.7:6379 failed: connection reset";
        assert_eq!(
            format!("{unavailable:#}"),
            format!("could not acquire lock `k` after 20ms, the store is unavailable: {reasons}")
        );
        let refused = refused(reset());
        assert_eq!(
            refused.to_string(),
            "could not acquire lock `k`, the store refuses; it would refuse again, until its set-up is changed"
        );
        assert_eq!(
            format!("{refused:#}"),
            format!("could not acquire lock `k`, the store refuses: {reasons}")
        );
    }

    #[test]
    fn a_shutdown_tells_a_call_that_waited_from_a_later_one() {
        let closed = |waited| {
            let action = "acquire lock `k`".to_owned();
            LockError::Closed { action, waited }.to_string()
        };
        assert_eq!(
            closed(None),
            "could not acquire lock `k`: its lock client was shut down; connect a new one"
        );
        assert_eq!(
            closed(Some(Duration::from_millis(20))),
            "could not acquire lock `k`: its lock client was shut down after this call had waited 20ms; try another \
             instance"
        );
    }

    #[test]
    fn debug_shows_the_variant_and_its_fields() {
        assert_eq!(
            format!("{:?}", lost(LostCause::Expired)),
            "Lost { key: \"k\", cause: Expired }"
        );
    }

    #[test]
    fn locks_still_held_are_named_but_not_a_long_list_of_them() {
        let text = still_held(&["a", "b\n"]).to_string();
        assert!(
            text.contains("release lock `a`, `b\\n` within 20ms of the"),
            "{text}"
        );
        let many = still_held(&["a", "b", "c", "d", "e"]);
        assert!(many.to_string().contains("`c` and 2 more within"), "{many}");
        assert_eq!(many.key(), Some("a"));
    }

    #[test]
    fn durations_are_shown_in_their_largest_unit() {
        for (nanos, text) in [
            (0, "0s"),
            (499, "0s"),
            (2_091_400, "2.091ms"),
            (1_500_400_000, "1.5s"),
            (4_999_999_640, "5s"),
        ] {
            assert_eq!(shown(Duration::from_nanos(nanos)), text);
        }
    }

    #[test]
    fn a_source_that_the_text_names_is_not_repeated() {
        #[derive(Debug, thiserror::Error)]
        #[error("{0}")]
        struct Same(#[source] io::Error);

        let error = format!("{:#}", refused(Same(io::Error::other("no permission"))));
        assert!(error.ends_with("refuses: no permission"), "{error}");
    }
}
