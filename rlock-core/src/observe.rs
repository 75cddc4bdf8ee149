//! The outcome of an acquire, as spans and metrics name it.

pub(crate) mod spans;

pub(crate) use self::spans::EndedHold;

/// The end of an acquire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    Granted,
    /// The lock stayed taken for the whole wait.
    Timeout,
    /// The lock was taken, and the call did not wait.
    Busy,
    Error,
    Cancelled,
}

impl Outcome {
    /// Returns the value of a label.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Timeout => "timeout",
            Self::Busy => "busy",
            Self::Error => "error",
            Self::Cancelled => "cancelled",
        }
    }
}
