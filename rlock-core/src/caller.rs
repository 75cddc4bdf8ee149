//! Which runtime polls the present call.

use std::cell::Cell;

use tokio::runtime::{Handle, Id};

thread_local! {
    static CALLER: Cell<Option<Id>> = const { Cell::new(None) };
    static BLOCKED: Cell<bool> = const { Cell::new(false) };
}

/// The runtime whose task makes the present call; `None` where that is no task of a runtime, or not
/// known.
pub(crate) fn caller() -> Option<Id> {
    CALLER.get()
}

/// Notes the runtime that this thread is inside of, until dropped.
pub(crate) struct Noted(Option<Id>);

pub(crate) fn note_caller() -> Noted {
    let present = if BLOCKED.get() {
        None
    } else {
        Handle::try_current().ok().map(|handle| handle.id())
    };
    Noted(CALLER.replace(present))
}

/// Runs a call that blocks its thread: the runtime may be waiting for it.
pub(crate) fn blocking<T>(call: impl FnOnce() -> T) -> T {
    struct Was(bool);
    impl Drop for Was {
        fn drop(&mut self) {
            BLOCKED.set(self.0);
        }
    }
    let _was = Was(BLOCKED.replace(true));
    call()
}

impl Drop for Noted {
    fn drop(&mut self) {
        CALLER.set(self.0);
    }
}
