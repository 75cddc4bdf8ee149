//! Whose connections these are.

use super::errors::not_sent;
use crate::store::StoreError;

/// The process that made a client.
pub(super) struct Process(u32);

impl Process {
    pub(super) fn present() -> Self {
        Self(std::process::id())
    }

    /// Refuses to work in a process that was forked off: it shares the connections and the owners' names
    /// of its parent, and has none of its threads.
    pub(super) fn is_present(&self) -> Result<(), StoreError> {
        let Self(own) = self;
        let present = std::process::id();
        if present == *own {
            return Ok(());
        }
        Err(not_sent(format!(
            "this client belongs to process {own}, which forked this one ({present}); connect anew after a fork"
        )))
    }
}
