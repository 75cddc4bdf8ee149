//! What every run must do. The rules see each input, output, hold, loss, refusal and write while the run goes on.

use std::{collections::HashMap, time::Duration};

use rlock_model::requests::Body;

use crate::{
    clients::{Client, Doing, Held, Life},
    few::{Few, one},
    key::Key,
    lease::Time,
    lost::LostCause,
    machine::{
        Ask, By, Entry, Event, Input, Loss, Machine, Output, Owner, Ownership, Phase, Refusal,
        Renew, Reply, Request, Revoked, Slot, Step,
    },
    mode::LockMode,
    notes::Note,
    options::LockOptions,
    owner::OwnerId,
    plan::{Effect, Part, WorldKind},
    store::{Acquired, GRACE, RenewalOutcome, TOKENS},
    world::{MS, Who, World},
};

pub(crate) type Rule = &'static str;

pub(crate) const IN_TIME: Rule = "a call ends by its deadline";
pub(crate) const CONSISTENT: Rule = "the machine is consistent";
const ONE_HOLDER: Rule = "at most one owner holds a lock";
const COVERED: Rule = "a client relies on a lock for no longer than the server keeps it";
const TOKENS_GROW: Rule = "tokens grow with every hold";
const OWN_TOKENS: Rule = "no two owners have the same token";
const NO_STALE_WRITE: Rule = "a resource that checks tokens refuses no rightful write";
const USABLE: Rule = "no hold begins with an ownership that is over or in doubt";
const RENEWED: Rule = "what is held or retained is renewed in time, and nothing else";
const NO_FALSE_LOSS: Rule = "no hold is lost without a reason, and each loss is reported once";
pub(crate) const NO_REFUSAL: Rule = "no call is refused without a reason";
const SERVED: Rule = "no lock stays free while a call waits for it";
const WOKEN: Rule = "a call that can go on is woken";
const KEPT: Rule = "no hold begins within the `min_hold` of the one before";
const IN_TURN: Rule = "a client serves itself no more often than its limit while others wait";
const COUNTED: Rule = "the server counts the entries";
const FENCED: Rule = "the server keeps the fence of a held lock";
const RESTORED: Rule = "a member of a quorum that has come back gets the locks of present holds";
pub(crate) const NOTHING_LEFT: Rule = "nothing is left at the end";

/// How long a free lock may have a waiter, since the last event that may delay its grant: a lost notification costs
/// five seconds, a lost request two, a waiter that has gone one. A holder that has gone costs its lease, too.
const LONGEST_IDLE: u64 = 20_000 * MS;
/// The same, if nothing delays grants.
const SHORTEST_IDLE: u64 = 3_000 * MS;
/// How long a server may keep a lock for an owner that its client does not know: it was handed off to a waiter that had
/// gone.
const LONGEST_ORPHANED: u64 = 1_600 * MS;
/// How long an ownership is retained while it waits for tokens.
const FOR_TOKENS: Duration = Duration::from_secs(1);
/// How long the first waiter may take to ask after a change was reported.
const FOR_CHANGE: Duration = Duration::from_secs(3);
/// How long a call that does not wait lets a release of its client come first.
const FOR_RELEASE: u64 = 900 * MS;
/// The most requests for locks of a call that does not wait: the first one, and three after reports of changes. A grant
/// without tokens is followed by another.
const MOST_ATTEMPTS: u32 = 6;
/// The same on a quorum, where an attempt asks again while no owner has a majority, with pauses that grow from 5 ms to 250 ms
/// and shrink near the end.
const MOST_SPLITS: u32 = 20;

/// How often an ownership changed its phase, by the phases. The last one: it is gone.
pub(crate) type Seen = [[u64; GONE + 1]; GONE + 1];
const GONE: usize = Phase::Ended as usize + 1;

/// A rule that was broken.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) rule: Rule,
    pub(crate) what: String,
}

/// A hold of a client. Whether it still relies on the lock, its machine knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) client: usize,
    pub(crate) life: u32,
    pub(crate) owner: Owner,
    pub(crate) token: u64,
    pub(crate) mode: LockMode,
}

impl Hold {
    fn is_of_same_owner(&self, other: &Self) -> bool {
        (self.client, self.life, self.owner) == (other.client, other.life, other.owner)
    }

    /// Returns whether both may have the lock at once.
    fn tolerates(&self, other: &Self) -> bool {
        match (self.mode, other.mode) {
            (LockMode::Shared, LockMode::Shared) => true,
            (LockMode::Permits(one), LockMode::Permits(more)) => one.max(more) > 1,
            _ => false,
        }
    }
}

/// What is known of a key.
#[derive(Default)]
pub(crate) struct Lock {
    holds: Vec<Hold>,
    last_token: u64,
    last_exclusive: u64,
    /// The first hold with each token.
    first_with: HashMap<u64, Hold>,
    /// Holds with this token, or a smaller one, may have been lost by a fault. Their holders learn that later.
    pub(crate) void: u64,
    /// Holds with this token, or a smaller one, may have been renewed by a former master alone.
    pub(crate) renewed: u64,
    /// Until when this includes holds that begin: at a quorum, a fault may hit a part of a grant.
    void_until: u64,
    /// The owner that each server knew at the last audit, and since when its client did not know it.
    owners: Vec<(String, u64)>,
    /// Since when each server, which is up, has lacked the lock of a present hold although it was free there.
    lacks: Vec<u64>,
    /// Until when it stays taken after the last hold.
    kept_until: u64,
    /// How many calls of a client were served in a row while other clients waited.
    handovers: (usize, usize),
    /// The largest token that the resource has seen.
    highest: u64,
    /// The last event that may delay a grant.
    moved: u64,
}

/// The sums of a run.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) holds: u64,
    pub(crate) excused: u64,
    pub(crate) stale_writes: u64,
    pub(crate) longest_idle: u64,
}

/// What an input is about, for the rules that look at the machine after it.
#[derive(Default)]
pub(crate) struct About {
    owner: Option<(Key, Owner)>,
    /// The owners to which the store has granted their locks.
    granted: Few<(Key, Owner)>,
    /// Whether the store has granted a lock to an owner that has gone.
    is_gone: bool,
    /// The current ownerships before the input.
    phases: Vec<(Key, Owner, Phase)>,
    /// The holds that had ended before the input, with their tokens.
    over: Few<(Key, Owner, u64)>,
    /// Whether a retained lock ends with its lease.
    expires: bool,
    /// Whether it tells that others wait.
    wanted: bool,
}

