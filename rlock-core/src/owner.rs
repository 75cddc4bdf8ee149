//! Who holds a lock.

use std::fmt;

use uuid::Uuid;

/// The identity of one outermost hold: `<client uuid>:<sequence>`. Never used again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OwnerId {
    client: Uuid,
    sequence: u64,
}

impl OwnerId {
    pub(crate) fn new(client: Uuid, sequence: u64) -> Self {
        Self { client, sequence }
    }

    /// Reads what `Display` writes.
    #[cfg(feature = "redis")]
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (client, sequence) = text.rsplit_once(':')?;
        Some(Self {
            client: client.parse().ok()?,
            sequence: sequence.parse().ok()?,
        })
    }

    pub(crate) fn client(&self) -> Uuid {
        self.client
    }

    /// What tells it apart from the client's other owners.
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
        write!(f, "{}:{}", self.client, self.sequence)
    }
}
