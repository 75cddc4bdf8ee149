//! Names what spans and metrics show: the outcome of an acquire, and the labels of elections and jobs.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use crate::limits::{MOST_LABELS, OTHER_LABEL};

pub(crate) mod spans;

pub(crate) use self::spans::EndedHold;

/// Returns the label of an election or a job, which is only known when the process runs. Labels live for as long as the process,
/// so there is a limit.
pub(crate) fn label(name: &str) -> &'static str {
    static LABELS: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
    let mut labels = LABELS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(label) = labels.get(name) {
        return label;
    }
    if labels.len() >= MOST_LABELS {
        return OTHER_LABEL;
    }
    let label = Box::leak(Box::from(name));
    labels.insert(label);
    label
}

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
