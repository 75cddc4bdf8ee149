//! What the simulation uses of the stores, as it ships: the rules of the embedded store, which tests compare with the
//! Lua
//! scripts, and the decisions of a quorum.

pub(crate) use self::sources::{
    event::{Event, KeyFilter, Listener},
    memory::state::State,
    quorum::decisions,
    reply::{
        Acquired, Entry, GRACE, Grant, QueuePlace, Released, RenewalOutcome, Renewed, TakenBy,
    },
    request::{AcquireRequest, Claim, ReleaseRequest, Renewal},
};

/// The number of tokens of a fence. Fewer than in the product, so that new fences are due soon.
pub(crate) const TOKENS: u64 = 4;

#[expect(dead_code, reason = "the simulation uses a part of them")]
#[path = "../../../../rlock-core/src/store"]
mod sources {
    pub(crate) mod event;
    pub(crate) mod reply;
    pub(crate) mod request;

    pub(crate) mod memory {
        pub(crate) mod state;
        pub(crate) mod wait_queues;

        /// Each simulated server has its own fences, which follow its clock.
        mod fences {
            pub(super) use crate::servers::{last_fence as last, next_fence as next};
        }
    }

    pub(crate) mod quorum {
        pub(crate) mod decisions;
        mod verdict;
    }
}