impl About {
    fn of(machine: &Machine, input: &Input, now: Time) -> Self {
        let currents = machine
            .slots()
            .filter_map(|slot| Some((slot, slot.current()?)));
        let mut about = Self::default();
        for (slot, own) in currents {
            let is_past = own.phase() == Phase::Retained && own.rest(now).is_zero();
            about.expires |= is_past && *input == Input::Time;
            about
                .phases
                .push((slot.key().clone(), own.owner, own.phase()));
        }
        match input {
            Input::Event(key, Some(owner), event) => {
                about.owner = Some((key.clone(), *owner));
                about.is_gone = matches!(event, Event::Granted { .. } | Event::Retry { .. })
                    && machine.own(key, *owner).is_none();
                match event {
                    Event::Granted { .. } => about.granted = one((key.clone(), *owner)),
                    event => about.wanted = *event == Event::Wanted,
                }
            }
            Input::Renewed { renew, outcome, .. } => {
                about.owner = Some((renew.key.clone(), renew.owner));
                about.wanted = matches!(outcome, Some(RenewalOutcome::Held { wanted: true, .. }));
            }
            Input::Reply(request, Reply::Acquired(Acquired::Granted { .. })) => {
                let claims = request.claims.iter();
                about.granted = claims
                    .map(|claim| (claim.key.clone(), claim.owner))
                    .collect();
            }
            _ => {}
        }
        about
    }
}

impl World {
    pub(crate) fn breaks(&mut self, rule: Rule, what: String) {
        self.violation.get_or_insert(Violation { rule, what });
    }

    fn lock(&mut self, key: &Key) -> &mut Lock {
        self.locks.get_mut(key).expect("the key exists")
    }

    /// Notes that the present hold of a key may be lost, by a fault.
    pub(crate) fn voids(&mut self, key: &Key) {
        let fences = self.servers.iter().map(|server| server.largest_fence(key));
        let token = fences.max().unwrap_or_default() * TOKENS + TOKENS - 1;
        let (now, longest) = (
            self.now,
            u64::from(self.plan.longest_lease()) * MS + 2_000 * MS,
        );
        let until = if self.servers.len() > 1 {
            now + longest
        } else {
            now
        };
        let lock = self.lock(key);
        lock.void = lock.void.max(token).max(lock.last_token);
        lock.void_until = lock.void_until.max(until);
        (lock.moved, lock.kept_until) = (lock.moved.max(now), 0);
    }

    /// Returns the keys of which a request may get a smaller token: the server has forgotten the last fence, its clock has
    /// stepped back since, and the client has had no hold since that fence.
    pub(crate) fn unseen(&mut self, server: usize, who: Who, body: &Body) -> Vec<Key> {
        if !matches!(body, Body::Acquire(..) | Body::Release(..)) {
            return Vec::new();
        }
        let client = &self.clients[who.client];
        let is_same = client.life_number == who.life;
        let had = if is_same { client.largest_token } else { 0 };
        let (now, server) = (self.now, &mut self.servers[server]);
        let keys = body.keys().into_iter();
        keys.filter(|key| had / TOKENS < server.largest_fence(key) && server.may_shrink(now, key))
            .collect()
    }

    /// Notes that a server goes down, or has lost its data. On a quorum, that takes no lock from an owner that a majority of
    /// the other servers keeps for as long as its client relies on it.
    pub(crate) fn voids_lost(&mut self, server: usize) {
        for key in self.keys.clone() {
            let at = self.servers[server].time(self.now);
            let owners = self.servers[server].owners(&key, at);
            let are_kept = (owners.into_iter()).all(|owner| self.others_keep(server, &key, owner));
            if !are_kept || !self.is_quorum() {
                self.voids(&key);
            }
        }
    }

    fn others_keep(&mut self, server: usize, key: &Key, owner: OwnerId) -> bool {
        let (now, members) = (self.now, self.servers.len());
        let client = self.clients.iter().find(|client| owner.is_of(client.id));
        let left = client.and_then(|client| {
            let own = client.machine.own(key, owner.sequence())?;
            Some(own.rest(client.clock.time(now)))
        });
        let others = self.servers.iter_mut().enumerate();
        let others = others.filter(|(other, state)| *other != server && state.down_until <= now);
        let keep = others.filter_map(|(_, state)| {
            let at = state.time(now);
            let holder = state.state.held_by(key, owner, at)?;
            (Some(holder.expires.since(at)) >= left).then_some(())
        });
        keep.count() > members / 2
    }

    /// Notes that another owner had a lock of a member just now.
    pub(crate) fn occupied(&mut self, server: usize, key: &Key) {
        let now = self.now;
        if let Some(since) = self.lock(key).lacks.get_mut(server) {
            *since = now;
        }
    }

    pub(crate) fn voids_all(&mut self) {
        for key in self.keys.clone() {
            self.voids(&key);
        }
    }

    /// Notes that grants of a key may be delayed until this time.
    pub(crate) fn moves(&mut self, key: &Key, until: u64) {
        let lock = self.lock(key);
        lock.moved = lock.moved.max(until);
    }

    pub(crate) fn moves_until(&mut self, until: u64) {
        self.locks
            .values_mut()
            .for_each(|lock| lock.moved = lock.moved.max(until));
    }

    pub(crate) fn moves_all(&mut self) {
        self.moves_until(self.now);
    }

    /// Returns whether a fault may have taken a lock from a hold with this token.
    fn is_excused(&self, key: &Key, token: u64) -> bool {
        let lock = &self.locks[key];
        token <= lock.void || self.now < lock.void_until
    }

    /// Returns the largest token of a hold that a fault, or late renewals in a failover, may have lost.
    fn void(&self, key: &Key) -> u64 {
        let lock = &self.locks[key];
        let renewed = if self.may_renew_late() {
            lock.renewed
        } else {
            0
        };
        lock.void.max(renewed)
    }

