//! Whether this process hides keys, for an error that comes from no client.

use std::sync::atomic::{AtomicBool, Ordering};

static HIDES: AtomicBool = AtomicBool::new(false);

/// Notes that a client was made which hides keys or does not.
pub(crate) fn note(redacts: bool) {
    HIDES.fetch_or(redacts, Ordering::Relaxed);
}

/// Returns whether any client of this process hides keys.
pub(crate) fn are_keys_hidden() -> bool {
    HIDES.load(Ordering::Relaxed)
}
