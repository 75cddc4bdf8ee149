//! An ownership: a lock that the client has on the store, or asks for, from the first request to the last reply.
//!
//! | phase | next phases |
//! | --- | --- |
//! | `Requested` | `Held` when a hold begins, `Ended` when it is given up |
//! | `Held` | `Requested` for the next local call, `Retained`, `Lost` (entries may remain), `Ended` |
//! | `Retained`: no hold | `Requested` for the next local call, `Lost`, `Ended` |
//! | `Lost`: no longer renewed | `Ended` |
//! | `Ended`: to be released, or released | none |

use std::time::Duration;

use smallvec::SmallVec;

use super::{
    Owner,
    count::Count,
    output::{Claimed, Loss},
    requests::Requests,
    tokens::Tokens,
};
use crate::{
    key::Key,
    lease::{Time, valid_until},
    lost::LostCause,
    mode::Mode,
    options::{LockOptions, Site},
    store::Grant,
};

/// A lock that the client has on the store, or asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ownership {
    /// The number of the owner, which is never used again.
    pub owner: Owner,
    /// The mode that the store knows, and that of the present hold: a shared one may use an exclusive lock.
    pub mode: Mode,
    /// The mode of the present hold.
    pub used: Mode,
    phase: Phase,
    pub(super) requests: Requests,
    pub(super) tokens: Tokens,
    /// How often the lease of the present hold was renewed.
    pub renewals: u32,
    /// When the latest renewal was sent, until the store confirms one. The next attempt follows after a pause.
    pub(super) renewal_sent: Option<Time>,
    pub(super) count: Count,
    /// The token of the present hold, or of the last one; 0 before the first.
    pub token: u64,
    /// Where and when the hold began.
    pub site: Site,
    /// When the hold began.
    pub since: Time,
    entries: SmallVec<[Present; 2]>,
    /// The number of the next entry.
    number: u32,
    /// Whether a hold ended with it. Only the release of such an ownership can find a loss.
    pub(super) ends_hold: bool,
    /// A lost ownership never comes back.
    pub(super) lost: Option<LostCause>,
    /// When another client asked for the lock, or took it.
    pub revoked_at: Option<Time>,
    /// The lease of its holds, and of all its renewals. Nested calls share it.
    pub(super) lease: Duration,
    /// The last lease that the store confirmed as the TTL, and when its request was sent.
    pub(super) confirmed_lease: Duration,
    pub(super) confirmed_at: Time,
    pub(super) valid_until: Time,
    /// The end of the present hold by its `max_hold`.
    pub(super) hold_until: Time,
    /// When a change by another client was reported, or reports stopped, or a request failed, until a later request
    /// confirms the ownership.
    pub(super) doubted_at: Option<Time>,
    /// Whether the next renewal is due because of a doubt.
    pub(super) is_checked: bool,
    /// Until when the lock stays taken after its last entry, because of the entries that have succeeded.
    pub(super) min_hold_until: Option<Time>,
    /// How long the ownership is retained after the hold, and the end of the retention.
    pub(super) retain: Duration,
    pub(super) retained_until: Time,
    /// How many acquires of the owner are under way.
    pub(super) asking: u8,
    /// When the schedule looks at it.
    pub(super) due: Option<Time>,
}

/// The phase of an ownership; the module draws the transitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// The client asks for the lock, or has it for the next local call.
    Requested,
    /// A hold uses the lock.
    Held,
    /// The client keeps the lock for its next call.
    Retained,
    /// The client no longer relies on the lock.
    Lost,
    /// The lock is being released, or is released.
    Ended,
}

/// An entry of the present hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Present {
    number: u32,
    /// The first entry of its hold. In a shared ownership, each call that joins has a hold of its own.
    first: u32,
    /// Whether it wants renewals.
    renewed: bool,
    /// Whether a body runs inside, which a loss stops.
    in_body: bool,
    /// Until when the lock stays taken if the entry succeeds.
    min_hold_until: Option<Time>,
}

