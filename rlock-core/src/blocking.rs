//! Blocking calls of futures.

use std::{
    future::Future,
    panic::resume_unwind,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

use tokio::{
    runtime::Handle,
    task::{coop, yield_now},
};

use crate::{caller::blocking, error::LockError};

/// Blocks the calling thread until the future is done. Refuses a thread that polls an async task,
/// because that would block its executor.
///
/// Two cases are not detected: a task of an executor other than Tokio, and a future in
/// `tokio::task::unconstrained` that the `block_on` of a multi-thread runtime polls. The latter
/// blocks no worker.
pub(crate) fn block_on<F>(
    action: impl FnOnce() -> String,
    future: F,
) -> Result<F::Output, LockError>
where
    F: Future<Output: Send> + Send,
{
    if polls_a_task() {
        return Err(LockError::WouldBlock { action: action() });
    }
    if has_ended() {
        let done = thread::scope(|scope| scope.spawn(|| park_until_ready(future)).join());
        return Ok(done.unwrap_or_else(|panic| resume_unwind(panic)));
    }
    Ok(blocking(|| park_until_ready(future)))
}

/// Returns whether this thread has ended and only its last destructors run. Tokio's timers need a thread-local that is
/// gone by then.
pub(crate) fn has_ended() -> bool {
    Handle::try_current().is_err_and(|error| error.is_thread_local_destroyed())
}

/// Polls a future on this thread. The client's own background drives its timers.
fn park_until_ready<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut cx = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

/// Returns whether this thread is inside the poll of an async task.
fn polls_a_task() -> bool {
    Handle::try_current().is_ok() && (has_a_budget() || has_a_scheduler())
}

/// Returns whether a Tokio scheduler runs on this thread. A scheduler defers the waker of a task
/// that yields; elsewhere the waker is called at once.
fn has_a_scheduler() -> bool {
    #[derive(Default)]
    struct Woken(AtomicBool);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let yields = pin!(yield_now()).poll(&mut Context::from_waker(&waker));
    yields.is_pending() && !woken.0.load(Ordering::Relaxed)
}

/// Returns whether the current poll has a cooperation budget. Code outside of a poll and code
/// inside of `unconstrained` have none.
fn has_a_budget() -> bool {
    const MORE_THAN_ANY_BUDGET: usize = 1024;
    let mut cx = Context::from_waker(Waker::noop());
    let mut taken = Vec::new();
    while taken.len() < MORE_THAN_ANY_BUDGET {
        match coop::poll_proceed(&mut cx) {
            Poll::Ready(budget) => taken.push(budget),
            Poll::Pending => break,
        }
    }
    let ran_out = taken.len() < MORE_THAN_ANY_BUDGET;
    // Each element restores the budget that it found, so the last one is dropped first.
    while taken.pop().is_some() {}
    ran_out
}
