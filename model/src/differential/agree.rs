//! The equality of replies, and the differences of stores by design.

use super::{KeyView, Observed, Operation, Reply};
use crate::words::{Acquired, Entry, Extended, HandOff, Millis, Notification, Released, Token};

/// The differences of a store from a Redis server by design.
#[derive(Clone, Copy, Debug)]
pub struct Design {
    /// The lifetime of a queue that no owner joins. `None`: the store removes the clients that are
    /// gone, and keeps the queue.
    pub queue_ttl: Option<Millis>,
    /// A client that is gone leaves all queues at once, and none of its requests arrives late.
    pub forgets_departed: bool,
    /// Whether a list of recent releases determines the reply to a repeated release. Otherwise the
    /// token shows whether the lock was released, was granted to other owners, or expired.
    pub remembers_releases: bool,
    /// Whether it can lose its data and continue.
    pub loses_data: bool,
    /// The largest batch of requests. With 1, the store executes each request by itself.
    pub batch: usize,
}

impl Design {
    /// A Redis server.
    pub const REDIS: Self = Self {
        queue_ttl: Some(20_000),
        forgets_departed: false,
        remembers_releases: false,
        loses_data: true,
        batch: 5,
    };

    /// The embedded store.
    pub const MEMORY: Self = Self {
        queue_ttl: None,
        forgets_departed: true,
        remembers_releases: true,
        loses_data: false,
        batch: 1,
    };
}

impl Design {
    /// Converts the reply of the model's server to the store's reply. `earlier`: the owner released
    /// the lock before.
    fn released(self, model: Released, holds: bool, count: u8, earlier: bool) -> Released {
        match model {
            Released::MovedOn | Released::NotHeld | Released::Done(HandOff::Unknown)
                if self.remembers_releases && !holds =>
            {
                if count == 0 && earlier {
                    Released::Done(HandOff::Unknown)
                } else {
                    Released::NotHeld
                }
            }
            model => model,
        }
    }
}

/// The state of an owner before its release.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Past {
    pub(super) holds: bool,
    pub(super) released: bool,
}

/// Compares the observations of one step. Times may differ by `late`.
pub(super) fn compare(
    design: Design,
    operation: &Operation,
    past: Past,
    (model, store): (&Observed, &Observed),
    late: Millis,
) -> Result<(), String> {
    replies(design, operation, past, (&model.reply, &store.reply), late)?;
    views(model, store, late)
}

/// Compares the replies to one request.
pub(super) fn replies(
    design: Design,
    operation: &Operation,
    past: Past,
    (model, store): (&Reply, &Reply),
    late: Millis,
) -> Result<(), String> {
    let replies_agree = match (model, store) {
        (Reply::Acquired(model), Reply::Acquired(store)) => acquired(model, store, late),
        (Reply::Released(model), Reply::Released(store)) => {
            let Operation::Release(ask) = operation else {
                return Err("a reply without a request".to_owned());
            };
            let model = design.released(*model, past.holds, ask.count, past.released);
            without_order(model) == without_order(*store)
        }
        (Reply::Extended(model), Reply::Extended(store)) => {
            let Operation::Extend(ask) = operation else {
                return Err("a reply without a request".to_owned());
            };
            extended(*model, *store, ask.tokens)
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
pub(super) fn views(model: &Observed, store: &Observed, late: Millis) -> Result<(), String> {
    if notified(model) != notified(store) {
        return Err("the notifications differ".to_owned());
    }
    let same = |(model, store): (&KeyView, &KeyView)| {
        model.queue == store.queue && entries(model.entry, store.entry, late)
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
        (Acquired::NotHeld, Acquired::NotHeld)
        | (Acquired::Promoted, Acquired::Promoted)
        | (Acquired::Refused, Acquired::Refused) => true,
        (
            Acquired::Held {
                claim,
                ttl,
                queued,
                first,
                ..
            },
            Acquired::Held {
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

/// The number of tokens depends on the time, which differs.
fn extended(model: Extended, store: Extended, most: Token) -> bool {
    match (model, store) {
        (Extended::More { .. }, Extended::More { fence, tokens }) => {
            tokens <= most && tokens <= fence
        }
        (model, store) => model == store,
    }
}

fn entries(model: Option<Entry>, store: Option<Entry>, late: Millis) -> bool {
    match (model, store) {
        (None, None) => true,
        (Some(model), Some(store)) => {
            model.holder == store.holder
                && model.count == store.count
                && close(model.ttl, store.ttl, late)
        }
        _ => false,
    }
}

/// Returns whether two times to live agree. The store's clock runs while the model's stands still.
/// A loss of data takes the model a millisecond.
fn close(model: Millis, store: Millis, late: Millis) -> bool {
    const LOSSES: Millis = super::LONGEST as Millis;
    store <= model + LOSSES && model <= store + late
}

/// Removes the token, which is compared elsewhere.
fn without_order(reply: Released) -> Released {
    match reply {
        Released::Done(HandOff::Granted(_)) => Released::Done(HandOff::Granted(0)),
        reply => reply,
    }
}

/// Returns the notifications, in any order. A grant may already show that the lock is wanted,
/// instead of a second notification.
fn notified(seen: &Observed) -> Vec<Notification> {
    let mut notified: Vec<_> = seen.notifications.iter().map(without_token).collect();
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

fn without_token(notification: &Notification) -> Notification {
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
            token: 0,
            ttl,
            others_wait,
        },
        notification @ (Notification::Wanted { .. } | Notification::Retry { .. }) => notification,
    }
}
