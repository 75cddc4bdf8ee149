//! The identity of an ownership.

use std::fmt;

use uuid::Uuid;

/// The identity of one ownership: `<client uuid>:<sequence>`, never reused. Holds that follow each other
/// by local hand-overs have the same owner. Each hold has its own fencing token.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnerId {
    client: Uuid,
    sequence: u64,
}

impl OwnerId {
    /// The owner of a lock that stays taken for its `at_least` after its release.
    pub(crate) const KEPT: Self = Self {
        client: Uuid::max(),
        sequence: u64::MAX,
    };
    /// The text of [`KEPT`](Self::KEPT), as `release.lua` writes it.
    const KEPT_TEXT: &'static str = "kept";

    pub(crate) fn new(client: Uuid, sequence: u64) -> Self {
        Self { client, sequence }
    }

    /// Parses the output of `Display`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text == Self::KEPT_TEXT {
            return Some(Self::KEPT);
        }
        let (client, sequence) = text.rsplit_once(':')?;
        Some(Self {
            client: client.parse().ok()?,
            sequence: sequence.parse().ok()?,
        })
    }

    pub(crate) fn client(&self) -> Uuid {
        self.client
    }

    pub(crate) fn is_of(&self, client: Uuid) -> bool {
        self.client == client
    }

    /// Returns the number that identifies the owner within its client.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }
}

impl fmt::Debug for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::KEPT {
            return f.write_str(Self::KEPT_TEXT);
        }
        write!(f, "{}:{}", self.client, self.sequence)
    }
}
