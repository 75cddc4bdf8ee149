//! Inspects a lock on all members, and returns what a majority agrees on.

use std::time::Duration;

use rlock_proto::{
    key::Key,
    owner::OwnerId,
    quorum::{fences_of_hold, majority_has},
    store::StoredLock,
};

use super::{QuorumStore, call::QuorumCall};
use crate::store::{SendOptions, Store, StoreError, retry_within};

impl QuorumStore {
    pub(super) async fn inspect_all(
        &self,
        key: &Key,
        send: SendOptions,
    ) -> Result<Option<StoredLock>, StoreError> {
        retry_within(send.timeout, |remaining| async move {
            let mut call = QuorumCall::to_each(&self.members, |member| {
                let key = key.clone();
                async move { member.inspect(&key, send).await }
            });
            // All members, because any of them may know the largest fence.
            call.collect(remaining, QuorumCall::lacks_majority).await;
            holder(&call).map_err(|Undecided| call.error())
        })
        .await
    }
}

/// The members that have not replied decide who has the lock.
struct Undecided;

/// Returns the entry of an owner that a majority names, if there is one, with the other owners of this kind.
fn holder(call: &QuorumCall<Option<StoredLock>>) -> Result<Option<StoredLock>, Undecided> {
    let entries = || call.oks().filter_map(|(_, entry)| entry.as_ref());
    let owners = |entry: &StoredLock| -> Vec<String> {
        let others = entry.others.iter().map(OwnerId::to_string);
        others.chain([entry.owner.clone()]).collect()
    };
    let mut named: Vec<String> = entries().flat_map(owners).collect();
    named.sort_unstable();
    named.dedup();
    // The owner without a name stands for one that no member has named yet.
    named.push(String::new());
    let mut agreed: Option<StoredLock> = None;
    for owner in &named {
        let has = |entry: &StoredLock| owners(entry).contains(owner);
        let is_named = |entry: &Option<StoredLock>| entry.as_ref().is_some_and(has);
        match (call.votes().verdict(is_named), &mut agreed) {
            (Some(true), None) => {
                let of_owner: Vec<&StoredLock> = entries().filter(|entry| has(entry)).collect();
                agreed = Some(agree(owner, &of_owner, call.votes().members));
            }
            (Some(true), Some(entry)) => entry.others.extend(OwnerId::parse(owner)),
            (None, None) => return Err(Undecided),
            (None | Some(false), _) => {}
        }
    }
    Ok(agreed.map(|entry| StoredLock {
        holders: 1 + entry.others.len(),
        ..entry
    }))
}

/// Returns the largest count and TTL that a majority has at least, and the fences of this hold.
fn agree(owner: &str, entries: &[&StoredLock], members: usize) -> StoredLock {
    let ttl = |entry: &&StoredLock| entry.ttl.unwrap_or(Duration::MAX);
    let counts = entries.iter().map(|entry| entry.count).collect();
    let fences = entries.iter().filter_map(|entry| entry.fence);
    let mut fences = fences_of_hold(fences.collect(), members).into_iter();
    let ttl = majority_has(entries.iter().map(ttl).collect(), members);
    let queues = entries.iter().map(|entry| entry.queue.clone());
    StoredLock {
        owner: owner.to_owned(),
        count: majority_has(counts, members).unwrap_or(0),
        ttl: ttl.filter(|ttl| *ttl < Duration::MAX),
        fence: fences.next(),
        other_fences: fences.collect(),
        queue: queues.max_by_key(Vec::len).unwrap_or_default(),
        holders: 1,
        permits_taken: 0,
        others: Vec::new(),
    }
}
