//! What the holders of contended locks have replied about themselves.

use std::{
    collections::{HashSet, VecDeque},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use crate::{info::LockInfo, key::Key, lease::Time};

/// How many replies, and how many keys with a warning, a client remembers.
const MOST: usize = 256;

/// The latest replies, for all calls of this client that wait for the same lock.
#[derive(Default)]
pub(crate) struct HolderReplies(Mutex<VecDeque<(Time, LockInfo)>>);

impl HolderReplies {
    pub(crate) fn add(&self, info: LockInfo, at: Time) {
        let mut replies = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        replies.push_front((at, info));
        replies.truncate(MOST);
    }

    /// Returns the lock, if its holder has replied within this time. The rest of the lease is that of now.
    pub(crate) fn within(&self, time: Duration, key: &Key, now: Time) -> Option<LockInfo> {
        let replies = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut replies = replies.iter();
        let (at, info) = replies.find(|(_, info)| info.key == key.as_str())?;
        let age = now.since(*at);
        let ttl = info.ttl.map(|ttl| ttl.saturating_sub(age));
        (age < time).then(|| LockInfo {
            ttl,
            ..info.clone()
        })
    }
}

/// The keys about whose holders this client has logged a warning.
#[derive(Default)]
pub(crate) struct WarnedKeys(Mutex<HashSet<Key>>);

impl WarnedKeys {
    /// Adds a key. Returns whether to log a warning: only once for each key, and for at most [`MOST`] keys.
    pub(crate) fn add(&self, key: &Key) -> bool {
        let mut keys = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        keys.len() < MOST && keys.insert(key.clone())
    }
}
