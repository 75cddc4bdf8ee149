//! Routes a request to the master of its slot, and follows `MOVED`, `ASK` and migrating slots.

use std::{future::Future, sync::Arc, time::Duration};

use futures_util::future::{join_all, try_join_all};
use redis::{ErrorKind, ServerErrorKind, Value, cmd};
use rlock_proto::{key::Key, store::HashSlot};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::{ClusterStore, nodes::Node, slots::NodeAddr};
use crate::{
    backoff::Backoff,
    store::{
        ReplyFuture, SendOptions, Store, StoreError,
        redis::errors::{Elsewhere, is_settling, is_split, not_yet},
    },
};

/// The longest pause between tries while a slot migrates.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// What a request needs of a slot that migrates.
#[derive(Clone, Copy)]
pub(super) enum Needs<'a> {
    /// All that belongs to these locks, at one node.
    All(&'a [&'a Key]),
    /// The lock, wherever it is.
    Lock,
    /// All locks that it names, at one node. Otherwise the caller asks in parts, so it is not repeated.
    OnePlace,
}

/// A request on its way.
struct Routed<'a> {
    key: &'a Key,
    slot: HashSlot,
    needs: Needs<'a>,
    send: SendOptions,
    until: Instant,
    backoff: Backoff,
    /// The node to ask.
    node: Arc<Node>,
    /// The master of the slot, while the node to ask imports it.
    exporter: Option<Arc<Node>>,
}

impl Routed<'_> {
    /// Returns the way of the next try, with the remaining time.
    fn send(&self) -> SendOptions {
        SendOptions {
            timeout: self.remaining(),
            asking: self.exporter.is_some(),
            ..self.send
        }
    }

    fn remaining(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }
}

impl ClusterStore {
    /// Asks the node that has the slot of this key. Tries again while the nodes do not agree which one that is, as long as
    /// there is time.
    pub(super) async fn at_master<T, F: Future<Output = Result<T, StoreError>>>(
        &self,
        key: &Key,
        needs: Needs<'_>,
        send: SendOptions,
        ask: impl Fn(Arc<Node>, SendOptions) -> F,
    ) -> Result<T, StoreError> {
        let (slot, until) = (HashSlot::of(key), Instant::now() + send.timeout);
        let mut request = Routed {
            key,
            slot,
            needs,
            send,
            until,
            backoff: Backoff::default(),
            node: self.master_up(slot, until).await?,
            exporter: None,
        };
        loop {
            match ask(Arc::clone(&request.node), request.send()).await {
                Err(error) => self.reroute(&mut request, error).await?,
                outcome => return outcome,
            }
        }
    }

    /// Finds the node to ask after an error, or returns the error that ends the request.
    ///
    /// Boxed and not generic over the reply, so that it is compiled once for all requests.
    fn reroute<'a>(
        &'a self,
        request: &'a mut Routed<'_>,
        error: StoreError,
    ) -> ReplyFuture<'a, ()> {
        Box::pin(async move {
            let Some(error) = self.redirect(request, error).await? else {
                return Ok(());
            };
            let pause = request.backoff.next().min(LONGEST_PAUSE);
            if matches!(request.needs, Needs::OnePlace) || request.remaining() <= pause {
                return Err(error);
            }
            sleep(pause).await;
            // A busy machine may have taken longer. A request without time would only hide the reason.
            if request.remaining().is_zero() {
                return Err(error);
            }
            request.node = self.master_up(request.slot, request.until).await?;
            Ok(())
        })
    }

    /// Follows a redirection. Returns the reason for a pause if the slot is unsettled.
    async fn redirect(
        &self,
        request: &mut Routed<'_>,
        error: StoreError,
    ) -> Result<Option<StoreError>, StoreError> {
        let (slot, asked) = (request.slot, Arc::clone(&request.node));
        if let Some(exporter) = request.exporter.take() {
            return if is_unsettled(&error) {
                Ok(Some(on_its_way(slot, &exporter.addr, Some(&asked.addr))))
            } else {
                Err(error)
            };
        }
        match redirection(&error, &asked.addr) {
            Some((addr, true)) => {
                let importer = self.nodes.at(&addr);
                if !has_left(&asked, request).await {
                    return Ok(Some(on_its_way(slot, &asked.addr, Some(&addr))));
                }
                (request.node, request.exporter) = (importer, Some(asked));
                Ok(None)
            }
            Some((addr, false)) => {
                self.nodes.rediscover.notify_one();
                self.nodes.note(slot, &self.nodes.at(&addr));
                Ok(Some(disputed(slot, &error)))
            }
            None => {
                if error.transient || is_unsettled(&error) {
                    self.nodes.rediscover.notify_one();
                }
                if is_split(&error) {
                    Ok(Some(on_its_way(slot, &asked.addr, None)))
                } else if is_unsettled(&error) {
                    Ok(Some(error))
                } else {
                    Err(error)
                }
            }
        }
    }

    /// Waits until the master of a slot is connected.
    async fn master_up(&self, slot: HashSlot, until: Instant) -> Result<Arc<Node>, StoreError> {
        let mut table = self.nodes.table.subscribe();
        loop {
            let master = table.borrow_and_update().master(slot);
            match master {
                Some(node) if node.store.is_up() => return Ok(node),
                Some(node) => {
                    self.nodes.rediscover.notify_one();
                    tokio::select! {
                        connected = node.store.until_up() => return connected.map(|()| node),
                        _ = table.changed() => {}
                        () = sleep_until(until) => return Err(node.down()),
                    }
                }
                None => {
                    self.nodes.until_known(until).await?;
                    self.nodes.rediscover.notify_one();
                    let changed = timeout_at(until, table.changed()).await;
                    changed.map(drop).map_err(|_| masterless(slot))?;
                }
            }
        }
    }

    /// Checks that all masters reply, once they are known.
    pub(super) async fn ping(&self, patience: Duration) -> Result<(), StoreError> {
        let until = Instant::now() + patience;
        let masters = self.known_masters(patience).await?;
        let remaining = until.saturating_duration_since(Instant::now());
        let replies = masters.iter().map(|node| async move {
            let reply = node.store.ping(remaining).await;
            reply.map_err(|error| StoreError {
                source: not_yet(format!("the node at {}: {error}", node.addr)).source,
                ..error
            })
        });
        try_join_all(replies).await.map(drop)
    }
}

