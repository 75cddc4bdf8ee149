//! Several servers that know nothing of each other: what more than half of them grant is granted.
//!
//! This is Redlock. A request goes to all servers at once; the lease counts from before it was sent, so
//! the validity that is left when a majority has granted is the lease less the time that passed and the
//! drift of clocks. Every server is a [`RedisStore`] with its own connection, listener and line.

mod acquire;
mod ballot;
mod connect;
mod errors;
mod inspect;
mod line;
mod linger;
mod node;
mod refuse;
mod release;
mod renew;
mod stragglers;
mod tokens;
mod votes;

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, future::join_all, stream::FuturesUnordered};
use tokio::sync::Notify;

use self::{
    ballot::{Asked, Ballot},
    node::{Given, Node, Wanted},
    stragglers::Stragglers,
};
use super::{
    Acquired, Answer, BoxFuture, Claim, Entry, Listener, Mending, Release, Released, Renewal,
    Renewed, Route, Servers, Store, StoreError,
};
use crate::{clock::ClientClock, key::Key};

/// So many servers fit into [`Servers`].
pub(crate) const MOST_SERVERS: usize = 32;

pub(crate) struct QuorumStore {
    nodes: Arc<[Arc<Node>]>,
    clock: ClientClock,
    listener: Listener,
    stragglers: Stragglers,
    /// Somebody stands in line.
    stood: Notify,
}

impl QuorumStore {
    fn ballot<T>(&self) -> Ballot<T> {
        Ballot::new(self.nodes.len())
    }

    /// Whether there are connections enough for a majority, so that the others need not be waited for.
    fn is_up(&self) -> bool {
        let up = self.nodes.iter().filter(|node| node.store.is_up()).count();
        up >= votes::majority(self.nodes.len())
    }

    /// Follows what is still under way.
    fn follow<T: Send + 'static>(&self, mut rest: FuturesUnordered<Asked<T>>) {
        if rest.is_empty() {
            return;
        }
        self.stragglers.follow(Box::pin(
            async move { while rest.next().await.is_some() {} },
        ));
    }
}

impl Store for QuorumStore {
    /// One way only: what is sent later to a server is executed later there.
    fn route(&self) -> Route {
        Route::Home
    }

    fn is_present(&self) -> Result<(), StoreError> {
        self.nodes
            .first()
            .map_or(Ok(()), |node| node.store.is_present())
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
        let wanted = Wanted {
            claims: claims.into(),
            lease,
            count,
        };
        Box::pin(async move {
            if count == 1 {
                self.take(wanted, waits, patience).await
            } else {
                self.enter(wanted, patience).await
            }
        })
    }

    fn release<'a>(
        &'a self,
        release: Release<'a>,
        (_, patience): (Route, Duration),
    ) -> Answer<'a, Released> {
        let given = Given {
            key: release.key.clone(),
            owner: release.owner,
            token: release.token,
            count: release.count,
            keep: release.keep,
            next: release.next,
        };
        Box::pin(self.give_back(given, patience))
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
        format!("a quorum of {} servers", self.nodes.len())
    }

    fn ping(&self, timeout: Duration) -> Answer<'_, ()> {
        Box::pin(self.majority_answers(timeout))
    }

    fn inspect<'a>(&'a self, key: &'a Key, timeout: Duration) -> Answer<'a, Option<Entry>> {
        Box::pin(self.look_at(key, timeout))
    }

    fn background(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let nodes = self.nodes.iter();
            let nodes = nodes.map(|node| Arc::clone(&node.store).background());
            tokio::join!(
                join_all(nodes),
                self.stragglers.run(),
                line::watch(&self.nodes, &self.stood, &self.listener),
            );
        })
    }
}
