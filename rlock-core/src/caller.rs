//! Finds the Tokio runtime that polls the current call, which decides on which connection its requests go.

use std::cell::Cell;

use tokio::runtime::{Handle, Id};

thread_local! {
    static CALLER: Cell<Option<Id>> = const { Cell::new(None) };
    static BLOCKED: Cell<bool> = const { Cell::new(false) };
}

/// Returns the runtime whose task makes the present call. Returns `None` if no task makes it, or if
/// the runtime is unknown.
pub(crate) fn caller() -> Option<Id> {
    CALLER.get()
}

/// Notes the runtime that this thread is inside, until dropped.
pub(crate) struct CallerGuard(Option<Id>);

pub(crate) fn note_caller() -> CallerGuard {
    let present = if BLOCKED.get() {
        None
    } else {
        Handle::try_current().ok().map(|handle| handle.id())
    };
    CallerGuard(CALLER.replace(present))
}

/// Runs a call that blocks its thread: the runtime may be waiting for it.
pub(crate) fn blocking<T>(call: impl FnOnce() -> T) -> T {
    struct RestoreBlocked(bool);
    impl Drop for RestoreBlocked {
        fn drop(&mut self) {
            BLOCKED.set(self.0);
        }
    }
    let _restore = RestoreBlocked(BLOCKED.replace(true));
    call()
}

impl Drop for CallerGuard {
    fn drop(&mut self) {
        CALLER.set(self.0);
    }
}
