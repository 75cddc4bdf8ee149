//! Inspects a lock on all members, and returns what a majority agrees on.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{QuorumStore, call::Call, decisions::SHORTEST_LATE, verdict::majority_has};
use crate::{
    key::Key,
    store::{Entry, SendOptions, Store, StoreError},
};

/// The first pause before members that do not agree are asked again: they may be at different moments of one change.
const PAUSE: Duration = Duration::from_millis(2);

impl QuorumStore {
    pub(super) async fn inspect_all(
        &self,
        key: &Key,
        send: SendOptions,
    ) -> Result<Option<Entry>, StoreError> {
        let until = Instant::now() + send.timeout;
        let mut pause = PAUSE;
        loop {
            let mut call = Call::to_all(&self.members, |member| {
                let key = key.clone();
                async move { member.inspect(&key, send).await }
            });
            let left = until.saturating_duration_since(Instant::now());
            // All members, because any of them may know the largest fence.
            call.collect(left, SHORTEST_LATE, |_| false).await;
            if let Ok(holder) = holder(&call) {
                return Ok(holder);
            }
            if !call.has_majority() || Instant::now() + pause >= until {
                return Err(call.error());
            }
            sleep(pause).await;
            pause *= 2;
        }
    }
}

/// The members that have not replied decide who has the lock.
struct Undecided;

/// Returns the entry of the owner that a majority names, if there is one.
fn holder(call: &Call<Option<Entry>>) -> Result<Option<Entry>, Undecided> {
    let entries = || call.oks().filter_map(|(_, entry)| entry.as_ref());
    // The owner without a name stands for one that no member has named yet.
    for owner in entries().map(|entry| entry.owner.as_str()).chain([""]) {
        let is_owners =
            |entry: &Option<Entry>| entry.as_ref().is_some_and(|entry| entry.owner == owner);
        if call.votes().verdict(is_owners).ok_or(Undecided)? {
            let of_owner = entries().filter(|entry| entry.owner == owner);
            return Ok(Some(agreed(
                &of_owner.collect::<Vec<_>>(),
                call.votes().members,
            )));
        }
    }
    Ok(None)
}

/// Returns the largest count and TTL that a majority has at least, and the largest fence.
fn agreed(entries: &[&Entry], members: usize) -> Entry {
    let ttl = |entry: &&Entry| entry.ttl.unwrap_or(Duration::MAX);
    let counts = entries.iter().map(|entry| entry.count).collect();
    let fences = entries.iter().map(|entry| entry.fence);
    let ttl = majority_has(entries.iter().map(ttl).collect(), members);
    let queues = entries.iter().map(|entry| entry.queue.clone());
    Entry {
        owner: entries[0].owner.clone(),
        count: majority_has(counts, members).unwrap_or(0),
        ttl: ttl.filter(|ttl| *ttl < Duration::MAX),
        fence: fences.max().flatten(),
        queue: queues.max_by_key(Vec::len).unwrap_or_default(),
    }
}
