//! One client: its local queue, its acquisition, its ownership, and its pending releases.

use super::{
    ClientBug, Config, Time,
    acquisition::{Acquisition, Grant},
    network::Id,
    ownership::{Hold, Ownership, Tokens},
};
use crate::words::{History, Known, Owner, Token};

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
    /// When the client sent the last request that wrote. Only worlds with missed grants use this.
    pub(super) wrote: Option<Time>,
    /// The server's history, and the least token since then.
    history: History,
    least: Token,
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
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Releasing {
    pub(super) owner: Owner,
    pub(super) token: Token,
    pub(super) why: Why,
    pub(super) has_turn: bool,
    pub(super) tried: bool,
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
            wrote: None,
            history: 0,
            least: 0,
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

    /// Returns what the client knows of the server. Worlds without missed grants need no history.
    pub(super) fn known(&self, config: &Config, now: Time) -> Known {
        let is_needed = config.faults.missed_grants > 0 && !self.is_recent(config, now);
        Known {
            least: self.least,
            history: is_needed.then_some(self.history),
        }
    }

    /// Returns whether a write shortly before this time was executed.
    fn is_recent(&self, config: &Config, at: Time) -> bool {
        let is_recent = |sent| at < sent + Config::RECENT || config.has(ClientBug::RecentForEver);
        self.wrote.is_some_and(is_recent)
    }

    /// Notes that the server executed a write that it compared with its history.
    pub(super) fn wrote(&mut self, config: &Config, sent: Time) {
        if config.faults.missed_grants > 0 {
            self.wrote = self.wrote.max(Some(sent));
        }
    }

    /// Notes that the server executed a release, which it does not compare.
    pub(super) fn released(&mut self, config: &Config, sent: Time) {
        if self.is_recent(config, sent) {
            self.wrote(config, sent);
        }
    }

    /// Notes that the server has another history.
    pub(super) fn promoted(&mut self, (history, least): (History, Token)) {
        (self.history, self.least) = (history, least);
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
        let block = Tokens::granted(grant.token, config.block);
        self.ownership = Some(Ownership {
            owner: acquisition.owner,
            tokens: self.spare.take().unwrap_or(block),
            granted: block.last,
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
            extension: None,
            extended: 0,
        });
    }

    /// Ends the ownership and queues its release.
    pub(super) fn end_ownership(&mut self, why: Why, has_turn: bool) {
        if let Some(ownership) = self.ownership.take() {
            self.releasing.push(Releasing {
                owner: ownership.owner,
                token: ownership.tokens.fence,
                why,
                has_turn,
                tried: false,
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
                token: 0,
                why: Why::Ended,
                has_turn: false,
                tried: false,
                pending: None,
            });
        }
    }
}
