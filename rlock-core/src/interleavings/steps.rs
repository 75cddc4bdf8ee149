//! The parts of tokio that the core uses, with a shuttle step before each use.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use shuttle::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::futures::Notified;

/// Lets another thread continue here.
fn step() {
    AtomicBool::new(false).load(Ordering::SeqCst);
}

#[derive(Default)]
pub(crate) struct Notify(tokio::sync::Notify);

impl Notify {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn notified(&self) -> Notified<'_> {
        step();
        self.0.notified()
    }

    pub(crate) fn notify_one(&self) {
        step();
        self.0.notify_one();
    }

    pub(crate) fn notify_waiters(&self) {
        step();
        self.0.notify_waiters();
    }
}

pub(crate) mod oneshot {
    use super::{Context, Future, Pin, Poll, step};
    use tokio::sync::oneshot::{self, error::RecvError};

    pub(crate) struct Sender<T>(oneshot::Sender<T>);
    pub(crate) struct Receiver<T>(oneshot::Receiver<T>);

    pub(crate) fn channel<T>() -> (Sender<T>, Receiver<T>) {
        let (sender, receiver) = oneshot::channel();
        (Sender(sender), Receiver(receiver))
    }

    impl<T> Sender<T> {
        pub(crate) fn send(self, value: T) -> Result<(), T> {
            step();
            self.0.send(value)
        }
    }

    impl<T> Future for Receiver<T> {
        type Output = Result<T, RecvError>;

        fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
            step();
            Pin::new(&mut self.0).poll(cx)
        }
    }

    impl<T> Drop for Receiver<T> {
        fn drop(&mut self) {
            step();
        }
    }
}
