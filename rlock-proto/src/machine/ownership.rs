//! An ownership: a lock that the client has on the store, or asks for, from the first request to the last reply.
//!
//! | phase | next phases |
//! | --- | --- |
//! | `Asking`: no hold has begun | `Held` when one begins, `Ended` when it is given up |
//! | `Held` | `HandedOver` to the next local call, `Retained`, `Lost` (entries may remain), `Ended` |
//! | `HandedOver`: no hold | `Held` when the next hold begins, `Ended` |
//! | `Retained`: no hold | `HandedOver` to the next local call, `Lost`, `Ended` |
//! | `Lost`: no longer renewed | `Ended` |
//! | `Ended`: to be released, or released | none |

use std::time::Duration;

use super::{
    Context, Owner, Settings,
    count::{Count, Shown},
    hold::Hold,
    output::{Claimed, Loss, Renew},
    release::{Progress, Release},
    renewals::Lease,
    requests::Requests,
    tokens::Tokens,
};
use crate::{
    key::Key,
    lease::{Time, next_check},
    lost::LostCause,
    mode::LockMode,
    options::LockOptions,
    store::Grant,
};

/// A lock that the client has on the store, or asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ownership {
    /// The number of the owner, which is never used again.
    pub owner: Owner,
    /// The mode that the store knows.
    pub mode: LockMode,
    status: Status,
    pub(super) requests: Requests,
    pub(super) tokens: Tokens,
    pub(super) count: Count,
    pub(super) release: Release,
    /// A lost ownership never comes back.
    pub(super) lost: Option<LostCause>,
    pub(super) lease: Lease,
    /// How many acquires of the owner are under way.
    pub(super) asking: u8,
    /// When the schedule looks at it.
    pub(super) due: Option<Time>,
}

/// The state of an ownership, with the data of that state.
///
/// The record of a hold stays when the hold has ended. Another client may name its token, and observers see it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Status {
    /// The client asks for the lock, and no hold has begun.
    Asking,
    /// The client has the lock, for the present hold or after the last one.
    Owned(Hold, Purpose),
    /// The client no longer relies on the lock. No hold may have begun.
    Leaving(Option<Hold>, Exit),
}

/// What the client has the lock for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Purpose {
    Hold,
    /// The next call, which has the turn.
    NextCall,
    /// A later call, until then.
    Retention(Time),
}

/// How an ownership leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Exit {
    /// It is lost, and waits for its entries.
    Loss,
    /// It is released. Only the release of one that `ends_hold` can find a loss.
    Release { ends_hold: bool },
}

/// The phase of an ownership: its state without the data. The module draws the transitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// The client asks for the lock.
    Asking,
    /// A hold has left the lock to the next call of the client.
    HandedOver,
    /// A hold uses the lock.
    Held,
    /// The client keeps the lock for its next call.
    Retained,
    /// The client no longer relies on the lock.
    Lost,
    /// The lock is being released, or is released.
    Ended,
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// The lease or the `max_hold` has ended.
    Lost(LostCause),
    /// A renewal by this lease. Zero leaves the lease as it is: the reply shows whether the lock still exists.
    Renewal(Duration),
    Nothing,
}

impl Phase {
    /// Returns whether the next hold is to come: the call with the turn asks for the lock, or has it.
    #[must_use]
    pub fn is_pending(self) -> bool {
        matches!(self, Self::Asking | Self::HandedOver)
    }

    /// Returns whether an ownership in this phase may enter the next one.
    fn may_become(self, next: Self) -> bool {
        use Phase::{Asking, Ended, HandedOver, Held, Lost, Retained};
        match self {
            Asking | HandedOver => matches!(next, Held | Ended),
            Held => matches!(next, HandedOver | Retained | Lost | Ended),
            Retained => matches!(next, HandedOver | Lost | Ended),
            Lost => matches!(next, Ended),
            Ended => false,
        }
    }
}

impl Status {
    fn hold(&self) -> Option<&Hold> {
        match self {
            Self::Asking => None,
            Self::Owned(hold, _) => Some(hold),
            Self::Leaving(hold, _) => hold.as_ref(),
        }
    }

    fn hold_mut(&mut self) -> Option<&mut Hold> {
        match self {
            Self::Asking => None,
            Self::Owned(hold, _) => Some(hold),
            Self::Leaving(hold, _) => hold.as_mut(),
        }
    }

    fn serve(&mut self, next: Purpose) {
        if let Self::Owned(_, purpose) = self {
            *purpose = next;
        }
    }

