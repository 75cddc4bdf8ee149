//! Which fencing token a hold gets, and when a new fence is needed. Each hold takes the next token.

use std::time::Duration;

use crate::{
    lease::Time,
    mode::LockMode,
    store::{GRACE, Grant, fence_at},
};

/// The longest time by which a new fence is larger. The clocks of members seldom differ by more, and a client's own clock drifts
/// little in it.
const LONGEST_STEP: Duration = Duration::from_millis(100);

/// The remaining tokens of an owner: all up to the last one of its fence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Tokens {
    /// The number of tokens of a fence.
    per_fence: u64,
    /// The next token, while it is not larger than the end.
    next: u64,
    end: u64,
    /// How many tokens the last fence added.
    added: u64,
    /// The earliest time at which the store set the last fence. It keeps the fence until its lease ends, and then for the
    /// retention.
    fenced_at: Time,
    leased_until: Time,
    /// When a renewal was sent that makes the store keep the fence for longer.
    asked_to_keep: Option<Time>,
    /// Since when another server may have the lock, which lacks what the former one was asked to keep.
    missed_at: Option<Time>,
    wish: Wish,
}

/// Whether the owner asks for a new fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Wish {
    None,
    /// The next renewal asks for it.
    Due,
    Asked,
}

impl Tokens {
    pub(super) fn new(per_fence: u64) -> Self {
        Self {
            per_fence,
            next: 0,
            end: 0,
            added: 0,
            fenced_at: Time::default(),
            leased_until: Time::default(),
            asked_to_keep: None,
            missed_at: None,
            wish: Wish::None,
        }
    }

    /// Adds the tokens of a grant. The same grant again adds nothing: some of its tokens may be used.
    pub(super) fn granted(&mut self, grant: Grant) {
        if grant.fence > self.fence() {
            self.next = grant.fence * self.per_fence;
            self.fenced(grant.fence, grant.since, grant.ttl);
        }
    }

    /// Adds the tokens up to the last one of a new fence. The store set it for a renewal, so no other owner had the
    /// lock since the last fence.
    pub(super) fn renewed(&mut self, fence: u64, sent_at: Time, lease: Duration) {
        if fence > self.fence() && self.end > 0 {
            self.fenced(fence, sent_at, lease);
        }
    }

    fn fenced(&mut self, fence: u64, at: Time, lease: Duration) {
        let end = fence * self.per_fence + (self.per_fence - 1);
        self.added = end - self.end.max(self.next);
        (self.end, self.fenced_at, self.leased_until) = (end, at, at + lease.max(GRACE));
        self.missed_at.take_if(|missed| *missed <= at);
    }

    /// Records that another server may have the lock.
    pub(super) fn missed(&mut self, now: Time) {
        (self.asked_to_keep, self.missed_at) = (None, Some(now));
    }

    /// Returns whether a renewal by this lease has to make the store keep the fence for longer, because the fence would
    /// otherwise end before the lease, or because another server may have the lock.
    pub(super) fn ask_to_keep(&mut self, lease: Duration, retention: Duration, now: Time) -> bool {
        let ends_before = now + lease > self.leased_until + retention;
        let is_due = self.end > 0 && (ends_before || self.missed_at.is_some());
        self.asked_to_keep = is_due.then_some(now);
        is_due
    }

    /// Extends the time for which the store keeps the fence to two leases and the retention, if the renewal that the store
    /// confirmed asked for that.
    pub(super) fn kept(&mut self, sent_at: Time, lease: Duration) {
        if self
            .asked_to_keep
            .take_if(|asked| *asked <= sent_at)
            .is_some()
        {
            (self.fenced_at, self.leased_until) = (sent_at, sent_at + (lease * 2).max(GRACE));
            self.missed_at = None;
        }
    }

    /// Takes the next token.
    pub(super) fn take(&mut self) -> Option<u64> {
        let token = self.has_next().then_some(self.next)?;
        self.next += 1;
        Some(token)
    }

    /// Returns a token of the last known fence: this one, or else the next.
    pub(super) fn of_last_fence(&mut self, token: u64) -> u64 {
        let fence = self.fence();
        if self.have(token, fence) {
            return token;
        }
        self.next = self.next.max(fence * self.per_fence);
        self.take().unwrap_or(token)
    }