    /// Returns whether a hold still relies on its lock.
    pub(crate) fn relies(&self, key: &Key, hold: &Hold) -> bool {
        let client = &self.clients[hold.client];
        let own = client
            .machine
            .own(key, hold.owner)
            .filter(|own| own.is_live(hold.token));
        client.life_number == hold.life
            && client.life < Life::Ended
            && own.is_some_and(|own| own.valid_until(client.clock.time(self.now)).is_ok())
    }

    /// Returns the holds of a key that still rely on it.
    fn holds(&mut self, key: &Key) -> Vec<Hold> {
        let mut holds = std::mem::take(&mut self.lock(key).holds);
        holds.retain(|hold| self.relies(key, hold));
        holds
    }

    /// Returns whether holders may share a lock in this run. Then only the rules about holders are checked.
    fn shares(&self) -> bool {
        self.plan.has(Part::Shares)
    }

    /// Returns whether another owner may have this hold's token: the members of a quorum count by clocks of their own.
    fn may_have_same_token(&self, hold: &Hold) -> bool {
        self.is_quorum() && hold.mode == LockMode::Shared
    }

    fn is_quorum(&self) -> bool {
        self.servers.len() > 1
    }

    /// Returns whether requests may fail in this run.
    fn may_fail(&self) -> bool {
        self.is_quorum() || self.plan.may(Effect::Fails)
    }

    /// Returns whether a request of a quorum may be late or lost although its server is up.
    fn may_be_lost(&self) -> bool {
        let calls = [Part::CallNotPolled, Part::ClientShutDown];
        let is_of_message = |part: &Part| part.may(Effect::Fails) && !calls.contains(part);
        Part::ALL
            .iter()
            .filter(|part| is_of_message(part))
            .any(|part| self.plan.has(*part))
    }

    /// Returns whether a renewal may be late.
    fn may_stall(&self) -> bool {
        self.plan.may(Effect::Stalls) || self.plan.leases()[0] < 1_000
    }

    /// Returns whether every hold is renewed. Otherwise, a renewed entry may join a hold that was not renewed so far.
    fn is_always_renewed(&self) -> bool {
        !self.plan.has_any(&[Part::Unrenewed, Part::NeverRenewed])
    }

    /// Notes the reply that a client receives, before its machine reads it.
    pub(crate) fn before(&mut self, client: usize, input: &Input, now: Time) -> About {
        let is_quorum = self.is_quorum();
        let Client { machine, notes, .. } = &mut self.clients[client];
        notes.told(input, machine, now, is_quorum);
        About::of(machine, input, now)
    }

    /// Looks at the machine after an input.
    pub(crate) fn after(&mut self, client: usize, about: &About, now: Time) {
        let Client { machine, notes, .. } = &mut self.clients[client];
        for (key, owner, was) in &about.phases {
            let is = machine
                .own(key, *owner)
                .map_or(GONE, |own| own.phase() as usize);
            self.seen[*was as usize][is] += 1;
        }
        if self.plan.has(Part::Shares) {
            return;
        }
        for (key, owner) in &about.granted {
            let note = notes.of(*owner);
            note.waiters = note.waiters.max(machine.slot(key).map_or(0, Slot::waiters));
        }
        let own = about
            .owner
            .as_ref()
            .map(|(key, owner)| machine.own(key, *owner));
        let phase = own.flatten().map(Ownership::phase);
        let is_forgotten = |slot: &Slot| {
            let own = slot.current().filter(|own| own.phase() == Phase::Retained);
            let note = own.and_then(|own| notes.get(own.owner));
            slot.waiters() == 0 && note.is_some_and(|note| note.retain.is_zero())
        };
        let is_back = |(key, owner, token): &(Key, Owner, u64)| {
            let own = machine.own(key, *owner).filter(|own| own.is_live(*token));
            own.is_some_and(|own| own.valid_until(now).is_ok())
        };
        let (rule, broken) = if about.over.iter().any(is_back) {
            (USABLE, "a hold that had ended comes back")
        } else if about.is_gone && phase.is_none() {
            (
                SERVED,
                "the lock or the place of a waiter that has gone is not given back",
            )
        } else if about.wanted && phase == Some(Phase::Retained) {
            (SERVED, "a lock stays retained although others wait")
        } else if machine.slots().any(is_forgotten) {
            (SERVED, "a lock is retained for no call")
        } else if about.expires && self.plan.world == WorldKind::Calm {
            (RENEWED, "a retained lock ends with its lease")
        } else {
            return;
        };
        let what = format!("client {client}: {broken}");
        self.breaks(rule, what);
    }

    /// Checks what a client tells, and notes it. `owner`: the one that the input was about.
    pub(crate) fn tells(&mut self, client: usize, about: &About, output: &Output) {
        let now = self.clients[client].clock.time(self.now);
        if self.shares() {
            if let Output::Lost(loss) = output {
                self.stops_bodies(client, loss);
                self.moves(&loss.key, self.now);
            } else if let Output::GaveUp { key, .. } = output {
                self.moves(key, self.now);
            }
            return;
        }
        match output {
            Output::Renew(renew) => self.renews(client, renew, now),
            Output::Lost(loss) => self.loses(client, loss, now),
            Output::Ended { owner, .. } => self.ends_hold(client, *owner, now),
            Output::Send(request) | Output::Step(Step::Send(request)) => {
                self.asks(client, about, request, now);
            }
            Output::GaveUp { key, .. } => self.moves(key, self.now),
            Output::Revoked(Revoked::Lost | Revoked::Given | Revoked::Retained) => {
                if let Some((_, owner)) = about.owner {
                    self.clients[client].notes.of(owner).is_over = Some("was taken by force");
                }
            }
            _ => {}
        }
    }

    fn asks(&mut self, client: usize, about: &About, request: &Request, now: Time) {
        match request.what {
            Ask::Release { .. } => {
                let claim = &request.claims[0];
                let Client { machine, notes, .. } = &mut self.clients[client];
                let own = machine.own(&claim.key, claim.owner);
                let until = own.and_then(|own| own.valid_until(now).ok());
                let note = notes.of(claim.owner);
                note.is_over = Some("was released");
                note.releases += 1;
                note.valid_until = note.valid_until.max(until.unwrap_or_default());
            }
            Ask::SetCount { .. } => {
                let owner = request.claims[0].owner;
                self.clients[client].notes.of(owner).told_at = now;
            }
            Ask::Downgrade { .. } => {}
            Ask::Acquire { waits, .. } => {
                self.asks_for_locks(client, about, request, waits);
                for claim in &request.claims {
                    let note = self.clients[client].notes.of(claim.owner);
                    (note.has_asked, note.is_first, note.changed_at) = (true, false, None);
                }
            }
        }
    }

