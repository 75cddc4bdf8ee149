//! One request for locks, all or none: its start, and the application of its reply to their ownerships.

use std::{sync::Arc, time::Duration};

use crate::{
    engine::{
        core::Core,
        ownership::{Ownership, Requests},
    },
    error::LostCause,
    few::Few,
    store::{AcquireRequest, Acquired, Grant, StoreError},
};

/// A request for the locks of these ownerships. Its caller sends it: a future around that of the store would be larger.
pub(crate) struct Ask<'a> {
    core: &'a Core,
    ownerships: Few<&'a Arc<Ownership>>,
    /// Whether an earlier request for the lock is in doubt, for each lock.
    in_doubt: Few<bool>,
    pub(crate) request: AcquireRequest,
}

/// The reply to an [`Ask`].
pub(crate) enum Asked {
    Granted(Few<Grant>),
    /// One of the owners had the lock and lost it. Another owner has to ask.
    Retired,
    /// Another owner has one of the locks, and none was granted.
    Taken(Contended),
}

/// A lock that another owner has, as far as is known.
#[derive(Clone, Copy)]
pub(crate) struct Contended {
    /// The index of its key.
    pub(crate) at: usize,
    pub(crate) ttl: Option<Duration>,
}

impl<'a> Ask<'a> {
    /// Notes that the request is about to be sent. `waits`: whether to join the wait queue.
    pub(crate) fn begin(
        core: &'a Core,
        ownerships: Few<&'a Arc<Ownership>>,
        lease: Duration,
        waits: bool,
    ) -> Self {
        let may_roll_back = ownerships.len() > 1 || core.store.needs_majority();
        let begin = |requests: &mut Requests| {
            if may_roll_back {
                requests.set_may_roll_back(true);
            }
            requests.begin(core.clock.now())
        };
        let in_doubt = ownerships.iter().map(|own| own.requests(begin)).collect();
        let request = AcquireRequest {
            claims: ownerships.iter().map(|own| own.claim()).collect(),
            lease,
            count: 1,
            waits,
        };
        Self {
            core,
            ownerships,
            in_doubt,
            request,
        }
    }

    /// Returns whether an earlier request for one of the locks is in doubt.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.in_doubt.contains(&true)
    }

    /// Applies the reply to the ownerships.
    pub(crate) fn apply(self, reply: Result<Acquired, StoreError>) -> Result<Asked, StoreError> {
        for ownership in self.ownerships.iter().filter(|own| own.is_ended()) {
            // The turn was taken back, and the release may have been executed before this request.
            self.core.releases().settle(Arc::clone(ownership));
        }
        if let [ownership] = &*self.ownerships {
            // The request was not cancelled, so its reply reports whether a grant is still being rolled back.
            ownership.requests(|requests| requests.set_may_roll_back(false));
        }
        if reply.is_err() {
            // The store may have taken back what this client already owned, as a quorum does.
            self.ownerships.iter().for_each(|own| own.doubt());
        }
        let is_known = match &reply {
            Ok(reply) => !matches!(reply, Acquired::NotOwner),
            Err(error) => !error.maybe_executed,
        };
        for (ownership, in_doubt) in self.ownerships.iter().zip(&self.in_doubt) {
            if is_known && !in_doubt {
                ownership.requests(Requests::all_replied);
            }
        }
        match reply? {
            Acquired::Granted {
                fences,
                wanted,
                sent_at,
            } => {
                let grant = |fence| Grant {
                    fence,
                    since: sent_at,
                    ttl: self.request.lease,
                    wanted,
                };
                let grants: Few<Grant> = fences.into_iter().map(grant).collect();
                let mut are_new = true;
                for (ownership, grant) in self.ownerships.iter().zip(&grants) {
                    are_new &= ownership.granted(*grant);
                }
                if !are_new {
                    return Ok(Asked::Retired);
                }
                Ok(Asked::Granted(grants))
            }
            Acquired::Taken {
                claim,
                ttl,
                queued,
                sent_at,
                fences,
                retired,
            } => {
                for (n, (ownership, fence)) in self.ownerships.iter().zip(fences).enumerate() {
                    if ownership.is_passed() {
                        // The lock was lost, and an owner is granted a lock once.
                        self.core.watchdog.lose(ownership, LostCause::Removed);
                    }
                    ownership.requests(|requests| {
                        requests.note_fence(fence);
                        if n != claim || !self.request.waits {
                            requests.not_granted(sent_at);
                        } else {
                            requests.refused(sent_at, ttl, queued, self.core.clock.now());
                        }
                        if retired {
                            requests.retire();
                        }
                    });
                }
                Ok(Asked::Taken(Contended { at: claim, ttl }))
            }
            Acquired::NotOwner => Err(StoreError::late()),
        }
    }
}
