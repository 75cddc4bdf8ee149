//! The store on a Redis Cluster: sends the locks of a slot to its master. Everything that belongs to a lock lies in
//! one slot, by its hash tag, and each slot at one master. Each master is a server with connections of its own; the
//! store routes each request to the master that has the lock.
//!
//! While a slot migrates, its keys move one by one, so those of one lock may lie at two nodes. A key that has
//! left the exporting master can only be at the importing node, and can only be created there. So:
//!
//! - The exporting master serves a lock for as long as it is held there. It creates no keys.
//! - The importing node is asked for a free lock only once its fence and its wait queue have left too. It would
//!   create them, and a key that exists there already stops the migration. Until then the request is tried again.
//! - Renewals go where the lock is: they need nothing else.

mod directory;
mod discovery;
mod multi_slot;
mod nodes;
mod routing;
pub(in crate::store) mod slots;

use std::{sync::Arc, time::Duration};

use futures_util::future::{Either, join_all, try_join_all};
use rlock_proto::{
    key::Key,
    store::{
        AcquireRequest, Acquired, Applied, Change, Claim, HashSlot, Listener, Renewal, Renewed,
        StoredLock,
    },
};
use tokio::{
    runtime::Handle,
    time::{Instant, timeout},
};

use self::{
    discovery::Seeds,
    nodes::{KeepUp, Node, Nodes},
    routing::{Needs, is_unsettled},
};
use super::{
    BoxFuture, ReplyFuture, Replying, SendOptions, Store, StoreError,
    endpoint::ClusterEndpoint,
    joined,
    options::StoreOptions,
    redis::{
        SHORTEST_SILENCE,
        errors::{MOST_REPEATS, may_be_repeated},
    },
};

pub(crate) struct ClusterStore {
    nodes: Nodes,
}

impl ClusterStore {
    /// Makes a store of which the URL names some nodes. The connections live on `runtime`.
    pub(crate) fn new(
        endpoint: ClusterEndpoint,
        options: StoreOptions,
        listener: Listener,
        runtime: &Handle,
        callers: Option<Handle>,
    ) -> Arc<Self> {
        let seeds = Seeds::new(endpoint, options.connection.clone());
        Arc::new(Self {
            nodes: Nodes::new(seeds, options, listener, runtime.clone(), callers),
        })
    }

    /// Acquires locks of one slot.
    async fn acquire_in(
        &self,
        request: &AcquireRequest,
        send: SendOptions,
    ) -> Result<Acquired, StoreError> {
        let keys: Vec<&Key> = request.claims.iter().map(|claim| &claim.key).collect();
        let (keys, until) = (&keys, Instant::now() + send.timeout);
        let ask = |send| {
            self.at_master(keys[0], Needs::All(keys), send, |node, send| async move {
                node.store.acquire(request, send).await
            })
        };
        let mut reply = ask(send).await;
        for _ in 0..MOST_REPEATS {
            let Some(error) = reply.as_ref().err().filter(|error| may_be_repeated(error)) else {
                break;
            };
            let before = error.maybe_executed;
            let send = SendOptions {
                timeout: until.saturating_duration_since(Instant::now()),
                ..send.in_doubt(send.in_doubt || before)
            };
            // The slot may have moved to another master.
            reply = Box::pin(ask(send)).await;
            reply = reply.map_err(|error| error.or_executed(before));
        }
        reply
    }

    /// Renews locks of one slot.
    async fn renew_at(
        &self,
        needs: Needs<'_>,
        renewals: &[Renewal],
        lease: Duration,
        send: SendOptions,
    ) -> Result<Renewed, StoreError> {
        self.at_master(
            &renewals[0].claim.key,
            needs,
            send,
            |node, send| async move { node.store.renew(renewals, lease, send).await },
        )
        .await
    }

    /// Renews each lock wherever it is. A node that does not reply must not hold up the others for long.
    async fn renew_each(
        &self,
        renewals: &[Renewal],
        lease: Duration,
        send: SendOptions,
    ) -> Result<Renewed, StoreError> {
        let silence = send.silence.unwrap_or(send.timeout).max(SHORTEST_SILENCE);
        let timeout = send.timeout.min(silence);
        let send = SendOptions { timeout, ..send };
        let each = renewals.chunks(1);
        let each = each.map(|one| self.renew_at(Needs::Lock, one, lease, send));
        joined(join_all(each).await)
    }
}

impl Store for ClusterStore {
    fn group(&self, key: &Key) -> u16 {
        HashSlot::of(key).0
    }

    fn acquire<'a>(
        &'a self,
        request: &'a AcquireRequest,
        send: SendOptions,
    ) -> Replying<'a, Acquired> {
        Either::Right(Box::pin(self.acquire_across(request, send)))
    }

    fn apply<'a>(&'a self, change: &'a Change, send: SendOptions) -> Replying<'a, Applied> {
        Either::Right(Box::pin(async move {
            let keys = [change.key()];
            self.at_master(keys[0], Needs::All(&keys), send, |node, send| async move {
                node.store.apply(change, send).await
            })
            .await
        }))
    }

    fn renew<'a>(
        &'a self,
        renewals: &'a [Renewal],
        lease: Duration,
        send: SendOptions,
    ) -> ReplyFuture<'a, Renewed> {
        Box::pin(async move {
            // A batch is of one group, so of one slot.
            if let [_] = renewals {
                return self.renew_at(Needs::Lock, renewals, lease, send).await;
            }
            match self.renew_at(Needs::OnePlace, renewals, lease, send).await {
                Err(error) if is_unsettled(&error) => self.renew_each(renewals, lease, send).await,
                outcome => outcome,
            }
        })
    }

    fn replicate<'a>(&'a self, claims: &'a [Claim], lease: Duration) -> ReplyFuture<'a, ()> {
        let options = &self.nodes.options;
        let within = options
            .replicas
            .map_or(Duration::ZERO, |asked| asked.within);
        let send = SendOptions::new(within);
        let each = claims.chunks(1).map(move |claim| {
            self.at_master(
                &claim[0].key,
                Needs::Lock,
                send,
                move |node, _| async move { node.store.replicate(claim, lease).await },
            )
        });
        Box::pin(async move {
            // Of all masters, and of those that other nodes name.
            let replicated = timeout(within, try_join_all(each)).await;
            replicated
                .map_err(|_| StoreError::no_reply(within))?
                .map(drop)
        })
    }

    fn describe(&self) -> String {
        format!("the cluster of {}", self.nodes.seeds)
    }

    fn ping(&self, timeout: Duration) -> ReplyFuture<'_, ()> {
        Box::pin(self.ping(timeout))
    }

    fn keys_everywhere(&self, text: String, timeout: Duration) -> ReplyFuture<'_, Vec<String>> {
        Box::pin(async move {
            self.nodes.until_known(Instant::now() + timeout).await?;
            self.nodes.keys_at_masters(&text)
        })
    }

    fn inspect<'a>(
        &'a self,
        key: &'a Key,
        send: SendOptions,
    ) -> ReplyFuture<'a, Option<StoredLock>> {
        let ask = move |node: Arc<Node>, send| async move { node.store.inspect(key, send).await };
        Box::pin(self.at_master(key, Needs::Lock, send, ask))
    }

    fn connect(self: Arc<Self>) -> ReplyFuture<'static, ()> {
        Box::pin(async move { self.begin(self.nodes.options.connect_timeout).await })
    }

    fn background(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let _keep_up = KeepUp(&self.nodes);
            self.keep_discovering().await;
        })
    }
}
