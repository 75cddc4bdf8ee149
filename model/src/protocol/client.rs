//! One client: its local queue, what it asked for, what it owns, and what it gives back.

use super::{
    Config, Time,
    asked::{Asked, Given},
    network::Id,
    ownership::{Hold, Ownership, Tokens},
};
use crate::words::{Owner, Token};

/// A process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(super) name: u8,
    pub(super) dead: bool,
    next_owner: u8,
    next_id: Id,
    /// Callers that are still to come.
    pub(super) to_come: u8,
    /// Callers in line behind whoever has the turn.
    pub(super) waiting: u8,
    pub(super) turn: Turn,
    pub(super) asked: Option<Asked>,
    pub(super) ownership: Option<Ownership>,
    pub(super) settling: Vec<Settling>,
    /// What is left of the tokens of an earlier ownership; nobody but a mistake uses them.
    pub(super) spare: Option<Tokens>,
}

/// Who deals with the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Turn {
    Nobody,
    /// The head of the line.
    Head,
    /// The holder, or one of those that give back.
    Holder,
}

/// A request whose answer is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pending {
    pub(super) id: Id,
    pub(super) sent: Time,
}

/// An ownership that is given back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Settling {
    pub(super) owner: Owner,
    pub(super) token: Token,
    pub(super) why: Why,
    pub(super) has_turn: bool,
    pub(super) tried: bool,
    pub(super) pending: Option<Pending>,
}

/// Why an ownership is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Why {
    /// The last hold ended, or the callers gave up.
    Ended,
    /// It was retained, and another client wants it.
    Wanted,
    /// It was retained for long enough.
    RetainedEnough,
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
            turn: Turn::Nobody,
            asked: None,
            ownership: None,
            settling: Vec::new(),
            spare: None,
        }
    }

    /// What is left of a dead one.
    pub(super) fn die(&mut self) {
        *self = Self {
            dead: true,
            ..Self::new(self.name, 0)
        };
    }

    pub(super) fn hold(&self) -> Option<&Hold> {
        self.ownership.as_ref()?.hold.as_ref()
    }

    /// Whether a caller believes that it has the lock.
    pub(super) fn believes(&self, now: Time) -> bool {
        self.hold().is_some() && self.relies(now)
    }

    /// Whether the client relies on owning the lock, for a caller or without one.
    pub(super) fn relies(&self, now: Time) -> bool {
        let ownership = self.ownership.as_ref();
        ownership.is_some_and(|ownership| ownership.is_valid(now))
    }

    /// Whether it retains the lock.
    pub(super) fn retains(&self) -> bool {
        let ownership = self.ownership.as_ref();
        ownership.is_some_and(|ownership| ownership.hold.is_none())
    }

    /// Whether there is nothing to do.
    pub(super) fn is_idle(&self) -> bool {
        self.turn == Turn::Nobody && self.ownership.is_none() && self.settling.is_empty()
    }

    pub(super) fn request(&mut self, now: Time) -> Pending {
        let id = self.next_id;
        self.next_id += 1;
        Pending { id, sent: now }
    }

    /// What the server is asked for.
    pub(super) fn ask_for(&mut self, reuses_owners: bool) -> &mut Asked {
        self.asked.get_or_insert_with(|| {
            let owner = Owner {
                client: self.name,
                sequence: self.next_owner,
            };
            if !reuses_owners {
                self.next_owner += 1;
            }
            Asked::new(owner)
        })
    }

    /// The head of the local queue has the lock.
    pub(super) fn begin(&mut self, config: &Config, given: Given) {
        let Some(asked) = self.asked.take() else {
            return;
        };
        self.turn = Turn::Holder;
        let budget = self.waiting.min(Config::LOCAL_HANDOVERS);
        let block = Tokens::granted(given.token, config.block);
        self.ownership = Some(Ownership {
            owner: asked.owner,
            tokens: self.spare.take().unwrap_or(block),
            granted: block.last,
            valid_until: given.since + given.ttl.min(Config::LEASE),
            confirmed: given.since,
            hold: None,
            retained_since: 0,
            wanted: asked.wanted,
            budget,
            budget_left: budget,
            handed_over: 0,
            lost: false,
            overtaken: None,
            dirty: false,
            change: None,
            entering: false,
            renewals: Vec::new(),
            extension: None,
            extended: 0,
        });
    }

    /// The ownership is over; what the server has of it is to be given back.
    pub(super) fn end_ownership(&mut self, why: Why, has_turn: bool) {
        if let Some(ownership) = self.ownership.take() {
            self.settling.push(Settling {
                owner: ownership.owner,
                token: ownership.tokens.fence,
                why,
                has_turn,
                tried: false,
                pending: None,
            });
        }
    }

    /// The turn goes to the next local waiter; what nobody waits for any more goes back to the server.
    pub(super) fn pass_on(&mut self, tells_nobody: bool) {
        if self.waiting > 0 {
            self.waiting -= 1;
            self.turn = Turn::Head;
            return;
        }
        self.turn = Turn::Nobody;
        if let Some(asked) = self.asked.take()
            && asked.concerns_server()
            && !tells_nobody
        {
            self.settling.push(Settling {
                owner: asked.owner,
                token: 0,
                why: Why::Ended,
                has_turn: false,
                tried: false,
                pending: None,
            });
        }
    }
}
