//! Makes errors of any kind for the tests of a service, without the fault that causes them.

use std::{io, sync::Arc, time::Duration};

use rlock_proto::lost::LostCause;

use crate::error::{ErrorKind, LockError};

/// Makes an error of this kind, about a lock of this key. Use it to test code that handles errors, such as a
/// `From<LockError>` or a handler that turns errors into statuses.
///
/// # Examples
///
/// ```
/// use rlock_core::{ErrorKind, LockError, testing};
///
/// fn is_worth_a_retry(error: &LockError) -> bool {
///     error.is_contention() || error.is_outage()
/// }
/// assert!(is_worth_a_retry(&testing::error(ErrorKind::Outage, "order:42")));
/// assert!(!is_worth_a_retry(&testing::error(ErrorKind::Lost, "order:42")));
/// ```
#[must_use]
pub fn error(kind: ErrorKind, key: &str) -> LockError {
    let action = || format!("acquire lock `{key}`");
    match kind {
        ErrorKind::Contention => LockError::Taken {
            key: key.to_owned(),
            waited: Duration::ZERO,
            remaining: None,
            holder: None,
            details: Box::default(),
        },
        ErrorKind::Outage => LockError::Unavailable {
            action: action(),
            waited: Duration::ZERO,
            source: Arc::new(io::Error::from(io::ErrorKind::TimedOut)),
        },
        ErrorKind::Closing => LockError::Draining { action: action() },
        ErrorKind::Lost => lost_error(key, LostCause::Removed),
        ErrorKind::Invalid => LockError::invalid_key(key, "the error was made for a test"),
        ErrorKind::Misuse => LockError::NoClient {
            key: key.to_owned(),
        },
    }
}

/// Makes the error of a call that has lost the lock of this key by this cause, for code that distinguishes causes.
///
/// # Examples
///
/// ```
/// use rlock_core::{ErrorKind, LostCause, testing};
///
/// let error = testing::lost_error("order:42", LostCause::Expired);
/// assert_eq!(error.kind(), ErrorKind::Lost);
/// let error = testing::lost_error("order:42", LostCause::Closed);
/// assert_eq!(error.kind(), ErrorKind::Closing); // a shutdown has stopped the body
/// ```
#[must_use]
pub fn lost_error(key: &str, cause: LostCause) -> LockError {
    let key = key.to_owned();
    LockError::Lost { key, cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_for_a_test_has_its_kind_and_key_and_each_predicate_follows_from_that() {
        use ErrorKind::{Closing, Contention, Lost, Outage};
        for kind in ErrorKind::ALL.iter().copied() {
            let error = error(kind, "order:42");
            assert_eq!(error.kind(), kind, "{error:?}");
            assert!(error.to_string().contains("`order:42`"), "{error}");
            let predicates = [
                (error.is_contention(), Contention),
                (error.is_outage(), Outage),
                (error.is_closing(), Closing),
                (error.is_lost(), Lost),
            ];
            for (holds, of) in predicates {
                assert_eq!(holds, kind == of, "{kind:?}, {of:?}");
            }
        }
    }
}
