//! The way of a request to the node that has the lock, wherever that is now.

use std::{sync::Arc, time::Duration};

use futures_util::future::try_join_all;
use redis::{ErrorKind, ServerErrorKind};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout_at},
};

use super::{
    super::{
        By,
        errors::{Elsewhere, is_settling, is_split},
    },
    ClusterStore, Slot,
    layout::Place,
    nodes::Node,
    unsettled::{at, disputed, down, is_unsettled, nobody_says, on_its_way, ownerless},
};
use crate::{
    key::Key,
    store::{Answer, StoreError},
    wait::Backoff,
};

/// The longest pause between tries while a slot is on its way.
const SETTLING: Duration = Duration::from_millis(100);

/// Whether a slot moved, as a node says that does not have the lock.
enum Redirection {
    Moved(Place),
    /// It is about to.
    Ask(Place),
}

/// What a request needs of a lock whose slot is about to move.
#[derive(Clone, Copy)]
pub(super) enum Needs<'a> {
    /// All that belongs to these locks, in one place.
    All(&'a [&'a Key]),
    /// The lock, wherever it is.
    Lock,
    /// One answer for all that it asks for: else it asks in parts.
    OnePlace,
}

/// The route of one request, with all that is known of its slot.
struct Way<'a> {
    slot: Slot,
    needs: Needs<'a>,
    by: By,
    until: Instant,
    backoff: Backoff,
    /// A former master of the slot named the new one.
    moved: bool,
}

impl Way<'_> {
    /// Returns the same request with the remaining time.
    fn left(&self) -> By {
        By {
            patience: self.until.saturating_duration_since(Instant::now()),
            ..self.by
        }
    }
}

/// The result of a redirection.
enum Redirected {
    To(Next),
    /// The slot is unsettled. The request is repeated after a pause.
    Nowhere(StoreError),
}

/// The next node to ask.
struct Next {
    node: Arc<Node>,
    /// The current master of the slot, while this node imports it.
    instead_of: Option<Arc<Node>>,
}

