//! Names the keys and channels of a lock on the server. The keys of a lock share one hash tag, and therefore one
//! slot.

use std::{fmt::Display, time::Duration};

use rlock_proto::{
    key::Key,
    owner::OwnerId,
    store::{GRACE, Notification, TOO_LARGE_FENCE},
};
use uuid::Uuid;

use crate::store::directory::FROM_CLIENT;

/// Returns the name of a client's connections.
pub(super) fn connection_name(client: Uuid) -> String {
    format!("rlock:{client}")
}

pub(in crate::store) struct Keyspace {
    /// The names of all locks begin with it.
    pub(super) prefix: String,
    channels: String,
    pub(super) are_of_cluster: bool,
}

impl Keyspace {
    pub(in crate::store) fn new(prefix: String) -> Self {
        Self {
            channels: format!("{prefix}client:"),
            prefix,
            are_of_cluster: false,
        }
    }

    /// Returns a keyspace with channels of one node of a cluster. All nodes deliver a message that is published at
    /// one of them, but `PUBLISH` counts the receivers at that node only. With common channels, a script would pass
    /// over a client that listens at another node, and that client would still receive the grant.
    pub(in crate::store) fn at_node(prefix: String, addr: impl Display) -> Self {
        Self {
            channels: format!("{prefix}client:{addr}:"),
            prefix,
            are_of_cluster: true,
        }
    }

    /// Returns the name of the hash that is the lock.
    ///
    /// A key without a hash tag is put in braces. A key with a hash tag gets a closing brace at its end.
    /// A lock's name therefore ends with its only or its second closing brace. So the names of different
    /// keys differ, and no name is another's name with a suffix.
    pub(in crate::store) fn lock(&self, key: &Key) -> String {
        self.parts_of_lock(key).concat()
    }

    /// Returns the parts of a lock's name.
    pub(super) fn parts_of_lock<'a>(&'a self, key: &'a Key) -> [&'a str; 4] {
        let opening = if key.has_hash_tag() { "" } else { "{" };
        [&self.prefix, opening, key.as_str(), "}"]
    }

    /// Returns the prefix of the channels that clients subscribe to. The client id follows.
    pub(super) fn channels(&self) -> &str {
        &self.channels
    }

    pub(super) fn channel(&self, client: Uuid) -> String {
        format!("{}{client}", self.channels)
    }

    /// Returns the key of the lock with this name.
    pub(in crate::store) fn key(&self, lock: &[u8]) -> Option<Key> {
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

    /// Parses a message to this client. One of `waiters.lua` is `<owner> <what> <ms> <lock>`. For a grant, `<what>` is
    /// `<fence>/<1 if others wait>`. Otherwise it is `wanted`, or empty to make the owner ask
    /// again. A message of another client begins with [`FROM_CLIENT`].
    pub(in crate::store) fn read_message(
        &self,
        client: Uuid,
        message: &[u8],
    ) -> Option<Notification> {
        if message.starts_with(FROM_CLIENT) {
            return Some(Notification::Message(message.to_vec()));
        }
        let mut words = std::str::from_utf8(message).ok()?.splitn(4, ' ');
        let owner = OwnerId::parse(words.next()?)?;
        if owner.client() != client {
            return None;
        }
        let what = words.next()?;
        let ttl = Duration::from_millis(words.next()?.parse().ok()?);
        let key = self.key(words.next()?.as_bytes())?;
        let granted = match what {
            "wanted" => return Some(Notification::Wanted { key, owner }),
            "" => {
                let after = ttl;
                return Some(Notification::Retry { key, owner, after });
            }
            granted => granted,
        };
        let (fence, wanted) = granted.split_once('/')?;
        let (fence, wanted) = (
            fence.parse().ok(),
            ["0", "1"].iter().position(|it| *it == wanted)?,
        );
        Some(Notification::Granted {
            key,
            owner,
            fence: fence.filter(|fence| *fence < TOO_LARGE_FENCE)?,
            wanted: wanted == 1,
            // A grant by message lasts for the grace period at most. A forged one is detected by then.
            ttl: ttl.min(GRACE),
        })
    }
}

#[cfg(test)]
mod tests {
    use rlock_proto::mode::LockMode;

    use super::*;

    #[test]
    fn names_are_those_that_the_documentation_promises() {
        let keyspace = Keyspace::new("lock:".to_owned());
        let key = Key::parse("order:42").expect("valid");
        assert_eq!(keyspace.lock(&key), "lock:{order:42}");
        assert_eq!(keyspace.channels(), "lock:client:");
    }

    #[test]
    fn channels_in_a_cluster_belong_to_one_node() {
        let keyspace = Keyspace::at_node("lock:".to_owned(), "host:1");
        assert_eq!(keyspace.channels(), "lock:client:host:1:");
    }

    #[test]
    fn malformed_notifications_are_ignored() {
        let client = Uuid::from_u128(7);
        let keyspace = Keyspace::new("lock:".to_owned());
        let owner = OwnerId::new(client, 3, LockMode::Exclusive);
        let other = OwnerId::new(Uuid::from_u128(8), 3, LockMode::Exclusive);
        for message in [
            String::new(),
            "granted".to_owned(),
            format!("{owner} 1 1000"),
            format!("{owner} 1 soon lock:{{a}}"),
            format!("{owner} x 1000 lock:{{a}}"),
            format!("{owner} 1 1000 lock:{{a}}"),
            format!("{owner} 70368744177664/0 1000 lock:{{a}}"),
            format!("{owner} 18446744073709551616/0 1000 lock:{{a}}"),
            format!("{owner} 16/0 1000 elsewhere:{{a}}"),
            format!("{other} 16/0 1000 lock:{{a}}"),
            format!("{other} wanted 0 lock:{{a}}"),
        ] {
            assert_eq!(
                keyspace.read_message(client, message.as_bytes()),
                None,
                "{message}"
            );
        }
        assert_eq!(keyspace.read_message(client, b"\xff 1 1000 lock:{a}"), None);
    }

    #[test]
    fn only_names_of_lock_hashes_are_read_as_keys() {
        let keyspace = Keyspace::new("lock:".to_owned());
        for name in ["lock:{a}:fence", "other:{a}", "lock:a}", "lock:{}", "lock:"] {
            assert_eq!(keyspace.key(name.as_bytes()), None, "{name}");
        }
        assert_eq!(keyspace.key(b"lock:{\xff}"), None);
    }
}
