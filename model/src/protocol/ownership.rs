//! An ownership of a client, and the holds that use it one after another.

use super::{ClientBug, Config, Time, client::Pending, network::Id};
use crate::words::{Fence, Owner, Token};

/// A lock that the client owns.
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Ownership {
    pub(super) owner: Owner,
    pub(super) tokens: Tokens,
    /// The last token of the grant. Larger ones come from renewals.
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
    /// The renewal that asks for a new fence.
    pub(super) fencing: Option<Id>,
    /// When the last such renewal was sent.
    pub(super) asked_fence: Time,
}

/// The tokens of an ownership that no hold has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Tokens {
    pub(super) next: Token,
    pub(super) last: Token,
    pub(super) fence: Fence,
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
    /// The acquire left with the release of the client's previous hold.
    WithRelease,
    /// The previous hold handed it over.
    HandedOver,
    /// The ownership was retained.
    Retained,
}

impl Tokens {
    /// Returns the tokens of a grant.
    pub(super) fn granted(fence: Fence, tokens: Token) -> Self {
        let next = fence * tokens;
        Self {
            next,
            last: next + (tokens - 1),
            fence,
        }
    }

    /// Adds all tokens up to the last one of a new fence, which the server set for a renewal.
    pub(super) fn renewed(&mut self, fence: Fence, tokens: Token) {
        if fence > self.fence {
            (self.last, self.fence) = (Self::granted(fence, tokens).last, fence);
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
