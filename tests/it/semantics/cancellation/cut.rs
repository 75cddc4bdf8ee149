//! Drives a future by its wake-ups, and drops it at a chosen point.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use rlock_testkit::Proxy;
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};

/// A task without a wake-up for this long makes no progress by itself.
const STILL: Duration = Duration::from_millis(150);
/// The time for bytes to travel to the proxy, or from it.
const ON_THE_WAY: Duration = Duration::from_millis(10);

/// A future that is polled only when it was woken.
pub(crate) struct Driven<F: Future> {
    future: Pin<Box<F>>,
    woken: Arc<Woken>,
    polled: bool,
}

struct Woken(Notify);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

impl<F: Future> Driven<F> {
    pub(crate) fn new(future: F) -> Self {
        Self {
            future: Box::pin(future),
            woken: Arc::new(Woken(Notify::new())),
            polled: false,
        }
    }

    fn poll(&mut self) -> Poll<F::Output> {
        self.polled = true;
        let waker = Waker::from(Arc::clone(&self.woken));
        self.future.as_mut().poll(&mut Context::from_waker(&waker))
    }

    /// Returns whether the future may be polled: at first, and after each wake-up.
    async fn may_go_on(&self) -> bool {
        !self.polled || timeout(STILL, self.woken.0.notified()).await.is_ok()
    }

    /// Polls to completion.
    pub(crate) async fn end(mut self) -> F::Output {
        loop {
            if let Poll::Ready(output) = self.poll() {
                return output;
            }
            self.woken.0.notified().await;
        }
    }

    /// Polls until the future makes no progress.
    pub(crate) async fn until_still(&mut self) {
        while self.may_go_on().await {
            assert!(self.poll().is_pending(), "it has to wait");
        }
    }
}

/// The point where a future is dropped: after this many polls, and when.
#[derive(Clone, Copy)]
pub(crate) struct Cut<'a> {
    pub(crate) polls: usize,
    pub(crate) when: When,
    pub(crate) proxy: Option<&'a Proxy>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// Before anything else runs.
    RightAfter,
    /// After the event it waits for, and before its next poll.
    Woken,
    /// While the request of the last poll is on its way to the server, which executes it later.
    BeforeTheServer,
    /// After the server has executed the request, while the reply is on its way.
    BeforeTheReply,
}

impl Cut<'_> {
    /// Drives the future to the cut and drops it there. Returns `false` if it has completed or makes no progress before.
    pub(crate) async fn off<F: Future>(self, future: F) -> bool {
        self.off_driven(Driven::new(future)).await
    }

    pub(crate) async fn off_driven<F: Future>(self, mut driven: Driven<F>) -> bool {
        for poll in 1..=self.polls {
            if !driven.may_go_on().await {
                return false;
            }
            if poll == self.polls {
                self.hold();
            }
            if driven.poll().is_ready() {
                drop(driven);
                self.pass();
                return false;
            }
        }
        match self.when {
            When::RightAfter => {}
            When::Woken => {
                driven.may_go_on().await;
            }
            When::BeforeTheServer | When::BeforeTheReply => {
                sleep(ON_THE_WAY).await;
                drop(driven);
                sleep(ON_THE_WAY).await;
                self.pass();
            }
        }
        true
    }

    fn hold(self) {
        match (self.proxy, self.when) {
            (Some(proxy), When::BeforeTheServer) => proxy.hold_requests(),
            (Some(proxy), When::BeforeTheReply) => proxy.hold_replies(),
            _ => {}
        }
    }

    fn pass(self) {
        if let Some(proxy) = self.proxy {
            proxy.pass();
        }
    }
}