    /// Checks a request for locks.
    fn asks_for_locks(&mut self, client: usize, about: &About, request: &Request, waits: bool) {
        let state = &self.clients[client];
        let is_retired = |owner| state.notes.get(owner).is_some_and(|note| note.is_retired);
        if request.claims.iter().any(|claim| is_retired(claim.owner)) {
            let what = format!(
                "client {client} asks with an owner whose grant may be taken back: {request:?}"
            );
            return self.breaks(USABLE, what);
        }
        let task = request.call.and_then(|call| state.calls.get(&call));
        let Some(task) = task.map(|task| &state.tasks[*task]).filter(|_| !waits) else {
            return;
        };
        // The server knows nothing of a new owner.
        let is_released = |key: &Key| {
            let is_free = about.phases.iter().all(|(used, ..)| used != key);
            is_free && state.polled().any(|awaited| awaited.releases(key))
        };
        // After a pause, the release may have been given up.
        let is_early = self.now < task.since + FOR_RELEASE && !self.plan.has(Part::ClientPaused);
        let overtakes = |owner, key| {
            state.notes.get(owner).is_none_or(|note| !note.has_asked) && is_released(key)
        };
        let asked = task.asked;
        if is_early
            && request
                .claims
                .iter()
                .any(|claim| overtakes(claim.owner, &claim.key))
        {
            let what = format!("client {client}: an attempt overtakes a release: {request:?}");
            self.breaks(NO_REFUSAL, what);
        } else if asked > MOST_ATTEMPTS && self.servers.len() == 1 || asked > MOST_SPLITS {
            let what = format!("client {client}: an attempt asks {asked} times: {request:?}");
            self.breaks(IN_TIME, what);
        }
    }

    /// Notes the end of a hold.
    fn ends_hold(&mut self, client: usize, owner: Owner, now: Time) {
        let Client {
            machine,
            notes,
            clock,
            ..
        } = &mut self.clients[client];
        let note = notes.of(owner);
        (note.is_present, note.ended_at) = (false, now);
        let Some(key) = note.key.clone().filter(|_| !note.is_lost) else {
            return;
        };
        // The release may arrive after the lease. Clocks drift, and the server counts milliseconds.
        let valid = machine
            .own(&key, owner)
            .and_then(|own| own.valid_until(now).ok());
        let until = note
            .kept_until
            .unwrap_or_default()
            .min(valid.unwrap_or_default());
        let (until, token) = (clock.at(until).saturating_sub(3 * MS), note.token);
        if !self.may_fail() && !self.is_excused(&key, token) {
            let lock = self.lock(&key);
            lock.kept_until = lock.kept_until.max(until);
        }
    }

    /// Checks that a hold may begin with its ownership, and notes it.
    pub(crate) fn begins(
        &mut self,
        client: usize,
        key: &Key,
        hold: Hold,
        by: By,
        terms: &LockOptions,
    ) {
        if self.shares() {
            self.excludes(key, hold);
            return self.audit_reliance(client, key);
        }
        let (owner, now) = (hold.owner, self.clients[client].clock.time(self.now));
        let state = &mut self.clients[client];
        let slot = state.machine.slot(key);
        let is_wanted = slot.is_some_and(Slot::others_wait);
        let left = state
            .machine
            .own(key, owner)
            .map_or(Duration::ZERO, |own| own.rest(now));
        let former = std::mem::take(state.notes.of(owner));
        let is_local = by == By::Local;
        // A call that leaves without a hold leaves the lock to a call that it was not meant for.
        let may_be_left = self.plan.has_any(&[
            Part::SeveralKeys,
            Part::CallCancelled,
            Part::CallNotPolled,
            Part::ClientShutDown,
        ]);
        let broken = if former.is_over.is_some() {
            "is over"
        } else if former.is_lost {
            "was lost"
        } else if former
            .doubt
            .is_some_and(|(_, has_failed)| has_failed || is_local)
        {
            "is in doubt"
        } else if is_local && former.token > 0 && former.terms.lease != terms.lease {
            "has another lease"
        } else if is_local && !terms.watchdog && !may_be_left {
            "is not renewed"
        } else {
            ""
        };
        *state.notes.of(owner) = Note {
            key: Some(key.clone()),
            token: hold.token,
            terms: *terms,
            began: now,
            is_present: true,
            is_over: former.is_over,
            is_lost: former.is_lost,
            is_brief: left <= GRACE && terms.lease >= GRACE * 2,
            attempts: former.attempts,
            waiters: former.waiters,
            has_asked: true,
            told_at: former.told_at,
            ..Note::default()
        };
        if !broken.is_empty() {
            let what = format!("{key}: {hold:?} begins, and its ownership {broken}: {former:?}");
            self.breaks(USABLE, what);
        }
        let most = former.waiters.min(self.plan.size(Part::LocalHandovers));
        self.serves(key, client, is_local && is_wanted, most);
        self.excludes(key, hold);
        self.audit_reliance(client, key);
    }

    /// Notes that a client serves itself, perhaps while others wait.
    fn serves(&mut self, key: &Key, client: usize, is_next: bool, most: usize) {
        let lock = self.lock(key);
        lock.handovers = match lock.handovers {
            (of, so_far) if is_next && of == client => (of, so_far + 1),
            _ => (client, usize::from(is_next)),
        };
        let (_, handovers) = lock.handovers;
        // The last one may have been served before it was known that others wait.
        if handovers > most + 1 {
            let what = format!("{key}: {handovers} calls in a row");
            self.breaks(IN_TURN, what);
        }
    }

