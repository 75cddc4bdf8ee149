//! Who holds a lock.

use std::fmt;

use uuid::Uuid;

/// A client is told of its owners' locks by two ways, and so has two names, which differ in this bit.
const NEAR: u128 = 1;

/// A new client's name: that of its own connection.
pub(crate) fn client_name() -> Uuid {
    Uuid::from_u128(Uuid::new_v4().as_u128() & !NEAR)
}

/// The same client's name where its owners are told on the runtime of the callers.
pub(crate) fn near_name(client: Uuid) -> Uuid {
    Uuid::from_u128(client.as_u128() | NEAR)
}

/// The identity of one ownership: `<client uuid>:<sequence>`. Never used again. The holds of a client that take a
/// lock over from one another without a request have one owner, and a fencing token each.
///
/// A client may have two connections to its server, and be told by either that it has a lock: so its
/// owners have one of two uuids, which differ in the last bit.
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
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (client, sequence) = text.rsplit_once(':')?;
        Some(Self {
            client: client.parse().ok()?,
            sequence: sequence.parse().ok()?,
        })
    }

    /// The client's name by which it is told of this owner.
    pub(crate) fn client(&self) -> Uuid {
        self.client
    }

    /// Whether it is one of this client's owners, by whichever of its names.
    pub(crate) fn is_of(&self, client: Uuid) -> bool {
        (self.client.as_u128() ^ client.as_u128()) & !NEAR == 0
    }

    /// Whether its client is told of it on the runtime of the callers.
    pub(crate) fn is_near(&self) -> bool {
        self.client.as_u128() & NEAR != 0
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
