//! Waiting for our own futures from synchronous code.

use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

use tokio::{runtime::Handle, task::coop};

use crate::{caller::blocking, error::LockError};

/// Blocks the calling thread until the future is done.
///
/// Where the thread is polling an async task this would stop that task's whole executor, so it is
/// refused. A thread of `spawn_blocking`, a section of `block_in_place` and threads outside any
/// runtime are all right.
pub(crate) fn block_on<F: Future>(
    action: impl FnOnce() -> String,
    future: F,
) -> Result<F::Output, LockError> {
    if polls_a_task() {
        return Err(LockError::WouldBlock { action: action() });
    }
    Ok(blocking(|| park_until_ready(future)))
}

/// The least that an executor can be. Our futures bring their timers along.
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

/// Whether this thread is inside the poll of an async task.
///
/// Tokio tells no more than this: code inside a poll has a cooperation budget, which runs out,
/// and code outside has none, which does not.
fn polls_a_task() -> bool {
    const MORE_THAN_ANY_BUDGET: usize = 1024;
    if Handle::try_current().is_err() {
        return false;
    }
    let mut cx = Context::from_waker(Waker::noop());
    let mut taken = Vec::new();
    while taken.len() < MORE_THAN_ANY_BUDGET {
        match coop::poll_proceed(&mut cx) {
            Poll::Ready(budget) => taken.push(budget),
            Poll::Pending => break,
        }
    }
    let ran_out = taken.len() < MORE_THAN_ANY_BUDGET;
    // Each gives back what it took, so the last one taken goes first.
    while taken.pop().is_some() {}
    ran_out
}
