//! A resource that checks tokens refuses a write below the largest token of any access, and a read below that of a write.
//!
//! Readers have no order, so a read may have a smaller token than another one before it.

/// The largest tokens that a resource has seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fence {
    written: u64,
    read: u64,
}

impl Fence {
    /// Records a write. Returns the larger token for which the resource refuses it.
    pub fn write(&mut self, token: u64) -> Option<u64> {
        let largest = self.written.max(self.read);
        self.written = self.written.max(token);
        (token < largest).then_some(largest)
    }

    /// Records a read. Returns the larger token for which the resource refuses it.
    pub fn read(&mut self, token: u64) -> Option<u64> {
        self.read = self.read.max(token);
        (token < self.written).then_some(self.written)
    }
}
