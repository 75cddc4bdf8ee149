//! One client: its local queue, its acquisition, its ownership, and its pending releases.

use super::{
    Config, Time,
    acquisition::{Acquisition, Grant},
    network::Id,
    ownership::{Hold, Ownership, Tokens},
};
use crate::words::Owner;

/// A process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(super) name: u8,
    pub(super) dead: bool,
    next_owner: u8,
    next_id: Id,
    /// Callers that have not arrived yet.
    pub(super) to_come: u8,
    /// Callers that are queued behind the one with the turn.
    pub(super) waiting: u8,
    pub(super) turn: Turn,
    pub(super) acquisition: Option<Acquisition>,
    pub(super) ownership: Option<Ownership>,
    pub(super) releasing: Vec<Releasing>,
    /// The remaining tokens of an earlier ownership. Only a bug uses this.
    pub(super) spare: Option<Tokens>,
}

/// The right to send requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Turn {
    Free,
    /// The first local waiter.
    Waiter,
    /// The holder, or an ownership that is being released.
    Holder,
}

/// A request without a reply yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pending {
    pub(super) id: Id,
    pub(super) sent: Time,
}

/// An ownership whose release is pending.
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Releasing {
    pub(super) owner: Owner,
    pub(super) valid_until: Time,
    pub(super) why: Why,
    pub(super) has_turn: bool,
    pub(super) tried: bool,
    /// Whether an earlier copy was sent within the lease, and may have run.
    pub(super) in_doubt: bool,
    /// Whether the server granted the lock to another owner before the first copy was sent.
    pub(super) overtaken: bool,
    pub(super) pending: Option<Pending>,
}

/// The reason for a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Why {
    /// The last hold ended, or the callers gave up.
    Ended,
    /// It was retained, and another client wants it.
    Wanted,
    /// Its retention has ended.
    RetentionEnded,
    /// It was retained, and the client shuts down.
    ShutDown,
    /// It was retained, and an operator asked for its release.
    Revoked,
}

impl Client {
    pub(super) fn new(name: u8, callers: u8) -> Self {
        Self {
            name,
            dead: false,
            next_owner: 0,
            next_id: 0,
            to_come: callers,
            waiting: 0,
            turn: Turn::Free,
            acquisition: None,
            ownership: None,
            releasing: Vec::new(),
            spare: None,
        }
    }

    /// Stops the client and forgets its state.
    pub(super) fn die(&mut self) {
        *self = Self {
            dead: true,
            ..Self::new(self.name, 0)
        };
    }

    pub(super) fn hold(&self) -> Option<&Hold> {
        self.ownership.as_ref()?.hold.as_ref()
    }

    /// Returns whether a caller has a valid hold.
    pub(super) fn holds(&self, now: Time) -> bool {
        self.hold().is_some() && self.relies(now)
    }

    /// Returns whether the client relies on owning the lock, with or without a hold.
    pub(super) fn relies(&self, now: Time) -> bool {
        let ownership = self.ownership.as_ref();
        ownership.is_some_and(|ownership| ownership.is_valid(now))
    }

    /// Returns whether the client retains the lock.
    pub(super) fn retains(&self) -> bool {
        let ownership = self.ownership.as_ref();
        ownership.is_some_and(|ownership| ownership.hold.is_none())
    }

    /// Returns whether the client has nothing to do.
    pub(super) fn is_idle(&self) -> bool {
        self.turn == Turn::Free && self.ownership.is_none() && self.releasing.is_empty()
    }

    /// Notes that the server granted the lock to this owner.
    pub(super) fn overtaken(&mut self, by: Owner, now: Time) {
        if let Some(ownership) = self.ownership.as_mut().filter(|own| own.owner != by) {
            ownership.overtaken.get_or_insert(now);
        }
        let releasing = self.releasing.iter_mut();
        for releasing in releasing.filter(|one| !one.tried && one.owner != by) {
            releasing.overtaken = true;
        }
    }

    pub(super) fn request(&mut self, now: Time) -> Pending {
        let id = self.next_id;
        self.next_id += 1;
        Pending { id, sent: now }
    }

    /// Returns the acquisition, and starts one if there is none.
    pub(super) fn acquisition(&mut self, reuses_owners: bool) -> &mut Acquisition {
        self.acquisition.get_or_insert_with(|| {
            let owner = Owner {
                client: self.name,
                sequence: self.next_owner,
            };
            if !reuses_owners {
                self.next_owner += 1;
            }
            Acquisition::new(owner)
        })
    }

    /// Turns the acquisition of the first local waiter into an ownership.
    pub(super) fn begin(&mut self, config: &Config, grant: Grant) {
        let Some(acquisition) = self.acquisition.take() else {
            return;
        };
        self.turn = Turn::Holder;
        let handovers = self.waiting.min(Config::LOCAL_HANDOVERS);
        let tokens = Tokens::granted(grant.fence, config.tokens);
        self.ownership = Some(Ownership {
            owner: acquisition.owner,
            granted: tokens.last,
            tokens: self.spare.take().unwrap_or(tokens),
            valid_until: grant.since + grant.ttl.min(Config::LEASE),
            confirmed: grant.since,
            hold: None,
            retained_since: 0,
            wanted: acquisition.wanted,
            handovers,
            handovers_left: handovers,
            handed_over: 0,
            lost: false,
            overtaken: None,
            dirty: false,
            change: None,
            entering: false,
            renewals: Vec::new(),
            fencing: None,
            asked_fence: 0,
        });
    }

    /// Ends the ownership and queues its release.
    pub(super) fn end_ownership(&mut self, why: Why, has_turn: bool) {
        if let Some(ownership) = self.ownership.take() {
            self.releasing.push(Releasing {
                owner: ownership.owner,
                valid_until: ownership.valid_until,
                why,
                has_turn,
                tried: false,
                in_doubt: false,
                overtaken: ownership.overtaken.is_some(),
                pending: None,
            });
        }
    }

    /// Passes the turn to the next local waiter. Without one, the acquisition is released.
    pub(super) fn pass_turn(&mut self, stays_queued: bool) {
        if self.waiting > 0 {
            self.waiting -= 1;
            self.turn = Turn::Waiter;
            return;
        }
        self.turn = Turn::Free;
        if let Some(acquisition) = self.acquisition.take()
            && acquisition.concerns_server()
            && !stays_queued
        {
            self.releasing.push(Releasing {
                owner: acquisition.owner,
                valid_until: 0,
                why: Why::Ended,
                has_turn: false,
                tried: false,
                in_doubt: false,
                overtaken: false,
                pending: None,
            });
        }
    }
}
