//! What is shared between threads. With `--cfg shuttle` the unit tests take it from shuttle, which tries
//! the orders in which threads may come to it; see `interleavings`.

use tokio::runtime::{EnterGuard, Handle};

#[cfg(all(test, shuttle))]
pub(crate) use {
    crate::interleavings::steps::{Notify, oneshot},
    shuttle::{
        sync::{Mutex, MutexGuard, PoisonError, atomic},
        thread_local,
    },
};
#[cfg(not(all(test, shuttle)))]
pub(crate) use {
    std::{
        sync::{Mutex, MutexGuard, PoisonError, atomic},
        thread_local,
    },
    tokio::sync::{Notify, oneshot},
};

/// Makes the timers of this runtime those of the present call, until the answer is dropped.
#[cfg(not(all(test, shuttle)))]
pub(crate) fn enter(runtime: &Handle) -> EnterGuard<'_> {
    runtime.enter()
}

/// Shuttle's threads take turns on one thread, which has entered a runtime for all of them.
#[cfg(all(test, shuttle))]
pub(crate) fn enter(_runtime: &Handle) -> Option<EnterGuard<'_>> {
    None
}
