//! The equality of replies.

use super::{KeyView, Observed, Reply};
use crate::words::{Acquired, Entry, Millis, Notification, Renewed};

/// Compares the observations of one step. Times may differ by `late`.
pub(super) fn compare((model, store): (&Observed, &Observed), late: Millis) -> Result<(), String> {
    replies((&model.reply, &store.reply), late)?;
    views(model, store, late)
}

/// Compares the replies to one request.
fn replies((model, store): (&Reply, &Reply), late: Millis) -> Result<(), String> {
    let replies_agree = match (model, store) {
        (Reply::Acquired(model), Reply::Acquired(store)) => acquired(model, store, late),
        (Reply::Renewed(model), Reply::Renewed(store)) => {
            model.len() == store.len() && model.iter().zip(store).all(renewed)
        }
        (model, store) => model == store,
    };
    if replies_agree {
        Ok(())
    } else {
        Err("the replies differ".to_owned())
    }
}

/// Compares the notifications and the locks.
fn views(model: &Observed, store: &Observed, late: Millis) -> Result<(), String> {
    if notified(model) != notified(store) {
        return Err("the notifications differ".to_owned());
    }
    let same = |(model, store): (&KeyView, &KeyView)| {
        model.queue == store.queue && entries(model.entry.as_ref(), store.entry.as_ref(), late)
    };
    if model.keys.len() != store.keys.len() || !model.keys.iter().zip(&store.keys).all(same) {
        return Err("the locks differ".to_owned());
    }
    Ok(())
}

fn acquired(model: &Acquired, store: &Acquired, late: Millis) -> bool {
    match (model, store) {
        (
            Acquired::Granted { others_wait, .. },
            Acquired::Granted {
                others_wait: also, ..
            },
        ) => others_wait == also,
        (Acquired::NotOwner, Acquired::NotOwner) => true,
        (
            Acquired::Taken {
                claim,
                ttl,
                queued,
                first,
                ..
            },
            Acquired::Taken {
                claim: other,
                ttl: left,
                queued: also,
                first: also_first,
                ..
            },
        ) => {
            let same_place = queued == also && first == also_first;
            claim == other && same_place && close(*ttl, *left, late)
        }
        _ => false,
    }
}

/// Fences are compared elsewhere.
fn renewed((model, store): (&Renewed, &Renewed)) -> bool {
    (model.held, model.wanted, model.fence > 0) == (store.held, store.wanted, store.fence > 0)
}

fn entries(model: Option<&Entry>, store: Option<&Entry>, late: Millis) -> bool {
    match (model, store) {
        (None, None) => true,
        (Some(model), Some(store)) => {
            model.holders == store.holders
                && model.count == store.count
                && close(model.ttl, store.ttl, late)
        }
        _ => false,
    }
}

/// Returns whether two times to live agree. The store's clock runs while the model's stands still.
fn close(model: Millis, store: Millis, late: Millis) -> bool {
    store <= model && model <= store + late
}

/// Returns the notifications, in any order. A grant may already show that the lock is wanted,
/// instead of a second notification.
fn notified(seen: &Observed) -> Vec<Notification> {
    let mut notified: Vec<_> = seen.notifications.iter().map(without_fence).collect();
    let wanted = |notification: &Notification| Notification::Wanted {
        key: notification.key(),
        owner: notification.owner(),
    };
    for notification in &mut notified {
        let is_wanted = seen.notifications.contains(&wanted(notification));
        if let Notification::Granted { others_wait, .. } = notification {
            *others_wait |= is_wanted;
        }
    }
    let granted: Vec<_> = notified
        .iter()
        .filter(|notification| matches!(notification, Notification::Granted { .. }))
        .map(wanted)
        .collect();
    notified.retain(|notification| !granted.contains(notification));
    notified.sort_unstable();
    notified
}

fn without_fence(notification: &Notification) -> Notification {
    match *notification {
        Notification::Granted {
            key,
            owner,
            ttl,
            others_wait,
            ..
        } => Notification::Granted {
            key,
            owner,
            fence: 0,
            ttl,
            others_wait,
        },
        notification @ (Notification::Wanted { .. } | Notification::Retry { .. }) => notification,
    }
}