    /// Checks that no other hold relies on the lock, and that tokens grow.
    fn excludes(&mut self, key: &Key, hold: Hold) {
        self.counts.holds += 1;
        let client = &mut self.clients[hold.client];
        client.largest_token = client.largest_token.max(hold.token);
        let mut holds = self.holds(key);
        let is_same = |other: &Hold| (other.client, other.owner) == (hold.client, hold.owner);
        holds.retain(|other| !is_same(other));
        let other = holds.iter().find(|other| !hold.tolerates(other)).copied();
        let permits = match hold.mode {
            LockMode::Permits(most) => usize::try_from(most).unwrap_or(usize::MAX),
            _ => usize::MAX,
        };
        let void = self.void(key);
        let mut solid = holds.iter().filter(|other| other.token > void);
        let other = other.or_else(|| solid.nth(permits - 1).copied());
        holds.push(hold);
        // With a clock beyond the margin, a client may rely on its lock for too long.
        let (now, is_beyond) = (self.now, self.plan.has(Part::ClockBeyondTheMargin));
        let lock = self.lock(key);
        lock.holds = holds;
        lock.moved = lock.moved.max(now);
        if now < lock.void_until || is_beyond {
            lock.void = lock.void.max(hold.token);
        }
        let is_exclusive = hold.mode == LockMode::Exclusive;
        // Those who share a lock need only have larger tokens than the exclusive holders before.
        let last = if is_exclusive {
            lock.last_token
        } else {
            lock.last_exclusive
        };
        lock.last_token = lock.last_token.max(hold.token);
        if is_exclusive {
            lock.last_exclusive = lock.last_exclusive.max(hold.token);
        }
        let first = *lock.first_with.entry(hold.token).or_insert(hold);
        let kept_until = lock.kept_until;
        if hold.token <= void || other.is_some_and(|other| other.token <= void) {
            self.counts.excused += 1;
        } else if let Some(other) = other {
            let what = format!("{key}: {hold:?} at the same time as {other:?}");
            self.breaks(ONE_HOLDER, what);
        }
        if hold.token <= void {
            return;
        }
        if hold.token <= last {
            let what = format!("{key}: {hold:?} after the token {last}");
            self.breaks(TOKENS_GROW, what);
        } else if !first.is_of_same_owner(&hold) && !self.may_have_same_token(&hold) {
            let what = format!("{key}: {hold:?} with the token of {first:?}");
            self.breaks(OWN_TOKENS, what);
        } else if now < kept_until {
            let early = Duration::from_nanos(kept_until - now);
            let what = format!("{key}: {hold:?} begins {early:?} early");
            self.breaks(KEPT, what);
        }
    }

    /// Notes an entry of a task. `is_single`: its call has no other. Returns until when its success keeps the lock.
    pub(crate) fn enters(
        &mut self,
        client: usize,
        task: usize,
        entry: &Entry,
        is_single: bool,
        is_new: bool,
    ) -> Option<Time> {
        if self.shares() {
            return None;
        }
        let (key, owner) = (&entry.key, entry.owner);
        let Client {
            machine,
            notes,
            clock,
            tasks,
            ..
        } = &mut self.clients[client];
        let (now, task) = (clock.time(self.now), &tasks[task]);
        // A call for several keys enters the hold it nests in before it has the other locks. The hold may be lost then.
        let since = if is_new { now } else { clock.time(task.since) };
        let note = notes.of(owner);
        note.retain = note.retain.max(task.terms.retain);
        let kept_until = task.terms.min_hold.map(|least| since + least);
        let is_valid = machine
            .own(key, owner)
            .is_some_and(|own| own.valid_until(now).is_ok());
        if !is_valid && (is_single || is_new) {
            let what = format!("{key}: a call of client {client} enters a hold that is lost");
            self.breaks(USABLE, what);
        }
        kept_until
    }

    /// Notes that an entry is about to end with success, which keeps its lock until this time.
    pub(crate) fn keeps(&mut self, client: usize, entry: &Entry, until: Option<Time>) {
        let Client {
            machine,
            notes,
            clock,
            ..
        } = &mut self.clients[client];
        let now = clock.time(self.now);
        let own = machine.own(&entry.key, entry.owner);
        if own.is_some_and(|own| own.valid_until(now).is_ok()) {
            let note = notes.of(entry.owner);
            note.kept_until = note.kept_until.max(until);
        }
    }

    fn renews(&mut self, client: usize, renew: &Renew, now: Time) {
        let is_slow = self.may_stall();
        let is_renewed = self.is_always_renewed();
        let state = &mut self.clients[client];
        let phase = state
            .machine
            .own(&renew.key, renew.owner)
            .map(Ownership::phase);
        let note = state.notes.of(renew.owner);
        // If the hold before has tried a renewal, the next one follows after a pause.
        let is_first = std::mem::take(&mut note.is_brief) && note.attempts == 0;
        note.attempts += 1;
        let retained_until = note.ended_at + note.retain.max(FOR_TOKENS);
        // An entry may have confirmed the whole lease before.
        let is_short = renew.confirmed < renew.lease;
        let is_late = (is_first && is_short && is_renewed && !is_slow)
            && now > note.began + Duration::from_millis(30);
        let max_hold = note.terms.max_hold.map(|most| note.began + most);
        let broken = match phase {
            Some(_) if renew.lease.is_zero() => return,
            Some(Phase::Held) if max_hold.is_some_and(|until| now > until) => {
                "after its `max_hold`"
            }
            Some(Phase::Held) if self.plan.has(Part::NeverRenewed) => "without a watchdog",
            Some(Phase::Held) if is_late => "too late after the hand-off",
            Some(Phase::Retained | Phase::Ended) if !note.is_present && now > retained_until => {
                "after its retention"
            }
            Some(Phase::Held | Phase::Retained) => return,
            // The same input has ended it since, and releases it.
            Some(Phase::Ended) if note.releases == 0 => return,
            _ => "although no call has it",
        };
        let what = format!("{renew:?} is sent {broken}");
        self.breaks(RENEWED, what);
    }

