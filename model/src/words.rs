//! The requests, replies and notifications of a server and its clients.

/// Milliseconds, by the server's clock.
pub type Millis = u64;
/// A fencing token.
pub type Token = u64;
/// What is locked.
pub type Key = u8;

/// How many tokens a grant gives.
pub const BLOCK: Token = 16;

/// The identity of one ownership.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner {
    /// Whose it is.
    pub client: u8,
    /// What tells it apart from the client's others.
    pub sequence: u8,
}

/// One of the locks that an acquire asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Claim {
    /// The lock.
    pub key: Key,
    /// Who is to hold it.
    pub owner: Owner,
}

/// A request for locks.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Acquire {
    /// All or none of these.
    pub claims: Vec<Claim>,
    /// For this long.
    pub lease: Millis,
    /// The count wanted.
    pub count: u8,
    /// Whether the owner joins the wait queue if the lock is taken.
    pub waits: bool,
}

/// The reply.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Acquired {
    /// Every owner holds its lock.
    Granted {
        /// The first token of a block for each claim.
        tokens: Vec<Token>,
        /// Whether the wait queue of one of the locks has other owners.
        others_wait: bool,
    },
    /// Another holds one of the locks.
    Held {
        /// Which.
        claim: usize,
        /// For how long, unless renewed.
        ttl: Millis,
        /// Whether the owner is queued.
        queued: bool,
        /// Whether the owner is the first waiter.
        first: bool,
        /// Earlier grants up to these tokens are void.
        fences: Vec<Token>,
    },
    /// Further entries were wanted by an owner that holds nothing.
    NotHeld,
    /// The fencing token is invalid.
    Refused,
}

/// The next local waiter of the releasing client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Next {
    /// Who.
    pub owner: Owner,
    /// For how long it wants the lock.
    pub lease: Millis,
}

/// A request that lowers a count.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Release {
    /// The lock.
    pub key: Key,
    /// Who is to have less of it.
    pub owner: Owner,
    /// The fence as its owner knows it: the first token of its block, and what extensions added; zero: none.
    pub token: Token,
    /// Zero releases the lock.
    pub count: u8,
    /// How long the lock stays taken after the release.
    pub at_least: Millis,
    /// Who waits for it in the same process.
    pub next: Option<Next>,
}

/// The reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Released {
    /// Done, now or by an earlier copy.
    Done(HandOff),
    /// The owner holds nothing.
    NotHeld,
    /// The owner holds nothing, and others have held the lock since.
    MovedOn,
}

/// The outcome for the waiter that a release named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HandOff {
    /// It has the lock, with the block that begins with this token. No other owner waits.
    Granted(Token),
    /// It is queued.
    Queued,
    /// There is none, or it is to ask for itself.
    Unknown,
}

/// A request to extend a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Renewal {
    /// The lock.
    pub key: Key,
    /// Who holds it.
    pub owner: Owner,
    /// For this long from now.
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
    /// Who holds it.
    pub owner: Owner,
    /// How many tokens, at the most.
    pub tokens: Token,
}

/// The reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Extended {
    /// The owner has `tokens` more. They may be none.
    More {
        /// The fence afterwards. The owner's tokens reach a block from there.
        fence: Token,
        /// How many of the owner's tokens, up to the last one, are new.
        tokens: Token,
    },
    /// The owner holds nothing.
    NotHeld,
    /// The fencing token is invalid.
    Refused,
}

/// What the server sends without a request.
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
        /// How long it is granted for.
        ttl: Millis,
        /// Whether the wait queue is not empty after this step.
        others_wait: bool,
    },
    /// Another client waits for a lock: the first of the wait queue asked for it.
    Wanted {
        /// The lock.
        key: Key,
        /// The owner that holds it.
        owner: Owner,
    },
    /// A queued owner should ask again after a delay.
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
    /// The lock that it concerns.
    #[must_use]
    pub fn key(&self) -> Key {
        match self {
            Self::Granted { key, .. } | Self::Wanted { key, .. } | Self::Retry { key, .. } => *key,
        }
    }

    /// The owner that it concerns.
    #[must_use]
    pub fn owner(&self) -> Owner {
        match self {
            Self::Granted { owner, .. }
            | Self::Wanted { owner, .. }
            | Self::Retry { owner, .. } => *owner,
        }
    }
}

/// Who holds a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Holder {
    /// An owner.
    Owner(Owner),
    /// No owner: it was released, and stays taken for its `at_least`.
    Kept,
}

/// A lock as its server sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// Who holds it.
    pub holder: Holder,
    /// How often.
    pub count: u8,
    /// For how long, unless renewed.
    pub ttl: Millis,
    /// Its fence: the first token of its block, and what extensions added; of a lock that is kept, a later one.
    pub token: Token,
}

/// Tokens that were granted to an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Block {
    /// Of which lock.
    pub key: Key,
    /// To whom.
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

/// What one step of a server does besides its reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// The notifications that it sends.
    pub notifications: Vec<Notification>,
    /// The blocks that it grants, in this order.
    pub grants: Vec<Block>,
    /// What it adds to the block of an owner.
    pub extensions: Vec<Block>,
}
