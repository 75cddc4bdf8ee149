//! One server of a quorum, and how it behaved lately.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::call::{Reply, Terms};
use crate::{
    few::Few,
    key::Key,
    store::{
        AcquireRequest, Acquired, Claim, Entry, HandOff, Mending, ReleaseRequest, Released,
        Renewal, Renewed, SendOptions, Store, StoreError,
        redis::{RedisStore, is_forgotten},
    },
};

/// How a server behaved lately.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// It failed, or was much slower than others, and has not replied since.
    failing: AtomicBool,
    /// A waiter of this process may be in its queue.
    queue: AtomicBool,
}

impl Health {
    pub(super) fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Acquire)
    }

    pub(super) fn fails(&self) {
        self.failing.store(true, Ordering::Release);
    }

    fn note<T>(&self, reply: Reply<T>) -> Reply<T> {
        self.failing.store(reply.is_err(), Ordering::Release);
        reply
    }

    pub(super) fn has_queue(&self) -> bool {
        self.queue.load(Ordering::Acquire)
    }

    /// Returns whether there was a waiter in the queue.
    pub(super) fn leave_queue(&self) -> bool {
        self.queue.swap(false, Ordering::AcqRel)
    }

    fn join_queue(&self) {
        self.queue.store(true, Ordering::Release);
    }
}

pub(super) struct Member {
    pub(super) number: usize,
    pub(super) address: String,
    pub(super) store: Arc<RedisStore>,
    pub(super) health: Arc<Health>,
    /// How long one request may go unanswered.
    pub(super) patience: Duration,
}

impl Member {
    /// Whether it is likely to reply soon.
    pub(super) fn is_well(&self) -> bool {
        self.store.is_up() && !self.health.is_failing()
    }

    /// Why there is no reply yet. What was sent before the connection ended may have been executed.
    pub(super) fn why_silent(&self) -> StoreError {
        let mut error = StoreError::silent();
        if !self.store.is_up() {
            error.source = self.store.why_down().source;
        }
        error
    }

    /// Acquires at this member, and joins its wait queue if it `queues`. Nothing is sent once the call is decided.
    pub(super) async fn acquire(
        self: Arc<Self>,
        request: AcquireRequest,
        queues: bool,
        terms: Terms,
    ) -> Reply<Acquired> {
        let request = AcquireRequest {
            waits: queues,
            ..request
        };
        let send = |shared| self.store.acquire_once(&request, shared, self.patience);
        let exchange = async {
            let mut reply = send(true).await;
            // A shared script left the lock alone, or the server had lost the script and has it again.
            let is_undone = |reply: &Reply<_>| {
                matches!(reply, Ok(None)) || reply.as_ref().is_err_and(is_forgotten)
            };
            while is_undone(&reply) && !terms.is_decided() {
                reply = send(false).await;
            }
            reply?.ok_or_else(|| self.store.why_down())
        };
        let reply = self.once_up(&terms, exchange).await;
        if let Ok(Acquired::Held {
            in_line: Some(_), ..
        }) = reply
        {
            self.health.join_queue();
        }
        reply
    }

    /// Sends a request over a connection that exists, or that is made before the call is decided.
    async fn once_up<T>(
        &self,
        terms: &Terms,
        exchange: impl Future<Output = Reply<T>>,
    ) -> Reply<T> {
        let reply = async {
            if !self.store.is_up() {
                if !terms.until_up {
                    return Err(self.store.why_down());
                }
                let up = tokio::time::timeout(self.patience, self.store.until_up()).await;
                up.map_err(|_| self.store.why_down())??;
                if terms.is_decided() {
                    return Err(self.store.why_down());
                }
            }
            exchange.await
        };
        self.health.note(reply.await)
    }

    /// Releases at this member.
    pub(super) async fn release(
        &self,
        request: &ReleaseRequest,
        patience: Duration,
    ) -> Reply<Released> {
        let send = SendOptions::background(patience);
        let reply = self.store.release(request, send).await;
        if let Ok(Released::Done(HandOff::InLine { .. })) = reply {
            self.health.join_queue();
        }
        self.health.note(reply)
    }

    pub(super) async fn renew(
        self: Arc<Self>,
        batch: Arc<[Renewal]>,
        (patience, silence): (Duration, Duration),
        terms: Terms,
    ) -> Reply<Renewed> {
        let send = SendOptions::background(patience).silence(silence);
        let exchange = self.store.renew(&batch, send);
        self.once_up(&terms, exchange).await
    }

    pub(super) async fn inspect(self: Arc<Self>, key: Key, terms: Terms) -> Reply<Option<Entry>> {
        let send = SendOptions::background(self.patience);
        let exchange = self.store.inspect(&key, send);
        self.once_up(&terms, exchange).await
    }

    /// Raises the tokens of locks that their owners hold. Returns whether they hold them all.
    pub(super) async fn raise(
        self: Arc<Self>,
        request: AcquireRequest,
        tokens: Few<u64>,
    ) -> Reply<bool> {
        let mut all_held = true;
        for (claim, token) in request.claims.iter().zip(tokens) {
            let raised = self.store.raise(claim, token, request.lease, self.patience);
            all_held &= self.health.note(raised.await)?;
        }
        Ok(all_held)
    }

    /// Gives the hold to a member that does not know it: first as any owner acquires, then the rest.
    pub(super) async fn mend(self: Arc<Self>, hold: &Mending) {
        let claim = Claim {
            key: hold.key.clone(),
            owner: hold.owner,
        };
        let mut request = AcquireRequest {
            claims: Arc::new([claim]),
            lease: hold.lease,
            count: 1,
            waits: false,
        };
        let acquire = |request| Arc::clone(&self).acquire(request, false, Terms::default());
        let Ok(Acquired::Granted { tokens, .. }) = acquire(request.clone()).await else {
            return;
        };
        if tokens.iter().any(|token| *token < hold.token) {
            let token = [hold.token].into_iter().collect();
            let _ = Arc::clone(&self).raise(request.clone(), token).await;
        }
        if hold.count > 1 {
            request.count = hold.count;
            let _ = acquire(request).await;
        }
        tracing::debug!(address = self.address, key = %hold.key, "a hold was mended");
    }

    /// Checks that the server replies, once it is connected.
    pub(super) async fn ping(self: Arc<Self>, patience: Duration) -> Reply<()> {
        self.health.note(self.store.answers_when_up(patience).await)
    }
}
