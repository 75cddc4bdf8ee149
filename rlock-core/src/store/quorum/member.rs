//! One server of a quorum, and its health.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use crate::{
    key::Key,
    store::{
        AcquireRequest, Acquired, Entry, ReleaseRequest, Released, Renewal, Renewed, SendOptions,
        Store, StoreError, redis::RedisStore,
    },
};

/// The time after which no call waits in a server's queue, unless it has asked again. A request may take longer.
const GONE: Duration = Duration::from_secs(10);

pub(super) type Reply<T> = Result<T, StoreError>;

/// The state of a call that its requests read.
#[derive(Debug, Clone, Default)]
pub(super) struct CallState {
    pub(super) decided: Arc<AtomicBool>,
    /// Whether the request waits for a connection, because too few members are connected.
    pub(super) until_up: bool,
}

impl CallState {
    /// Returns whether the call is decided. A request is not sent after that, because a rollback may precede it.
    pub(super) fn is_decided(&self) -> bool {
        self.decided.load(Ordering::Acquire)
    }
}

/// The recent behaviour of a server.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// It failed, or was much slower than others, and has not replied since.
    failing: AtomicBool,
    /// When a waiter of this process was found in its queue last.
    queued_at: Mutex<Option<Instant>>,
}

impl Health {
    pub(super) fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Acquire)
    }

    pub(super) fn mark_failing(&self) {
        self.failing.store(true, Ordering::Release);
    }

    fn note<T>(&self, reply: Reply<T>) -> Reply<T> {
        self.failing.store(reply.is_err(), Ordering::Release);
        reply
    }

    fn queued_at(&self) -> MutexGuard<'_, Option<Instant>> {
        self.queued_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether there was a waiter in the queue.
    pub(super) fn leave_queue(&self) -> bool {
        self.queued_at().take().is_some()
    }

    fn join_queue(&self) {
        *self.queued_at() = Some(Instant::now());
    }
}

pub(super) struct Member {
    pub(super) number: usize,
    pub(super) store: Arc<RedisStore>,
    pub(super) health: Arc<Health>,
    /// The time-out of one request.
    pub(super) timeout: Duration,
}

impl Member {
    /// Returns whether a waiter of this process may be in the server's queue.
    pub(super) fn has_queue(&self) -> bool {
        let queued_at = *self.health.queued_at();
        queued_at.is_some_and(|at| at.elapsed() < GONE + self.timeout)
    }

    /// Returns whether the server is likely to reply soon.
    pub(super) fn is_healthy(&self) -> bool {
        self.store.is_up() && !self.health.is_failing()
    }

    /// Returns the reason why there is no reply yet. A request that was sent before the connection ended may have been
    /// executed.
    pub(super) fn why_silent(&self) -> StoreError {
        let mut error = StoreError::silent();
        if !self.store.is_up() {
            error.source = self.store.why_down().source;
        }
        error
    }

    /// Acquires at this member. With `queues`, joins its wait queue if the lock is taken. Sends nothing once the call is
    /// decided.
    pub(super) async fn acquire(
        self: Arc<Self>,
        request: AcquireRequest,
        queues: bool,
        call: CallState,
    ) -> Reply<Acquired> {
        let request = AcquireRequest {
            waits: queues,
            ..request
        };
        let exchange = (self.store).acquire_unless(&call.decided, &request, self.timeout);
        let reply = self.when_up(&call, exchange).await;
        if let Ok(Acquired::Taken {
            queued: Some(_), ..
        }) = reply
        {
            self.health.join_queue();
        }
        reply
    }

    /// Sends a request once the server is connected, unless the call is decided before that.
    async fn when_up<T>(
        &self,
        call: &CallState,
        exchange: impl Future<Output = Reply<T>>,
    ) -> Reply<T> {
        let reply = async {
            if !self.store.is_up() {
                if !call.until_up {
                    return Err(self.store.why_down());
                }
                let up = tokio::time::timeout(self.timeout, self.store.until_up()).await;
                up.map_err(|_| self.store.why_down())??;
                if call.is_decided() {
                    return Err(self.store.why_down());
                }
            }
            exchange.await
        };
        self.health.note(reply.await)
    }

    pub(super) async fn release(
        &self,
        request: &ReleaseRequest,
        timeout: Duration,
    ) -> Reply<Released> {
        let send = SendOptions::background(timeout);
        let reply = self.store.release(request, send).await;
        self.health.note(reply)
    }

    pub(super) async fn renew(
        self: Arc<Self>,
        renewals: Arc<[Renewal]>,
        lease: Duration,
        (timeout, silence): (Duration, Duration),
        call: CallState,
    ) -> Reply<Renewed> {
        let send = SendOptions::background(timeout).silence(silence);
        let exchange = self.store.renew(&renewals, lease, send);
        self.when_up(&call, exchange).await
    }

    pub(super) async fn inspect(
        self: Arc<Self>,
        key: Key,
        call: CallState,
    ) -> Reply<Option<Entry>> {
        let send = SendOptions::background(self.timeout);
        let exchange = self.store.inspect(&key, send);
        self.when_up(&call, exchange).await
    }

    /// Checks that the server replies, once it is connected.
    pub(super) async fn ping(self: Arc<Self>, timeout: Duration) -> Reply<()> {
        self.health.note(self.store.ping(timeout).await)
    }
}
