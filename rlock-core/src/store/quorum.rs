//! Several servers that know nothing of each other: what more than half of them grant is granted.
//!
//! [`redlock`] is the algorithm. Every member is a [`RedisStore`](super::redis::RedisStore) with its own connection.

mod call;
mod connect;
mod detached;
mod inspect;
mod member;
mod queueing;
mod redlock;
mod release;
mod tokens;
mod verdict;

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, future::join_all};
use tokio::{sync::Notify, time::Instant};

use self::{
    call::{Members, QuorumCall},
    detached::Detached,
    member::{AcquireRequest, ReleaseRequest},
    verdict::Verdict,
};
use super::{
    Acquired, Answer, BoxFuture, Claim, Entry, Listener, Mending, Release, Released, Renewal,
    Renewed, Route, Servers, Store, StoreError,
};
use crate::{clock::ClientClock, key::Key};

/// The number of servers that fit into [`Servers`].
pub(crate) const MOST_SERVERS: usize = 32;

pub(crate) struct QuorumStore {
    members: Members,
    clock: ClientClock,
    listener: Listener,
    detached: Detached,
    /// A waiter joined the queue of a member.
    queued: Notify,
}

impl QuorumStore {
    /// Ends a call, and follows what is still under way.
    fn detach<T: Send + 'static>(&self, call: QuorumCall<T>) {
        let mut rest = call.decide();
        if !rest.is_empty() {
            self.detached
                .follow(async move { while rest.next().await.is_some() {} });
        }
    }
}

impl Store for QuorumStore {
    /// One way only: what is sent later to a server is executed later there.
    fn route(&self) -> Route {
        Route::Home
    }

    fn is_present(&self) -> Result<(), StoreError> {
        self.members[0].store.is_present()
    }

    fn takes_back(&self) -> bool {
        true
    }

    fn acquire<'a>(
        &'a self,
        claims: &'a [Claim],
        lease: Duration,
        count: u32,
        waits: bool,
        (_, patience): (Route, Duration),
    ) -> Answer<'a, Acquired> {
        let request = AcquireRequest {
            claims: claims.into(),
            lease,
            count,
        };
        Box::pin(async move {
            if count == 1 {
                self.acquire_free(request, waits, patience).await
            } else {
                self.enter(request, patience).await
            }
        })
    }

    fn release<'a>(
        &'a self,
        release: Release<'a>,
        (_, patience): (Route, Duration),
    ) -> Answer<'a, Released> {
        let request = ReleaseRequest {
            key: release.key.clone(),
            owner: release.owner,
            token: release.token,
            count: release.count,
            keep: release.keep,
            next: release.next,
        };
        Box::pin(self.release_on_all(request, patience))
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
        timeout: Duration,
        silence: Duration,
    ) -> Answer<'a, Renewed> {
        Box::pin(self.renew_all(batch, timeout, silence))
    }

    fn mend(&self, hold: Mending, on: Servers, timeout: Duration) -> BoxFuture<'_, ()> {
        Box::pin(self.mend_on(hold, on, timeout))
    }

    fn place(&self) -> String {
        format!("a quorum of {} servers", self.members.len())
    }

    fn ping(&self, timeout: Duration) -> Answer<'_, ()> {
        Box::pin(async move {
            let mut call = QuorumCall::to_all(&self.members, |member, _| member.ping(timeout));
            match call.decide_by(Instant::now() + timeout, |()| true).await {
                Verdict::Yes => Ok(()),
                _ => Err(call.error()),
            }
        })
    }

    fn inspect<'a>(&'a self, key: &'a Key, timeout: Duration) -> Answer<'a, Option<Entry>> {
        Box::pin(self.look_at(key, timeout))
    }

    fn background(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let members = self.members.iter();
            let members = members.map(|member| Arc::clone(&member.store).background());
            tokio::join!(join_all(members), self.detached.run(), self.watch_queues());
        })
    }
}
