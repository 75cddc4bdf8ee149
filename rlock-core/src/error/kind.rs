//! What a caller can do about an error.

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
