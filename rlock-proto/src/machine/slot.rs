//! The state of one key: its ownerships, and whether an ended hold is handed over, retained or released.
//!
//! At each moment, a call has the turn and may ask the store, or the current ownership has a hold or is retained, or
//! no call uses the key.
//!
//! Further shared calls join the current shared hold under four conditions. They lock one key, ask for its lease and use the
//! watchdog. All have a `max_hold`, or none has. Nothing is in doubt. Less than a third of the lease has passed since its last
//! confirmation. While other clients wait, only calls that waited when the hold began, or was downgraded, may join.
//!
//! An ownership that is shared on the store stops being current when another client or a local call waits (`set_shared_aside`). Its
//! calls continue, and later calls ask with another owner, behind the earlier waiters. A shared hold that uses an exclusive lock
//! stays current, and later calls wait in the line. A permit is never current while it is held.

use std::time::Duration;

use smallvec::SmallVec;

use super::{
    Common, Owner, SlotId,
    hold::Hold,
    line::Line,
    output::Output,
    ownership::{Due, Ownership, Phase},
};
use crate::{key::Key, lease::Time, mode::LockMode, options::LockOptions};

/// How long an ownership waits for a new fence while local calls wait.
const FENCE_WAIT: Duration = Duration::from_secs(1);

/// A key that the client uses: its ownerships, and the calls that wait for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Slot {
    pub(super) id: SlotId,
    pub(super) key: Key,
    /// The current one, and those that have ended or are lost.
    pub(super) ownerships: SmallVec<[Ownership; 1]>,
    /// The ownership that the call with the turn asks for, or that has a hold or is retained.
    pub(super) current: Option<Owner>,
    pub(super) line: Line,
    /// How many calls have entered the slot and have not left it.
    pub(super) users: u32,
    /// Whether the list of unused slots has it. It may be in use again.
    pub(super) is_listed: bool,
    /// When the schedule looks at it.
    pub(super) due: Option<Time>,
}

impl Slot {
    pub(super) fn new(id: SlotId, key: Key) -> Self {
        Self {
            id,
            key,
            ownerships: SmallVec::new(),
            current: None,
            line: Line::default(),
            users: 0,
            is_listed: false,
            due: None,
        }
    }

    /// Returns whether no call and no ownership uses it.
    pub(super) fn is_unused(&self) -> bool {
        self.users == 0 && self.ownerships.is_empty()
    }

    /// Returns the key.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Returns whether other clients wait for the lock, as far as is known.
    #[must_use]
    pub fn others_wait(&self) -> bool {
        self.line.others_wait
    }

    /// Returns the ownerships, including those that have ended and are not forgotten yet.
    #[must_use]
    pub fn ownerships(&self) -> &[Ownership] {
        &self.ownerships
    }

    /// Returns the number of calls that wait.
    #[must_use]
    pub fn waiters(&self) -> usize {
        self.line.len()
    }

    pub(super) fn find(&self, owner: Owner) -> Option<&Ownership> {
        self.ownerships.iter().find(|own| own.owner == owner)
    }

    pub(super) fn find_mut(&mut self, owner: Owner) -> Option<&mut Ownership> {
        self.ownerships.iter_mut().find(|own| own.owner == owner)
    }

    /// Returns the ownership that the next call may use.
    #[must_use]
    pub fn current(&self) -> Option<&Ownership> {
        self.find(self.current?)
    }

    /// Returns the ownerships that have the lock, each with its present hold or the last one. The current one comes first.
    pub fn held(&self, now: Time) -> impl Iterator<Item = (&Ownership, &Hold)> {
        let current = self.current();
        let is_other = move |own: &&Ownership| Some(own.owner) != self.current;
        let others = self.ownerships().iter().filter(is_other);
        let is_held = move |own: &&Ownership| own.is_owned() && !own.rest(now).is_zero();
        let held = current.into_iter().chain(others).filter(is_held);
        held.filter_map(|own| Some((own, own.hold()?)))
    }

    pub(super) fn current_mut(&mut self) -> Option<&mut Ownership> {
        self.find_mut(self.current?)
    }

    /// Returns whether the store may still have the lock for an ownership that is being released.
    pub(super) fn is_releasing(&self) -> bool {
        self.ownerships.iter().any(Ownership::is_releasing)
    }

    /// Returns whether the current hold is shared or a permit on the store.
    pub(super) fn is_shared_on_store(&self) -> bool {
        (self.current())
            .is_some_and(|own| own.phase() == Phase::Held && own.mode != LockMode::Exclusive)
    }

