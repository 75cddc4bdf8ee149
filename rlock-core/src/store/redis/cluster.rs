//! Locks on a Redis Cluster. All that belongs to a lock lies in one slot, by its hash tag, and each slot
//! with one master; each master is a server like any other, with connections of its own. This module
//! finds the one that has a lock, and asks there.
//!
//! While a slot moves from one node to another, its keys move one by one, and those of one lock may lie
//! at both. What is gone from the node that has the slot is nowhere else but at the one that gets it, and
//! only there can it come into being again. So:
//!
//! - At the old node a lock is served as long as it is held there. There no key comes into being.
//! - A lock that the old node does not have is asked for at the new one only when its token and its line
//!   have left the old node too. Else tokens would be counted anew beside those that are still to come,
//!   which would be put in their place, and lower: such a request is tried again until all is moved.
//! - Renewals go where the lock is: they need nothing else.

mod keys;
mod layout;
mod look;
mod nodes;
mod owner;
mod seeds;
mod several;
mod slot;
mod unsettled;

use std::{sync::Arc, time::Duration};

use futures_util::future::{join_all, try_join_all};
use tokio::runtime::{Handle, Id};

use self::{
    nodes::{Node, Nodes},
    owner::Needs,
    seeds::Seeds,
    slot::Slot,
    unsettled::is_unsettled,
};
use super::{By, RedisOptions, SHORTEST_SILENCE, connecting, errors::not_sent, process::Process};
use crate::{
    caller::caller,
    clock::ClientClock,
    error::LockError,
    key::Key,
    lease::Time,
    store::{
        Acquired, Answer, BoxFuture, Claim, Entry, Kept, Listener, Release, Released, Renewal,
        Renewed, Route, Store, StoreError, TokenBlock,
    },
};

pub(crate) struct ClusterStore {
    nodes: Nodes,
    listener: Listener,
    /// The runtime whose tasks have connections of their own.
    near: Option<Id>,
    process: Process,
    clock: ClientClock,
    /// How long replicas are waited for, with what may go on before.
    replicas_patience: Duration,
}

impl ClusterStore {
    /// Connects to a cluster of which the URL names some nodes; the connections live on `runtime`.
    pub(crate) async fn connect(
        url: &str,
        options: RedisOptions,
        listener: Listener,
        runtime: &Handle,
        near: Option<Handle>,
    ) -> Result<Arc<Self>, LockError> {
        let (clock, patience) = (options.clock.clone(), options.connect_timeout);
        let started = clock.now();
        let store = Self::new(url, options, listener, runtime, near)?;
        let first = Arc::clone(&store);
        let connected = connecting(runtime.spawn(async move { first.begin(patience).await })).await;
        connected.map_err(|error| {
            let action = format!("connect to {}", store.place());
            error.into_lock_error(action, clock.now().since(started))
        })?;
        Ok(store)
    }

    /// Makes a store that connects in the background.
    pub(crate) fn lazy(
        url: &str,
        options: RedisOptions,
        listener: Listener,
        runtime: &Handle,
        near: Option<Handle>,
    ) -> Result<Arc<Self>, LockError> {
        let store = Self::new(url, options, listener, runtime, near)?;
        store.nodes.suspects.notify_one();
        Ok(store)
    }

    fn new(
        url: &str,
        options: RedisOptions,
        listener: Listener,
        runtime: &Handle,
        near: Option<Handle>,
    ) -> Result<Arc<Self>, LockError> {
        let clock = options.clock.clone();
        let replicas = options
            .replicas
            .map_or(Duration::ZERO, |asked| asked.within);
        let replicas_patience = replicas * 2 + options.response_timeout;
        let seeds = Seeds::parse(url, options.tcp_nodelay, options.tls.clone())?;
        let near_id = near.as_ref().map(Handle::id);
        Ok(Arc::new(Self {
            nodes: Nodes::new(seeds, options, Arc::clone(&listener), runtime.clone(), near),
            listener,
            near: near_id,
            process: Process::present(),
            clock,
            replicas_patience,
        }))
    }

    /// Takes locks of one slot.
    async fn acquire_in(
        &self,
        slot: Slot,
        claims: &[Claim],
        (lease, count, waits): (Duration, u32, bool),
        by: By,
    ) -> Result<Acquired, StoreError> {
        let keys: Vec<&Key> = claims.iter().map(|claim| &claim.key).collect();
        let ask = |node: Arc<Node>, by| -> Answer<'_, Acquired> {
            Box::pin(async move { node.store.acquire(claims, lease, count, waits, by).await })
        };
        self.at_owner(slot, Needs::All(&keys), by, &ask).await
    }

    async fn release(&self, release: &Release<'_>, by: By) -> Result<Released, StoreError> {
        let slot = Slot::of(release.key);
        let ask = |node: Arc<Node>, by| -> Answer<'_, Released> {
            Box::pin(async move { node.store.release(release, by).await })
        };
        let needs = Needs::All(std::slice::from_ref(&release.key));
        self.at_owner(slot, needs, by, &ask).await
    }

    async fn extend(
        &self,
        claim: &Claim,
        tokens: u64,
        by: By,
    ) -> Result<Option<TokenBlock>, StoreError> {
        let ask = |node: Arc<Node>, by| -> Answer<'_, Option<TokenBlock>> {
            Box::pin(async move { node.store.extend(claim, tokens, by).await })
        };
        self.at_owner(Slot::of(&claim.key), Needs::Lock, by, &ask)
            .await
    }

    /// Renews locks of one slot.
    async fn renew_in(&self, slot: Slot, batch: &[Renewal], by: By) -> Result<Renewed, StoreError> {
        if let [_] = batch {
            return self.renew_at(slot, Needs::Lock, batch, by).await;
        }
        match self.renew_at(slot, Needs::OnePlace, batch, by).await {
            Err(error) if is_unsettled(&error) => {}
            outcome => return outcome,
        }
        // Some may lie at a node that does not answer: the leases of the others do not wait for it.
        let silence = by.silence.unwrap_or(by.patience).max(SHORTEST_SILENCE);
        let by = By {
            patience: by.patience.min(silence),
            ..by
        };
        let each = batch.iter().map(std::slice::from_ref);
        let each = each.map(|batch| self.renew_at(slot, Needs::Lock, batch, by));
        gathered(join_all(each).await)
    }

    fn renew_at<'a>(
        &'a self,
        slot: Slot,
        needs: Needs<'a>,
        batch: &'a [Renewal],
        by: By,
    ) -> Answer<'a, Renewed> {
        Box::pin(async move {
            let ask = |node: Arc<Node>, by| -> Answer<'_, Renewed> {
                Box::pin(async move { node.store.renew(batch, by).await })
            };
            self.at_owner(slot, needs, by, &ask).await
        })
    }
}

