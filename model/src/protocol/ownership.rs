//! What a client owns, and the holds that use it one after another.

use super::{ClientBug, Config, Time, client::Pending};
use crate::words::{Owner, Token};

/// A lock that this client owns.
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ownership {
    pub(super) owner: Owner,
    pub(super) tokens: Tokens,
    /// The last token of the grant; what is above it comes from extensions.
    pub(super) granted: Token,
    pub(super) valid_until: Time,
    pub(super) confirmed: Time,
    /// `None`: the ownership is retained.
    pub(super) hold: Option<Hold>,
    /// Since when an ownership without a hold is retained.
    pub(super) retained_since: Time,
    /// Whether another client is known to wait.
    pub(super) wanted: bool,
    /// How many local hand-overs are allowed while it is wanted: as many as callers waited when it arrived.
    pub(super) handovers: u8,
    /// How many of them are left.
    pub(super) handovers_left: u8,
    /// How many local hand-overs there were since it was wanted.
    pub(super) handed_over: u8,
    /// Whether it is known to be lost, or its hold was revoked: no further hold begins. The present one keeps it until
    /// its end.
    pub(super) lost: bool,
    /// When the server granted the lock to another owner.
    pub(super) overtaken: Option<Time>,
    /// The server's count may be another.
    pub(super) dirty: bool,
    /// A change of the count.
    pub(super) change: Option<Pending>,
    /// Whether the change is a further entry.
    pub(super) entering: bool,
    pub(super) renewals: Vec<Pending>,
    /// A request for more tokens.
    pub(super) extension: Option<Pending>,
    /// When more tokens were asked for last.
    pub(super) extended: Time,
}

/// The tokens of an ownership that no hold has had yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tokens {
    pub(super) next: Token,
    pub(super) last: Token,
    /// The server's fence, as far as is known.
    pub(super) fence: Token,
}

/// One caller's use of an ownership.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Hold {
    pub(super) token: Token,
    pub(super) how: How,
    pub(super) began: Time,
    pub(super) entries: u8,
    /// How often it was entered once more.
    pub(super) entered: u8,
    pub(super) wrote: bool,
}

/// How a hold got its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum How {
    Replied,
    Notified,
    /// The reply to a release granted it to the client's next waiter.
    GrantedByRelease,
    /// The hold before it handed it over.
    HandedOver,
    /// It was retained.
    Retained,
}

impl Tokens {
    /// The block of a grant, which begins with this token.
    pub(super) fn granted(first: Token, block: Token) -> Self {
        Self {
            next: first,
            last: first + (block - 1),
            fence: first,
        }
    }

    /// The tokens of an extension that advanced the fence to this.
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
    /// Whether the server still has the lock for this owner, by the client's clock.
    pub(super) fn is_valid(&self, now: Time) -> bool {
        now < self.valid_until
    }

    /// Whether a hold may follow the one that ends, without a request.
    fn may_continue(&self, config: &Config, now: Time) -> bool {
        let is_revoked = self.lost && !config.has(ClientBug::RevokedHandedOver);
        let is_certain = !self.dirty && self.change.is_none() && !is_revoked;
        let in_time = self.is_valid(now) || config.has(ClientBug::HandOverAfterLease);
        is_certain && in_time && self.tokens.left() > 0
    }

    /// Whether the next local waiter may have it.
    pub(super) fn may_hand_over(&self, config: &Config, now: Time) -> bool {
        let has_handovers =
            !self.wanted || self.handovers_left > 0 || config.has(ClientBug::HandoversUnlimited);
        has_handovers && self.may_continue(config, now)
    }

    /// Whether it may be kept without a hold.
    pub(super) fn may_be_retained(&self, config: &Config, now: Time) -> bool {
        config.retain > 0 && !self.wanted && self.may_continue(config, now)
    }

    /// The next hold begins.
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
