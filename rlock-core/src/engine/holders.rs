//! Remembers what the holders of contended locks have replied, and warns once if calls disagree on permits.

use std::{
    collections::{HashSet, VecDeque},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use rlock_proto::{key::Key, lease::Time};

use crate::info::LockInfo;

/// How many replies, and how many disputes, a client remembers.
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

/// The keys whose calls disagree on the number of permits, each with both numbers.
#[derive(Default)]
pub(crate) struct Disputes(Mutex<Disputed>);

#[derive(Default)]
struct Disputed {
    known: HashSet<(Key, u32, u32)>,
    /// The disputes that wait to be logged. The first number is that of this client's call.
    unlogged: Vec<(Key, u32, u32)>,
}

impl Disputes {
    /// Adds a dispute, unless it is known or there are [`MOST`].
    pub(crate) fn add(&self, key: Key, mine: u32, theirs: u32) {
        let mut disputed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pair = (key.clone(), mine.min(theirs), mine.max(theirs));
        if disputed.known.len() < MOST && disputed.known.insert(pair) {
            disputed.unlogged.push((key, mine, theirs));
        }
    }

    /// Removes and returns the pairs of numbers that were not logged for this key.
    pub(crate) fn take(&self, of: &Key) -> Vec<(u32, u32)> {
        let mut disputed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = disputed.unlogged.extract_if(.., |(key, ..)| key == of);
        taken.map(|(_, mine, theirs)| (mine, theirs)).collect()
    }
}