    fn loses(&mut self, client: usize, loss: &Loss, now: Time) {
        self.stops_bodies(client, loss);
        self.moves(&loss.key, self.now);
        self.lock(&loss.key).kept_until = 0;
        let (is_late, is_repeated) = (self.may_stall(), self.plan.has(Part::RequestRepeated));
        // The client repeats a release at the successor if the former master has executed it.
        let is_released_twice = is_repeated || self.plan.has(Part::MasterReplaced);
        let renewed = self.is_always_renewed();
        let is_calm = self.plan.world == WorldKind::Calm;
        let Client { machine, notes, .. } = &mut self.clients[client];
        let own = machine.own(&loss.key, loss.owner);
        let is_held = own.is_some_and(|own| own.phase() == Phase::Held);
        let has_expired = own.is_some_and(|own| own.rest(now).is_zero());
        let note = notes.of(loss.owner);
        let was_lost = std::mem::replace(&mut note.is_lost, true);
        let (token, has_ended) = (note.token, loss.entries.is_empty());
        // The lease may end while the request is on its way.
        let is_past = has_expired || has_ended && now >= note.valid_until;
        let broken = if was_lost {
            "for the second time"
        } else if note.is_present == has_ended {
            "although no hold has it"
        } else if has_ended && note.is_released && !is_released_twice {
            "although it was released"
        } else if has_ended && note.valid_until == Time::default() {
            "although its lease had ended before the release"
        } else if is_held && !matches!(loss.cause, LostCause::MaxHold | LostCause::Revoked) {
            "and keeps the turn"
        } else if loss.cause == LostCause::Expired && renewed && note.attempts < 2 && !is_late {
            "after one attempt at a renewal"
        } else if loss.cause == LostCause::Expired && renewed && is_calm {
            "without a fault"
        } else if loss.cause == LostCause::Removed
            && !is_past
            && !is_repeated
            && token > self.void(&loss.key)
        {
            "and no fault took it"
        } else {
            return;
        };
        let what = format!("client {client}: {loss:?} {broken}");
        self.breaks(NO_FALSE_LOSS, what);
    }

    /// Checks the outcome of a downgrade. Returns whether the hold is a shared one now, which had this mode.
    pub(crate) fn downgraded(&mut self, client: usize, held: &Held, step: Option<&Step>) -> bool {
        let (key, owner) = (&held.entry.key, held.entry.owner);
        let state = &self.clients[client];
        let own = state.machine.own(key, owner);
        let is_valid = own.is_some_and(|own| own.valid_until(state.clock.time(self.now)).is_ok());
        // A nested call that is not polled any more still waits.
        let enters = state.is_entering() || self.plan.has(Part::CallNotPolled);
        let (used, entries) = own.map_or((held.mode, 0), |own| (own.used(), own.entries()));
        let is_right = match step {
            Some(Step::Downgraded) => is_valid && used != LockMode::Exclusive,
            Some(Step::Refused(Refusal::Lost(..))) => !is_valid,
            Some(Step::Refused(Refusal::Nested(_))) => {
                used == LockMode::Exclusive && (entries > 1 || enters)
            }
            _ => false,
        };
        if !is_right {
            let what = format!("{key}: client {client} downgrades {held:?}: {step:?}");
            self.breaks(NO_REFUSAL, what);
        }
        let is_done = held.mode == LockMode::Exclusive && step == Some(&Step::Downgraded);
        if is_done {
            let lock = self.lock(key);
            let of_hold = |hold: &&mut Hold| (hold.client, hold.owner) == (client, owner);
            let holds = lock.holds.iter_mut().filter(of_hold);
            holds.for_each(|hold| hold.mode = LockMode::Shared);
            // Those who join it have its token.
            lock.last_exclusive = lock.last_exclusive.min(held.token - 1);
        }
        is_done
    }

    /// Checks the end of an entry. A loss that its call learns was told before.
    pub(crate) fn has_left(&mut self, client: usize, task: usize, outcome: Result<(), LostCause>) {
        let shares = self.shares();
        let state = &mut self.clients[client];
        let Some((key, owner, releases)) = state.tasks[task].leaves.take() else {
            return;
        };
        if shares {
            return;
        }
        let note = state.notes.get(owner).cloned().unwrap_or_default();
        let is_within =
            releases && note.releases == 1 && state.clock.time(self.now) < note.valid_until;
        let is_hidden = is_within && !note.is_released && !note.is_lost;
        match outcome {
            Ok(())
                if is_hidden
                    && self.servers.len() == 1
                    && !self.plan.has(Part::RequestRepeated) =>
            {
                let what = format!("{key}: a release of client {client} hides a loss");
                self.breaks(NO_FALSE_LOSS, what);
            }
            Err(cause) if !note.is_lost && cause != LostCause::Closed => {
                let what = format!("{key}: a release of client {client} finds a loss: {cause:?}");
                self.breaks(NO_FALSE_LOSS, what);
            }
            _ => {}
        }
    }

    /// Checks why a call gets no lock, or a release has no reply.
    pub(crate) fn refused(&mut self, client: usize, task: usize, why: &Refusal) {
        let (state, may_fail) = (&self.clients[client], self.may_fail());
        let task = &state.tasks[task];
        let is_leaving = matches!(task.doing, Doing::Leaving(_));
        let is_early = self.now < task.not_before && !is_leaving;
        // A release fails if requests of the background did, and a nested call if others of its hold did.
        let has_failed = (task.has_failed || is_leaving || task.is_inside) && may_fail;
        let is_wrong = match why {
            Refusal::Taken(..) => is_early,
            Refusal::Failed => !has_failed && !task.was_late,
            Refusal::Split => self.servers.len() == 1,
            Refusal::Lost(..) => !task.is_inside,
            Refusal::Draining => {
                let began_earlier = task.is_inside || task.since < state.drained;
                // The background of a client that was paused since gives up the calls that were not polled.
                let is_unpolled =
                    self.plan.has(Part::CallNotPolled) || state.paused_until > state.drained;
                began_earlier && !is_unpolled || state.life < Life::Draining
            }
            Refusal::Closed => state.life < Life::Closed,
            // Tasks nest calls in any modes. A downgrade may come before a nested call that waits for the count.
            Refusal::Upgrade(..) => {
                !task.is_inside || !self.shares() && !self.plan.has(Part::Downgrades)
            }
            Refusal::Nested(_) => true,
        };
        if is_wrong {
            let what = format!("client {client}: {why:?}, early: {is_early}");
            self.breaks(NO_REFUSAL, what);
        }
    }

