//! What the holders of contended locks have replied about themselves.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::{
    info::{Holder, LockInfo},
    key::Key,
    lease::Time,
    owner::OwnerId,
};

/// How many replies a client remembers.
const MOST: usize = 256;

/// The holder of a lock, as it described itself.
#[derive(Clone)]
pub(crate) struct KnownHolder {
    pub(crate) owner: OwnerId,
    pub(crate) holder: Box<Holder>,
    expires_at: Time,
}

impl KnownHolder {
    pub(crate) fn new(info: LockInfo, now: Time) -> Option<Self> {
        Some(Self {
            owner: info.owner_id()?,
            holder: Box::new(info.holder?),
            expires_at: now + info.ttl?,
        })
    }

    /// Returns the rest of the lease.
    pub(crate) fn remaining(&self, now: Time) -> Duration {
        self.expires_at.since(now)
    }
}

struct Reply {
    key: Key,
    at: Time,
    known: KnownHolder,
}

/// The latest replies, for all calls of this client that wait for the same lock.
#[derive(Default)]
pub(crate) struct HolderReplies(Mutex<VecDeque<Reply>>);

impl HolderReplies {
    fn replies(&self) -> MutexGuard<'_, VecDeque<Reply>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(&self, key: &Key, known: KnownHolder, at: Time) {
        let key = key.clone();
        let mut replies = self.replies();
        replies.push_front(Reply { key, at, known });
        replies.truncate(MOST);
    }

    /// Returns the holder of this lock, if it has replied within this time.
    pub(crate) fn within(&self, time: Duration, key: &Key, now: Time) -> Option<KnownHolder> {
        let replies = self.replies();
        let reply = replies.iter().find(|reply| reply.key == *key)?;
        (now.since(reply.at) < time).then(|| reply.known.clone())
    }
}
