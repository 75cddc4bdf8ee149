//! Notes what each client has reported and was told about its ownerships, for the rules.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    key::Key,
    lease::{Time, valid_until},
    machine::{Ask, Event, Input, Machine, Owner, Ownership, Phase, Reply},
    options::LockOptions,
    store::{Acquired, Applied, RenewalOutcome},
};

/// The most ownerships that a client remembers, and how long, in numbers of owners, those that are gone.
const MOST: usize = 1_024;
const PAST: Owner = 4_096;

/// An ownership since its first request. Times are those of its client.
#[derive(Clone, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "they do not depend on each other"
)]
pub(crate) struct Note {
    pub(crate) key: Option<Key>,
    pub(crate) token: u64,
    /// The options of the present hold, and when it began.
    pub(crate) terms: LockOptions,
    pub(crate) began: Time,
    pub(crate) ended_at: Time,
    /// Until when the store has confirmed the present hold.
    pub(crate) confirmed_until: Time,
    pub(crate) is_present: bool,
    pub(crate) is_lost: bool,
    /// Why no further hold may begin with it.
    pub(crate) is_over: Option<&'static str>,
    /// What may have changed, until a later request is confirmed.
    pub(crate) doubt: Option<Doubt>,
    /// When its latest count was sent.
    pub(crate) told_at: Time,
    /// Whether it has asked the store for its lock, and whether its grant may be taken back.
    pub(crate) has_asked: bool,
    pub(crate) is_retired: bool,
    /// How often its release was sent, until when the lease was valid then, and whether the only server executed it.
    pub(crate) releases: u32,
    pub(crate) valid_until: Time,
    pub(crate) is_released: bool,
    /// Whether it is the first waiter, and when it learned that the lock has changed, until it asks.
    pub(crate) is_first: bool,
    pub(crate) changed_at: Option<Time>,
    pub(crate) kept_until: Option<Time>,
    pub(crate) retain: Duration,
    /// Whether the store handed the lock off for a short time.
    pub(crate) is_brief: bool,
    /// How many renewals were sent since one was confirmed.
    pub(crate) attempts: u32,
    /// How many calls waited when the lock came to the client.
    pub(crate) waiters: usize,
}

/// A change was reported, reports were missed, or an acquire failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doubt {
    since: Time,
    pub(crate) has_failed: bool,
    /// The number of the first acquire that was sent afterwards, perhaps at the same time.
    asked: Option<u64>,
}

impl Doubt {
    fn new(since: Time, has_failed: bool) -> Self {
        Self {
            since,
            has_failed,
            asked: None,
        }
    }
}

impl Note {
    fn confirmed(&mut self, sent_at: Time) {
        self.doubt = self.doubt.filter(|doubt| doubt.since >= sent_at);
    }

    /// Notes that an acquire with this number is sent.
    pub(crate) fn asks(&mut self, number: u64) {
        (self.has_asked, self.is_first, self.changed_at) = (true, false, None);
        if let Some(doubt) = &mut self.doubt {
            doubt.asked.get_or_insert(number);
        }
    }

    /// Notes that the acquire with this number was granted.
    fn granted(&mut self, number: u64) {
        let is_later = |doubt: &Doubt| doubt.asked.is_some_and(|asked| asked <= number);
        self.doubt = self.doubt.filter(|doubt| !is_later(doubt));
    }
}

/// What a client knows of its ownerships.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes(BTreeMap<Owner, Note>);

impl Notes {
    pub(crate) fn get(&self, owner: Owner) -> Option<&Note> {
        self.0.get(&owner)
    }

    pub(crate) fn of(&mut self, owner: Owner) -> &mut Note {
        self.0.entry(owner).or_default()
    }

    /// Notes that the only server executed the release of an ownership.
    pub(crate) fn released(&mut self, owner: Owner) {
        self.of(owner).is_released = true;
    }

    /// Notes the reply that a client receives. `is_quorum`: the grant of an acquire may be rolled back.
    pub(crate) fn told(&mut self, input: &Input, machine: &Machine, now: Time, is_quorum: bool) {
        match input {
            Input::Event(key, owner, event) => {
                let current = machine
                    .slot(key)
                    .and_then(|slot| slot.current())
                    .map(|own| own.owner);
                if let Some(owner) = owner.or(current) {
                    let phase = machine.own(key, owner).map(Ownership::phase);
                    self.of(owner).event(event, phase, now);
                }
            }
            Input::Reply(request, reply) => {
                let is_acquire = matches!(request.what, Ask::Acquire { .. });
                for (n, claim) in request.claims.iter().enumerate() {
                    let note = self.of(claim.owner);
                    match reply {
                        Reply::Acquired(Acquired::Granted { .. }) => note.granted(request.number),
                        Reply::Applied(Applied::Done)
                            if matches!(request.what, Ask::SetCount { .. }) =>
                        {
                            note.confirmed(note.told_at);
                        }
                        Reply::Acquired(Acquired::Taken { claim, queued, .. }) => {
                            note.is_first = n == *claim && queued.is_some_and(|place| place.first);
                        }
                        // A quorum may have taken back what this client owned.
                        Reply::Failed(failure) if failure.maybe_executed && is_acquire => {
                            note.doubt = Some(Doubt::new(now, true));
                        }
                        Reply::None => note.is_retired |= is_acquire && is_quorum,
                        _ => {}
                    }
                }
            }
            Input::Renewed {
                renew,
                sent_at,
                outcome: Some(RenewalOutcome::Held { .. }),
            } => {
                let own = machine.own(&renew.key, renew.owner);
                let is_valid = own.is_some_and(|own| !own.rest(now).is_zero());
                let note = self.of(renew.owner);
                note.confirmed(*sent_at);
                note.attempts = 0;
                if is_valid {
                    let lease = renew.lease.min(note.terms.lease);
                    let until = valid_until(*sent_at, lease);
                    note.confirmed_until = note.confirmed_until.max(until);
                }
            }
            Input::Acquire {
                locks,
                inside,
                options,
                ..
            } => {
                // The call may enter these holds before it has its other locks.
                let enters = |owner| {
                    locks
                        .iter()
                        .any(|lock| machine.own(&lock.key, owner).is_some())
                };
                for inside in inside.iter().filter(|inside| enters(inside.owner)) {
                    let note = self.of(inside.owner);
                    note.retain = note.retain.max(options.retain);
                }
            }
            _ => {}
        }
        if self.0.len() > MOST {
            let newest = self.0.last_key_value().map_or(0, |(owner, _)| *owner);
            let is_known = |owner: Owner| machine.ownerships().any(|own| own.owner == owner);
            self.0.retain(|owner, note| {
                note.is_present || *owner + PAST > newest || is_known(*owner)
            });
        }
    }
}

impl Note {
    /// Notes an event of an ownership that is in this phase.
    fn event(&mut self, event: &Event, phase: Option<Phase>, now: Time) {
        match event {
            Event::Changed | Event::Missed { .. } => {
                self.doubt = Some(Doubt::new(now, false));
                if self.is_first && phase.is_some_and(Phase::is_pending) {
                    self.changed_at.get_or_insert(now);
                }
            }
            // A message of a grant is newer than every change reported before it.
            Event::Granted { .. } => (self.doubt, self.changed_at) = (None, None),
            Event::Revoke {
                token: None,
                at_once: true,
            } => {
                if let Some(Phase::Asking | Phase::HandedOver | Phase::Held | Phase::Retained) =
                    phase
                {
                    self.is_over = Some("was taken by force");
                }
            }
            _ => {}
        }
    }
}
