//! How a request is sent: within which time, and whether it follows one in doubt.

use std::time::Duration;

/// How a request is sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SendOptions {
    pub(crate) timeout: Duration,
    /// An earlier request of the owner has no reply. The server must execute this one after it.
    pub(crate) in_doubt: bool,
    /// How long a reply may be missing before another connection is tried.
    pub(super) silence: Option<Duration>,
    /// The node of a cluster does not have the slot yet, and must reply all the same.
    pub(super) asking: bool,
}

impl SendOptions {
    pub(crate) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            in_doubt: false,
            silence: None,
            asking: false,
        }
    }

    pub(crate) fn in_doubt(self, in_doubt: bool) -> Self {
        Self { in_doubt, ..self }
    }

    pub(crate) fn silence(self, silence: Duration) -> Self {
        Self {
            silence: Some(silence),
            ..self
        }
    }
}
