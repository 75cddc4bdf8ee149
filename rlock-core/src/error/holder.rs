//! Records in a time-out that this process itself holds the lock.
//!
//! Programs match the three fields of `LockError::Timeout`, so a fourth would break them. Stores
//! count the rest of a lease in milliseconds. The nanoseconds of `remaining` therefore carry the
//! holder.

use std::time::Duration;

/// The holder of a lock, if it is in this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Holder {
    /// The client that waited.
    ThisClient,
    /// Another client of the same process.
    ThisProcess,
}

/// Removes the holder.
pub(crate) fn whole_millis(remaining: Duration) -> Duration {
    let nanos = remaining.subsec_nanos();
    Duration::new(remaining.as_secs(), nanos - nanos % 1_000_000)
}

impl Holder {
    /// Encodes the holder in the rest of its lease, which never grows by that.
    pub(crate) fn mark(self, remaining: Duration) -> Duration {
        let mark = match self {
            Self::ThisClient => 1,
            Self::ThisProcess => 2,
        };
        let least = Duration::from_millis(1);
        whole_millis(remaining)
            .max(least)
            .saturating_sub(Duration::from_nanos(mark))
    }

    pub(crate) fn of(remaining: Option<Duration>) -> Option<Self> {
        match remaining?.subsec_nanos() % 1_000_000 {
            999_999 => Some(Self::ThisClient),
            999_998 => Some(Self::ThisProcess),
            _ => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ThisClient => "this client",
            Self::ThisProcess => "another client of this process",
        }
    }

    /// Returns advice for a holder in this process.
    pub(super) fn advice(remaining: Option<Duration>) -> &'static str {
        match Self::of(remaining) {
            Some(Self::ThisClient) => {
                "; it is held by this client itself: a call inside that hold enters it in `guard.scope(…)`, \
                 a spawned task by `in_current_scope()`"
            }
            Some(Self::ThisProcess) => {
                "; it is held by another client of this process: a call inside that hold enters it by that \
                 client alone, in `guard.scope(…)`, or in a spawned task by `in_current_scope()`"
            }
            None => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_back_and_takes_less_than_a_microsecond() {
        for remaining in [1, 30_000].map(Duration::from_millis) {
            for holder in [Holder::ThisClient, Holder::ThisProcess] {
                let marked = holder.mark(remaining + Duration::from_micros(999));
                assert_eq!(Holder::of(Some(marked)), Some(holder));
                assert!(marked <= remaining);
                assert!(remaining < marked + Duration::from_micros(1));
                assert_eq!(Holder::of(Some(holder.mark(Duration::ZERO))), Some(holder));
            }
            assert_eq!(Holder::of(Some(whole_millis(remaining))), None);
        }
        assert_eq!(Holder::of(None), None);
    }
}
