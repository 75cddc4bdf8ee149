//! An ownership of a client, and the holds that use it one after another.

use super::{ClientBug, Config, Time, client::Pending};
use crate::words::{Owner, Token};

/// A lock that the client owns.
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ownership {
    pub(super) owner: Owner,
    pub(super) tokens: Tokens,
    /// The last token of the grant. Larger ones come from extensions.
    pub(super) granted: Token,
    pub(super) valid_until: Time,
    pub(super) confirmed: Time,
    /// `None`: the ownership is retained.
    pub(super) hold: Option<Hold>,
    /// The time when the retention started.
    pub(super) retained_since: Time,
    /// Whether another client is known to wait.
    pub(super) wanted: bool,
    /// The number of local hand-overs while other clients wait: one for each caller that waited at
    /// the grant.
    pub(super) handovers: u8,
    /// The number of remaining hand-overs.
    pub(super) handovers_left: u8,
    /// The number of local hand-overs since another client started to wait.
    pub(super) handed_over: u8,
    /// Whether its loss is known, or its hold was revoked: no further hold begins. The current one
    /// keeps it until its end.
    pub(super) lost: bool,
    /// The time when the server granted the lock to another owner.
    pub(super) overtaken: Option<Time>,
    /// Whether the server's count is in doubt.
    pub(super) dirty: bool,
    /// A change of the count.
    pub(super) change: Option<Pending>,
    /// Whether the change is a further entry.
    pub(super) entering: bool,
    pub(super) renewals: Vec<Pending>,
    /// A request for more tokens.
    pub(super) extension: Option<Pending>,
    /// The time of the last request for more tokens.
    pub(super) extended: Time,
}

/// The tokens of an ownership that no hold has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tokens {
    pub(super) next: Token,
    pub(super) last: Token,
    /// The last known fence of the server.
    pub(super) fence: Token,
}

/// One caller's use of an ownership.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Hold {
    pub(super) token: Token,
    pub(super) how: How,
    pub(super) began: Time,
    pub(super) entries: u8,
    /// The number of nested entries.
    pub(super) entered: u8,
    pub(super) wrote: bool,
}

/// The way in which a hold got its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum How {
    Replied,
    Notified,
    /// The reply to a release granted it to the client's next waiter.
    GrantedByRelease,
    /// The previous hold handed it over.
    HandedOver,
    /// The ownership was retained.
    Retained,
}

impl Tokens {
    /// Returns the block of a grant, which starts with this token.
    pub(super) fn granted(first: Token, block: Token) -> Self {
        Self {
            next: first,
            last: first + (block - 1),
            fence: first,
        }
    }

    /// Returns the tokens of an extension that advanced the fence to this value.
    pub(super) fn extension(fence: Token, tokens: Token, block: Token) -> Self {
        let last = fence + (block - 1);
        Self {
            next: last - (tokens - 1),
            last,
            fence,
        }
    }

    pub(super) fn left(&self) -> Token {
        (self.last + 1).saturating_sub(self.next)
    }

    fn take(&mut self) -> Token {
        let token = self.next;
        self.next += 1;
        token
    }

    /// Adds tokens. Tokens before a gap are dropped.
    pub(super) fn extend(&mut self, more: Self) {
        if more.next != self.last + 1 {
            self.next = more.next;
        }
        (self.last, self.fence) = (more.last, more.fence);
    }
}

impl Ownership {
    /// Returns whether the server still has the lock for this owner, by the client's clock.
    pub(super) fn is_valid(&self, now: Time) -> bool {
        now < self.valid_until
    }

    /// Returns whether another hold may follow without a request.
    fn may_continue(&self, config: &Config, now: Time) -> bool {
        let is_revoked = self.lost && !config.has(ClientBug::RevokedHandedOver);
        let is_certain = !self.dirty && self.change.is_none() && !is_revoked;
        let in_time = self.is_valid(now) || config.has(ClientBug::HandOverAfterLease);
        is_certain && in_time && self.tokens.left() > 0
    }

    /// Returns whether the next local waiter may use it.
    pub(super) fn may_hand_over(&self, config: &Config, now: Time) -> bool {
        let has_handovers =
            !self.wanted || self.handovers_left > 0 || config.has(ClientBug::HandoversUnlimited);
        has_handovers && self.may_continue(config, now)
    }

    /// Returns whether it may be kept without a hold.
    pub(super) fn may_be_retained(&self, config: &Config, now: Time) -> bool {
        config.retain > 0 && !self.wanted && self.may_continue(config, now)
    }

    /// Starts the next hold.
    pub(super) fn begin_hold(&mut self, how: How, now: Time) -> Token {
        let token = self.tokens.take();
        self.retained_since = 0;
        self.hold = Some(Hold {
            token,
            how,
            began: now,
            entries: 1,
            entered: 0,
            wrote: false,
        });
        token
    }
}
