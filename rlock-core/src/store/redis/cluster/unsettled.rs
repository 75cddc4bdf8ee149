//! Why no node of the cluster could be asked for a lock, or none had the answer.

use std::{fmt, sync::Arc};

use super::{
    super::errors::{Elsewhere, is_settling, not_sent},
    Slot,
    layout::Place,
    nodes::Node,
};
use crate::store::StoreError;

/// Whether the nodes have not agreed yet on who has a slot.
pub(super) fn is_unsettled(error: &StoreError) -> bool {
    error.source.is::<Elsewhere>() || error.source.is::<Unsettled>() || is_settling(error)
}

#[derive(Debug)]
enum Unsettled {
    /// One node names another, and that one names a third.
    Disputed { slot: u16, answer: String },
    /// A slot moves key by key; nobody but an operator can tell whether that was given up.
    OnItsWay {
        slot: u16,
        from: Place,
        /// Not every answer names it.
        to: Option<Place>,
    },
}

impl fmt::Display for Unsettled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disputed { slot, answer } => write!(
                f,
                "the nodes of the cluster do not agree on who has slot {slot} ({answer})"
            ),
            Self::OnItsWay { slot, from, to } => {
                write!(
                    f,
                    "slot {slot} of the cluster is on its way from {from} to "
                )?;
                match to {
                    Some(to) => write!(f, "{to}")?,
                    None => f.write_str("another node")?,
                }
                write!(
                    f,
                    ", and not all that belongs to the lock is there; if nobody moves the slot any \
                     more, `redis-cli --cluster fix {from}` ends that, or, where none of its keys has \
                     left, `CLUSTER SETSLOT {slot} STABLE` at both nodes"
                )
            }
        }
    }
}

impl std::error::Error for Unsettled {}

pub(super) fn disputed(slot: Slot, error: &StoreError) -> StoreError {
    let answer = match error.source.downcast_ref() {
        Some(Elsewhere(error)) => error.to_string(),
        None => error.to_string(),
    };
    let slot = slot.number();
    passing(Unsettled::Disputed { slot, answer })
}

pub(super) fn on_its_way(slot: Slot, from: &Place, to: Option<Place>) -> StoreError {
    passing(Unsettled::OnItsWay {
        slot: slot.number(),
        from: from.clone(),
        to,
    })
}

pub(super) fn ownerless(slot: Slot) -> StoreError {
    let slot = slot.number();
    passing(format!("no node of the cluster has slot {slot}"))
}

pub(super) fn nobody_says() -> StoreError {
    passing("no node of the cluster has said yet who has which slots")
}

/// What a node answered, with its name.
pub(super) fn at(node: &Node, error: &StoreError) -> Arc<dyn std::error::Error + Send + Sync> {
    passing(format!("the node at {}: {error}", node.place)).source
}

pub(super) fn down(node: &Node) -> StoreError {
    let (place, why) = (&node.place, node.store.home.why_down());
    passing(format!("the node at {place} cannot be reached: {why}"))
}

/// What was not done, and may be done a moment later.
pub(super) fn passing(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> StoreError {
    StoreError {
        transient: true,
        ..not_sent(why)
    }
}
