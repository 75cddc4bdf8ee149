//! What the keys of a lock are called on the server. All share one hash tag, so one slot.

use std::{fmt, io::Write};

use redis::{RedisWrite, ToRedisArgs};
use uuid::{Uuid, fmt::Hyphenated};

use super::cluster::Slot;
use crate::{key::Key, owner::OwnerId};

pub(super) struct Names {
    prefix: String,
    /// The same with the brace that begins a hash tag.
    opening: String,
    channels: String,
    /// Of a node of a cluster.
    node: Option<String>,
}

/// What the names of channels begin with, as a script takes it.
pub(super) struct Channels<'a> {
    names: &'a Names,
    key: &'a Key,
}

impl fmt::Display for Channels<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.names.node {
            Some(node) => self.names.write_of_slot(f, node, Slot::of(self.key)),
            None => f.write_str(&self.names.channels),
        }
    }
}

impl ToRedisArgs for Channels<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        match &self.names.node {
            Some(_) => out.write_arg_fmt(self),
            None => out.write_arg(self.names.channels.as_bytes()),
        }
    }
}

/// The name of the hash that is a lock.
#[derive(Clone, Copy)]
pub(super) struct LockName<'a>([&'a str; 3]);

impl LockName<'_> {
    pub(super) fn len(self) -> usize {
        self.0.iter().map(|part| part.len()).sum()
    }
}

impl fmt::Display for LockName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|part| f.write_str(part))
    }
}

impl ToRedisArgs for LockName<'_> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        let mut name = out.writer_for_next_arg();
        for part in self.0 {
            // Into memory, which does not fail.
            let _ = name.write_all(part.as_bytes());
        }
    }
}

/// The field of a lock that says how often this owner holds it: what its `Display` writes.
pub(super) struct OwnerName(pub(super) OwnerId);

impl ToRedisArgs for OwnerName {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        out.write_arg(OwnerNames::default().name(self.0));
    }
}

/// The same for many owners, most of them of one client.
pub(super) struct OwnerNames {
    client: Option<Uuid>,
    name: [u8; CLIENT + SEQUENCE],
}

/// A client and a colon.
const CLIENT: usize = Hyphenated::LENGTH + 1;
/// The longest number.
const SEQUENCE: usize = 20;

impl Default for OwnerNames {
    fn default() -> Self {
        Self {
            client: None,
            name: [b':'; CLIENT + SEQUENCE],
        }
    }
}

impl OwnerNames {
    pub(super) fn name(&mut self, owner: OwnerId) -> &[u8] {
        if self.client != Some(owner.client()) {
            owner.client().hyphenated().encode_lower(&mut self.name);
            self.client = Some(owner.client());
        }
        let mut sequence = itoa::Buffer::new();
        let sequence = sequence.format(owner.sequence()).as_bytes();
        let end = CLIENT + sequence.len();
        self.name[CLIENT..end].copy_from_slice(sequence);
        &self.name[..end]
    }
}

impl Names {
    pub(super) fn new(prefix: String) -> Self {
        let channels = format!("{prefix}client:");
        Self {
            opening: format!("{prefix}{{"),
            prefix,
            channels,
            node: None,
        }
    }

    /// As [`new`](Self::new), with channels that belong to one node of a cluster. What is published at a
    /// node is told by all, but how many heard it is counted there alone: a client that listens
    /// elsewhere, and so was passed over, must not hear that it was given a lock.
    pub(super) fn at_node(prefix: String, id: &str) -> Self {
        let channels = format!("{prefix}client:{id}:");
        Self {
            opening: format!("{prefix}{{"),
            prefix,
            channels,
            node: Some(id.to_owned()),
        }
    }

    /// What is told about this lock goes to channels whose names begin so; the client's id follows. At a
    /// node of a cluster that names the lock's slot, between braces; without these it is the channel
    /// for all slots.
    pub(super) fn channels_for<'a>(&'a self, key: &'a Key) -> Channels<'a> {
        Channels { names: self, key }
    }

