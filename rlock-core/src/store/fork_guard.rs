//! Refuses calls and requests in a forked process.

use super::StoreError;

/// The process that made a client.
pub(crate) struct ForkGuard(u32);

impl ForkGuard {
    pub(crate) fn new() -> Self {
        Self(std::process::id())
    }

    /// Returns an error in a forked process, which shares the connections and owners of its parent but not the threads.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let (Self(own), present) = (self, std::process::id());
        if present == *own {
            return Ok(());
        }
        Err(StoreError::forked(*own, present))
    }
}
