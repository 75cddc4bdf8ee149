//! Refuses to serve a process that was forked off the one that made the client.

use super::errors::not_sent;
use crate::store::StoreError;

/// The process that made a client.
pub(in crate::store) struct ForkGuard(u32);

impl ForkGuard {
    pub(in crate::store) fn new() -> Self {
        Self(std::process::id())
    }

    /// Fails in a forked process: it shares the connections and the owners of its parent, and has none of its threads.
    pub(in crate::store) fn check(&self) -> Result<(), StoreError> {
        let (Self(own), present) = (self, std::process::id());
        if present == *own {
            return Ok(());
        }
        Err(not_sent(format!(
            "this client belongs to process {own}, which forked this one ({present}); connect anew after a fork"
        )))
    }
}
