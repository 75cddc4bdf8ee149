//! What each client has told and was told about its ownerships, and the rules for that.

use std::{collections::BTreeMap, time::Duration};

use crate::{
    clients::{Client, Life},
    engine::machine::{
        Ask, By, Event, Input, Loss, Machine, Output, Owner, Ownership, Phase, Renew, Reply,
        Request, Revoked, Step,
    },
    error::LostCause,
    judge::Rule,
    key::Key,
    lease::Time,
    options::LockOptions,
    owner::OwnerId,
    plan::Fault,
    store::{Acquired, RenewalOutcome},
    world::{MS, World, nanos},
};

/// How long an ownership is retained while it waits for tokens.
const FOR_TOKENS: Duration = Duration::from_secs(1);
/// The most ownerships that a client remembers.
const MOST: usize = 1_024;

/// An ownership since its first hold. Times are those of its client.
#[derive(Clone, Debug, Default)]
pub(crate) struct Note {
    key: Option<Key>,
    pub(crate) token: u64,
    is_present: bool,
    pub(crate) is_lost: bool,
    /// Why no further hold may begin with it.
    is_over: Option<&'static str>,
    /// How often its release was sent, until when the lease was valid then, and when the only server executed it.
    releases: u32,
    pub(crate) valid_until: Time,
    released_at: Option<u64>,
    lease: Duration,
    max_hold_until: Option<Time>,
    kept_until: Option<Time>,
    retain: Duration,
    ended_at: Time,
    is_renewed: bool,
    /// How many renewals were sent since one was confirmed.
    attempts: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doubt {
    /// A hold may begin all the same, and is checked.
    Reported,
    Failed,
}

/// What a client knows of its ownerships.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    ownerships: BTreeMap<Owner, Note>,
    /// When a change was reported, or reports were missed, or a request failed, until a later request of the owner is
    /// confirmed.
    doubted: BTreeMap<Owner, (Time, Doubt)>,
}

impl Notes {
    pub(crate) fn of(&self, owner: Owner) -> Option<&Note> {
        self.ownerships.get(&owner)
    }

    fn note(&mut self, owner: Owner) -> &mut Note {
        if self.ownerships.len() > MOST {
            // The smallest numbers are the oldest ownerships.
            let is_past = |note: &Note| note.is_over.is_some() && !note.is_present;
            let past = self.ownerships.iter().find(|(_, note)| is_past(note));
            let past = past.map(|(owner, _)| *owner);
            past.map(|owner| self.ownerships.remove(&owner));
        }
        self.ownerships.entry(owner).or_default()
    }

    /// Notes that the only server executed the release of an ownership.
    pub(crate) fn released(&mut self, owner: Owner, now: u64) {
        self.note(owner).released_at.get_or_insert(now);
    }

    /// Notes that an entry of an ownership may want renewals.
    pub(crate) fn renews(&mut self, owner: Owner, is_renewed: bool) {
        self.note(owner).is_renewed |= is_renewed;
    }

    fn confirmed(&mut self, owner: Owner, sent_at: Time) {
        if self
            .doubted
            .get(&owner)
            .is_some_and(|(doubted, _)| *doubted < sent_at)
        {
            self.doubted.remove(&owner);
        }
    }

    fn doubts(&mut self, owner: Owner, now: Time, why: Doubt) {
        if self.doubted.len() > MOST {
            self.doubted.pop_first();
        }
        self.doubted.insert(owner, (now, why));
    }

