//! What the keys of a lock are called on the server. All share one hash tag, so one slot.

use crate::key::Key;

pub(super) struct Names {
    prefix: String,
    channels: String,
    are_of_cluster: bool,
}

impl Names {
    pub(super) fn new(prefix: String) -> Self {
        let channels = format!("{prefix}client:");
        Self {
            prefix,
            channels,
            are_of_cluster: false,
        }
    }

    /// As [`new`](Self::new), with channels that belong to one node of a cluster. All nodes deliver what is
    /// published at one of them, but `PUBLISH` counts the receivers at that node alone. A client that listens
    /// at another node would be passed over, and yet receive the grant.
    pub(super) fn at_node(prefix: String, id: &str) -> Self {
        let channels = format!("{prefix}client:{id}:");
        Self {
            prefix,
            channels,
            are_of_cluster: true,
        }
    }

    /// The hash that is the lock.
    ///
    /// A key without a hash tag is wrapped as a whole; one with a tag is closed by a brace. So the
    /// names of different keys differ, and none is another's name with a suffix: a lock's name ends
    /// with its only, or its second, closing brace.
    pub(super) fn lock(&self, key: &Key) -> String {
        let opening = if key.has_hash_tag() { "" } else { "{" };
        format!("{}{opening}{}}}", self.prefix, key.as_str())
    }

    pub(super) fn are_of_cluster(&self) -> bool {
        self.are_of_cluster
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
    use super::*;

    #[test]
    fn names_are_those_that_the_documentation_promises() {
        let names = Names::new("lock:".to_owned());
        let key = Key::parse("order:42").expect("valid");
        assert_eq!(names.lock(&key), "lock:{order:42}");
        assert_eq!(names.channels(), "lock:client:");
    }

    #[test]
    fn channels_in_a_cluster_belong_to_one_node() {
        let names = Names::at_node("lock:".to_owned(), "node");
        assert_eq!(names.channels(), "lock:client:node:");
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
            let lock = names.lock(&key);
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
