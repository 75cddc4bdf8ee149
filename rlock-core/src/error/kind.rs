//! What a caller can do about an error: its [`ErrorKind`], which also names the statuses of HTTP and gRPC.

use rlock_proto::lost::LostCause;

use super::LockError;

/// What a [`LockError`](crate::LockError) means for the caller, from [`LockError::kind`](crate::LockError::kind).
///
/// Map kinds rather than variants to the statuses of your protocol, in one place:
///
/// | kind | HTTP | gRPC | another attempt |
/// | --- | --- | --- | --- |
/// | [`Contention`](Self::Contention) | 409 Conflict | `ABORTED` | may succeed when the other call has ended |
/// | [`Outage`](Self::Outage) | 503 Service Unavailable | `UNAVAILABLE` | may succeed when the store serves again |
/// | [`Closing`](Self::Closing) | 503 Service Unavailable | `UNAVAILABLE` | may succeed on another instance |
/// | [`Lost`](Self::Lost) | 500 Internal Server Error | `INTERNAL` | only after you have checked what the body has done |
/// | [`Invalid`](Self::Invalid) | 400 Bad Request | `INVALID_ARGUMENT` | fails again |
/// | [`Misuse`](Self::Misuse) | 500 Internal Server Error | `INTERNAL` | fails again until the program or its set-up changes |
///
/// # Examples
///
/// ```
/// use rlock_core::{ErrorKind, LockError, testing};
///
/// fn status(error: &LockError) -> u16 {
///     match error.kind() {
///         ErrorKind::Contention => 409,
///         ErrorKind::Outage | ErrorKind::Closing => 503,
///         ErrorKind::Invalid => 400,
///         _ => 500,
///     }
/// }
/// assert_eq!(status(&testing::error(ErrorKind::Closing, "order:42")), 503);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The lock stayed taken for the whole `wait`, so the body did not run:
    /// [`Taken`](crate::LockError::Taken).
    Contention,
    /// The store was unreachable, or temporarily unable to serve: [`Unavailable`](crate::LockError::Unavailable).
    Outage,
    /// The client is shutting down, because its process stops: [`Draining`](crate::LockError::Draining),
    /// [`Closed`](crate::LockError::Closed), [`StillHeld`](crate::LockError::StillHeld), and
    /// [`Lost`](crate::LockError::Lost) with [`LostCause::Closed`](crate::LostCause::Closed). Only `Lost` means that a
    /// body ran: the shutdown stopped it, so it may have done part of its work.
    Closing,
    /// The lock was lost while the body ran, so another holder may have run at the same time:
    /// [`Lost`](crate::LockError::Lost) with any other cause.
    Lost,
    /// A key or an option is out of bounds, so nothing was sent: [`InvalidKey`](crate::LockError::InvalidKey) and
    /// [`InvalidOption`](crate::LockError::InvalidOption).
    Invalid,
    /// The program, or the set-up of its store, has to change: [`Refused`](crate::LockError::Refused),
    /// [`NoClient`](crate::LockError::NoClient), [`BlockingInAsync`](crate::LockError::BlockingInAsync) and
    /// [`Upgrade`](crate::LockError::Upgrade).
    Misuse,
}

impl ErrorKind {
    /// All kinds, for a test that each of them has a status.
    pub const ALL: &[Self] = &[
        Self::Contention,
        Self::Outage,
        Self::Closing,
        Self::Lost,
        Self::Invalid,
        Self::Misuse,
    ];
}

impl LockError {
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

#[cfg(test)]
mod tests {
    use std::{io, sync::Arc, time::Duration};

    use super::*;

    #[test]
    fn each_variant_has_the_kind_that_its_caller_acts_on() {
        use ErrorKind::{Closing, Invalid, Lost, Misuse};
        let action = || "acquire lock `k`".to_owned();
        let lost = |cause| LockError::Lost {
            key: "k".to_owned(),
            cause,
        };
        let refused = LockError::Refused {
            action: action(),
            source: Arc::new(io::Error::other("NOPERM")),
        };
        let still_held = LockError::StillHeld {
            keys: vec!["k".to_owned()],
            waited: Duration::ZERO,
        };
        for (error, kind) in [
            (lost(LostCause::Removed), Lost),
            (lost(LostCause::Expired), Lost),
            (lost(LostCause::MaxHold), Lost),
            (lost(LostCause::Revoked), Lost),
            (lost(LostCause::Closed), Closing),
            (LockError::closed(action()), Closing),
            (LockError::Draining { action: action() }, Closing),
            (still_held, Closing),
            (
                LockError::invalid_option("lease", "1ns", "it is short"),
                Invalid,
            ),
            (refused, Misuse),
            (LockError::BlockingInAsync { action: action() }, Misuse),
        ] {
            assert_eq!(error.kind(), kind, "{error:?}");
        }
    }
}
