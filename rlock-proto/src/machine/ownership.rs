//! An ownership: what the client has on the store, from the first request to the last reply, and what calls may do
//! with it.

mod answers;
mod count;
mod phase;
mod release;
mod renewals;
mod tries;

use std::time::Duration;

pub use self::phase::Phase;
pub(super) use self::renewals::Due;
use self::{
    count::Shown,
    phase::{Purpose, Status},
    renewals::Lease,
    tries::Tries,
};
use super::{
    Owner, SlotId,
    doubt::{Asked, Doubt, Report},
    hold::Hold,
    output::{Claimed, Loss, Output},
    standing::Standing,
    tokens::Tokens,
};
use crate::{
    key::Key, lease::Time, lost::LostCause, mode::LockMode, options::LockOptions, store::Grant,
};

/// A lock that the client has on the store, or asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ownership {
    /// The number of the owner, which is never used again.
    pub owner: Owner,
    /// The mode that the store knows.
    pub mode: LockMode,
    status: Status,
    standing: Standing,
    doubt: Doubt,
    tokens: Tokens,
    /// What the store last confirmed to show of it. The doubt knows whether that may have changed.
    shown: Shown,
    tries: Tries,
    /// Why it is lost. It never comes back, even if its hold may go on until it ends.
    lost: Option<LostCause>,
    lease: Lease,
}

impl Ownership {
    pub(super) fn new(owner: Owner, mode: LockMode, lease: Duration, tokens: u64) -> Self {
        Self {
            owner,
            mode,
            status: Status::Asking,
            standing: Standing::default(),
            doubt: Doubt::default(),
            tokens: Tokens::new(tokens),
            shown: Shown::when_granted(mode),
            tries: Tries::default(),
            lost: None,
            lease: Lease::new(lease),
        }
    }

