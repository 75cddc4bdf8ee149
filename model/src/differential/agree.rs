//! Decides whether two stores' replies to one operation agree.

use std::time::Duration;

use super::{KeyView, Observed, Reply};
use crate::store::{Acquired, Notification, QUEUE_LIFETIME, RenewalOutcome, StoredLock};

/// Compares the observations of one step. Times may differ by `late`.
pub(super) fn compare(
    (model, store): (&Observed, &Observed),
    late: Duration,
) -> Result<(), String> {
    let replies_agree = match (&model.reply, &store.reply) {
        (Reply::Acquired(model), Reply::Acquired(store)) => acquired(model, store, late),
        (Reply::Renewed(model), Reply::Renewed(store)) => {
            model.len() == store.len() && model.iter().zip(store).all(renewed)
        }
        (model, store) => model == store,
    };
    if !replies_agree {
        return Err("the replies differ".to_owned());
    }
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

/// Fences are compared elsewhere.
fn acquired(model: &Acquired, store: &Acquired, late: Duration) -> bool {
    use Acquired::{Granted, Outdated, Taken};
    match (model, store) {
        (Granted { wanted, .. }, Granted { wanted: also, .. }) => wanted == also,
        (Outdated, Outdated) => true,
        (
            Taken {
                claim,
                ttl,
                queued,
                past_fences,
                ..
            },
            Taken {
                claim: other,
                ttl: left,
                queued: also,
                past_fences: other_fences,
                ..
            },
        ) => {
            let may_have = past_fences.iter().map(Option::is_none);
            let is_same = claim == other && queued == also;
            is_same
                && may_have.eq(other_fences.iter().map(Option::is_none))
                && close(*ttl, *left, late)
        }
        _ => false,
    }
}

fn renewed((model, store): (&RenewalOutcome, &RenewalOutcome)) -> bool {
    let without_fence = |outcome: &RenewalOutcome| match outcome {
        RenewalOutcome::Held { wanted, fence } => Some((*wanted, *fence > 0)),
        RenewalOutcome::Lost | RenewalOutcome::Unknown => None,
    };
    without_fence(model) == without_fence(store)
}

fn entries(model: Option<&StoredLock>, store: Option<&StoredLock>, late: Duration) -> bool {
    let holders = |entry: &StoredLock| {
        let others = entry.others.iter().map(ToString::to_string);
        let mut all: Vec<String> = others.chain([entry.owner.clone()]).collect();
        all.sort_unstable();
        (all, entry.holders, entry.permits_taken, entry.count)
    };
    match (model, store) {
        (None, None) => true,
        (Some(model), Some(store)) => {
            holders(model) == holders(store) && close(model.ttl, store.ttl, late)
        }
        _ => false,
    }
}

/// Returns whether two times to live agree. The store's clock runs while the model's stands still.
fn close(model: Option<Duration>, store: Option<Duration>, late: Duration) -> bool {
    store <= model && model <= store.map(|store| store + late)
}

/// Returns the notifications without fences, in any order. A grant may already show that the lock is wanted, instead of a
/// second notification.
fn notified(seen: &Observed) -> Vec<String> {
    let (mut all, mut granted) = (seen.notifications.clone(), Vec::new());
    for event in &mut all {
        if let Notification::Granted {
            key,
            owner,
            fence,
            wanted,
            ..
        } = event
        {
            let (key, owner) = (key.clone(), *owner);
            let also = Notification::Wanted { key, owner };
            *fence = 0;
            *wanted |= seen.notifications.contains(&also);
            granted.push(also);
        }
    }
    // A waiter asks sooner by itself: this only shows whether its client is there, which stores find out in different ways.
    let probes = |event: &Notification| matches!(event, Notification::Retry { after, .. } if *after == QUEUE_LIFETIME);
    all.retain(|event| !granted.contains(event) && !probes(event));
    let mut all: Vec<String> = all.iter().map(|event| format!("{event:?}")).collect();
    all.sort_unstable();
    all
}