    /// Hides the key as this call does, if the call hides it. A notification, from which the slot may come, has the text.
    pub(super) fn show_as(&mut self, key: &Key) {
        if key.is_hidden() {
            self.key = key.clone();
        }
    }

    /// Stops using a shared ownership or a held permit for new calls, so that the next call asks the store with another owner.
    pub(super) fn set_shared_aside(&mut self) {
        (self.current, self.line.others_wait) = (None, false);
    }

    /// Ends the retention for a call with these options, which then uses the ownership. If it cannot, the ownership is
    /// released instead. It stays retained if its tokens are on their way.
    pub(super) fn resume(&mut self, options: &LockOptions, cx: &mut Common) {
        let now = cx.now;
        let Some(own) = self.current_mut() else {
            return;
        };
        match own.fits(options, now) {
            true if own.tokens().has_next() => own.pass_on(),
            true if own.tokens().is_coming() => {}
            _ => self.end_current(cx),
        }
    }

    /// Ends the current ownership, which is released if the store may know it.
    pub(super) fn end_current(&mut self, cx: &mut Common) {
        if let Some(own) = self.current_mut() {
            let (owner, concerns_store) = (own.owner, own.concerns_store());
            own.end(cx.now);
            if !concerns_store {
                self.ownerships.retain(|own| own.owner != owner);
            }
        }
        (self.current, self.line.others_wait) = (None, false);
    }

    /// Returns the ownership for the call with the turn: the one that the call before left, or a new one.
    pub(super) fn ownership(&mut self, options: &LockOptions, cx: &mut Common) -> &mut Ownership {
        let mode = self.mode_to_ask(options.mode);
        let current = self.current();
        if current.is_none_or(|own| !own.is_usable(options, mode, cx.now)) {
            self.end_current(cx);
            let owner = cx.number();
            let tokens = cx.settings.tokens;
            self.ownerships
                .push(Ownership::new(owner, mode, options.lease, tokens));
            self.current = Some(owner);
        }
        let own = self.current_mut().expect("there is one now");
        own.ask_for(options.lease);
        own
    }

    /// Returns the mode in which the call with the turn asks. Of permits, it names the largest number that a call behind it has named
    /// before the store granted them, because the store does not know the calls behind it.
    pub(super) fn mode_to_ask(&self, mode: LockMode) -> LockMode {
        if mode.permits().is_none() {
            return mode;
        }
        let most = self.line.most_named();
        let asked = self.current().filter(|own| own.mode.may_stand_for(mode));
        let is_enough = |own: &&Ownership| {
            own.standing().grant().is_some() || own.mode.of_at_least(most) == own.mode
        };
        (asked.filter(is_enough)).map_or(mode.of_at_least(most), |own| own.mode)
    }

    /// Ends a hold without entries: the next call gets it, or it is retained, or it is released.
    pub(super) fn end_hold(&mut self, owner: Owner, may_continue: bool, cx: &mut Common) {
        let now = cx.now;
        if self.current != Some(owner) {
            if let Some(own) = self.find_mut(owner) {
                own.end(now);
            }
            return;
        }
        let may_retain = !self.line.others_wait && !cx.is_draining();
        let (line, ownerships) = (&mut self.line, &mut self.ownerships);
        let Some(own) = ownerships.iter_mut().find(|own| own.owner == owner) else {
            return;
        };
        if may_continue && own.is_certain(now) {
            own.run_low();
            let next = line.next();
            let fits = next.is_some_and(|next| own.fits(&next.options, now));
            if fits && line.may_serve() && own.tokens().has_next() {
                own.pass_on();
                return line.hands_over();
            }
            let retain = match next {
                None => own.retain(),
                Some(_) if fits => FENCE_WAIT,
                Some(_) => Duration::ZERO,
            };
            if may_retain && !retain.is_zero() && own.tokens().is_coming() {
                return own.retain_until(now + retain);
            }
        }
        self.end_current(cx);
    }

    /// Handles the deadlines that have passed.
    pub(super) fn come_due(&mut self, cx: &mut Common) {
        self.due = None;
        let owners: SmallVec<[Owner; 1]> = self.ownerships.iter().map(|own| own.owner).collect();
        for owner in owners {
            let (slot, key, now) = (self.id, self.key.clone(), cx.now);
            let Some(own) = self.find_mut(owner) else {
                continue;
            };
            match own.due_for(now) {
                Due::Lost(cause) => self.lose(owner, cause, cx),
                Due::Renewal(lease) => {
                    let renew = own.begin_renewal(slot, key, lease, &cx.settings, now);
                    cx.outputs.push(Output::Renew(Box::new(renew)));
                }
                Due::Nothing => {}
            }
        }
    }
}