    /// Returns the phase.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.status.phase()
    }

    /// Returns whether the store has granted the lock, and this client has neither lost nor released it.
    #[must_use]
    pub fn is_owned(&self) -> bool {
        match self.phase() {
            Phase::Held | Phase::Retained => true,
            Phase::HandedOver => self.lost.is_none(),
            Phase::Asking | Phase::Lost | Phase::Ended => false,
        }
    }

    /// Returns whether it is owned, and its lease has not ended.
    #[must_use]
    pub fn is_present(&self, now: Time) -> bool {
        self.is_owned() && !self.rest(now).is_zero()
    }

    /// Returns the present hold, or the last one. Returns `None` before the first.
    #[must_use]
    pub fn hold(&self) -> Option<&Hold> {
        self.status.hold()
    }

    pub(super) fn hold_mut(&mut self) -> Option<&mut Hold> {
        self.status.hold_mut()
    }

    /// Returns the token of the present hold, or of the last one.
    #[must_use]
    pub fn token(&self) -> Option<u64> {
        self.hold().map(|hold| hold.token)
    }

    /// Returns the mode of the present hold, or of the last one: a shared one may use an exclusive lock.
    #[must_use]
    pub fn used(&self) -> LockMode {
        self.hold().map_or(self.mode, |hold| hold.used)
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn entries(&self) -> u32 {
        self.hold().map_or(0, Hold::entries)
    }

    /// Returns whether an entry has not left.
    #[must_use]
    pub fn has(&self, number: u32) -> bool {
        self.hold().is_some_and(|hold| hold.has(number))
    }

    /// Returns how long the ownership is retained after the hold.
    pub(super) fn retain(&self) -> Duration {
        self.hold().map_or(Duration::ZERO, |hold| hold.retain)
    }

    /// Records when another client revoked the lock, or took it.
    pub(super) fn revoked(&mut self, now: Time) {
        if let Some(hold) = self.hold_mut() {
            hold.revoked_at = Some(now);
        }
    }

    /// Returns until when the hold is valid, or the cause if it is lost, or has ended by the clock.
    ///
    /// # Errors
    ///
    /// The cause of the loss.
    pub fn valid_until(&self, now: Time) -> Result<Time, LostCause> {
        match self.lost.or_else(|| self.timed_out(now)) {
            Some(cause) => Err(cause),
            None => Ok(self.time_limit().0),
        }
    }

    /// Returns how long it takes until at most half of the lease is left, or of the `max_hold` if that is shorter.
    #[must_use]
    pub fn expires_soon_in(&self, now: Time) -> Duration {
        let lease = self.lease.confirmed;
        let left = self.rest(now).saturating_sub(lease / 2);
        self.hold().map_or(left, |hold| {
            let most = hold.until.since(hold.since);
            left.min(hold.until.since(now).saturating_sub(lease.min(most) / 2))
        })
    }

    /// Returns the end of the lease or of the `max_hold`, whichever comes first, and its cause.
    pub(super) fn time_limit(&self) -> (Time, LostCause) {
        match &self.status {
            Status::Owned(hold, Purpose::Hold) | Status::Lost(hold)
                if hold.until <= self.lease.valid_until =>
            {
                (hold.until, LostCause::MaxHold)
            }
            _ => (self.lease.valid_until, LostCause::Expired),
        }
    }

    /// Returns the cause if the lease or the `max_hold` has ended.
    pub(super) fn timed_out(&self, now: Time) -> Option<LostCause> {
        let (limit, cause) = self.time_limit();
        (now >= limit).then_some(cause)
    }

    /// Returns the rest of its lease.
    #[must_use]
    pub fn rest(&self, now: Time) -> Duration {
        self.lease.valid_until.since(now)
    }

    /// Returns the cause if the hold was marked as lost.
    #[must_use]
    pub fn lost(&self) -> Option<LostCause> {
        self.lost
    }

    /// Returns whether the hold with this token has not ended. The ownership may have been passed on to another hold.
    #[must_use]
    pub fn is_live(&self, token: u64) -> bool {
        matches!(self.phase(), Phase::Held | Phase::Lost) && self.token() == Some(token)
    }

    /// Begins a hold with a grant of the store or of the hold before. Returns its first entry. Returns `None` if no token
    /// is left.
    pub(super) fn begin(
        &mut self,
        options: &LockOptions,
        runs_body: bool,
        grant: Grant,
        now: Time,
    ) -> Option<u32> {
        self.tokens.granted(grant);
        let Some(token) = self.tokens.take() else {
            self.doubt.reported(Report::Spent, now);
            return None;
        };
        let mut hold = Hold::new(options, token, self.hold(), now);
        let number = hold.add(options, None, runs_body, now);
        self.status.begin(hold);
        self.lease.begin(options.lease, grant);
        Some(number)
    }

    /// Returns whether a further call can join the shared ownership. It needs the same lease, because the renewals set only one.
    /// Both have a `max_hold` or neither has, because the hold ends for all of its calls at once.
    pub(super) fn may_join(&self, options: &LockOptions, now: Time) -> bool {
        let is_shared = self.used() == LockMode::Shared && options.mode == LockMode::Shared;
        let is_endless = self.hold().is_some_and(|hold| hold.until == Time::NEVER);
        let ends_alike = is_endless == options.max_hold.is_none();
        let is_sure = self.valid_until(now).is_ok() && self.doubt.admits_hold();
        self.phase() == Phase::Held && is_shared && ends_alike && is_sure && self.fits(options, now)
    }

    /// Returns whether the store would refuse another owner in this mode, because this lock is shared and the other would not be.
    pub(super) fn excludes(&self, mode: LockMode, now: Time) -> bool {
        let is_valid = self.valid_until(now).is_ok();
        is_valid && self.mode == LockMode::Shared && mode != LockMode::Shared
    }

    /// Returns where it stands at the store.
    pub(super) fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Returns the tokens of its next holds.
    pub(super) fn tokens(&self) -> &Tokens {
        &self.tokens
    }

    /// Asks for a new fence if the tokens run low.
    pub(super) fn run_low(&mut self) {
        self.tokens.run_low();
    }

    /// Asks for this lease at least: a call before may have asked for less.
    pub(super) fn ask_for(&mut self, lease: Duration) {
        if self.phase() == Phase::Asking {
            self.lease.ask_for(lease);
        }
    }

    /// Returns the grant, if the next hold may begin with it.
    pub(super) fn grant(&self) -> Option<Grant> {
        let may_begin = self.doubt.admits_hold() && self.lost.is_none();
        self.standing.grant().filter(|_| may_begin)
    }

    /// Leaves the lock to the next call of this client, with the lease that was confirmed last.
    pub(super) fn pass_on(&mut self) {
        let grant = self.lease.confirmed();
        self.standing.passed_on(grant);
        self.status.serve(Purpose::NextCall);
    }

    /// Retains the lock for a later call of this client.
    pub(super) fn retain_until(&mut self, end: Time) {
        self.status.serve(Purpose::Retention(end));
    }

    /// Returns until when it is retained.
    pub(super) fn retained_until(&self) -> Option<Time> {
        match self.status {
            Status::Owned(_, Purpose::Retention(until)) => Some(until),
            _ => None,
        }
    }

    /// Ends the retention at this time at the latest.
    pub(super) fn end_retention(&mut self, at: Time) {
        if let Status::Owned(_, Purpose::Retention(until)) = &mut self.status {
            *until = (*until).min(at);
        }
    }

    /// Returns whether a call with this lease that asks in this mode can use it, or ask for it: it is not lost, and its doubts admit
    /// the owner.
    pub(super) fn is_usable(&self, options: &LockOptions, mode: LockMode, now: Time) -> bool {
        let is_like = match self.phase() {
            Phase::Asking => mode == self.mode,
            Phase::HandedOver => {
                now < self.lease.valid_until
                    && options.lease == self.lease()
                    && mode.fits_grant(self.mode)
            }
            _ => return false,
        };
        is_like && self.lost.is_none() && self.doubt.admits_owner()
    }

    /// Returns whether this is the token of the present hold, or may be one of the grant that the next one begins with. `None` if
    /// neither is known.
    pub(super) fn may_have(&self, token: u64) -> Option<bool> {
        let has = |grant: Grant| self.tokens.have(token, grant.fence);
        let of_hold = self.token().map(|last| token == last);
        of_hold.or_else(|| self.standing.grant().map(has))
    }

    /// Returns whether a call with these options can follow the present hold. It needs the same lease, because the store would keep
    /// the lock for a longer one, and calls that share a hold have only one.
    pub(super) fn fits(&self, options: &LockOptions, now: Time) -> bool {
        let is_like =
            options.watchdog && options.lease == self.lease() && options.mode.fits_grant(self.mode);
        is_like && self.lease.is_fresh(now)
    }

    /// Returns whether nothing about it is in doubt, its lease will last for a while, and no holder has changed that.
    pub(super) fn is_certain(&self, now: Time) -> bool {
        let is_kept = !self.min_hold(now).is_zero();
        self.phase() == Phase::Held
            && self.lost.is_none()
            && self.doubt.admits_hold()
            && self.lease.is_fresh(now)
            && self.lease.is_as_granted()
            && !is_kept
    }

    /// Begins an acquire, and returns its part for this lock.
    pub(super) fn claim(&mut self, slot: SlotId, key: Key, takes_back: bool, now: Time) -> Claimed {
        let arrives = self.grant().is_none();
        self.standing.asks(now);
        self.claimed(Asked::Acquire { takes_back }, slot, key, arrives)
    }

    /// Returns the part of a request for this lock. `arrives`: whether the request may bring a grant.
    pub(super) fn claimed(
        &mut self,
        asked: Asked,
        slot: SlotId,
        key: Key,
        arrives: bool,
    ) -> Claimed {
        Claimed {
            slot,
            key,
            owner: self.owner,
            mode: self.mode,
            behind: self.doubt.sent(asked),
            arrives,
        }
    }

    /// Returns whether the store may know the owner: it has granted it the lock or queued it, or may yet.
    pub(super) fn concerns_store(&self) -> bool {
        self.standing.is_known() || self.doubt.needs_release()
    }

    /// Records that it is lost. Returns the report if a hold has lost the lock by that, or its release found that it had.
    pub(super) fn lose(&mut self, key: &Key, cause: LostCause) -> Option<Output> {
        let was_lost = self.lost.replace(self.lost.unwrap_or(cause)).is_some();
        let is_used = matches!(self.phase(), Phase::Held | Phase::Ended);
        let hold = self.hold().filter(|_| is_used && !was_lost)?;
        Some(Output::Lost(Box::new(Loss {
            key: key.clone(),
            owner: self.owner,
            mode: self.mode,
            site: hold.site,
            cause,
            lease: self.lease.confirmed,
            entries: hold.numbers(),
        })))
    }

    /// Ends the renewals, because it is lost. Its entries may remain.
    pub(super) fn drop_lost(&mut self) {
        self.status.lose();
    }

    /// Returns whether nothing is left to do, and no reply to come.
    pub(super) fn is_over(&self, now: Time) -> bool {
        let is_released =
            (self.status.release()).is_some_and(|release| release.is_over(&self.tries, now));
        is_released && !self.doubt.is_awaited() && self.entries() == 0
    }

    /// Returns when the background has to send a request about its count or its release.
    pub(super) fn request_due(&self, counts: bool) -> Time {
        let release = self.status.release();
        release.map_or_else(
            || self.count_due(counts),
            |release| release.due(&self.tries),
        )
    }

    /// Panics if the ownership is not consistent.
    pub(super) fn check(&self, now: Time) {
        let is = |is: bool, what: &str| assert!(is, "{what}: {self:#?}");
        let is_empty = self.entries() == 0;
        match self.phase() {
            Phase::Asking | Phase::HandedOver | Phase::Retained => {
                is(is_empty, "a hold has entries");
            }
            Phase::Held => is(!is_empty, "a hold has entries"),
            Phase::Lost => is(self.lost.is_some(), "the cause is known"),
            Phase::Ended => {}
        }
        self.hold().into_iter().for_each(Hold::check);
        is(
            self.used().fits_grant(self.mode) || self.mode.may_stand_for(self.used()),
            "the hold tolerates no more than the store",
        );
        if matches!(self.phase(), Phase::Held | Phase::Retained) {
            is(
                self.rest(now) <= self.lease(),
                "no lease ends later than the server's",
            );
        }
    }
}