    /// Notes what a client is told.
    pub(crate) fn told(&mut self, input: &Input, machine: &Machine, now: Time) {
        match input {
            Input::Event(key, owner, Event::Changed | Event::Missed { .. }) => {
                let current = machine.slot(key).and_then(|slot| slot.current());
                let current = current.map(|own| own.owner);
                if let Some(owner) = owner.or(current) {
                    self.doubts(owner, now, Doubt::Reported);
                }
            }
            Input::Event(
                _,
                Some(owner),
                Event::Renewed {
                    sent_at,
                    outcome: Some(RenewalOutcome::Held { .. }),
                    ..
                },
            ) => {
                self.confirmed(*owner, *sent_at);
                if let Some(note) = self.ownerships.get_mut(owner) {
                    note.attempts = 0;
                }
            }
            // A grant message is newer than every change reported before it.
            Input::Event(_, Some(owner), Event::Granted { .. }) => {
                self.doubted.remove(owner);
            }
            Input::Reply(request, reply) => {
                let owners = request.claims.iter().map(|claim| claim.owner);
                match reply {
                    Reply::Acquired(Acquired::Granted { sent_at, .. }) => {
                        owners.for_each(|owner| self.confirmed(owner, *sent_at));
                    }
                    // A quorum may have taken back what this client owned.
                    Reply::Failed(failure)
                        if failure.maybe_executed
                            && matches!(request.what, Ask::Acquire { .. }) =>
                    {
                        owners.for_each(|owner| self.doubts(owner, now, Doubt::Failed));
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }
}

impl World {
    /// Checks what a client tells, and notes it.
    pub(crate) fn tells(&mut self, client: usize, input_owner: Option<Owner>, output: &Output) {
        let now = self.clients[client].clock.time(self.now);
        match output {
            Output::Renew(renew) => self.renews(client, renew, now),
            Output::Lost(loss) => self.loses(client, loss),
            Output::Ended { owner, .. } => {
                let note = self.clients[client].notes.note(*owner);
                (note.is_present, note.ended_at) = (false, now);
                let (key, token) = (note.key.clone(), note.token);
                let until = self.kept_until(client, *owner);
                if let Some(key) = key.filter(|_| !self.may_fail())
                    && !self.judge.is_excused(&key, token, self.now)
                {
                    self.judge.keeps(&key, until);
                }
            }
            Output::Send(request) | Output::Step(Step::Send(request)) => {
                self.sends_release(client, request);
            }
            Output::Revoked(Revoked::Lost | Revoked::Given | Revoked::Retained) => {
                if let Some(owner) = input_owner {
                    self.clients[client].notes.note(owner).is_over = Some("was taken by force");
                }
            }
            _ => {}
        }
    }

    fn sends_release(&mut self, client: usize, request: &Request) {
        let Ask::Lower { count: 0, .. } = request.what else {
            return;
        };
        let claim = &request.claims[0];
        let state = &mut self.clients[client];
        let now = state.clock.time(self.now);
        let own = state.machine.own(&claim.key, claim.owner);
        let until = own.and_then(|own| own.valid_until(now).ok());
        let note = state.notes.note(claim.owner);
        note.is_over = Some("was released");
        note.releases += 1;
        note.valid_until = note.valid_until.max(until.unwrap_or_default());
    }

    /// Checks that the only server executed a release that succeeded within the lease.
    pub(crate) fn checks_release(&mut self, client: usize, key: &Key, owner: Owner) {
        let state = &self.clients[client];
        let now = state.clock.time(self.now);
        let Some(note) = state.notes.of(owner) else {
            return;
        };
        let was_sent =
            note.releases == 1 && now < note.valid_until && !self.plan.has(Fault::Repeated);
        if was_sent && note.released_at.is_none() && !note.is_lost && self.servers.len() == 1 {
            self.judge.breaks(Rule::NoFalseLoss, || {
                format!("{key}: a release of client {client} hides that owner {owner} had lost it")
            });
        }
    }

    /// Notes an entry since this time.
    pub(crate) fn notes_entry(
        &mut self,
        client: usize,
        owner: Owner,
        terms: &LockOptions,
        since: u64,
    ) {
        let now = self.clients[client].clock.time(since);
        let note = self.clients[client].notes.note(owner);
        note.retain = note.retain.max(terms.retain);
        note.is_renewed |= terms.watchdog;
        note.kept_until = note.kept_until.max(terms.at_least.map(|least| now + least));
    }

    /// Checks that a hold may begin with its ownership.
    pub(crate) fn notes_hold(
        &mut self,
        client: usize,
        key: &Key,
        (owner, token): (Owner, u64),
        by: By,
        terms: &LockOptions,
    ) {
        let now = self.clients[client].clock.time(self.now);
        let notes = &mut self.clients[client].notes;
        let former = notes.of(owner).cloned().unwrap_or_default();
        let doubt = notes.doubted.get(&owner).map(|(_, why)| *why);
        let is_doubted = doubt == Some(Doubt::Failed) || doubt.is_some() && by == By::Local;
        let is_other = by == By::Local && former.token > 0 && former.lease != terms.lease;
        *notes.note(owner) = Note {
            key: Some(key.clone()),
            token,
            is_present: true,
            lease: terms.lease,
            max_hold_until: terms.max_hold.map(|most| now + most),
            is_over: former.is_over,
            is_lost: former.is_lost,
            ..Note::default()
        };
        let is_lost = former.is_lost.then_some("was lost");
        let is_doubted = is_doubted.then_some("is in doubt");
        let is_other = is_other.then_some("has another lease");
        let broken = is_lost.or(former.is_over).or(is_doubted).or(is_other);
        if let Some(broken) = broken {
            let what = || {
                format!(
                    "{key}: a hold of client {client} begins with owner {owner}, which {broken}"
                )
            };
            self.judge.breaks(Rule::IsUsable, what);
        }
    }

    fn renews(&mut self, client: usize, renew: &Renew, now: Time) {
        let own = self.clients[client].machine.own(&renew.key, renew.owner);
        let phase = own.map(Ownership::phase);
        let note = self.clients[client].notes.note(renew.owner);
        note.attempts += 1;
        let slack = note.lease + Duration::from_millis(20);
        let broken = match phase {
            Some(_) if renew.lease.is_zero() => return,
            Some(Phase::Held) if note.max_hold_until.is_some_and(|until| now > until) => {
                "after its `max_hold`"
            }
            Some(Phase::Held) if !note.is_renewed => "without a watchdog",
            Some(Phase::Retained) if now > note.ended_at + note.retain.max(FOR_TOKENS) + slack => {
                "after its retention"
            }
            Some(Phase::Held | Phase::Retained) => return,
            // The same input has ended it since, and releases it.
            Some(Phase::Ended) if note.releases == 0 => return,
            _ => "although no call has it",
        };
        self.judge.breaks(Rule::RenewalsHaveReason, || {
            format!("{renew:?} is sent {broken}")
        });
    }

    fn loses(&mut self, client: usize, loss: &Loss) {
        let (is_late, is_repeated) = (self.may_stall(), self.plan.has(Fault::Repeated));
        // A renewed entry may join a hold that was not renewed so far.
        let renewed = self.plan.options.unrenewed == 0;
        let note = self.clients[client].notes.note(loss.owner);
        let (was_present, was_lost, attempts) = (note.is_present, note.is_lost, note.attempts);
        let was_over = note.valid_until == Time::default();
        let was_released = note.released_at.is_some() && !is_repeated;
        note.is_lost = true;
        let broken = if was_lost {
            "for the second time"
        } else if was_present == loss.entries.is_empty() {
            "although no hold has it"
        } else if loss.entries.is_empty() && was_released {
            "although it was released"
        } else if loss.entries.is_empty() && was_over {
            "although its lease had ended before the release"
        } else if loss.cause == LostCause::Expired && renewed && attempts < 2 && !is_late {
            "after one attempt at a renewal"
        } else {
            return;
        };
        self.judge.breaks(Rule::NoFalseLoss, || {
            format!("client {client}: {loss:?} {broken}")
        });
    }

    /// Returns whether clients, servers or messages may stand still for longer than a renewal takes.
    pub(crate) fn may_stall(&self) -> bool {
        use Fault::{Held, Paused, ServerPaused, Slow};
        let stalls = [Held, Paused, ServerPaused, Slow];
        stalls.iter().any(|fault| self.plan.has(*fault))
            || self.plan.leases.iter().any(|lease| *lease < 1_000)
    }

    /// Checks that a client relies on a lock for no longer than the servers keep it.
    pub(crate) fn audit_reliance(&mut self, client: usize, key: &Key) {
        let (now, majority) = (self.now, self.servers.len() / 2 + 1);
        let state = &self.clients[client];
        let time = state.clock.time(now);
        let Some(own) = state.machine.slot(key).and_then(|slot| slot.current()) else {
            return;
        };
        let is_relied_on = own.phase() == Phase::Held && own.valid_until(time).is_ok();
        if !is_relied_on
            || self.judge.is_excused(key, own.token, now)
            || self.plan.has(Fault::Beyond)
        {
            return;
        }
        let (owner, left) = (OwnerId::new(state.id, own.owner), own.left(time));
        let token = own.token;
        let mut kept: Vec<Duration> = Vec::new();
        for server in &mut self.servers {
            let at = server.time(now);
            let lock = server.state.held_by(key, owner, at);
            kept.push(lock.map_or(Duration::ZERO, |lock| lock.expires.since(at)));
        }
        kept.sort_unstable();
        let kept = kept[self.servers.len() - majority];
        if left > kept {
            let what = || {
                format!("{key}: client {client} relies on {token} for {left:?}, kept for {kept:?}")
            };
            self.judge.breaks(Rule::LeasesCover, what);
        }
    }

    /// Checks that a hold which has ended by the clock was reported as lost.
    pub(crate) fn audit_losses(&mut self, client: usize, key: &Key) {
        let state = &self.clients[client];
        // It may have been paused, or look at its schedule just now.
        let late = Duration::from_millis(400);
        let time = state.clock.time(self.now);
        let is_unnoticed = state
            .machine
            .slot(key)
            .and_then(|slot| slot.current())
            .is_some_and(|own| {
                let past = Time::from_nanos(time.nanos().saturating_sub(nanos(late)));
                own.phase() == Phase::Held && own.lost().is_none() && own.valid_until(past).is_err()
            });
        if is_unnoticed && state.paused_until < self.now && !self.plan.has(Fault::Paused) {
            self.judge.breaks(Rule::NoFalseLoss, || {
                format!("{key}: client {client} has not noticed a loss")
            });
        }
    }

    /// Returns whether the owner that a server knows is an ownership of its client.
    pub(crate) fn is_known(&self, key: &Key, owner: &str) -> bool {
        let Some(owner) = OwnerId::parse(owner).filter(|owner| *owner != OwnerId::KEPT) else {
            return true;
        };
        let alive = |client: &&Client| client.id == owner.client() && client.life < Life::Closed;
        let client = self.clients.iter().find(alive);
        client.is_none_or(|client| client.machine.own(key, owner.sequence()).is_some())
    }

    /// Returns until when a lock stays taken after a hold that ended without a loss, in the time of the world.
    pub(crate) fn kept_until(&self, client: usize, owner: Owner) -> u64 {
        let state = &self.clients[client];
        let note = state.notes.of(owner).filter(|note| !note.is_lost);
        let until = note.and_then(|note| Some((note.key.as_ref()?, note.kept_until?)));
        let Some((key, until)) = until else { return 0 };
        // The release may arrive after the lease.
        let own = state.machine.own(key, owner);
        let valid = own.and_then(|own| own.valid_until(state.clock.time(self.now)).ok());
        let until = until.min(valid.unwrap_or_default());
        // Clocks drift, and the server counts milliseconds.
        state.clock.at(until).saturating_sub(3 * MS)
    }
}

/// Returns the owner that an input concerns.
pub(crate) fn owner_of(input: &Input) -> Option<Owner> {
    match input {
        Input::Event(_, owner, _) => *owner,
        _ => None,
    }
}
