//! What the rules know of a run: the holds and tokens of each key, how ownerships went on, and the first rule that it broke.

use rlock_model::witness::{Fence, Holder, Tokens};

use crate::{
    machine::{Owner, Phase},
    mode::LockMode,
    plan::MOST_PERMITS,
};

pub(crate) type Rule = &'static str;

pub(crate) const CONSISTENT: Rule = "the machine is consistent";

/// How many times an ownership went from one phase to another. The last row and column stand for an ownership that is gone.
pub(crate) type Seen = [[u64; GONE + 1]; GONE + 1];
pub(crate) const GONE: usize = Phase::Ended as usize + 1;

/// A rule that was broken.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) rule: Rule,
    pub(crate) what: String,
}

/// A hold of a client, whose machine knows whether it still relies on the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) client: usize,
    pub(crate) life: u32,
    pub(crate) owner: Owner,
    pub(crate) token: u64,
    pub(crate) mode: LockMode,
    pub(crate) is_of_quorum: bool,
}

impl Holder for Hold {
    fn mode(&self) -> LockMode {
        match self.mode {
            LockMode::Permits { take, .. } => LockMode::Permits {
                take,
                of: MOST_PERMITS,
            },
            mode => mode,
        }
    }

    fn token(&self) -> u64 {
        self.token
    }

    fn is_same(&self, other: &Self) -> bool {
        (self.client, self.life, self.owner) == (other.client, other.life, other.owner)
    }

    /// The members of a quorum count by clocks of their own, so readers there may have one token.
    fn may_share_token(&self, other: &Self) -> bool {
        let are_readers = (self.mode, other.mode) == (LockMode::Shared, LockMode::Shared);
        are_readers && (self.is_of_quorum || self.is_same(other))
    }
}

/// The last hold of a key that was detached.
#[derive(Clone, Copy)]
pub(crate) struct Detached {
    pub(crate) token: u64,
    /// Until when its lock stays taken.
    pub(crate) until: u64,
}

/// What is known of a key.
#[derive(Default)]
pub(crate) struct Lock {
    pub(crate) holds: Vec<Hold>,
    pub(crate) tokens: Tokens<Hold>,
    /// Holds with this token, or a smaller one, may have been lost by a fault. Their holders learn that later.
    pub(crate) void: u64,
    /// Holds with this token, or a smaller one, may have been renewed by a former master alone.
    pub(crate) renewed: u64,
    /// Until when this includes holds that begin: at a quorum, a fault may hit a part of a grant.
    pub(crate) void_until: u64,
    /// The owner that each server knew at the last audit, and the first audit at which its client did not know it.
    pub(crate) owners: Vec<(String, Option<u64>)>,
    /// Since when each server, which is up, has lacked the lock of a present hold although it was free there.
    pub(crate) lacks: Vec<u64>,
    /// Until when it stays taken after the last hold.
    pub(crate) kept_until: u64,
    pub(crate) detached: Option<Detached>,
    /// How many calls of a client were served in a row while other clients waited.
    pub(crate) handovers: (usize, usize),
    /// The resource that the lock protects.
    pub(crate) fence: Fence,
    /// The last event that may delay a grant.
    pub(crate) moved: u64,
}

/// The sums of a run.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) holds: u64,
    pub(crate) excused: u64,
    pub(crate) stale_writes: u64,
    pub(crate) longest_idle: u64,
}
