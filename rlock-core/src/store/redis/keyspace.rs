//! Names of keys and channels on the server. The keys of a lock share one hash tag, so one slot.

use crate::key::Key;

pub(in crate::store) struct Keyspace {
    prefix: String,
    channels: String,
    are_of_cluster: bool,
}

impl Keyspace {
    pub(super) fn new(prefix: String) -> Self {
        let channels = format!("{prefix}client:");
        Self {
            prefix,
            channels,
            are_of_cluster: false,
        }
    }

    /// Returns a keyspace with channels of one node of a cluster. All nodes deliver what is
    /// published at one of them, but `PUBLISH` counts the receivers at that node alone. A client that listens
    /// at another node would be passed over, and yet receive the grant.
    pub(in crate::store) fn at_node(prefix: String, id: &str) -> Self {
        let channels = format!("{prefix}client:{id}:");
        Self {
            prefix,
            channels,
            are_of_cluster: true,
        }
    }

    /// Returns the name of the hash that is the lock.
    ///
    /// A key without a hash tag is wrapped as a whole; one with a tag is closed by a brace. So the
    /// names of different keys differ, and none is another's name with a suffix: a lock's name ends
    /// with its only, or its second, closing brace.
    pub(in crate::store) fn lock(&self, key: &Key) -> String {
        let opening = if key.has_hash_tag() { "" } else { "{" };
        format!("{}{opening}{}}}", self.prefix, key.as_str())
    }

    pub(super) fn are_of_cluster(&self) -> bool {
        self.are_of_cluster
    }

    /// Returns the name of a lock, to ask whether the user may access it.
    pub(super) fn example(&self) -> String {
        format!("{}{{any}}", self.prefix)
    }

    /// Returns the prefix of the channels that clients subscribe to. The client id follows.
    pub(super) fn channels(&self) -> &str {
        &self.channels
    }

    /// Returns the key of the lock with this name.
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
        let keyspace = Keyspace::at_node("lock:".to_owned(), "node");
        assert_eq!(keyspace.channels(), "lock:client:node:");
    }

    #[test]
    fn no_two_keys_share_a_name() {
        let keyspace = Keyspace::new("lock:".to_owned());
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
            let lock = keyspace.lock(&key);
            assert_eq!(keyspace.key(lock.as_bytes()), Some(key));
            all.extend([format!("{lock}:fence"), format!("{lock}:queue"), lock]);
        }
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
    }

    #[test]
    fn names_that_are_not_a_lock_s_are_no_key() {
        let keyspace = Keyspace::new("lock:".to_owned());
        for name in ["lock:{a}:fence", "other:{a}", "lock:a}", "lock:{}", "lock:"] {
            assert_eq!(keyspace.key(name.as_bytes()), None, "{name}");
        }
        assert_eq!(keyspace.key(b"lock:{\xff}"), None);
    }
}