    /// Returns the last known fence, or 0 without a grant.
    pub(super) fn fence(&self) -> u64 {
        self.end / self.per_fence
    }

    /// Returns whether the store may forget the fence before another retention has passed. If the lock is not exclusive, the
    /// lease of another owner, which may be the grace period, decides how long the store keeps the fence.
    pub(super) fn may_be_forgotten(&self, mode: LockMode, now: Time) -> bool {
        let leased_until = match mode {
            LockMode::Exclusive => self.leased_until,
            LockMode::Shared | LockMode::Permits { .. } => self.fenced_at + GRACE,
        };
        self.end > 0 && now >= leased_until
    }

    /// Returns whether this fence belongs to a later grant than these tokens.
    pub(super) fn are_before(&self, fence: u64) -> bool {
        self.end > 0 && fence > self.fence()
    }

    /// Returns whether this token belongs to this fence.
    pub(super) fn have(&self, token: u64, fence: u64) -> bool {
        token / self.per_fence == fence
    }

    /// Returns whether a token is left or a new fence is asked for.
    pub(super) fn is_coming(&self) -> bool {
        self.has_next() || self.wish != Wish::None
    }

    /// Returns whether a token is left.
    pub(super) fn has_next(&self) -> bool {
        self.next > 0 && self.next <= self.end
    }

    /// Makes the next renewal ask for a new fence, if the tokens run low: if fewer than half of those of a fence are left, or of
    /// those that the last one added.
    pub(super) fn run_low(&mut self) {
        let rest = (self.end + 1).saturating_sub(self.next);
        if self.wish == Wish::None && rest <= (self.per_fence / 2).max(self.added / 2) {
            self.wish = Wish::Due;
        }
    }

    /// Returns whether the next renewal is due because it asks for a new fence.
    pub(super) fn is_fence_due(&self) -> bool {
        self.wish == Wish::Due
    }

    /// Returns the least new fence that a renewal asks for, or 0.
    ///
    /// A member of a quorum that granted the lock after the majority may have a larger fence than this client knows, and would set
    /// none. So all are asked for one that is larger by the time that has passed, and does not run ahead of their clocks.
    pub(super) fn ask(&mut self, needs_majority: bool, now: Time) -> u64 {
        if self.end == 0 || self.wish == Wish::None {
            return 0;
        }
        // This renewal does not ask to keep the fence, so its reply must not confirm an earlier, lost one that did.
        (self.wish, self.asked_to_keep) = (Wish::Asked, None);
        let passed = if needs_majority {
            now.since(self.fenced_at).min(LONGEST_STEP)
        } else {
            Duration::ZERO
        };
        let micros = u64::try_from(passed.as_micros()).unwrap_or(u64::MAX);
        self.fence() + 1 + fence_at(micros)
    }