impl Ownership {
    pub(super) fn new(owner: Owner, mode: Mode, lease: Duration, tokens: u64) -> Self {
        Self {
            owner,
            mode,
            used: mode,
            phase: Phase::Requested,
            requests: Requests::default(),
            tokens: Tokens::new(tokens),
            renewals: 0,
            renewal_sent: None,
            count: Count::default(),
            token: 0,
            site: Site::default(),
            since: Time::default(),
            entries: SmallVec::new(),
            number: 0,
            ends_hold: false,
            lost: None,
            revoked_at: None,
            lease,
            confirmed_lease: lease,
            confirmed_at: Time::default(),
            valid_until: Time::default(),
            hold_until: Time::NEVER,
            doubted_at: None,
            is_checked: false,
            min_hold_until: None,
            retain: Duration::ZERO,
            retained_until: Time::default(),
            asking: 0,
            due: None,
        }
    }

    /// Returns the phase.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Enters a phase. No other function changes it.
    pub(super) fn enter_phase(&mut self, next: Phase) {
        use Phase::{Ended, Held, Lost, Requested, Retained};
        let is_legal = match self.phase {
            Requested => matches!(next, Held | Ended),
            Held => matches!(next, Requested | Retained | Lost | Ended),
            Retained => matches!(next, Requested | Lost | Ended),
            Lost => matches!(next, Ended),
            Ended => false,
        };
        debug_assert!(is_legal, "{:?} to {next:?}: {self:?}", self.phase);
        self.phase = next;
    }

