//! Several servers that know nothing of each other: what more than half of them grant is granted.
//!
//! [`redlock`] is the algorithm. Every member is a [`RedisStore`](super::redis::RedisStore) with its own connection.

mod call;
mod connect;
mod detached;
mod directory;
mod inspect;
mod member;
mod queueing;
mod redlock;
mod release;
mod tokens;
mod verdict;

use std::{sync::Arc, time::Duration};

use futures_util::{FutureExt, future::join_all};
use tokio::{sync::Notify, time::Instant};

pub(crate) use self::{call::Servers, connect::named_twice};
use self::{
    call::{Members, QuorumCall},
    detached::Detached,
    verdict::Verdict,
};
use super::{
    AcquireRequest, Acquired, BoxFuture, Entry, Listener, ReleaseRequest, Released, Renewal,
    Renewed, ReplyFuture, SendOptions, Store,
};
use crate::{clock::ClientClock, key::Key};

pub(crate) struct QuorumStore {
    members: Members,
    clock: ClientClock,
    listener: Listener,
    /// One for each member, so that the requests to a silent member do not hold up those to others.
    detached: Box<[Detached]>,
    /// A waiter joined the queue of a member.
    queued: Notify,
}

impl QuorumStore {
    /// Ends a call, and follows what is still under way.
    fn detach<T: Send + 'static>(&self, call: QuorumCall<T>) {
        for request in call.decide() {
            self.detached[request.member].follow(request.map(drop));
        }
    }
}

impl Store for QuorumStore {
    fn carries_fences(&self) -> bool {
        true
    }

    fn may_roll_back(&self) -> bool {
        true
    }

    fn acquire<'a>(
        &'a self,
        request: &'a AcquireRequest,
        send: SendOptions,
    ) -> ReplyFuture<'a, Acquired> {
        let request = request.clone();
        Box::pin(async move {
            if request.count == 1 {
                self.acquire_free(request, send.timeout).await
            } else {
                self.enter(request, send.timeout).await
            }
        })
    }

    fn release<'a>(
        &'a self,
        request: &'a ReleaseRequest,
        send: SendOptions,
    ) -> ReplyFuture<'a, Released> {
        Box::pin(self.release_on_all(request.clone(), send.timeout))
    }

    fn renew<'a>(
        &'a self,
        renewals: &'a [Renewal],
        lease: Duration,
        send: SendOptions,
    ) -> ReplyFuture<'a, Renewed> {
        let silence = send.silence.unwrap_or(send.timeout);
        Box::pin(self.renew_all(renewals, lease, send.timeout, silence))
    }

    fn describe(&self) -> String {
        format!("a quorum of {} servers", self.members.len())
    }

    fn ping(&self, timeout: Duration) -> ReplyFuture<'_, ()> {
        Box::pin(async move {
            let mut call = QuorumCall::to_all(&self.members, |member, _| member.ping(timeout));
            match call.decide_by(Instant::now() + timeout, |()| true).await {
                Verdict::Yes => Ok(()),
                _ => Err(call.error()),
            }
        })
    }

    fn inspect<'a>(&'a self, key: &'a Key, send: SendOptions) -> ReplyFuture<'a, Option<Entry>> {
        Box::pin(self.inspect_members(key, send.timeout))
    }

    fn connect(self: Arc<Self>) -> ReplyFuture<'static, ()> {
        Box::pin(async move { connect::connect_all(&self.members).await })
    }

    fn background(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let members = self.members.iter();
            let members = members.map(|member| Arc::clone(&member.store).background());
            let detached = self.detached.iter().map(Detached::run);
            tokio::join!(join_all(members), join_all(detached), self.watch_queues());
        })
    }
}