/// Returns whether all that belongs to the locks has left the master of a slot, or never was there, so that the importing
/// node may be asked. Keys that have left do not come back: the master creates none.
async fn has_left(master: &Node, request: &Routed<'_>) -> bool {
    let (keys, suffixes): (&[&Key], &[&str]) = match request.needs {
        Needs::OnePlace => return false,
        // The lock itself has left. Its holders may follow.
        Needs::Lock => (&[request.key], &[":shared"]),
        Needs::All(keys) => (keys, &[":fence", ":queue", ":shared", ""]),
    };
    let names = keys.iter().flat_map(|key| {
        let lock = master.store.commands.keyspace.lock(key);
        suffixes.iter().map(move |suffix| format!("{lock}{suffix}"))
    });
    let send = request.send();
    let replies = join_all(names.map(|name| async move {
        let exists = cmd("EXISTS").arg(name).take();
        master.store.ask::<Value>(&exists, send).await
    }));
    let has_left = |reply: &Result<Value, StoreError>| match reply {
        Ok(_) => false,
        Err(error) => redirection(error, &master.addr).is_some_and(|(_, asks)| asks),
    };
    replies.await.iter().all(has_left)
}

/// Returns the node to which a reply redirects a request, and whether that node is still importing the slot.
fn redirection(error: &StoreError, asked: &NodeAddr) -> Option<(NodeAddr, bool)> {
    let Elsewhere(error) = error.source.downcast_ref()?;
    let (address, _) = error.redirect_node()?;
    let is_importing = error.kind() == ErrorKind::Server(ServerErrorKind::Ask);
    Some((NodeAddr::parse(address, asked)?, is_importing))
}

/// The nodes do not agree on which of them has a slot, or a slot is at two of them.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Unsettled(String);

/// Returns whether the nodes have not agreed yet on which of them has a slot.
pub(super) fn is_unsettled(error: &StoreError) -> bool {
    error.source.is::<Elsewhere>() || error.source.is::<Unsettled>() || is_settling(error)
}

/// Returns the error for a slot whose node names another node, which does not serve the slot in time.
fn disputed(slot: HashSlot, error: &StoreError) -> StoreError {
    let reply = match error.source.downcast_ref() {
        Some(Elsewhere(error)) => error.to_string(),
        None => error.to_string(),
    };
    not_yet(Unsettled(format!(
        "the nodes of the cluster do not agree on who has slot {} ({reply}); if that lasts, `redis-cli --cluster fix` \
         repairs it",
        slot.0
    )))
}

/// Only an operator knows whether the migration was given up. Not every reply names the importing node.
fn on_its_way(slot: HashSlot, from: &NodeAddr, to: Option<&NodeAddr>) -> StoreError {
    let slot = slot.0;
    let to = to.map_or_else(|| "another node".to_owned(), ToString::to_string);
    not_yet(Unsettled(format!(
        "slot {slot} of the cluster is on its way from {from} to {to}, and not all that belongs to the lock \
         is there; if the move of the slot was abandoned, `redis-cli --cluster fix {from}` ends that, or, where \
         none of its keys has left, `CLUSTER SETSLOT {slot} STABLE` at both nodes"
    )))
}

fn masterless(slot: HashSlot) -> StoreError {
    not_yet(format!("no node of the cluster has slot {}", slot.0))
}