impl ClusterStore {
    /// Asks the node that has the slot, wherever that is now. Tries again while the nodes have not
    /// agreed on that, as long as there is patience.
    pub(super) async fn at_owner<'a, T>(
        &self,
        slot: Slot,
        needs: Needs<'_>,
        by: By,
        ask: &(dyn Fn(Arc<Node>, By) -> Answer<'a, T> + Sync),
    ) -> Result<T, StoreError> {
        self.process.is_present()?;
        let mut way = Way {
            slot,
            needs,
            by,
            until: Instant::now() + by.patience,
            backoff: Backoff::default(),
            moved: false,
        };
        let mut next = self.owner_up(slot, way.until).await?;
        loop {
            let asking = next.instead_of.is_some();
            let by = By {
                asking,
                ..way.left()
            };
            match ask(Arc::clone(&next.node), by).await {
                Ok(answer) => return Ok(answer),
                Err(error) => next = self.after(&mut way, next, error).await?,
            }
        }
    }
    /// Finds the node to ask after an error, or returns the error that ends the request.
    ///
    /// Boxed and not generic over the reply, so that it is compiled once for all requests.
    fn after<'a>(
        &'a self,
        way: &'a mut Way<'_>,
        asked: Next,
        error: StoreError,
    ) -> Answer<'a, Next> {
        Box::pin(async move {
            let slot = way.slot;
            let error = match asked.instead_of {
                Some(present) if is_unsettled(&error) => {
                    on_its_way(slot, &present.place, Some(asked.node.place.clone()))
                }
                Some(_) => return Err(error),
                None => match self.redirected(way, asked.node, error).await? {
                    Redirected::To(next) => return Ok(next),
                    Redirected::Nowhere(error) => error,
                },
            };
            let pause = way.backoff.next().min(SETTLING);
            if matches!(way.needs, Needs::OnePlace) || way.left().patience <= pause {
                return Err(error);
            }
            sleep(pause).await;
            // On a busy machine that took longer; a request without time would only hide why.
            if way.left().patience.is_zero() {
                return Err(error);
            }
            self.owner_up(slot, way.until).await
        })
    }

    /// Follows the redirection by a current or former master of the slot.
    async fn redirected(
        &self,
        way: &mut Way<'_>,
        node: Arc<Node>,
        error: StoreError,
    ) -> Result<Redirected, StoreError> {
        let slot = way.slot;
        let error = match redirection(&error, slot, &node.place) {
            Some(Redirection::Moved(place)) => {
                self.nodes.suspects.notify_one();
                let owner = self.nodes.master_at(&place, way.left().patience).await?;
                self.nodes.note(slot, owner);
                if !std::mem::replace(&mut way.moved, true) {
                    let next = self.owner_up(slot, way.until).await?;
                    return Ok(Redirected::To(next));
                }
                disputed(slot, &error)
            }
            Some(Redirection::Ask(place)) => {
                let there = self.nodes.at(&place, way.left().patience).await?;
                if has_left(&node, way).await? {
                    return Ok(Redirected::To(Next {
                        node: there,
                        instead_of: Some(node),
                    }));
                }
                on_its_way(slot, &node.place, Some(place))
            }
            None => {
                if error.transient || is_unsettled(&error) {
                    self.nodes.suspects.notify_one();
                }
                if error.source.is::<Elsewhere>() {
                    disputed(slot, &error)
                } else if is_split(&error) {
                    on_its_way(slot, &node.place, None)
                } else if is_settling(&error) {
                    error
                } else {
                    return Err(error);
                }
            }
        };
        Ok(Redirected::Nowhere(error))
    }

    /// Checks that all masters reply, once they are known.
    pub(super) async fn masters_answer(&self, patience: Duration) -> Result<(), StoreError> {
        self.process.is_present()?;
        let until = Instant::now() + patience;
        let mut changes = self.nodes.changes();
        let masters = loop {
            changes.mark_unchanged();
            let masters = self.nodes.owners();
            if !masters.is_empty() {
                break masters;
            }
            self.told(&mut changes, until).await?;
        };
        let left = until.saturating_duration_since(Instant::now());
        let answers = masters.iter().map(|node| async move {
            let answer = node.store.answers_when_up(left).await;
            answer.map_err(|error| StoreError {
                source: at(node, &error),
                ..error
            })
        });
        try_join_all(answers).await.map(drop)
    }

    /// Waits for news about the slots. Fails if no node has reported the slots yet and a node
    /// refuses this client.
    async fn told(
        &self,
        changes: &mut watch::Receiver<u64>,
        until: Instant,
    ) -> Result<(), StoreError> {
        let failure = || self.nodes.failure();
        if let Some(refusal) = failure().filter(|failure| !failure.transient) {
            return Err(refusal);
        }
        self.nodes.suspects.notify_one();
        let told = timeout_at(until, changes.changed()).await;
        told.map(drop)
            .map_err(|_| failure().unwrap_or_else(nobody_says))
    }

    /// Finds the node that has this slot, and waits until it is connected.
    async fn owner_up(&self, slot: Slot, until: Instant) -> Result<Next, StoreError> {
        let node = self.owner_node(slot, until).await?;
        Ok(Next {
            node,
            instead_of: None,
        })
    }

    async fn owner_node(&self, slot: Slot, until: Instant) -> Result<Arc<Node>, StoreError> {
        if let Some(node) = self.nodes.owner(slot)
            && node.store.home.present().is_some()
        {
            return Ok(node);
        }
        let mut changes = self.nodes.changes();
        loop {
            changes.mark_unchanged();
            let owner = self.nodes.owner(slot);
            let Some(node) = owner else {
                if self.nodes.owners().is_empty() {
                    self.told(&mut changes, until).await?;
                    continue;
                }
                self.nodes.suspects.notify_one();
                if timeout_at(until, changes.changed()).await.is_err() {
                    return Err(ownerless(slot));
                }
                continue;
            };
            if node.store.home.present().is_some() {
                return Ok(node);
            }
            self.nodes.suspects.notify_one();
            tokio::select! {
                connected = node.store.home.connection() => {
                    connected?;
                    return Ok(node);
                }
                _ = changes.changed() => {}
                () = sleep_until(until) => return Err(down(&node)),
            }
        }
    }
}

/// Returns whether the current master of a slot no longer has the lock, so that the next one may be
/// asked.
async fn has_left(present: &Node, way: &Way<'_>) -> Result<bool, StoreError> {
    match way.needs {
        Needs::OnePlace => Ok(false),
        Needs::Lock => Ok(true),
        Needs::All(keys) => match present.store.have_left(keys, way.left()).await {
            Err(error) if is_unsettled(&error) => Ok(false),
            outcome => outcome,
        },
    }
}

/// Where a node says that this slot is. What it says of another concerns somebody else's request, which
/// was answered together with this one.
fn redirection(error: &StoreError, slot: Slot, asked: &Place) -> Option<Redirection> {
    let Elsewhere(error) = error.source.downcast_ref()?;
    let (address, number) = error.redirect_node()?;
    if number != slot.number() {
        return None;
    }
    let place = Place::parse(address, asked)?;
    if error.kind() == ErrorKind::Server(ServerErrorKind::Ask) {
        Some(Redirection::Ask(place))
    } else {
        Some(Redirection::Moved(place))
    }
}
