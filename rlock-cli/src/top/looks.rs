//! Compares the latest list of locks with earlier ones, to show what has changed.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashSet, VecDeque},
    time::{Duration, Instant},
};

use rlock_core::inspect::LockInfo;

use crate::{describe, ls::Listed};

/// How far the rates look back.
const WINDOW: Duration = Duration::from_secs(10);

/// The order of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Waiters,
    Age,
}

/// How many locks appear and disappear in a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Rates {
    pub(super) appeared: f64,
    pub(super) gone: f64,
}

/// What had changed at a look.
struct Change {
    at: Instant,
    appeared: u32,
    gone: u32,
}

/// The looks at the store.
#[derive(Default)]
pub(super) struct Looks {
    locks: Vec<LockInfo>,
    /// The locks of the latest look: key and owner.
    known: HashSet<(String, String)>,
    missed: usize,
    lost: u64,
    changes: VecDeque<Change>,
}

impl Looks {
    /// Adds what a look has found.
    pub(super) fn add(&mut self, listed: Listed) {
        self.add_at(Instant::now(), listed);
    }

    fn add_at(&mut self, now: Instant, listed: Listed) {
        let Listed {
            locks,
            missed,
            lost,
            ..
        } = listed;
        let found: HashSet<_> = locks
            .iter()
            .map(|info| (info.key.clone(), info.owner.clone()))
            .collect();
        let count = |new: &HashSet<_>, old| u32::try_from(new.difference(old).count());
        // The first look shows the beginning, and no change.
        let is_first = self.changes.is_empty();
        let counted = |count: Result<u32, _>| {
            if is_first {
                0
            } else {
                count.unwrap_or(u32::MAX)
            }
        };
        self.changes.push_back(Change {
            at: now,
            appeared: counted(count(&found, &self.known)),
            gone: counted(count(&self.known, &found)),
        });
        // One before the window is its beginning.
        while self
            .changes
            .get(1)
            .is_some_and(|second| now - second.at >= WINDOW)
        {
            self.changes.pop_front();
        }
        (self.locks, self.known) = (locks, found);
        (self.missed, self.lost) = (missed, lost);
    }

    pub(super) fn locks(&self) -> &[LockInfo] {
        &self.locks
    }

    /// Returns how many clients did not reply at the latest look.
    pub(super) fn missed(&self) -> usize {
        self.missed
    }

    /// Returns how many locks the clients that replied at the latest look have lost since they started.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    pub(super) fn waiters(&self) -> usize {
        // Each holder of a lock reports its whole queue.
        let mut of_keys = BTreeMap::<&str, usize>::new();
        for info in &self.locks {
            let most = of_keys.entry(&info.key).or_default();
            *most = describe::waiters(info).max(*most);
        }
        of_keys.values().sum()
    }

    /// Returns the counts of the latest look as text.
    pub(super) fn summary(&self) -> String {
        let silent = match self.missed {
            0 => String::new(),
            1 => ", 1 client does not reply".to_owned(),
            missed => format!(", {missed} clients do not reply"),
        };
        format!(
            "{} held, {} waiters, {} lost{silent}",
            self.locks.len(),
            self.waiters(),
            self.lost
        )
    }

    pub(super) fn rates(&self) -> Rates {
        let (Some(first), Some(last)) = (self.changes.front(), self.changes.back()) else {
            return Rates {
                appeared: 0.0,
                gone: 0.0,
            };
        };
        let seconds = (last.at - first.at).as_secs_f64();
        let rate = |counted: fn(&Change) -> u32| {
            let total: f64 = self
                .changes
                .iter()
                .skip(1)
                .map(|it| f64::from(counted(it)))
                .sum();
            if seconds > 0.0 { total / seconds } else { 0.0 }
        };
        Rates {
            appeared: rate(|change| change.appeared),
            gone: rate(|change| change.gone),
        }
    }

    /// Returns the lock that comes first in this order.
    pub(super) fn first(&self, order: Order) -> Option<&LockInfo> {
        self.locks.iter().min_by_key(|info| rank(info, order))
    }

    /// Returns all locks in this order.
    #[cfg(any(feature = "top", test))]
    pub(super) fn sorted(&self, order: Order) -> Vec<&LockInfo> {
        let mut sorted: Vec<&LockInfo> = self.locks.iter().collect();
        sorted.sort_by_key(|info| rank(info, order));
        sorted
    }
}

/// Returns what locks are sorted by: then by the other property, and by key.
fn rank(info: &LockInfo, order: Order) -> impl Ord + '_ {
    let waiters = describe::waiters(info) as u128;
    // A holder that does not reply may have the lock for any time.
    let age = info
        .holder
        .as_ref()
        .map_or(u128::MAX, |holder| holder.held_for.as_millis());
    let (first, second) = match order {
        Order::Waiters => (waiters, age),
        Order::Age => (age, waiters),
    };
    (Reverse(first), Reverse(second), info.key.as_str())
}

#[cfg(test)]
mod tests {
    use rlock_core::LockClient;

    use super::*;
    use crate::ls::listed;

    async fn found(client: &LockClient) -> Listed {
        listed(client, "*", 0).await.unwrap()
    }

    fn keys(found: &[&LockInfo]) -> Vec<String> {
        found.iter().map(|info| info.key.clone()).collect()
    }

    #[tokio::test]
    async fn rates_count_what_has_changed_within_ten_seconds() {
        let client = LockClient::in_memory();
        let (mut looks, start) = (Looks::default(), Instant::now());
        let _a = client.lock("a").acquire().await.unwrap();
        looks.add_at(start, found(&client).await);
        let none = Rates {
            appeared: 0.0,
            gone: 0.0,
        };
        assert_eq!(
            looks.rates(),
            none,
            "what is held at first has not appeared"
        );
        let b = client.lock("b").acquire().await.unwrap();
        looks.add_at(start + Duration::from_secs(1), found(&client).await);
        assert_eq!(
            looks.rates(),
            Rates {
                appeared: 1.0,
                gone: 0.0
            }
        );
        b.release().await.unwrap();
        // Another owner of the same key: one has gone, another has appeared.
        let _b = client.lock("b").acquire().await.unwrap();
        looks.add_at(start + Duration::from_secs(2), found(&client).await);
        assert_eq!(
            looks.rates(),
            Rates {
                appeared: 1.0,
                gone: 0.5
            }
        );
        for second in 3..20 {
            looks.add_at(start + Duration::from_secs(second), found(&client).await);
        }
        assert_eq!(looks.rates(), none, "that was long ago");
    }

    #[tokio::test]
    async fn locks_are_sorted_by_waiters_or_by_age() {
        let client = LockClient::in_memory();
        let _a = client.lock("a").acquire().await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
        let _b = client.lock("b").acquire().await.unwrap();
        let other = client.clone();
        let waiter = tokio::spawn(async move { other.lock("b").acquire().await });
        let mut looks = Looks::default();
        while looks.waiters() == 0 {
            tokio::task::yield_now().await;
            looks.add(found(&client).await);
        }
        assert_eq!(keys(&looks.sorted(Order::Waiters)), ["b", "a"]);
        assert_eq!(keys(&looks.sorted(Order::Age)), ["a", "b"]);
        assert_eq!(looks.first(Order::Age).unwrap().key, "a");
        waiter.abort();
    }
}
