//! One client: its line of callers, what it asked for, what it holds, and what it gives back.

use super::{Time, network::Id};
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
    /// How many callers are served before other clients are.
    pub(super) in_a_row: u8,
    pub(super) asked: Option<Asked>,
    pub(super) hold: Option<Hold>,
    pub(super) settling: Vec<Settling>,
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

/// What the server is asked for; as `asking.rs`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Asked {
    pub(super) owner: Owner,
    pub(super) step: Step,
    pub(super) in_doubt: bool,
    /// Whether it was in doubt before the last request.
    pub(super) was_in_doubt: bool,
    pub(super) begun: Option<Time>,
    pub(super) past: Token,
    pub(super) advised: Option<Time>,
    pub(super) pending: Option<Pending>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    Unasked,
    Waiting {
        since: Time,
        look: Time,
        in_line: bool,
    },
    Granted(Given),
}

/// A lock that was given to an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Given {
    pub(super) token: Token,
    pub(super) since: Time,
    pub(super) ttl: Time,
    pub(super) how: How,
}

/// How a lock came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum How {
    Answered,
    Told,
    HandedOn,
}

/// A hold that has entries.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Hold {
    pub(super) owner: Owner,
    pub(super) token: Token,
    pub(super) how: How,
    pub(super) began: Time,
    pub(super) valid_until: Time,
    pub(super) confirmed: Time,
    pub(super) entries: u8,
    /// How often it was entered once more.
    pub(super) entered: u8,
    pub(super) wrote: bool,
    /// When the server gave the lock to somebody else.
    pub(super) overtaken: Option<Time>,
    /// The server's count may be another.
    pub(super) dirty: bool,
    /// A change of the count.
    pub(super) change: Option<Pending>,
    /// Whether the change is a further entry.
    pub(super) entering: bool,
    pub(super) renewals: Vec<Pending>,
}

/// What is given back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Settling {
    pub(super) owner: Owner,
    pub(super) token: Token,
    pub(super) has_turn: bool,
    pub(super) tried: bool,
    /// Requests from this one on are later than the end of the hold.
    pub(super) ended: Id,
    pub(super) pending: Option<Pending>,
}

impl Given {
    /// As `Grant::is_fresh`.
    pub(super) fn is_fresh(&self, lease: Time, now: Time) -> bool {
        now < self.since + self.ttl.min(lease) / 3
    }
}

impl Asked {
    fn new(owner: Owner) -> Self {
        Self {
            owner,
            step: Step::Unasked,
            in_doubt: false,
            was_in_doubt: false,
            begun: None,
            past: 0,
            advised: None,
            pending: None,
        }
    }

    pub(super) fn begin(&mut self, now: Time) {
        self.advised = None;
        self.begun.get_or_insert(now);
        self.was_in_doubt = std::mem::replace(&mut self.in_doubt, true);
    }

    pub(super) fn given(&mut self, given: Given) {
        self.step = Step::Granted(given);
        self.in_doubt = false;
    }

    pub(super) fn is_past(&mut self, token: Token) {
        self.past = self.past.max(token);
        if let Step::Granted(given) = self.step
            && given.token <= token
        {
            self.step = Step::Waiting {
                since: given.since,
                look: given.since,
                in_line: true,
            };
        }
    }

    pub(super) fn in_line(&mut self, since: Time, ttl: Time, now: Time) {
        let look = match self.step {
            Step::Granted(given) if given.is_fresh(given.ttl, now) => return,
            Step::Granted(_) => now,
            Step::Unasked | Step::Waiting { .. } => now + ttl.max(1),
        };
        let advised = self.advised.take().unwrap_or(look);
        self.step = Step::Waiting {
            since,
            look: look.min(advised),
            in_line: true,
        };
    }

    /// A message tells of a grant.
    pub(super) fn told(&mut self, token: Token, ttl: Time, since: Option<Time>) {
        let since = since.or(match self.step {
            Step::Waiting { since, .. } => Some(since),
            Step::Unasked | Step::Granted(_) => self.begun,
        });
        if let Some(since) = since {
            self.step = Step::Granted(Given {
                token,
                since,
                ttl,
                how: How::Told,
            });
        }
    }

    pub(super) fn look_after(&mut self, after: Time, now: Time) {
        let at = now + after;
        self.advised = Some(self.advised.map_or(at, |advised| advised.min(at)));
        if let Step::Waiting { look, .. } = &mut self.step {
            *look = (*look).min(at);
        }
    }

    fn concerns_server(&self) -> bool {
        self.in_doubt
            || match self.step {
                Step::Unasked => false,
                Step::Waiting { in_line, .. } => in_line,
                Step::Granted(_) => true,
            }
    }
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
            in_a_row: 0,
            asked: None,
            hold: None,
            settling: Vec::new(),
        }
    }

    /// What is left of a dead one.
    pub(super) fn die(&mut self) {
        *self = Self {
            dead: true,
            ..Self::new(self.name, 0)
        };
    }

    /// Whether it relies on having the lock.
    pub(super) fn believes(&self, now: Time) -> bool {
        self.hold
            .as_ref()
            .is_some_and(|hold| now < hold.valid_until)
    }

    /// Whether there is nothing to do.
    pub(super) fn is_idle(&self) -> bool {
        self.turn == Turn::Nobody && self.hold.is_none() && self.settling.is_empty()
    }

    pub(super) fn next_request(&self) -> Id {
        self.next_id
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

    /// The lock came from elsewhere.
    pub(super) fn arrived(&mut self) {
        const MOST_IN_A_ROW: u8 = 1;
        self.in_a_row = self.waiting.min(MOST_IN_A_ROW);
    }

    /// The head of the line has the lock.
    pub(super) fn begin(&mut self, owner: Owner, given: Given, lease: Time, now: Time) {
        if given.how == How::Answered {
            self.arrived();
        }
        self.asked = None;
        self.turn = Turn::Holder;
        self.hold = Some(Hold {
            owner,
            token: given.token,
            how: given.how,
            began: now,
            valid_until: given.since + given.ttl.min(lease),
            confirmed: given.since,
            entries: 1,
            entered: 0,
            wrote: false,
            overtaken: None,
            dirty: false,
            change: None,
            entering: false,
            renewals: Vec::new(),
        });
    }

    /// The hold is over; what the server has of it is to be given back.
    pub(super) fn end_hold(&mut self, has_turn: bool) {
        if let Some(hold) = self.hold.take() {
            let ended = self.next_request();
            self.settling.push(Settling {
                owner: hold.owner,
                token: hold.token,
                has_turn,
                tried: false,
                ended,
                pending: None,
            });
        }
    }

    /// The turn goes to the next in line; what nobody waits for any more goes back to the server.
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
                has_turn: false,
                tried: false,
                ended: self.next_request(),
                pending: None,
            });
        }
    }
}
