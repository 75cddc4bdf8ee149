//! Slots that migrate, and why no node could be asked for a lock or none had the answer.

use redis::{Pipeline, ServerErrorKind, Value};

use super::{
    nodes::Node,
    slots::{NodeAddr, Slot},
};
use crate::{
    key::Key,
    store::{
        SendOptions, StoreError,
        redis::{
            RedisStore,
            commands::Call,
            errors::{Elsewhere, is_settling, not_yet, unexpected},
        },
    },
};

/// Returns whether all that belongs to these locks has left for the node that imports their slot, or never
/// was at this master. Keys that have left do not come back: the master creates none.
pub(super) async fn have_left(
    master: &RedisStore,
    keys: &[&Key],
    send: SendOptions,
) -> Result<bool, StoreError> {
    let mut exist = Pipeline::new();
    for key in keys {
        let lock = master.commands.keyspace.lock(key);
        for name in [format!("{lock}:fence"), format!("{lock}:queue"), lock] {
            exist.cmd("EXISTS").arg(name);
        }
    }
    let (Value::Array(replies), _) = master.call(Call::Plain(&exist), send).await? else {
        return Err(unexpected("no list of answers"));
    };
    let has_left = |reply: Value| {
        let error = reply.extract_error().err();
        error.is_some_and(|error| error.kind() == ServerErrorKind::Ask.into())
    };
    Ok(!replies.is_empty() && replies.into_iter().all(has_left))
}

/// The nodes do not agree on which of them has a slot, or a slot is at two of them.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Unsettled(String);

/// Returns whether the nodes have not agreed yet on which of them has a slot.
pub(super) fn is_unsettled(error: &StoreError) -> bool {
    error.source.is::<Elsewhere>() || error.source.is::<Unsettled>() || is_settling(error)
}

/// One node names another, and that one names a third.
pub(super) fn disputed(slot: Slot, error: &StoreError) -> StoreError {
    let reply = match error.source.downcast_ref() {
        Some(Elsewhere(error)) => error.to_string(),
        None => error.to_string(),
    };
    not_yet(Unsettled(format!(
        "the nodes of the cluster do not agree on who has slot {} ({reply})",
        slot.0
    )))
}

/// Only an operator knows whether the migration was given up. Not every reply names the importing node.
pub(super) fn on_its_way(slot: Slot, from: &NodeAddr, to: Option<&NodeAddr>) -> StoreError {
    let slot = slot.0;
    let to = to.map_or_else(|| "another node".to_owned(), ToString::to_string);
    not_yet(Unsettled(format!(
        "slot {slot} of the cluster is on its way from {from} to {to}, and not all that belongs to the lock \
         is there; if nobody moves the slot any more, `redis-cli --cluster fix {from}` ends that, or, where \
         none of its keys has left, `CLUSTER SETSLOT {slot} STABLE` at both nodes"
    )))
}

pub(super) fn masterless(slot: Slot) -> StoreError {
    not_yet(format!("no node of the cluster has slot {}", slot.0))
}

pub(super) fn down(node: &Node) -> StoreError {
    let (addr, reason) = (&node.addr, node.store.why_down());
    not_yet(format!("the node at {addr} cannot be reached: {reason}"))
}