    fn leave(&mut self, exit: Exit) {
        let hold = match std::mem::replace(self, Self::Asking) {
            Self::Asking => None,
            Self::Owned(hold, _) => Some(hold),
            Self::Leaving(hold, _) => hold,
        };
        *self = Self::Leaving(hold, exit);
    }
}

impl Ownership {
    pub(super) fn new(owner: Owner, mode: LockMode, lease: Duration, tokens: u64) -> Self {
        Self {
            owner,
            mode,
            status: Status::Asking,
            requests: Requests::default(),
            tokens: Tokens::new(tokens),
            count: Count::new(mode),
            release: Release::default(),
            lost: None,
            lease: Lease::new(lease),
            asking: 0,
            due: None,
        }
    }

    /// Returns the phase.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self.status {
            Status::Asking => Phase::Asking,
            Status::Owned(_, Purpose::Hold) => Phase::Held,
            Status::Owned(_, Purpose::NextCall) => Phase::HandedOver,
            Status::Owned(_, Purpose::Retention(_)) => Phase::Retained,
            Status::Leaving(_, Exit::Loss) => Phase::Lost,
            Status::Leaving(_, Exit::Release { .. }) => Phase::Ended,
        }
    }

    /// Enters another phase. No other function does.
    fn change(&mut self, change: impl FnOnce(&mut Status)) {
        let was = self.phase();
        change(&mut self.status);
        debug_assert!(was.may_become(self.phase()), "from {was:?}: {self:?}");
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
        self.is_owned() && now < self.lease.valid_until
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

    /// Returns how many entries there are besides one.
    pub(super) fn others(&self) -> u32 {
        self.entries().saturating_sub(1)
    }

    /// Returns how long the ownership is retained after the hold.
    pub(super) fn retain(&self) -> Duration {
        self.hold().map_or(Duration::ZERO, |hold| hold.retain)
    }

    /// Notes that another client revoked the lock, or took it.
    pub(super) fn revoked(&mut self, now: Time) {
        if let Some(hold) = self.hold_mut() {
            hold.revoked_at = Some(now);
        }
    }

    /// Returns the end of the present hold by its `max_hold`.
    pub(super) fn hold_until(&self) -> Time {
        match &self.status {
            Status::Owned(hold, Purpose::Hold) | Status::Leaving(Some(hold), Exit::Loss) => {
                hold.until
            }
            _ => Time::NEVER,
        }
    }

    /// Returns until when the hold is valid, or the cause if it is lost, or has ended by the clock.
    ///
    /// # Errors
    ///
    /// The cause of the loss.
    pub fn valid_until(&self, now: Time) -> Result<Time, LostCause> {
        match self.lost.or_else(|| self.ended_by_clock(now)) {
            Some(cause) => Err(cause),
            None => Ok(self.lease.valid_until.min(self.hold_until())),
        }
    }

    /// Returns the cause if the lease or the `max_hold` has ended. The earlier end counts.
    pub(super) fn ended_by_clock(&self, now: Time) -> Option<LostCause> {
        let (end, cause) = if self.hold_until() <= self.lease.valid_until {
            (self.hold_until(), LostCause::MaxHold)
        } else {
            (self.lease.valid_until, LostCause::Expired)
        };
        (now >= end).then_some(cause)
    }

    /// Returns the rest of its lease.
    #[must_use]
    pub fn left(&self, now: Time) -> Duration {
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
        (terms, mode): (&LockOptions, LockMode),
        grant: Grant,
        now: Time,
    ) -> Option<u32> {
        self.tokens.granted(grant);
        let Some(token) = self.tokens.take() else {
            self.requests.retire();
            return None;
        };
        let mut hold = Hold::new((terms, mode), token, self.hold(), now);
        let number = hold.add(terms, None, now);
        self.change(|status| *status = Status::Owned(hold, Purpose::Hold));
        self.lease.begin(terms.lease, grant);
        Some(number)
    }

    /// Makes the exclusive lock a shared one. The background tells the store.
    pub(super) fn downgrade(&mut self, now: Time) {
        self.mode = LockMode::Shared;
        if let Some(hold) = self.hold_mut() {
            hold.used = LockMode::Shared;
        }
        self.count.is_urgent(now);
    }

    /// Returns whether a further call can join the shared ownership. With another lease it cannot: the renewals set one.
    /// Without a `max_hold` it cannot join one that has an end.
    pub(super) fn may_join(&self, terms: &LockOptions, mode: LockMode, now: Time) -> bool {
        let is_shared = self.used() == LockMode::Shared && mode == LockMode::Shared;
        let ends_alike = (self.hold_until() == Time::NEVER) == terms.max_hold.is_none();
        let is_sure = self.valid_until(now).is_ok() && !self.lease.is_doubted();
        self.phase() == Phase::Held
            && is_shared
            && ends_alike
            && is_sure
            && self.fits(terms, mode, now)
    }

    /// Doubts it from now on, until a later request confirms it. A renewal does so at once if it `is_checked`.
    pub(super) fn doubt(&mut self, is_checked: bool, now: Time) {
        if !matches!(self.phase(), Phase::Lost | Phase::Ended) {
            self.lease.doubt(is_checked, now);
        }
    }

    /// Applies a grant of the store. Returns `None` if the same owner had the lock and lost it, because holds of that
    /// time may remain. The grant is not used then.
    pub(super) fn granted(&mut self, grant: Grant) -> Option<Grant> {
        let is_again = self.tokens.are_before(grant.fence);
        self.requests.granted(grant);
        self.lease.end_doubt(grant.since);
        if is_again {
            self.requests.retire();
        }
        (!is_again).then_some(grant)
    }

    /// Returns the grant, if the next hold may use it: it has to confirm an ownership in doubt.
    pub(super) fn grant(&self) -> Option<Grant> {
        let is_doubted = self.lease.is_doubted() || self.requests.is_retired();
        self.requests
            .grant()
            .filter(|_| !is_doubted && self.lost.is_none())
    }

    /// Leaves it to the next call of this client, as it was confirmed last.
    pub(super) fn pass_on(&mut self) {
        let grant = self.lease.confirmed();
        self.requests.passed_on(grant);
        self.change(|status| status.serve(Purpose::NextCall));
    }

    /// Keeps it for a later call of this client.
    pub(super) fn retain_until(&mut self, end: Time) {
        self.change(|status| status.serve(Purpose::Retention(end)));
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

    /// Returns whether a call with this lease can use it, or ask for it: it is not lost, and will not be rolled back.
    pub(super) fn is_usable(&self, lease: Duration, mode: LockMode, now: Time) -> bool {
        let is_like = match self.phase() {
            Phase::Asking => mode == self.mode,
            Phase::HandedOver => {
                now < self.lease.valid_until
                    && lease == self.lease.full
                    && mode.fits_grant(self.mode)
            }
            _ => return false,
        };
        is_like && self.lost.is_none() && !self.requests.is_retired()
    }

    /// Returns whether this may be the token of the present hold, or of the grant that the next one begins with.
    pub(super) fn may_have(&self, token: u64) -> bool {
        let has = |grant: Grant| self.tokens.have(token, grant.fence);
        let is_next = || self.requests.grant().is_none_or(has);
        self.token().map_or_else(is_next, |last| token == last)
    }

    /// Returns whether a call with these options can follow the present hold. With another lease it cannot: a late renewal
    /// would set the old one.
    pub(super) fn fits(&self, terms: &LockOptions, mode: LockMode, now: Time) -> bool {
        let is_like =
            terms.watchdog && terms.lease == self.lease.full && mode.fits_grant(self.mode);
        is_like && self.lease.is_fresh(now)
    }

    /// Returns whether nothing about it is in doubt, and its lease will last for a while.
    pub(super) fn is_certain(&self, now: Time) -> bool {
        let is_kept = !self.min_hold(now).is_zero();
        self.phase() == Phase::Held
            && self.lost.is_none()
            && !self.lease.is_doubted()
            && self.lease.is_fresh(now)
            && !is_kept
            && !self.requests.is_in_doubt()
    }

    /// Begins an acquire, and returns its part for this lock.
    pub(super) fn claim(&mut self, key: Key, rolls_back: bool, now: Time) -> Claimed {
        let claimed = Claimed {
            key,
            owner: self.owner,
            mode: self.mode,
            arrives: self.grant().is_none(),
            in_doubt: self.requests.is_in_doubt(),
        };
        self.asking += 1;
        self.requests.begin(rolls_back, now);
        claimed
    }

    /// Returns what is told about the loss of its hold.
    pub(super) fn loss(&self, key: &Key, hold: &Hold, cause: LostCause) -> Loss {
        Loss {
            key: key.clone(),
            owner: self.owner,
            mode: self.mode,
            site: hold.site,
            cause,
            lease: self.lease.confirmed,
            entries: hold.numbers(),
        }
    }

    /// Ends the renewals, because it is lost. Its entries may remain.
    pub(super) fn drop_lost(&mut self) {
        self.change(|status| status.leave(Exit::Loss));
    }

    /// Returns whether a hold ended with it.
    pub(super) fn ends_hold(&self) -> bool {
        matches!(
            self.status,
            Status::Leaving(_, Exit::Release { ends_hold: true })
        )
    }

    /// Releases again after a late reply to an acquire: the release may have been executed before.
    pub(super) fn release_again(&mut self, now: Time) {
        if self.release.progress == Progress::Confirmed {
            debug_assert_eq!(self.phase(), Phase::Ended, "{self:?}");
            self.release.progress = Progress::Unsent;
            // Its hold has ended well.
            self.status.leave(Exit::Release { ends_hold: false });
            self.release.begin(now, now + self.lease.full);
        }
    }

    /// Ends it: from now on it is released.
    pub(super) fn end(&mut self, now: Time) {
        let ends_hold = self.phase() == Phase::Held;
        self.change(|status| status.leave(Exit::Release { ends_hold }));
        self.release.begin(now, now + self.lease.full);
    }

    /// Returns what the store should show, while this client has the lock. `counts`: whether the store counts nested entries.
    pub(super) fn shows(&self, counts: bool) -> Option<Shown> {
        match &self.status {
            // A lock that is lost is not extended any more.
            _ if self.lost.is_some() => None,
            Status::Owned(_, Purpose::Hold | Purpose::Retention(_))
                if self.mode != LockMode::Exclusive =>
            {
                Some(Shown::Shared)
            }
            // The store does not count the calls that share a hold.
            Status::Owned(hold, Purpose::Hold) if counts && hold.used == LockMode::Exclusive => {
                Some(Shown::Count(hold.entries()))
            }
            Status::Owned(_, Purpose::Hold | Purpose::Retention(_)) => Some(Shown::Count(1)),
            // It may be released before a call uses it.
            Status::Owned(_, Purpose::NextCall) | Status::Asking | Status::Leaving(..) => None,
        }
    }

    /// Returns whether the store is known to show the entries of the hold. `counts`: whether it counts nested ones.
    #[must_use]
    pub fn is_told(&self, counts: bool) -> bool {
        let shows = self.shows(counts);
        shows.is_none_or(|shows| self.count.is_told(shows))
    }

    /// Returns whether it is being released, and the store may still have the lock.
    #[must_use]
    pub fn is_releasing(&self) -> bool {
        self.phase() == Phase::Ended && self.release.progress != Progress::Confirmed
    }

    /// Returns the last known fence, if the store may lack it or forget it soon, or 0.
    pub(super) fn fence_to_pass(&self, cx: &Context) -> u64 {
        // Other members of a quorum may lack the fence.
        let is_needed =
            cx.settings.needs_majority || self.tokens.may_be_forgotten(self.mode, cx.now);
        if is_needed { self.tokens.fence() } else { 0 }
    }

    /// Returns whether nothing is left to do, and no reply to come.
    pub(super) fn is_over(&self) -> bool {
        let is_released = !self.is_releasing() && !self.release.is_under_way();
        self.phase() == Phase::Ended && is_released && self.asking == 0 && self.entries() == 0
    }

    /// Returns how long the lock stays taken after its release.
    pub(super) fn min_hold(&self, now: Time) -> Duration {
        let until = self.hold().and_then(|hold| hold.min_hold_until);
        until.map_or(Duration::ZERO, |until| until.since(now))
    }

    /// Returns what is due.
    pub(super) fn come_due(&self, now: Time) -> Due {
        let (end, due) = self.end_by_clock();
        match self.renewal(now) {
            _ if now >= end => due,
            Some(lease) if now >= self.renewal_due(now) => Due::Renewal(lease),
            _ => Due::Nothing,
        }
    }

    /// Returns when the hold or the ownership ends by the clock, and how, if that was not noticed yet.
    fn end_by_clock(&self) -> (Time, Due) {
        let end = self.lease.valid_until;
        match &self.status {
            Status::Owned(hold, Purpose::Hold) if self.lost.is_none() && hold.until <= end => {
                (hold.until, Due::Lost(LostCause::MaxHold))
            }
            Status::Owned(_, Purpose::Retention(until)) if *until < end => (*until, Due::Nothing),
            Status::Owned(_, Purpose::Hold | Purpose::Retention(_)) => {
                (end, Due::Lost(LostCause::Expired))
            }
            Status::Asking | Status::Owned(_, Purpose::NextCall) | Status::Leaving(..) => {
                (Time::NEVER, Due::Nothing)
            }
        }
    }

    /// Returns when the schedule has to look at it.
    pub(super) fn next_due(&self, now: Time, counts: bool) -> Time {
        let (end, _) = self.end_by_clock();
        let renewal = self.renewal(now).map(|_| self.renewal_due(now));
        let due = end.min(renewal.unwrap_or(Time::NEVER));
        next_check(due.min(self.request_due(counts)), now)
    }

    /// Returns when the background has to send a request about its count or its release.
    pub(super) fn request_due(&self, counts: bool) -> Time {
        match self.shows(counts) {
            Some(shows) => self.count.due(shows),
            None if self.is_releasing() => self.release.due(),
            None => Time::NEVER,
        }
    }

    /// Returns the lease of the next renewal: zero for a hold that is in doubt and not renewed.
    fn renewal(&self, now: Time) -> Option<Duration> {
        match &self.status {
            Status::Owned(hold, Purpose::Hold) if hold.wants_renewals() && now < hold.until => {
                Some(self.lease.full)
            }
            Status::Owned(_, Purpose::Hold) => self.lease.is_doubted().then_some(Duration::ZERO),
            Status::Owned(_, Purpose::Retention(_)) => Some(self.lease.full),
            // A caller that is not polled must not keep the lock.
            Status::Asking | Status::Owned(_, Purpose::NextCall) | Status::Leaving(..) => None,
        }
    }

    fn renewal_due(&self, now: Time) -> Time {
        self.lease.renewal_due(self.tokens.is_fence_due(), now)
    }

    /// Begins a renewal by this lease. It carries what a member of a quorum needs that lacks the lock.
    pub(super) fn begin_renewal(
        &mut self,
        key: Key,
        lease: Duration,
        settings: &Settings,
        now: Time,
    ) -> Renew {
        self.lease.renewal_sent = Some(now);
        let fence = self.tokens.ask();
        let keeps_fence =
            fence == 0 && (self.tokens).ask_to_keep(lease, settings.fence_retention, now);
        let is_needed = keeps_fence || settings.needs_majority;
        let is_counted = is_needed && settings.counts_entries && self.used() == LockMode::Exclusive;
        Renew {
            fence,
            last_fence: if is_needed { self.tokens.fence() } else { 0 },
            keeps_fence,
            count: if is_counted { self.entries().max(1) } else { 1 },
            key,
            owner: self.owner,
            mode: self.mode,
            lease,
            confirmed: self.lease.confirmed,
            left: self.left(now),
        }
    }

    /// Notes that an entry comes or has left. The client tells the store soon.
    pub(super) fn entries_change(&mut self, now: Time) {
        let left = self.left(now);
        self.count.changes(now, left);
    }

    /// Notes that the store keeps the lock for this lease at least, because of a count sent at `sent_at`. That puts no
    /// renewal off, because only renewals show that others wait, and make a quorum restore the lock.
    pub(super) fn kept(&mut self, sent_at: Time, lease: Duration, now: Time) {
        if self.has_lease(now) {
            self.lease.extend(sent_at, lease);
        }
    }

    /// Returns whether the lease has not ended. A late reply does not revive it, because other owners may have had the lock since.
    fn has_lease(&self, now: Time) -> bool {
        now < self.lease.valid_until
    }

    /// Confirms the lease and the new fence that the store granted to a renewal sent at `sent_at`.
    pub(super) fn renewed(&mut self, sent_at: Time, lease: Duration, fence: u64, now: Time) {
        if self.has_lease(now) {
            self.lease.confirm(sent_at, lease);
            self.tokens.renewed(fence, sent_at, lease);
            self.tokens.kept(sent_at, lease);
            if let Some(hold) = self.hold_mut() {
                hold.renewals = hold.renewals.saturating_add(1);
            }
            self.lease.renewal_sent = None;
        }
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
            self.used().fits_grant(self.mode) || self.used() == self.mode,
            "the hold tolerates no more than the store",
        );
        if matches!(self.phase(), Phase::Held | Phase::Retained) {
            let left = self.lease.valid_until.since(now);
            is(
                left <= self.lease.full,
                "no lease ends later than the server's",
            );
        }
    }
}
