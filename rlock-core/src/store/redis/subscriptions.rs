//! Which channels are wanted, and which the server has confirmed. One task brings the two together,
//! so that a subscription cannot be overtaken by the end of an earlier one.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{Notify, watch};

/// The number of a link's first connection.
pub(super) const FIRST_EPOCH: u64 = 1;

#[derive(Default)]
pub(super) struct Subscriptions {
    table: Mutex<Table>,
    /// Something is to be done.
    pub(super) work: Notify,
}

struct Table {
    /// The connection that the states speak of.
    epoch: u64,
    channels: HashMap<String, Channel>,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            epoch: FIRST_EPOCH,
            channels: HashMap::new(),
        }
    }
}

struct Channel {
    feed: Arc<Feed>,
    wanted_by: usize,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not asked for on the present connection; whether it was on an earlier one.
    Wanted {
        before: bool,
    },
    Confirmed,
    /// The server refuses; waiters go by their timers.
    Refused,
}

/// What the watchers of one channel share.
struct Feed {
    released: Notify,
    settled: watch::Sender<bool>,
}

/// What has to be sent.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) subscribe: Vec<String>,
    pub(super) unsubscribe: Vec<String>,
}

impl Subscriptions {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn want(self: &Arc<Self>, channel: String) -> Subscription {
        let mut table = self.table();
        let entry = table
            .channels
            .entry(channel.clone())
            .or_insert_with(|| Channel {
                feed: Arc::new(Feed {
                    released: Notify::new(),
                    settled: watch::Sender::new(false),
                }),
                wanted_by: 0,
                state: State::Wanted { before: false },
            });
        entry.wanted_by += 1;
        let feed = Arc::clone(&entry.feed);
        drop(table);
        self.work.notify_one();
        Subscription {
            all: Arc::clone(self),
            channel,
            feed,
        }
    }

    /// A message arrived.
    pub(super) fn released(&self, channel: &str) {
        // Whoever is woken may run at once, so not under the mutex.
        let feed = self
            .table()
            .channels
            .get(channel)
            .map(|channel| Arc::clone(&channel.feed));
        if let Some(feed) = feed {
            feed.released.notify_one();
        }
    }

    /// The connection is gone: whoever waits for its messages is to ask instead.
    pub(super) fn interrupted(&self) {
        let feeds: Vec<_> = self
            .table()
            .channels
            .values()
            .map(|channel| Arc::clone(&channel.feed))
            .collect();
        for feed in feeds {
            feed.released.notify_one();
        }
    }

    /// The connection is a new one, which knows of no subscription.
    pub(super) fn begin_anew(&self, epoch: u64) {
        let feeds: Vec<_> = {
            let mut table = self.table();
            table.epoch = epoch;
            let anew = |channel: &mut Channel| {
                let before = channel.state != State::Wanted { before: false };
                channel.state = State::Wanted { before };
                Arc::clone(&channel.feed)
            };
            table.channels.values_mut().map(anew).collect()
        };
        for feed in feeds {
            feed.settled.send_replace(false);
        }
        self.work.notify_one();
    }

    /// Takes what has to be sent.
    pub(super) fn work(&self) -> Work {
        let mut work = Work::default();
        self.table()
            .channels
            .retain(|name, channel| match (channel.wanted_by, channel.state) {
                (0, State::Confirmed) => {
                    work.unsubscribe.push(name.clone());
                    false
                }
                (0, _) => false,
                (_, State::Wanted { .. }) => {
                    work.subscribe.push(name.clone());
                    true
                }
                _ => true,
            });
        work
    }

    /// The server confirmed these subscriptions of a connection, or refused them.
    pub(super) fn settled(&self, epoch: u64, names: &[String], confirmed: bool) {
        let mut told = Vec::new();
        {
            let mut table = self.table();
            if table.epoch != epoch {
                return;
            }
            for name in names {
                let Some(channel) = table.channels.get_mut(name) else {
                    continue;
                };
                // On an earlier connection it was subscribed: a release in between was not told.
                let missed = channel.state == State::Wanted { before: true };
                channel.state = if confirmed {
                    State::Confirmed
                } else {
                    State::Refused
                };
                told.push((Arc::clone(&channel.feed), missed));
            }
        }
        for (feed, missed) in told {
            if missed {
                feed.released.notify_one();
            }
            feed.settled.send_replace(true);
        }
    }
}

/// A wish for the messages of one channel.
pub(super) struct Subscription {
    all: Arc<Subscriptions>,
    channel: String,
    feed: Arc<Feed>,
}

impl Subscription {
    /// Resolves when the server has confirmed, or refused.
    pub(super) async fn settled(&self) {
        // The sender lives in the feed, so this cannot fail.
        let _ = self
            .feed
            .settled
            .subscribe()
            .wait_for(|settled| *settled)
            .await;
    }

    pub(super) async fn released(&self) {
        self.feed.released.notified().await;
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(channel) = self.all.table().channels.get_mut(&self.channel) {
            channel.wanted_by -= 1;
        }
        self.all.work.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn channels_are_subscribed_once_and_left_with_their_last_watcher() {
        let all = Arc::new(Subscriptions::default());
        let first = all.want("c".to_owned());
        let second = all.want("c".to_owned());
        assert_eq!(all.work().subscribe, names(&["c"]));
        all.settled(FIRST_EPOCH, &names(&["c"]), true);
        assert_eq!(all.work(), Work::default());
        drop(first);
        assert_eq!(all.work(), Work::default());
        drop(second);
        assert_eq!(all.work().unsubscribe, names(&["c"]));
        assert!(all.table().channels.is_empty());
    }

    #[test]
    fn a_new_connection_subscribes_again_what_is_still_wanted() {
        let all = Arc::new(Subscriptions::default());
        let _kept = all.want("kept".to_owned());
        drop(all.want("gone".to_owned()));
        all.settled(FIRST_EPOCH, &all.work().subscribe, true);
        all.begin_anew(FIRST_EPOCH + 1);
        assert_eq!(
            all.work(),
            Work {
                subscribe: names(&["kept"]),
                unsubscribe: Vec::new()
            }
        );
    }

    #[test]
    fn what_an_earlier_connection_confirmed_counts_for_nothing() {
        let all = Arc::new(Subscriptions::default());
        let _wanted = all.want("c".to_owned());
        let sent = all.work().subscribe;
        all.begin_anew(FIRST_EPOCH + 1);
        all.settled(FIRST_EPOCH, &sent, true);
        assert_eq!(all.work().subscribe, names(&["c"]));
    }
}
