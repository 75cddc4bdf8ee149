//! What the core has of tokio, with a step of shuttle before each use, and task-locals that are those of
//! shuttle's threads.

use std::{
    cell::RefCell,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::{Context, Poll},
};

use shuttle::{
    sync::atomic::{AtomicBool, Ordering},
    thread::LocalKey,
};
use tokio::sync::futures::Notified;

/// Another thread may go on here.
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

/// As `tokio::task_local`, for one of a module.
macro_rules! task_local {
    (static $name:ident: $type:ty;) => {
        ::shuttle::thread_local! {
            static VALUE: ::std::cell::RefCell<Option<$type>> = ::std::cell::RefCell::new(None);
        }
        static $name: $crate::interleavings::steps::TaskLocal<$type> =
            $crate::interleavings::steps::TaskLocal(&VALUE);
    };
}
pub(crate) use task_local;

pub(crate) struct TaskLocal<T: 'static>(pub(crate) &'static LocalKey<RefCell<Option<T>>>);

impl<T> TaskLocal<T> {
    pub(crate) fn try_with<R>(&'static self, read: impl FnOnce(&T) -> R) -> Result<R, ()> {
        let read = self.0.try_with(|value| value.borrow().as_ref().map(read));
        read.ok().flatten().ok_or(())
    }

    fn swap(&'static self, slot: &mut Option<T>) {
        self.0
            .with(|value| std::mem::swap(&mut *value.borrow_mut(), slot));
    }

    pub(crate) async fn scope<F: Future>(&'static self, value: T, future: F) -> F::Output {
        let mut slot = Some(value);
        let mut future = pin!(future);
        poll_fn(|cx| {
            self.swap(&mut slot);
            let polled = future.as_mut().poll(cx);
            self.swap(&mut slot);
            polled
        })
        .await
    }

    pub(crate) fn sync_scope<R>(&'static self, value: T, call: impl FnOnce() -> R) -> R {
        let mut slot = Some(value);
        self.swap(&mut slot);
        let answer = call();
        self.swap(&mut slot);
        answer
    }
}
