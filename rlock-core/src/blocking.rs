//! Waits for a future from synchronous code (`block_on`), and refuses to where that would block a runtime.

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Wake, Waker},
};

use tokio::{runtime::Handle, task::yield_now};

use crate::{caller::blocking, error::LockError};

/// Blocks the calling thread until the future is done. The client's own background drives its timers.
///
/// Refuses a thread that runs the tasks of a Tokio runtime. The thread of a multi-thread runtime's `block_on` runs only
/// the future that it was given.
pub(crate) fn block_on<F: Future>(
    action: impl FnOnce() -> String,
    future: F,
) -> Result<F::Output, LockError> {
    if runs_tasks() {
        return Err(LockError::BlockingInAsync { action: action() });
    }
    Ok(blocking(|| pollster::block_on(future)))
}

/// Returns whether a Tokio scheduler runs on this thread. A scheduler defers the waker of a task that yields; without
/// one, the waker is called at once.
fn runs_tasks() -> bool {
    #[derive(Default)]
    struct Woken(AtomicBool);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    if Handle::try_current().is_err() {
        return false;
    }
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let yields = pin!(yield_now()).poll(&mut Context::from_waker(&waker));
    yields.is_pending() && !woken.0.load(Ordering::Relaxed)
}