/// One answer of several, in their order.
fn joined(parts: Vec<Result<Renewed, StoreError>>) -> Result<Renewed, StoreError> {
    let parts: Vec<Renewed> = parts.into_iter().collect::<Result<_, _>>()?;
    let sent_at = parts.iter().map(|part| part.sent_at).min();
    Ok(Renewed {
        sent_at: sent_at.ok_or_else(|| not_sent("there is nothing to renew"))?,
        kept: parts.into_iter().flat_map(|part| part.kept).collect(),
    })
}

/// The answers to requests for one lock each, some of which may have failed.
fn gathered(each: Vec<Result<Renewed, StoreError>>) -> Result<Renewed, StoreError> {
    if each.iter().all(Result::is_err) {
        return joined(each);
    }
    let unknown = |_| Renewed {
        kept: vec![Kept::Unknown],
        // That of the others counts.
        sent_at: Time::NEVER,
    };
    let each = each.into_iter().map(|one| Ok(one.unwrap_or_else(unknown)));
    joined(each.collect())
}

impl Store for ClusterStore {
    fn route(&self) -> Route {
        if self.near.is_some() && caller() == self.near {
            Route::Near
        } else {
            Route::Home
        }
    }

    fn group(&self, key: &Key) -> u16 {
        Slot::of(key).number()
    }

    fn acquire<'a>(
        &'a self,
        claims: &'a [Claim],
        lease: Duration,
        count: u32,
        waits: bool,
        by: (Route, Duration),
    ) -> Answer<'a, Acquired> {
        Box::pin(async move {
            let terms = (lease, count, waits);
            match several::by_slot(claims).as_slice() {
                [(slot, _)] => self.acquire_in(*slot, claims, terms, by.into()).await,
                groups => self.acquire_across(claims, groups, terms, by.into()).await,
            }
        })
    }

    fn release<'a>(&'a self, release: Release<'a>, by: (Route, Duration)) -> Answer<'a, Released> {
        Box::pin(async move { self.release(&release, by.into()).await })
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
        timeout: Duration,
        silence: Duration,
    ) -> Answer<'a, Renewed> {
        let by = By::renewal(timeout, silence);
        Box::pin(async move {
            // In the order of the answers; groups are one slot each, so there is one run of them.
            let runs = batch.chunk_by(|one, next| Slot::of(&one.key) == Slot::of(&next.key));
            let runs = runs.map(|run| self.renew_in(Slot::of(&run[0].key), run, by));
            joined(join_all(runs).await)
        })
    }

    fn replicate<'a>(&'a self, claims: &'a [Claim], lease: Duration) -> Answer<'a, ()> {
        let by: By = (Route::Home, self.replicas_patience).into();
        let each = claims.iter().map(move |claim| -> Answer<'a, ()> {
            Box::pin(async move {
                let ask = |node: Arc<Node>, _| -> Answer<'_, ()> {
                    let claim = std::slice::from_ref(claim);
                    Box::pin(async move { node.store.replicate(claim, lease).await })
                };
                let slot = Slot::of(&claim.key);
                self.at_owner(slot, Needs::Lock, by, &ask).await
            })
        });
        Box::pin(async move { try_join_all(each).await.map(drop) })
    }

    fn is_present(&self) -> Result<(), StoreError> {
        self.process.is_present()
    }

    fn extends(&self) -> bool {
        true
    }

    fn extend<'a>(
        &'a self,
        claim: &'a Claim,
        tokens: u64,
        timeout: Duration,
    ) -> Answer<'a, Option<TokenBlock>> {
        Box::pin(self.extend(claim, tokens, (Route::Home, timeout).into()))
    }

    fn place(&self) -> String {
        format!("the cluster of {}", self.nodes.seeds)
    }

    fn ping(&self, timeout: Duration) -> Answer<'_, ()> {
        Box::pin(self.masters_answer(timeout))
    }

    fn inspect<'a>(&'a self, key: &'a Key, timeout: Duration) -> Answer<'a, Option<Entry>> {
        let by = (Route::Home, timeout).into();
        Box::pin(async move {
            let ask = |node: Arc<Node>, by| -> Answer<'_, Option<Entry>> {
                Box::pin(async move { node.store.inspect(key, by).await })
            };
            let (slot, needs) = (Slot::of(key), Needs::Lock);
            self.at_owner(slot, needs, by, &ask).await
        })
    }

    fn background(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let _kept = self.nodes.kept();
            self.keep_looking().await;
        })
    }
}
