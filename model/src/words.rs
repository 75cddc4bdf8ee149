//! The requests, replies and notifications of a server and its clients.

/// Milliseconds, by the server's clock.
pub type Millis = u64;
/// A fencing token.
pub type Token = u64;
/// What is locked.
pub type Key = u8;

/// The number of tokens in a grant.
pub const BLOCK: Token = 16;

/// The identity of one ownership.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner {
    /// The client.
    pub client: u8,
    /// The number of the ownership, unique for its client.
    pub sequence: u8,
}

/// One of the locks of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Claim {
    /// The lock.
    pub key: Key,
    /// Its owner, which is new in an acquire.
    pub owner: Owner,
}

/// A request for locks.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Acquire {
    /// The locks, all or none of which are granted.
    pub claims: Vec<Claim>,
    /// The lease.
    pub lease: Millis,
    /// The requested count.
    pub count: u8,
    /// Whether the owner joins the wait queue if the lock is taken.
    pub waits: bool,
    /// What the client knows of the server.
    pub known: Known,
}

/// The reply to an acquire.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Acquired {
    /// Every owner holds its lock.
    Granted {
        /// The first token of a block for each claim.
        tokens: Vec<Token>,
        /// Whether the wait queue of one of the locks has other owners.
        others_wait: bool,
    },
    /// Another owner holds one of the locks.
    Held {
        /// The index of its claim.
        claim: usize,
        /// The remaining time, unless renewed.
        ttl: Millis,
        /// Whether the owner is queued.
        queued: bool,
        /// Whether the owner is the first waiter.
        first: bool,
        /// Grants up to these tokens are void.
        fences: Vec<Token>,
    },
    /// The owner requested a nested entry, but holds nothing.
    NotHeld,
    /// The server has another history than the client knows. Nothing was done.
    Promoted,
    /// The fencing token is invalid.
    Refused,
}

/// The next local waiter of the releasing client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Next {
    /// Its owner.
    pub owner: Owner,
    /// Its lease.
    pub lease: Millis,
}

/// The number of failovers so far, which stands for the replication id. Tokens continue only if it is unchanged.
pub type History = u8;

/// What a client knows of the server that it is connected to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Known {
    /// The least token that the server may grant.
    pub least: Token,
    /// The server's history, unless the client has written to the server recently.
    pub history: Option<History>,
}

/// A request that lowers a count.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Release {
    /// The lock.
    pub key: Key,
    /// The owner.
    pub owner: Owner,
    /// The last fence that the owner knows: the first token of its block, plus all extensions.
    /// Zero: none.
    pub token: Token,
    /// The new count. Zero releases the lock.
    pub count: u8,
    /// How long the lock stays taken after the release.
    pub at_least: Millis,
    /// The next local waiter.
    pub next: Option<Next>,
    /// What the client knows of the server.
    pub known: Known,
}

/// The reply to a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Released {
    /// Done by this request or by an earlier copy.
    Done(HandOff),
    /// The owner holds nothing.
    NotHeld,
    /// The owner holds nothing, and others have held the lock since.
    MovedOn,
}

/// The outcome for the waiter that a release named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HandOff {
    /// It is granted the lock, with a block that starts with this token. No other owner waits.
    Granted(Token),
    /// It is queued.
    Queued,
    /// There is no such waiter, or it has to send its own request.
    Unknown,
}

/// A request to extend leases.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Renewal {
    /// The locks and their owners.
    pub claims: Vec<Claim>,
    /// The new lease of all, from now on.
    pub lease: Millis,
}

/// The reply to a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Renewed {
    /// Whether the owner holds the lock.
    pub held: bool,
    /// Whether the owner holds the lock and the wait queue is not empty.
    pub wanted: bool,
}

/// A request for more tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Extend {
    /// The lock.
    pub key: Key,
    /// The owner.
    pub owner: Owner,
    /// The largest number of tokens.
    pub tokens: Token,
    /// What the client knows of the server.
    pub known: Known,
}

/// The reply to a request for more tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Extended {
    /// The owner has this many more tokens, possibly none.
    More {
        /// The new fence. The owner's tokens extend one block beyond it.
        fence: Token,
        /// The number of new tokens, which are the last ones.
        tokens: Token,
    },
    /// The owner holds nothing.
    NotHeld,
    /// The server has another history than the client knows. Nothing was done.
    Promoted,
    /// The fencing token is invalid.
    Refused,
}

/// A message of the server without a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Notification {
    /// The lock was handed off to a queued owner.
    Granted {
        /// The lock.
        key: Key,
        /// The owner.
        owner: Owner,
        /// The first token of the block.
        token: Token,
        /// The time until the grant ends.
        ttl: Millis,
        /// Whether the wait queue is not empty after this step.
        others_wait: bool,
    },
    /// Another client waits for a lock: sent when the first waiter requests it.
    Wanted {
        /// The lock.
        key: Key,
        /// The owner that holds it.
        owner: Owner,
    },
    /// A queued owner should retry after a delay.
    Retry {
        /// The lock.
        key: Key,
        /// The owner.
        owner: Owner,
        /// The delay.
        after: Millis,
    },
}

impl Notification {
    /// Returns its lock.
    #[must_use]
    pub fn key(&self) -> Key {
        match self {
            Self::Granted { key, .. } | Self::Wanted { key, .. } | Self::Retry { key, .. } => *key,
        }
    }

    /// Returns its owner.
    #[must_use]
    pub fn owner(&self) -> Owner {
        match self {
            Self::Granted { owner, .. }
            | Self::Wanted { owner, .. }
            | Self::Retry { owner, .. } => *owner,
        }
    }
}

/// The holder of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Holder {
    /// An owner.
    Owner(Owner),
    /// No owner: `at_least` keeps the lock after its release.
    Kept,
}

/// The state of a lock on its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The holder.
    pub holder: Holder,
    /// The count of entries.
    pub count: u8,
    /// The remaining time, unless renewed.
    pub ttl: Millis,
    /// The fence: the first token of the block, plus all extensions. A lock without an owner has a
    /// later one.
    pub token: Token,
}

/// Tokens that were granted to an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Block {
    /// The lock.
    pub key: Key,
    /// The owner.
    pub owner: Owner,
    /// The first token.
    pub first: Token,
    /// The last token.
    pub last: Token,
}

impl Block {
    /// Returns whether this token was granted to this owner.
    #[must_use]
    pub fn has(&self, owner: Owner, token: Token) -> bool {
        self.owner == owner && (self.first..=self.last).contains(&token)
    }
}

/// The effects of one step of a server, besides its reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// The notifications that it sends.
    pub notifications: Vec<Notification>,
    /// The blocks that it grants, in order.
    pub grants: Vec<Block>,
    /// The extensions of blocks.
    pub extensions: Vec<Block>,
}