    pub(crate) fn is_in_time(&mut self, client: usize, task: usize) {
        let late = self
            .now
            .saturating_sub(self.clients[client].tasks[task].deadline);
        if late > 0 && self.clients[client].paused_until <= self.now {
            let doing = self.clients[client].tasks[task].doing;
            let late = Duration::from_nanos(late);
            let what = format!("client {client}: {doing:?} is {late:?} late");
            self.breaks(IN_TIME, what);
        }
    }

    /// A write arrives at the resource of a key.
    pub(crate) fn writes(&mut self, key: &Key, hold: Hold) {
        let relies = self.relies(key, &hold);
        let lock = self.lock(key);
        let is_refused = hold.token < lock.highest;
        lock.highest = lock.highest.max(hold.token);
        let (highest, is_void) = (lock.highest, hold.token <= lock.void);
        self.counts.stale_writes += u64::from(is_refused);
        if is_refused && relies && !is_void {
            let what = format!("{key}: {hold:?} is refused after {highest}");
            self.breaks(NO_STALE_WRITE, what);
        }
    }

    /// Looks at what the clients hold and wait for, and at the servers.
    pub(crate) fn audit(&mut self) {
        for client in 0..self.clients.len() {
            for task in 0..self.clients[client].tasks.len() {
                self.audit_task(client, task);
            }
            for key in self.keys.clone() {
                self.audit_reliance(client, &key);
                self.audit_ownership(client, &key);
            }
        }
        for key in self.keys.clone() {
            for server in 0..self.servers.len() {
                self.audit_server(server, &key);
            }
        }
    }

    fn audit_task(&mut self, client: usize, task: usize) {
        self.audit_wake(client, task);
        let state = &self.clients[client];
        let waiting = &state.tasks[task];
        let Doing::Acquiring(_) = waiting.doing else {
            return;
        };
        let (wants, since, is_paused) = (
            waiting.wants.clone(),
            waiting.since,
            state.paused_until > self.now,
        );
        self.is_in_time(client, task);
        // A nested call waits for the requests of its hold.
        let [key] = &*wants else {
            return;
        };
        // A hold that was lost by its `max_hold`, or because a client asked, keeps the lock until it leaves.
        let keeps = |client: &Client| {
            let owns = client
                .machine
                .slot(key)
                .map_or(&[][..], |slot| slot.ownerships());
            let mut held = owns.iter().filter(|own| own.phase() == Phase::Held);
            held.any(|own| matches!(own.lost(), Some(LostCause::MaxHold | LostCause::Revoked)))
        };
        let holds = self.holds(key);
        let is_held = !holds.is_empty() || self.clients.iter().any(keeps);
        self.lock(key).holds = holds;
        if is_held {
            return self.moves(key, self.now);
        }
        // A lease ends by its holder's clock a little sooner than by the server's, and since the last look.
        let lease = u64::from(self.plan.longest_lease()) * MS;
        let most = if self.is_quorum() || self.plan.may(Effect::Delays) {
            LONGEST_IDLE + lease
        } else {
            SHORTEST_IDLE + lease / 4
        };
        if is_paused {
            return;
        }
        let idle = self.now.saturating_sub(self.locks[key].moved.max(since));
        self.counts.longest_idle = self.counts.longest_idle.max(idle);
        if idle > most {
            let idle = Duration::from_nanos(idle);
            let what = format!("{key} is free for {idle:?}, and client {client} waits");
            self.breaks(SERVED, what);
        }
    }

    /// Polls a call that waits for no reply, in a copy of its machine: it has to wait on.
    fn audit_wake(&mut self, client: usize, task: usize) {
        let state = &self.clients[client];
        let waiting = &state.tasks[task];
        let (Doing::Acquiring(call) | Doing::Leaving(call)) = waiting.doing else {
            return;
        };
        let now = state.clock.time(self.now);
        let is_busy = waiting.is_sending || waiting.is_planned || state.paused_until > self.now;
        if is_busy || state.machine.due().is_some_and(|due| due <= now) {
            return;
        }
        let mut machine = state.machine.clone();
        let outputs = machine.on(Input::Poll(call), now);
        let goes_on = |output: &Output| match output {
            Output::Step(Step::Wait) => false,
            output => matches!(output, Output::Step(_)),
        };
        if let Some(step) = outputs.into_iter().find(goes_on) {
            let what = format!("client {client}: {call:?} was not woken for {step:?}");
            self.breaks(WOKEN, what);
        }
    }

    /// Checks that a client relies on a lock for no longer than the servers keep it.
    fn audit_reliance(&mut self, client: usize, key: &Key) {
        let (now, state) = (self.now, &self.clients[client]);
        let time = state.clock.time(now);
        let owns = state.machine.slot(key).map_or(&[][..], Slot::ownerships);
        let is_valid =
            |own: &&Ownership| own.phase() == Phase::Held && own.valid_until(time).is_ok();
        for own in owns.iter().filter(is_valid).cloned().collect::<Vec<_>>() {
            self.audit_lease(client, key, &own, time);
        }
    }

    fn audit_lease(&mut self, client: usize, key: &Key, own: &Ownership, time: Time) {
        let (now, state) = (self.now, &self.clients[client]);
        let token = own.token().filter(|token| !self.is_excused(key, *token));
        // A client that stays at a replaced master breaks this rule before the one about holders.
        let is_certain = !self.plan.has(Part::ClockBeyondTheMargin)
            && !self.plan.stays
            && !self.is_failing_over();
        let Some(token) = token.filter(|_| is_certain) else {
            return;
        };
        let owner = OwnerId::new(state.id, own.owner, own.mode);
        let left = own.rest(time);
        let loses_fences = (self.plan).has_any(&[
            Part::FenceEvicted,
            Part::ServerRestartedEmpty,
            Part::OlderCopyTookOver,
            Part::ClockSetAhead,
            Part::ClockSetBack,
        ]);
        // Those who leave a shared lock decide how long its fence is kept.
        let is_exclusive =
            own.mode == LockMode::Exclusive && !loses_fences && self.is_always_renewed();
        let mut servers = self.servers.iter_mut();
        if is_exclusive && !servers.any(|server| server.keeps_fence(now, key)) {
            let what = format!("{key}: client {client} holds {token}");
            self.breaks(FENCED, what);
        }
        // A server may not know of a downgrade yet.
        let owners = [Some(owner), owner.before_downgrade()];
        let mut kept: Vec<Duration> = (self.servers.iter_mut())
            .map(|server| {
                let at = server.time(now);
                let mut owners = owners.iter().flatten();
                let left = owners.find_map(|owner| {
                    let holder = server.state.held_by(key, *owner, at)?;
                    Some(holder.expires.since(at))
                });
                left.unwrap_or_default()
            })
            .collect();
        kept.sort_unstable();
        // A majority has it for as long.
        let kept = kept[(kept.len() - 1) / 2];
        if left > kept {
            let what =
                format!("{key}: client {client} relies on {token} for {left:?}, kept for {kept:?}");
            self.breaks(COVERED, what);
        }
    }

