//! What the simulation uses of the stores, as it ships: the rules of the embedded store, which tests compare with the Lua
//! scripts, and the decisions of a quorum.

pub(crate) use self::sources::{
    event::{Event, Listener},
    memory::state::State,
    quorum::decisions,
    reply::{Acquired, Entry, GRACE, Grant, QueuePlace, Released, RenewalOutcome, Renewed, TOKENS},
    request::{AcquireRequest, Claim, ReleaseRequest, Renewal},
};

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
            pub(super) use crate::fences::{last, next};
        }
    }

    pub(crate) mod quorum {
        pub(crate) mod decisions;
        mod verdict;
    }
}
