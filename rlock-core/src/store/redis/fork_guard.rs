//! Refuses requests in a forked process.

use super::errors::not_sent;
use crate::store::StoreError;

/// The process that made a client.
pub(in crate::store) struct ForkGuard(u32);

impl ForkGuard {
    pub(in crate::store) fn new() -> Self {
        Self(std::process::id())
    }

    /// Returns an error in a forked process, which shares the connections and owners of its parent but not the threads.
    pub(in crate::store) fn check(&self) -> Result<(), StoreError> {
        let (Self(own), present) = (self, std::process::id());
        if present == *own {
            return Ok(());
        }
        Err(not_sent(format!(
            "this client belongs to process {own}, which forked this one ({present}); connect again after a fork"
        )))
    }
}