    /// Checks that a hold which has ended by the clock was reported as lost, and that the first waiter asks after a
    /// change.
    fn audit_ownership(&mut self, client: usize, key: &Key) {
        // The client may look at its schedule just now.
        let past = self.now.saturating_sub(400 * MS);
        let state = &self.clients[client];
        let Some(own) = state.current(key).filter(|_| past > state.clock.born) else {
            return;
        };
        let note = state.notes.get(own.owner);
        let changed_at = note.and_then(|note| note.changed_at);
        let changed_at = changed_at.filter(|_| !self.shares());
        let asks_by = changed_at.map_or(Time::NEVER, |at| at + FOR_CHANGE);
        let is_held = own.phase() == Phase::Held && own.lost().is_none();
        let is_lost = is_held && own.valid_until(state.clock.time(past)).is_err();
        let sleeps = own.phase().is_pending() && state.clock.time(self.now) > asks_by;
        if is_lost && !self.plan.has(Part::ClientPaused) {
            let what = format!("{key}: client {client} has not noticed a loss");
            self.breaks(NO_FALSE_LOSS, what);
        } else if sleeps
            && !self
                .plan
                .has_any(&[Part::ClientPaused, Part::CallNotPolled])
        {
            let what = format!("{key}: client {client} is the first waiter, and does not ask");
            self.breaks(SERVED, what);
        }
    }

    /// Looks at the owner that a server knows.
    fn audit_server(&mut self, server: usize, key: &Key) {
        let (now, at) = (self.now, self.servers[server].time(self.now));
        let entry = self.servers[server].state.inspect(key, at);
        let owner = entry
            .as_ref()
            .map_or(String::new(), |entry| entry.owner.clone());
        let id = OwnerId::parse(&owner).filter(|owner| *owner != OwnerId::KEPT);
        let holder = id.and_then(|id| self.clients.iter().find(|client| id.is_of(client.id)));
        let own = id.and_then(|id| holder?.machine.own(key, id.sequence()));
        // A release that a majority has executed is not repeated.
        let may_be_left = self.plan.may(Effect::Leaves)
            || self.is_quorum() && self.plan.may(Effect::LeavesOfMinority);
        let is_gone = own.is_none() && holder.is_some_and(|client| client.life < Life::Closed);
        // No request of the client is on its way. A downgrade is told as a count, too.
        let is_counted = self.plan.has(Part::CountsEntries) && !self.is_quorum();
        let is_untold = |id: OwnerId, own: &Ownership, holder: &Client| {
            (own.phase(), own.mode, id.mode())
                == (Phase::Held, LockMode::Shared, LockMode::Exclusive)
                && own.is_told(true)
                && holder.is_idle()
                // Nothing more is told about a lock that is lost.
                && own.lost().is_none()
        };
        if let (Some(id), Some(own), Some(holder)) = (id, own, holder)
            && is_untold(id, own, holder)
            && !self.is_quorum()
            && !self.plan.may(Effect::Repeats)
        {
            let what = format!("{key}: server {server} is not told of a downgrade");
            return self.breaks(COUNTED, what);
        }
        if let (Some(holder), Some(own), Some(entry)) = (holder, own, entry)
            && (own.phase(), own.is_told(true), own.used())
                == (Phase::Held, true, LockMode::Exclusive)
            && (own.entries() != entry.count && holder.is_idle())
            && own.valid_until(holder.clock.time(self.now)).is_ok()
            && (is_counted && !self.plan.may(Effect::Repeats))
        {
            let what = format!(
                "{key}: {} entries, and {} on the server",
                own.entries(),
                entry.count
            );
            self.breaks(COUNTED, what);
        }
        self.audit_restored(server, key, owner.is_empty());
        let is_down = self.servers[server].down_until > now;
        let lock = self.lock(key);
        lock.owners
            .resize_with(lock.owners.len().max(server + 1), Default::default);
        let (last, since) = &mut lock.owners[server];
        if *last != owner {
            (*last, lock.moved) = (owner, lock.moved.max(now));
            *since = now;
        }
        if may_be_left || !is_gone || is_down {
            *since = now;
        }
        let orphaned = now - *since;
        if orphaned > LONGEST_ORPHANED {
            let orphaned = Duration::from_nanos(orphaned);
            let what = format!("{key}: server {server} has an owner that is gone for {orphaned:?}");
            self.breaks(NOTHING_LEFT, what);
        }
    }

    /// Checks that a member which has no lock for a present hold gets it by the next renewals.
    fn audit_restored(&mut self, server: usize, key: &Key, is_free: bool) {
        let may_lack = self.may_be_lost() || !self.is_always_renewed();
        if !self.is_quorum() || may_lack || self.is_over {
            return;
        }
        let (now, holds) = (self.now, self.holds(key));
        let lacks = is_free && !holds.is_empty() && self.servers[server].down_until <= now;
        let limit = u64::from(self.plan.longest_lease()) * MS + 1_000 * MS;
        let (members, lock) = (self.servers.len(), self.lock(key));
        lock.holds = holds;
        lock.lacks.resize(members, now);
        if !lacks {
            lock.lacks[server] = now;
        } else if now - lock.lacks[server] > limit {
            let since = Duration::from_nanos(now - lock.lacks[server]);
            let what = format!(
                "{key}: server {server} lacks {:?} for {since:?}",
                lock.holds
            );
            self.breaks(RESTORED, what);
        }
    }
}