    /// Ends the wish for a new fence with the renewal that asked for it, so that the next hold may ask again.
    pub(super) fn end_wish(&mut self) {
        if self.wish == Wish::Asked {
            self.wish = Wish::None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::TOKENS;

    const LEASE: Duration = Duration::from_secs(60);

    fn grant(fence: u64) -> Grant {
        Grant {
            fence,
            since: Time::from_nanos(1),
            ttl: LEASE,
            wanted: false,
        }
    }

    fn at(seconds: u64) -> Time {
        Time::from(Duration::from_secs(seconds))
    }

    fn all(tokens: &mut Tokens) -> Vec<u64> {
        std::iter::from_fn(|| tokens.take()).collect()
    }

    #[test]
    fn each_token_of_a_grant_is_taken_once() {
        let mut tokens = Tokens::new(TOKENS);
        assert!(!tokens.has_next());
        tokens.granted(grant(7));
        assert_eq!(tokens.take(), Some(7 * 128));
        tokens.granted(grant(7));
        assert!(all(&mut tokens).into_iter().eq(7 * 128 + 1..8 * 128));
        assert!(!tokens.has_next());
        assert_eq!(tokens.fence(), 7);
    }

    #[test]
    fn a_later_grant_ends_what_was_left_and_begins_above_it() {
        let mut tokens = Tokens::new(TOKENS);
        tokens.granted(grant(7));
        tokens.take();
        assert!(tokens.are_before(9) && !tokens.are_before(7));
        tokens.granted(grant(9));
        assert_eq!(tokens.take(), Some(9 * 128));
    }

    #[test]
    fn a_new_fence_adds_all_tokens_up_to_its_last() {
        let mut tokens = Tokens::new(TOKENS);
        tokens.granted(grant(7));
        let now = Time::from_nanos(1);
        tokens.run_low();
        assert_eq!(tokens.ask(false, at(9)), 0, "enough are left");
        for _ in 0..64 {
            tokens.take();
        }
        tokens.run_low();
        assert!(tokens.is_fence_due());
        assert_eq!(tokens.ask(false, at(9)), 8);
        assert!(!tokens.is_fence_due() && tokens.is_coming());
        tokens.renewed(10, now, LEASE);
        tokens.end_wish();
        assert!(all(&mut tokens).into_iter().eq(7 * 128 + 64..11 * 128));
        assert!(!tokens.is_coming());
        tokens.renewed(9, now, LEASE);
        assert_eq!(tokens.take(), None, "it is older than what is known");
    }

    /// Members that granted the lock later have larger fences, and would set none that is only the next one.
    #[test]
    fn a_quorum_is_asked_for_a_fence_by_the_time_that_has_passed_since_the_last_one() {
        for (after, fence) in [(0, 8), (1, 18), (50, 508), (100, 1008), (10_000, 1008)] {
            let mut tokens = Tokens::new(1);
            tokens.granted(grant(7));
            tokens.take();
            tokens.run_low();
            let now = grant(7).since + Duration::from_millis(after);
            assert_eq!(tokens.ask(true, now), fence, "{after} ms");
        }
    }

    #[test]
    fn a_server_that_may_have_taken_over_is_asked_to_keep_the_fence_until_a_later_reply() {
        let mut tokens = Tokens::new(TOKENS);
        let asks = |tokens: &mut Tokens| tokens.ask_to_keep(LEASE / 60, LEASE, at(12));
        assert!(!asks(&mut tokens), "without a grant");
        tokens.granted(grant(7));
        assert!(!asks(&mut tokens));
        tokens.missed(at(10));
        tokens.renewed(8, at(9), LEASE);
        assert!(asks(&mut tokens), "the reply is from before");
        tokens.renewed(9, at(10), LEASE);
        assert!(!asks(&mut tokens));
    }

    #[test]
    fn a_renewal_that_asks_for_a_new_fence_does_not_keep_it_for_another_lease() {
        let mut tokens = Tokens::new(TOKENS);
        tokens.granted(grant(7));
        let asks = |tokens: &mut Tokens, seconds| tokens.ask_to_keep(LEASE, GRACE, at(seconds));
        assert!(asks(&mut tokens, 10), "this request is lost");
        all(&mut tokens);
        tokens.run_low();
        assert_eq!(tokens.ask(false, at(9)), 8);
        tokens.renewed(8, at(20), LEASE);
        tokens.kept(at(20), LEASE);
        assert!(asks(&mut tokens, 30));
    }

    #[test]
    fn a_fence_may_be_forgotten_after_the_lease_with_which_it_was_set() {
        let (shared, second) = (LockMode::Shared, Duration::from_secs(1));
        let mut tokens = Tokens::new(TOKENS);
        let start = Time::from_nanos(1);
        let may = |tokens: &Tokens, mode, after| tokens.may_be_forgotten(mode, start + after);
        assert!(!may(&tokens, LockMode::Exclusive, LEASE), "without a grant");
        tokens.granted(grant(7));
        assert!(!may(&tokens, LockMode::Exclusive, LEASE / 2));
        assert!(may(&tokens, LockMode::Exclusive, LEASE));
        assert!(!may(&tokens, shared, second / 2) && may(&tokens, shared, second));
        tokens.renewed(900, start + LEASE, LEASE / 100);
        assert!(!may(&tokens, LockMode::Exclusive, LEASE + second / 2));
        assert!(may(&tokens, LockMode::Exclusive, LEASE + second));
    }
}