    /// The same for a slot; `None`: this is no node of a cluster.
    pub(super) fn channels_of(&self, slot: Slot) -> Option<String> {
        let node = self.node.as_ref()?;
        let mut channels = String::new();
        self.write_of_slot(&mut channels, node, slot).ok()?;
        Some(channels)
    }

    fn write_of_slot(&self, out: &mut impl fmt::Write, node: &str, slot: Slot) -> fmt::Result {
        write!(out, "{}client:{{{}}}{node}:", self.prefix, slot.tag())
    }

    /// The hash that is the lock.
    ///
    /// A key without a hash tag is wrapped as a whole; one with a tag is closed by a brace. So the
    /// names of different keys differ, and none is another's name with a suffix: a lock's name ends
    /// with its only, or its second, closing brace.
    pub(super) fn lock<'a>(&'a self, key: &'a Key) -> LockName<'a> {
        let opening = if key.has_hash_tag() {
            &self.prefix
        } else {
            &self.opening
        };
        LockName([opening, key.as_str(), "}"])
    }

    pub(super) fn are_of_cluster(&self) -> bool {
        self.node.is_some()
    }

    /// What locks are called, for asking whether they may be touched.
    pub(super) fn example(&self) -> String {
        format!("{}{{any}}", self.prefix)
    }

    /// What the names of the channels that clients listen to begin with; the client's id follows.
    pub(super) fn channels(&self) -> &str {
        &self.channels
    }

    /// The key whose lock has this name, if it is one of ours.
    pub(super) fn key(&self, lock: &[u8]) -> Option<Key> {
        let name = std::str::from_utf8(lock)
            .ok()?
            .strip_prefix(&self.prefix)?
            .strip_suffix('}')?;
        let tagged = name.contains('}');
        Key::parse(if tagged {
            name
        } else {
            name.strip_prefix('{')?
        })
        .ok()
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn owners_are_named_as_they_show_themselves() {
        let mut names = OwnerNames::default();
        for client in [Uuid::new_v4(), Uuid::new_v4()] {
            for sequence in [0, u64::MAX, 7] {
                let owner = OwnerId::new(client, sequence);
                assert_eq!(*names.name(owner), *owner.to_string().as_bytes());
            }
        }
    }

    #[test]
    fn names_are_those_that_the_documentation_promises() {
        let names = Names::new("lock:".to_owned());
        let key = Key::parse("order:42").expect("valid");
        assert_eq!(names.lock(&key).to_string(), "lock:{order:42}");
        assert_eq!(names.channels(), "lock:client:");
    }

    #[test]
    fn channels_of_a_slot_are_those_of_the_node_with_a_tag_between() {
        let names = Names::at_node("lock:".to_owned(), "node");
        assert_eq!(names.channels(), "lock:client:node:");
        let key = Key::parse("order:42").expect("valid");
        let channels = names.channels_for(&key).to_string();
        assert_eq!(names.channels_of(Slot::of(&key)), Some(channels.clone()));
        let (before, rest) = channels.split_once('{').expect("a tag");
        let (tag, after) = rest.split_once('}').expect("a tag");
        assert_eq!(format!("{before}{after}"), names.channels());
        let tag = Key::parse(tag).expect("valid");
        assert_eq!(Slot::of(&tag), Slot::of(&key), "it lies in the same slot");
    }

    #[test]
    fn no_two_keys_share_a_name() {
        let names = Names::new("lock:".to_owned());
        let keys = [
            "a",
            "{a}",
            "{a}:fence",
            "a:fence",
            "{a}:queue",
            "x{a}",
            "{a}x",
        ];
        let mut all = Vec::new();
        for key in keys {
            let key = Key::parse(key).expect("valid");
            let lock = names.lock(&key).to_string();
            assert_eq!(names.key(lock.as_bytes()), Some(key));
            all.extend([format!("{lock}:fence"), format!("{lock}:queue"), lock]);
        }
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn names_that_are_not_a_lock_s_are_no_key() {
        let names = Names::new("lock:".to_owned());
        for name in ["lock:{a}:fence", "other:{a}", "lock:a}", "lock:{}", "lock:"] {
            assert_eq!(names.key(name.as_bytes()), None, "{name}");
        }
        assert_eq!(names.key(b"lock:{\xff}"), None);
    }
}
