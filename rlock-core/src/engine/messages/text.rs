//! Which messages clients send each other, and their text: fields separated by tabs, each escaped as values in keys are.
//!
//! ```text
//! @ask  <from> <number> lock    <key>
//! @ask  <from> <number> locks   <pattern> <after, or empty>
//! @ask  <from> <number> release ask    <key> <owner> <who asks>
//! @ask  <from> <number> release revoke <key> <owner> <who asks>
//! @ask  <from> <number> release take   <token, or empty> <key> <owner> <who asks>
//! @ask  <from> <number> extend  <key> <owner> <token> <lease>
//! @ask  <from> <number> client
//! @tell <number> locks    <databases> <1: there are more> <locks lost so far> { <lock> }
//! @tell <number> client   <service, or empty> <version, or empty> <host> <process id>
//! @tell <number> released <1: it is being released or extended, or its holder was asked, 0: another hold has it, 2: it is not held>
//! @announce <databases> <lock>
//! @ended <databases> <key> <token>
//! ```
//!
//! Channels have no database, so a list also gets replies from clients of other databases, and announcements of their holds
//! and of the ends arrive. Each names the databases of its client.
//!
//! Every user who may publish on the server can write such a message. So text that no client writes is ignored, and
//! texts to show are cut, without control characters.

use std::{str, time::Duration};

use rlock_proto::{
    key::Key,
    lease::{MAX_LEASE, MIN_LEASE},
    owner::OwnerId,
    store::{TOKENS, TOO_LARGE_FENCE},
};
use uuid::Uuid;

use super::fields::{Fields, Reader, fields, raw};
use crate::{
    info::{Holder, LockInfo},
    limits::{LONGEST_PATTERN, MAX_VALUE},
};

/// Tokens from here on cannot come from a fence, so a message that has one is forged.
const TOO_LARGE_TOKEN: u64 = TOO_LARGE_FENCE * TOKENS;

/// The longest message that is read. It leaves room for the longest lock after a report that is almost full.
const MOST_BYTES: usize = 64 * 1024;
/// The length from which a report is full.
const FULL: usize = 40 * 1024;

/// How long a holder may take to reply. After a longer silence it counts as stuck or cut off.
const SILENCE: Duration = Duration::from_millis(200);
/// The same for a part of a list, which takes a client with many locks longer.
const SILENCE_FOR_LIST: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Question {
    /// Who holds this lock?
    Lock { key: Key },
    /// Which locks with such keys does the client own? The answer is in order of the keys, and begins after this one.
    Locks { pattern: String, after: Option<Key> },
    /// Release this lock in this way.
    Release {
        way: Way,
        key: Key,
        owner: OwnerId,
        by: String,
    },
    /// Extend this lock by this lease at least.
    Extend {
        key: Key,
        owner: OwnerId,
        token: u64,
        lease: Duration,
    },
    /// Who is the client?
    Client,
}

impl Question {
    /// Returns how long the answer is waited for.
    pub(crate) fn longest_silence(&self) -> Duration {
        let is_list = matches!(self, Self::Locks { .. });
        if is_list { SILENCE_FOR_LIST } else { SILENCE }
    }
}

/// How a holder is to release its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// When the code that holds it is ready.
    Ask,
    /// When its body has stopped, because the hold is lost.
    Revoke,
    /// At once, if the hold has this token.
    Take { token: Option<u64> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Report {
    Locks {
        locks: Vec<LockInfo>,
        /// The databases of the client.
        databases: String,
        /// The client has others.
        more: bool,
        /// How many locks the client has lost so far.
        lost: u64,
    },
    /// A holder was told to release or to extend its lock.
    Told(Answer),
    Client {
        service: Option<String>,
        version: Option<String>,
        host: String,
        pid: u32,
    },
}

/// What a holder replies that is told to release or to extend its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The lock is released or extended, or about to be, or the code that holds it was asked to release it.
    Done,
    /// The present hold has another token.
    OtherHold,
    /// The client does not hold the lock.
    NotHeld,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Message {
    /// Of this client, which has given it this number.
    Question(Uuid, u64, Question),
    /// The answer to the question of this number.
    Report(u64, Report),
    /// In these databases, this owner holds the lock.
    Announcement(String, Box<LockInfo>),
    /// In these databases, the announced hold of this lock with this token has ended.
    Ended(String, Key, u64),
}

fields!(Message: "@ask" Self::Question(from, number, question), "@tell" Self::Report(number, report), "@announce" Self::Announcement(databases, info),
    "@ended" Self::Ended(databases, key, token));
fields!(Question:
    "lock" Self::Lock { key },
    "locks" Self::Locks { pattern = |from| raw(from).filter(|it| it.len() <= LONGEST_PATTERN), after },
    "release" Self::Release { way, key, owner, by },
    "extend" Self::Extend { key, owner, token, lease = |from| Duration::read(from).filter(|lease| (MIN_LEASE..=MAX_LEASE).contains(lease)) },
    "client" Self::Client
);
fields!(Report:
    "locks" Self::Locks { databases, more, lost, locks },
    "released" Self::Told(answer),
    "client" Self::Client { service, version, host, pid }
);
fields!(Way: "ask" Self::Ask, "revoke" Self::Revoke, "take" Self::Take { token });
fields!(Answer: "0" Self::OtherHold, "1" Self::Done, "2" Self::NotHeld);
fields!(LockInfo: Self {
    key = |from| Key::read(from).map(|key| key.as_str().to_owned()),
    owner = |from| OwnerId::read(from).map(|owner| owner.to_string()),
    depth, ttl,
    token = |from| Option::read(from).filter(|token| token.is_none_or(|token: u64| token < TOO_LARGE_TOKEN)),
    retained, wanted,
    holder = |from| Holder::read(from).map(Some);
    address, queued_owners, waiters, holder_count, permits_taken, other_owners
});
fields!(Holder: Self {
    service, version, host, pid, held_for, label, function, trace_id, waiter_count, renewals, revoked_for, values,
    value = |from| Some(raw(from)?).filter(|value| value.len() <= MAX_VALUE).map(|value| Some(value).filter(|value| !value.is_empty()));
    mode
});

pub(crate) fn written(message: &impl Fields) -> Vec<u8> {
    let mut fields = Vec::new();
    message.write(&mut fields);
    fields.join("\t").into_bytes()
}

/// Reads a message. Returns `None` if no client writes such text.
pub(crate) fn read(message: &[u8]) -> Option<Message> {
    let message = Some(message).filter(|message| message.len() <= MOST_BYTES)?;
    let mut from = str::from_utf8(message).ok()?.split('\t').peekable();
    let message = Message::read(&mut from)?;
    from.next().is_none().then_some(message)
}

/// Takes locks, whose texts are [`shown`](rlock_proto::escape_control::shown), until a report of them is full.
pub(crate) fn fill(locks: impl Iterator<Item = LockInfo>) -> Vec<LockInfo> {
    let mut length = 0;
    let has_room = |lock: &LockInfo| {
        let before = length;
        length += written(lock).len();
        before < FULL
    };
    locks.take_while(has_room).collect()
}

#[cfg(test)]
mod tests;