    /// Returns whether the store has granted the lock, and this client has neither lost nor released it.
    #[must_use]
    pub fn is_owned(&self) -> bool {
        match self.phase {
            Phase::Held | Phase::Retained => true,
            Phase::Requested => self.token > 0 && self.lost.is_none(),
            Phase::Lost | Phase::Ended => false,
        }
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn entries(&self) -> u32 {
        u32::try_from(self.entries.len()).unwrap_or(u32::MAX)
    }

    /// Returns until when the hold is valid, or the cause if it is lost, or has ended by the clock.
    ///
    /// # Errors
    ///
    /// The cause of the loss.
    pub fn valid_until(&self, now: Time) -> Result<Time, LostCause> {
        match self.lost.or_else(|| self.ended_by_clock(now)) {
            Some(cause) => Err(cause),
            None => Ok(self.valid_until.min(self.hold_until)),
        }
    }

    /// Returns the cause if the lease or the `max_hold` has ended. The earlier end counts.
    pub(super) fn ended_by_clock(&self, now: Time) -> Option<LostCause> {
        let (end, cause) = if self.hold_until <= self.valid_until {
            (self.hold_until, LostCause::MaxHold)
        } else {
            (self.valid_until, LostCause::Expired)
        };
        (now >= end).then_some(cause)
    }

    /// Returns the rest of its lease.
    #[must_use]
    pub fn left(&self, now: Time) -> Duration {
        self.valid_until.since(now)
    }

    /// Returns the cause if the hold was marked as lost.
    #[must_use]
    pub fn lost(&self) -> Option<LostCause> {
        self.lost
    }

    /// Returns whether the hold with this token has not ended. The ownership may have been passed on to another hold.
    #[must_use]
    pub fn is_live(&self, token: u64) -> bool {
        matches!(self.phase, Phase::Held | Phase::Lost) && self.token == token
    }

    /// Begins a hold with a grant of the store or of the hold before. Returns its first entry. Returns `None` if no token
    /// is left.
    pub(super) fn begin(
        &mut self,
        (terms, mode): (&LockOptions, Mode),
        grant: Grant,
        now: Time,
    ) -> Option<u32> {
        self.tokens.granted(grant);
        let Some(token) = self.tokens.take() else {
            self.requests.retire();
            return None;
        };
        (self.token, self.used) = (token, mode);
        (self.site, self.since, self.lease) = (terms.site, now, terms.lease);
        (self.renewals, self.revoked_at) = (0, None);
        self.enter_phase(Phase::Held);
        self.confirmed_lease = grant.ttl.min(terms.lease);
        self.confirmed_at = grant.since;
        self.valid_until = valid_until(grant.since, self.confirmed_lease);
        self.end_doubt(grant.since);
        (self.min_hold_until, self.retain) = (None, Duration::ZERO);
        self.hold_until = terms.max_hold.map_or(Time::NEVER, |most| now + most);
        self.count.known = Some(1);
        Some(self.add(terms, None, now))
    }

    /// Adds an entry: the first one of a hold, or one in the same hold as this entry. Returns its number.
    pub(super) fn add(&mut self, terms: &LockOptions, beside: Option<u32>, now: Time) -> u32 {
        self.retain = self.retain.max(terms.retain);
        // That entry may have left. All entries of an exclusive lock are in one hold.
        let of_any = || Some(self.entries.first()?.first);
        let first = beside.and_then(|number| match self.first(number) {
            None if self.used == Mode::Exclusive => of_any(),
            first => first,
        });
        let min_hold_until = terms.min_hold.map(|least| now + least);
        self.add_entry(first, terms.watchdog, false, min_hold_until)
    }

    fn add_entry(
        &mut self,
        first: Option<u32>,
        renewed: bool,
        in_body: bool,
        min_hold_until: Option<Time>,
    ) -> u32 {
        let number = self.number;
        self.number += 1;
        self.entries.push(Present {
            number,
            first: first.unwrap_or(number),
            renewed,
            in_body,
            min_hold_until,
        });
        number
    }

    /// Makes the exclusive lock a shared one. The next count informs the store.
    pub(super) fn downgrade(&mut self, now: Time) {
        (self.mode, self.used) = (Mode::Shared, Mode::Shared);
        self.count.known = None;
        self.count.restart(now, Time::NEVER);
    }

    /// Returns whether a further call can join the shared ownership. With another lease it cannot: the renewals set one.
    /// Without a `max_hold` it cannot join one that has an end.
    pub(super) fn may_join(&self, terms: &LockOptions, mode: Mode, now: Time) -> bool {
        let is_shared = self.used == Mode::Shared && mode == Mode::Shared;
        let ends_alike = (self.hold_until == Time::NEVER) == terms.max_hold.is_none();
        let is_sure = self.valid_until(now).is_ok() && self.doubted_at.is_none();
        self.phase == Phase::Held
            && is_shared
            && ends_alike
            && is_sure
            && self.fits(terms, mode, now)
    }

    /// Adds the first entry of a call that joins the shared ownership, which then ends by the latest `max_hold`.
    pub(super) fn join(&mut self, terms: &LockOptions, now: Time) -> u32 {
        let until = terms.max_hold.map_or(Time::NEVER, |most| now + most);
        self.hold_until = self.hold_until.max(until);
        self.add(terms, None, now)
    }

    /// Returns the first entry of the hold that this entry is in.
    pub(super) fn first(&self, number: u32) -> Option<u32> {
        let entry = self.entries.iter().find(|entry| entry.number == number)?;
        Some(entry.first)
    }

    /// Returns the first entries of all holds.
    pub(super) fn firsts(&self) -> SmallVec<[u32; 1]> {
        let mut firsts: SmallVec<[u32; 1]> = self.entries.iter().map(|entry| entry.first).collect();
        firsts.sort_unstable();
        firsts.dedup();
        firsts
    }

    /// Begins the renewals that an entry wants, because its call was polled.
    pub(super) fn pick_up(&mut self, number: u32, renewed: bool) {
        let mut entries = self.entries.iter_mut();
        if let Some(entry) = entries.find(|entry| entry.number == number) {
            entry.renewed = renewed;
        }
    }

    /// Adds an entry with the renewal of a present one, for work that a loss does not stop. Returns `None` if that entry
    /// has left.
    pub(super) fn keep(&mut self, number: u32) -> Option<u32> {
        let entry = self.entries.iter().find(|entry| entry.number == number)?;
        let (first, renewed) = (entry.first, entry.renewed);
        Some(self.add_entry(Some(first), renewed, true, None))
    }

    /// Marks that a body runs inside an entry. The body stops when the ownership is lost.
    pub(super) fn runs_body(&mut self, number: u32) {
        let mut entries = self.entries.iter_mut();
        if let Some(entry) = entries.find(|entry| entry.number == number) {
            entry.in_body = true;
        }
    }

    /// Returns whether a body runs inside.
    #[must_use]
    pub fn has_body(&self) -> bool {
        self.entries.iter().any(|entry| entry.in_body)
    }

    /// Returns whether an entry has not left.
    #[must_use]
    pub fn has(&self, number: u32) -> bool {
        self.entries.iter().any(|entry| entry.number == number)
    }

    /// Removes an entry, whose `min_hold` counts if it has succeeded. Returns the first one of its hold, if that has no
    /// other entry.
    pub(super) fn remove(&mut self, number: u32, has_succeeded: bool) -> Option<u32> {
        let at = self
            .entries
            .iter()
            .position(|entry| entry.number == number)?;
        let Present {
            first,
            min_hold_until,
            ..
        } = self.entries.remove(at);
        if has_succeeded {
            self.min_hold_until = self.min_hold_until.max(min_hold_until);
        }
        let is_last = self.entries.iter().all(|entry| entry.first != first);
        is_last.then_some(first)
    }

    pub(super) fn wants_renewals(&self) -> bool {
        self.entries.iter().any(|entry| entry.renewed)
    }

    /// Notes that the store confirmed this lease for a request sent at `sent_at`.
    pub(super) fn confirm(&mut self, sent_at: Time, lease: Duration) {
        // Both from one request, because replies may overtake each other: the one whose lease ends last.
        if sent_at + lease >= self.confirmed_at + self.confirmed_lease && !lease.is_zero() {
            (self.confirmed_lease, self.confirmed_at) = (lease, sent_at);
        }
        self.valid_until = self.valid_until.max(valid_until(sent_at, lease));
        self.end_doubt(sent_at);
    }

    /// Doubts it from now on, until a later request confirms it. A renewal does so at once if it `is_checked`.
    pub(super) fn doubt(&mut self, is_checked: bool, now: Time) {
        if !matches!(self.phase, Phase::Lost | Phase::Ended) {
            self.doubted_at = Some(now);
            self.is_checked |= is_checked;
        }
    }

    /// Ends a doubt that is older than a request which the store confirmed.
    pub(super) fn end_doubt(&mut self, sent_at: Time) {
        self.doubted_at = self.doubted_at.filter(|doubted_at| *doubted_at >= sent_at);
        self.is_checked &= self.doubted_at.is_some();
    }

    /// Applies a grant of the store. Returns `None` if the same owner had the lock and lost it, because holds of that
    /// time may remain. The grant is not used then.
    pub(super) fn granted(&mut self, grant: Grant) -> Option<Grant> {
        let is_again = self.tokens.are_before(grant.fence);
        self.requests.granted(grant);
        self.end_doubt(grant.since);
        if is_again {
            self.requests.retire();
        }
        (!is_again).then_some(grant)
    }

    /// Returns the grant, if the next hold may use it: it has to confirm an ownership in doubt.
    pub(super) fn grant(&self) -> Option<Grant> {
        let is_doubted = self.doubted_at.is_some() || self.requests.is_retired();
        self.requests
            .grant()
            .filter(|_| !is_doubted && self.lost.is_none())
    }

    /// Returns the ownership as it was confirmed last.
    pub(super) fn confirmed(&self) -> Grant {
        Grant {
            fence: 0,
            since: self.confirmed_at,
            ttl: self.confirmed_lease,
            wanted: false,
        }
    }

    /// Leaves it to the next call of this client, as it was confirmed last.
    pub(super) fn pass_on(&mut self) {
        let grant = self.confirmed();
        self.requests.passed_on(grant);
        self.enter_phase(Phase::Requested);
    }

    /// Returns whether a call with this lease can use it, or ask for it: it is not lost, and will not be rolled back.
    pub(super) fn is_usable(&self, lease: Duration, mode: Mode, now: Time) -> bool {
        let is_valid = if self.token == 0 {
            mode == self.mode
        } else {
            now < self.valid_until && lease == self.lease && mode.fits_grant(self.mode)
        };
        let is_possible = self.lost.is_none() && !self.requests.is_retired();
        self.phase == Phase::Requested && is_valid && is_possible
    }

    /// Returns whether this may be the token of the present hold, or of the grant that the next one begins with.
    pub(super) fn may_have(&self, token: u64) -> bool {
        match self.phase {
            Phase::Requested if self.token == 0 => {
                let grant = self.requests.grant();
                grant.is_none_or(|grant| self.tokens.have(token, grant.fence))
            }
            _ => token == self.token,
        }
    }

    /// Returns whether a call with these options can follow the present hold. With another lease it cannot: a late renewal
    /// would set the old one.
    pub(super) fn fits(&self, terms: &LockOptions, mode: Mode, now: Time) -> bool {
        let is_like = terms.watchdog && terms.lease == self.lease && mode.fits_grant(self.mode);
        is_like && self.confirmed().is_fresh(terms.lease, now)
    }

    /// Returns whether nothing about it is in doubt, and its lease will last for a while.
    pub(super) fn is_certain(&self, now: Time) -> bool {
        let is_kept = self.min_hold_until.is_some_and(|until| until > now);
        self.phase == Phase::Held
            && self.lost.is_none()
            && self.doubted_at.is_none()
            && self.confirmed().is_fresh(self.lease, now)
            && !is_kept
            && self.count.is_settled(1)
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

    /// Returns what is told about its loss.
    pub(super) fn loss(&self, key: &Key, cause: LostCause) -> Loss {
        Loss {
            key: key.clone(),
            owner: self.owner,
            mode: self.mode,
            site: self.site,
            cause,
            lease: self.confirmed_lease,
            entries: self.entries.iter().map(|entry| entry.number).collect(),
        }
    }

    /// Ends it: from now on it is released.
    pub(super) fn end(&mut self, now: Time) {
        self.ends_hold = self.phase == Phase::Held;
        self.enter_phase(Phase::Ended);
        self.hold_until = Time::NEVER;
        self.count.restart(now, now + self.lease);
    }

    /// Panics if the ownership is not consistent.
    pub(super) fn check(&self, now: Time) {
        let is = |is: bool, what: &str| assert!(is, "{what}: {self:#?}");
        let is_empty = self.entries.is_empty();
        match self.phase {
            Phase::Requested | Phase::Retained => is(is_empty, "a hold has entries"),
            Phase::Held => is(
                !is_empty && self.token > 0,
                "a hold has entries and a token",
            ),
            Phase::Lost => is(self.lost.is_some(), "the cause is known"),
            Phase::Ended => {}
        }
        let are_sorted = self.entries.is_sorted_by_key(|entry| entry.number);
        is(are_sorted, "each entry has a number");
        is(
            self.used.fits_grant(self.mode) || self.used == self.mode,
            "the hold tolerates no more than the store",
        );
        if matches!(self.phase, Phase::Held | Phase::Retained) {
            let left = self.valid_until.since(now);
            is(left <= self.lease, "no lease ends later than the server's");
        }
    }
}
