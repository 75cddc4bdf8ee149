//! The way of a request to the node that has the lock, wherever that is now.

use std::{future::Future, sync::Arc, time::Duration};

use redis::{ErrorKind, ServerErrorKind};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::{
    super::{
        By,
        errors::{Elsewhere, is_settling, is_split},
    },
    ClusterStore, Slot,
    layout::Place,
    nodes::Node,
    unsettled::{disputed, down, is_unsettled, on_its_way, ownerless},
};
use crate::{key::Key, store::StoreError, wait::Backoff};

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

impl ClusterStore {
    /// Asks the node that has the slot, wherever that is now. Tries again while the nodes have not
    /// agreed on that, as long as there is patience.
    pub(super) async fn at_owner<T, F, A>(
        &self,
        slot: Slot,
        needs: Needs<'_>,
        by: By,
        ask: F,
    ) -> Result<T, StoreError>
    where
        F: Fn(Arc<Node>, By) -> A,
        A: Future<Output = Result<T, StoreError>>,
    {
        self.process.is_present()?;
        let until = Instant::now() + by.patience;
        let left = || By {
            patience: until.saturating_duration_since(Instant::now()),
            ..by
        };
        let (mut backoff, mut moved) = (Backoff::default(), false);
        loop {
            let node = self.owner_up(slot, until).await?;
            let error = match ask(Arc::clone(&node), left()).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let error = match redirection(&error, slot, &node.place) {
                Some(Redirection::Moved(place)) => {
                    self.nodes.suspects.notify_one();
                    let owner = self.nodes.master_at(&place, left().patience).await?;
                    self.nodes.note(slot, owner);
                    if !std::mem::replace(&mut moved, true) {
                        continue;
                    }
                    disputed(slot, &error)
                }
                Some(Redirection::Ask(place)) => {
                    let there = self.nodes.at(&place, left().patience).await?;
                    match self.at_next_owner(&node, there, needs, left(), &ask).await {
                        Some(Ok(answer)) => return Ok(answer),
                        Some(Err(error)) if !is_unsettled(&error) => return Err(error),
                        Some(Err(_)) | None => on_its_way(slot, &node.place, Some(place)),
                    }
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
            let pause = backoff.next().min(SETTLING);
            if matches!(needs, Needs::OnePlace) || left().patience <= pause {
                return Err(error);
            }
            sleep(pause).await;
            // On a busy machine that took longer; a request without time would only hide why.
            if left().patience.is_zero() {
                return Err(error);
            }
        }
    }

    /// Asks the node that is about to have the slot, of which the present one does not have the lock any
    /// more; `None`: it is not to be asked yet.
    async fn at_next_owner<T, F, A>(
        &self,
        present: &Node,
        next: Arc<Node>,
        needs: Needs<'_>,
        by: By,
        ask: &F,
    ) -> Option<Result<T, StoreError>>
    where
        F: Fn(Arc<Node>, By) -> A,
        A: Future<Output = Result<T, StoreError>>,
    {
        match needs {
            Needs::OnePlace => return None,
            Needs::Lock => {}
            Needs::All(keys) => match present.store.have_left(keys, by).await {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(Err(error)),
            },
        }
        Some(ask(next, By { asking: true, ..by }).await)
    }

    /// The node that has this slot, once it can be asked.
    async fn owner_up(&self, slot: Slot, until: Instant) -> Result<Arc<Node>, StoreError> {
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
