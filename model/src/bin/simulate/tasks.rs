//! What tasks do: they acquire, enter again, write, leave, and give up.

use std::time::Duration;

use crate::{
    clients::{Doing, Held, Life, Sent, Task},
    engine::machine::{
        Ask, By, CallId, Entered, HoldEnd, Input, Loss, Owner, Refusal, Reply, Step,
    },
    error::LostCause,
    few::Few,
    judge::{Hold, Rule},
    key::Key,
    notes::Note,
    options::{LockOptions, Site, Wait},
    plan::{Fault, World as Kind},
    world::{Happening, MS, World, nanos},
};

/// How much later than its deadline a call may end: its last request has a time-out, and its reply may be late.
const SLACK: u64 = 1_500 * MS;
/// The longest time of a call that does not wait: it waits for releases of its own client, and for its request.
const ATTEMPT: u64 = 4_500 * MS;
/// How long a call waits for its release.
const RELEASE: u64 = 4_000 * MS;
/// The last part of a wait in which no request is sent.
const LAST_PART: Duration = Duration::from_millis(10);

impl World {
    pub(crate) fn task(&mut self, client: usize, task: usize) {
        let is_open = self.clients[client].life == Life::Open && !self.is_over;
        let state = &mut self.clients[client].tasks[task];
        match state.doing {
            Doing::Ready if !state.entries.is_empty() => self.inside(client, task, is_open),
            Doing::Ready if is_open => self.begins(client, task),
            Doing::Ready => {}
            Doing::Acquiring(call) => {
                if self.occurs(Fault::Cancelled) {
                    self.drops(client, call);
                } else if self.occurs(Fault::Unpolled) {
                    self.forgets(client, task, call);
                } else {
                    self.polls(client, call);
                }
            }
            Doing::Leaving(call) => {
                if self.occurs(Fault::Cancelled) {
                    self.drops(client, call);
                } else {
                    self.polls(client, call);
                }
            }
        }
    }

    fn polls(&mut self, client: usize, call: CallId) {
        let Some(task) = self.clients[client].calls.get(&call).copied() else {
            return;
        };
        if !self.clients[client].tasks[task].is_sending {
            self.on(client, Input::Poll(call), Some(call));
        }
    }

    /// Draws whether something happens, in percent.
    fn is(&mut self, percent: u32) -> bool {
        percent > 0 && self.rng.u32(..100) < percent
    }

    fn terms(&mut self) -> LockOptions {
        let ms = |ms: u32| Duration::from_millis(u64::from(ms));
        let options = self.plan.options;
        let lease = self.plan.leases[self.rng.usize(..self.plan.leases.len())];
        let wait = if self.is(options.never) {
            Wait::Never
        } else if self.is(options.forever) {
            Wait::Forever
        } else {
            Wait::For(ms(self.rng.u32(1..=self.plan.longest_wait)))
        };
        LockOptions {
            lease: ms(lease),
            wait,
            watchdog: !self.is(options.unrenewed),
            max_hold: self.is(options.max_hold).then(|| ms(self.rng.u32(5..200))),
            at_least: self.is(options.at_least).then(|| ms(self.rng.u32(1..100))),
            retain: if self.is(options.retain) {
                ms(self.rng.u32(1..=self.plan.longest_retain))
            } else {
                Duration::ZERO
            },
            site: Site::default(),
        }
    }

    /// Acquires one key or several, perhaps inside a hold of another task.
    fn begins(&mut self, client: usize, task: usize) {
        if self.is(self.plan.options.enters_others) {
            let tasks = self.clients[client].tasks.iter();
            let entries: Vec<_> = tasks.flat_map(|other| &other.entries).collect();
            if !entries.is_empty() {
                let held = entries[self.rng.usize(..entries.len())];
                let inside = (held.entry.key.clone(), Some((held.entry.owner, held.token)));
                return self.acquires(client, task, [inside].into_iter().collect(), true, false);
            }
        }
        let most = if self.is(self.plan.options.several) {
            self.rng.usize(1..=3)
        } else {
            1
        };
        let mut keys: Vec<Key> = (0..most)
            .map(|_| self.keys[self.rng.usize(..self.keys.len())].clone())
            .collect();
        keys.sort();
        keys.dedup();
        let keys = keys.into_iter().map(|key| (key, None)).collect();
        self.acquires(client, task, keys, false, true);
    }

    fn acquires(
        &mut self,
        client: usize,
        task: usize,
        keys: Few<(Key, Option<(Owner, u64)>)>,
        is_inside: bool,
        may_wait_long: bool,
    ) {
        let (call, mut terms) = (CallId(self.number()), self.terms());
        if !may_wait_long && terms.wait == Wait::Forever {
            // Calls that nest locks in different orders block each other.
            terms.wait = Wait::For(Duration::from_millis(500));
        }
        let (now, slow) = (self.now, self.slowness());
        let (shortest, longest) = match terms.wait {
            Wait::Never => (0, ATTEMPT),
            // Clocks drift.
            Wait::For(wait) => (
                nanos(wait.saturating_sub(LAST_PART)) / 100 * 95,
                nanos(wait) / 100 * 105 + SLACK,
            ),
            Wait::Forever => (u64::MAX / 2, u64::MAX / 2),
        };
        let wants = keys.iter().filter(|(_, inside)| inside.is_none());
        let wants = wants.map(|(key, _)| self.keys.iter().position(|own| own == key).unwrap_or(0));
        let wants = wants.collect();
        let state = &mut self.clients[client].tasks[task];
        state.doing = Doing::Acquiring(call);
        (state.since, state.has_failed, state.wants) = (now, false, wants);
        (state.is_inside, state.terms) = (is_inside, terms);
        state.not_before = now + shortest;
        state.deadline = now + longest + slow;
        self.clients[client].calls.insert(call, task);
        for (owner, _) in keys.iter().filter_map(|(_, inside)| *inside) {
            // It may enter this hold before it has its other locks.
            self.clients[client].notes.renews(owner, terms.watchdog);
        }
        let input = Input::Acquire {
            call,
            keys,
            terms,
            is_inside,
        };
        self.on(client, input, Some(call));
        self.may_be_dropped(client, call);
        self.may_be_polled_early(client, task);
    }

    /// Returns how much later calls may end because their executor is slow.
    fn slowness(&self) -> u64 {
        u64::from(self.plan.has(Fault::Slow)) * 1_000 * MS
    }

    /// The future of a call may be dropped at any time.
    fn may_be_dropped(&mut self, client: usize, call: CallId) {
        if self.clients[client].calls.contains_key(&call) && self.occurs(Fault::Cancelled) {
            let (who, after) = (self.who(client), self.rng.u64(..20 * MS));
            self.later(after, Happening::Dropped(who, call));
        }
    }

    fn may_be_polled_early(&mut self, client: usize, task: usize) {
        if self.occurs(Fault::PolledEarly) && self.clients[client].tasks[task].doing != Doing::Ready
        {
            let after = self.rng.u64(..20 * MS);
            self.goes_on(client, task, after);
        }
    }

    /// Does something with the locks that a task holds.
    fn inside(&mut self, client: usize, task: usize, is_open: bool) {
        let options = self.plan.options;
        let entries = &self.clients[client].tasks[task].entries;
        let (depth, held) = (entries.len(), entries[entries.len() - 1].clone());
        let stays = self.clients[client].life < Life::Closed && !self.is_over;
        if stays && depth < 5 && self.is(options.nests) {
            let inside = Some((held.entry.owner, held.token));
            let mut keys: Few<_> = [(held.entry.key.clone(), inside)].into_iter().collect();
            if is_open && self.is(20) {
                // Another lock, or another one with it.
                let other = self.keys[self.rng.usize(..self.keys.len())].clone();
                let entries = &self.clients[client].tasks[task].entries;
                let outer = entries.iter().rev().find(|held| held.entry.key == other);
                let inside = outer.map(|held| (held.entry.owner, held.token));
                if self.rng.bool() {
                    keys.clear();
                }
                keys.retain(|(key, _)| *key != other);
                keys.push((other, inside));
                keys.sort();
            }
            return self.acquires(client, task, keys, true, false);
        }
        if stays && self.is(options.keeps) {
            let own = self.clients[client]
                .machine
                .own_mut(&held.entry.key, held.entry.owner);
            if let Some(number) = own.and_then(|own| own.keep(held.entry.number)) {
                let mut kept = held.clone();
                kept.entry.number = number;
                self.clients[client].tasks[task].entries.insert(0, kept);
            }
        }
        if self.is(options.writes) {
            let writer = self.hold(client, &held);
            if self.relies(&held.entry.key, &writer) {
                let after = if self.rng.u8(..10) == 0 {
                    3_000 * MS
                } else {
                    5 * MS
                };
                let after = self.rng.u64(..after);
                self.later(after, Happening::Write(writer, held.entry.key.clone()));
            }
        }
        self.leaves(client, task);
    }

    fn hold(&self, client: usize, held: &Held) -> Hold {
        let life = self.clients[client].life_number;
        Hold {
            client,
            life,
            owner: held.entry.owner,
            token: held.token,
        }
    }

    /// Ends the innermost entry of a task, by a release or by dropping its guard.
    pub(crate) fn leaves(&mut self, client: usize, task: usize) {
        let Some(held) = self.clients[client].tasks[task].entries.pop() else {
            return;
        };
        let (entry, drops) = (held.entry, self.rng.bool());
        self.judge.moves(&entry.key, self.now);
        let end = if self.occurs(Fault::Panicked) {
            HoldEnd::Panicked
        } else {
            HoldEnd::Released
        };
        if drops || end == HoldEnd::Panicked {
            self.on(
                client,
                Input::Leave {
                    entry,
                    end,
                    call: None,
                },
                None,
            );
            let after = self.rng.u64(..2 * MS);
            return self.goes_on(client, task, after);
        }
        let call = CallId(self.number());
        let slow = self.slowness();
        let state = &mut self.clients[client].tasks[task];
        state.doing = Doing::Leaving(call);
        state.leaves = Some((entry.key.clone(), entry.owner, false));
        state.deadline = self.now + RELEASE + SLACK + slow;
        self.clients[client].calls.insert(call, task);
        self.on(
            client,
            Input::Leave {
                entry,
                end,
                call: Some(call),
            },
            Some(call),
        );
        if self.clients[client].calls.contains_key(&call) && self.occurs(Fault::Unpolled) {
            self.forgets(client, task, call);
        }
        self.may_be_dropped(client, call);
        self.may_be_polled_early(client, task);
    }

    /// Takes the next step of a call.
    pub(crate) fn step(&mut self, client: usize, call: CallId, step: Step) {
        let Some(task) = self.clients[client].calls.get(&call).copied() else {
            return;
        };
        match step {
            Step::Send(request) => {
                let state = &mut self.clients[client].tasks[task];
                state.is_sending = true;
                if let (Ask::Lower { count: 0, .. }, Some(leaves)) =
                    (&request.what, &mut state.leaves)
                {
                    leaves.2 = true;
                }
                self.sends(client, Sent::Request(request), Some(call));
            }
            Step::Wait | Step::AskHolder(_) => {}
            Step::Entered(entered) => {
                self.is_in_time(client, task, call);
                for one in &entered {
                    self.entered(client, task, one, entered.len() == 1);
                }
                self.ended(client, task, call);
                let longest = if self.is_over {
                    5
                } else {
                    self.plan.longest_hold
                };
                let after = self.rng.u64(..=u64::from(longest) * MS);
                self.goes_on(client, task, after);
            }
            Step::Left(outcome) => {
                self.is_in_time(client, task, call);
                self.has_left(client, task, outcome);
                self.ended(client, task, call);
                let after = self.rng.u64(..5 * MS);
                self.goes_on(client, task, after);
            }
            Step::Refused(why) => {
                self.is_in_time(client, task, call);
                self.refused(client, task, &why);
                self.ended(client, task, call);
                let after = self.rng.u64(..5 * MS);
                self.goes_on(client, task, after);
            }
        }
    }

    /// Ends a call of a task.
    fn ended(&mut self, client: usize, task: usize, call: CallId) {
        let client = &mut self.clients[client];
        client.calls.remove(&call);
        client.tasks[task].doing = Doing::Ready;
    }

    fn is_in_time(&mut self, client: usize, task: usize, call: CallId) {
        let (now, state) = (self.now, &self.clients[client].tasks[task]);
        if now > state.deadline {
            let late = Duration::from_nanos(now - state.deadline);
            let what = || format!("client {client}: {call:?} ends {late:?} late");
            self.judge.breaks(Rule::InTime, what);
        }
    }

    fn refused(&mut self, client: usize, task: usize, why: &Refusal) {
        let state = &self.clients[client].tasks[task];
        let is_leaving = matches!(state.doing, Doing::Leaving(_));
        let is_early = self.now < state.not_before && !is_leaving;
        // A release fails if requests of the background did, and a nested call if others of its hold did.
        let has_failed = state.has_failed || is_leaving || state.is_inside;
        // The end of a wait cuts the last request short.
        let has_failed = has_failed && (self.may_fail() || self.now >= state.not_before);
        let is_own = self.is_refused_by_itself(client, task, why);
        let (began, drained) = (
            self.clients[client].tasks[task].since,
            self.clients[client].drained,
        );
        if matches!(why, Refusal::Draining) && began < drained {
            let what = || format!("client {client}: a call that waits is refused");
            self.judge.breaks(Rule::NoRefusalWithoutReason, what);
        }
        self.judge.refuses(why, is_early || is_own, has_failed);
    }

    /// Returns whether a call that does not wait was refused although no other client exists, and no other task uses the key.
    fn is_refused_by_itself(&self, client: usize, task: usize, why: &Refusal) -> bool {
        let Refusal::Taken(key, _) = why else {
            return false;
        };
        let tasks = self.clients[client].tasks.iter().enumerate();
        let is_used = |other: &Task| {
            // A nested call acquires the lock itself if its hold has ended.
            let wants =
                other.is_inside || (other.wants.iter()).any(|wanted| self.keys[*wanted] == *key);
            wants && other.doing != Doing::Ready
                || other.entries.iter().any(|held| held.entry.key == *key)
        };
        let is_alone = self.clients.len() == 1 && self.is_calm() && self.plan.options.at_least == 0;
        let waits = self.clients[client].tasks[task].terms.wait;
        is_alone
            && waits == Wait::Never
            && !tasks
                .filter(|(n, _)| *n != task)
                .any(|(_, other)| is_used(other))
    }

    /// Returns whether requests may fail in this run.
    pub(crate) fn may_fail(&self) -> bool {
        use Fault::{
            Held, Paused, Refused, ReplyLost, RequestLost, ServerPaused, Slow, Unpolled, Unsent,
        };
        let faults = [
            Held,
            Paused,
            Refused,
            ReplyLost,
            RequestLost,
            ServerPaused,
            Slow,
            Unpolled,
            Unsent,
            Fault::Closed,
        ];
        self.servers.len() > 1 || faults.iter().any(|fault| self.plan.has(*fault))
    }

    /// Notes an entry. `is_single`: the call has no other.
    fn entered(&mut self, client: usize, task: usize, entered: &Entered, is_single: bool) {
        let (entry, token) = (entered.entry.clone(), entered.token);
        let in_body = self.rng.bool();
        if in_body
            && let Some(own) = self.clients[client]
                .machine
                .own_mut(&entry.key, entry.owner)
        {
            own.runs_body(entry.number);
        }
        let held = Held {
            entry,
            token,
            in_body,
        };
        let (key, began) = (held.entry.key.clone(), self.hold(client, &held));
        self.clients[client].tasks[task].entries.push(held);
        let terms = self.clients[client].tasks[task].terms;
        if let Some(by) = entered.began {
            self.seen.began(by);
            self.check_hold(&key, began);
            let slot = self.clients[client].machine.slot(&key);
            let is_next = by == By::Local && slot.is_some_and(|slot| slot.wanted);
            let most = self.plan.local_handovers;
            self.judge.serves(&key, client, is_next, most);
            self.notes_hold(client, &key, (began.owner, began.token), by, &terms);
            self.audit_reliance(client, &key);
        }
        // A call for several keys enters this hold first. The hold may be lost before the call has the other locks.
        let is_lost = |note: &Note| note.is_lost && is_single && entered.began.is_none();
        if self.clients[client]
            .notes
            .of(began.owner)
            .is_some_and(is_lost)
        {
            let what = || format!("{key}: a call of client {client} enters a hold that is lost");
            self.judge.breaks(Rule::IsUsable, what);
        }
        // A call for several keys enters the hold it nests in before it has the other locks.
        let began_at = self.clients[client].tasks[task].since;
        let since = entered.began.map_or(began_at, |_| self.now);
        self.notes_entry(client, began.owner, &terms, since);
    }

    /// A call has left. A loss that it learns was told before.
    fn has_left(&mut self, client: usize, task: usize, outcome: Result<(), LostCause>) {
        let Some((key, owner, releases)) = self.clients[client].tasks[task].leaves.take() else {
            return;
        };
        if outcome.is_ok() && releases {
            self.checks_release(client, &key, owner);
        }
        let was_told = self.clients[client]
            .notes
            .of(owner)
            .is_some_and(|note| note.is_lost);
        if let Err(cause) = outcome
            && !was_told
            && cause != LostCause::Closed
        {
            let what = || {
                format!(
                    "{key}: a release of client {client} finds a loss that is not told: {cause:?}"
                )
            };
            self.judge.breaks(Rule::NoFalseLoss, what);
        }
    }

    fn check_hold(&mut self, key: &Key, hold: Hold) {
        // With a clock beyond the margin, a client may rely on its lock for too long.
        if self.plan.has(Fault::Beyond) {
            self.judge.voids(key, hold.token, self.now, self.now);
        }
        let mut judge = std::mem::take(&mut self.judge);
        judge.begins(key, hold, self.now, |other| self.relies(key, other));
        self.judge = judge;
    }

    /// A hold is lost: its bodies stop.
    pub(crate) fn lost(&mut self, client: usize, loss: &Loss) {
        self.judge.moves(&loss.key, self.now);
        self.seen.lost(loss.cause);
        for task in 0..self.clients[client].tasks.len() {
            let entries = &self.clients[client].tasks[task].entries;
            let of_hold = entries
                .iter()
                .find(|held| held.entry.owner == loss.owner && held.entry.key == loss.key);
            let Some(held) = of_hold else { continue };
            if held.in_body && self.clients[client].tasks[task].doing == Doing::Ready {
                self.goes_on(client, task, 0);
            }
        }
        let time = self.clients[client].clock.time(self.now);
        let note = self.clients[client].notes.of(loss.owner);
        let (token, valid_until) = note.map_or((0, time), |note| (note.token, note.valid_until));
        if token > 0 {
            let is_expected = match loss.cause {
                LostCause::Expired => !self.is_calm() || self.plan.options.unrenewed > 0,
                // The lease ended while the release was on its way.
                _ if loss.entries.is_empty() && time >= valid_until => true,
                _ => self.plan.has(Fault::Repeated),
            };
            self.judge.loses(loss, token, is_expected);
        }
    }

    /// Returns whether faults may delay grants.
    pub(crate) fn may_delay(&self) -> bool {
        let delays = |fault: &&Fault| {
            let is_harmless =
                [Fault::Cancelled, Fault::PolledEarly, Fault::Panicked].contains(fault);
            self.plan.has(**fault) && **fault < Fault::Asked && !is_harmless
        };
        self.servers.len() > 1 || Fault::ALL.iter().any(|fault| delays(&fault))
    }

    /// Returns whether nothing delays renewals.
    pub(crate) fn is_calm(&self) -> bool {
        self.plan.world == Kind::Calm
    }

    /// The future of a call is neither polled nor dropped for a long time.
    fn forgets(&mut self, client: usize, task: usize, call: CallId) {
        let who = self.who(client);
        self.ended(client, task, call);
        self.clients[client].tasks[task].is_sending = false;
        self.clients[client].unpolled.insert(call);
        let after = self.rng.u64(500 * MS..60_000 * MS);
        self.later(after, Happening::Dropped(who, call));
        self.goes_on(client, task, MS);
    }

    /// Drops the future of a call: first its request, then the call.
    pub(crate) fn drops(&mut self, client: usize, call: CallId) {
        let state = &mut self.clients[client];
        let was_forgotten = state.unpolled.remove(&call);
        let Some(task) = state
            .calls
            .remove(&call)
            .or(was_forgotten.then_some(usize::MAX))
        else {
            return;
        };
        let of_task = state.tasks.get_mut(task);
        let was_polled = of_task.is_some();
        if let Some(task) = of_task {
            (task.doing, task.is_sending) = (Doing::Ready, false);
        }
        self.drops_requests(client, |of| of == Some(call));
        self.on(client, Input::Cancel(call), None);
        if was_polled {
            self.goes_on(client, task, MS);
        }
        self.moves_all();
    }

    /// Drops the futures of requests.
    pub(crate) fn drops_requests(
        &mut self,
        client: usize,
        are_dropped: impl Fn(Option<CallId>) -> bool,
    ) {
        let awaited = self.clients[client].awaited.iter();
        let dropped = awaited.filter(|(_, awaited)| are_dropped(awaited.call));
        let dropped: Vec<u64> = dropped.map(|(id, _)| *id).collect();
        for id in dropped {
            if let Some(awaited) = self.clients[client].awaited.remove(&id)
                && let Sent::Request(request) = awaited.sent
            {
                self.on(client, Input::Reply(request, Reply::None), None);
            }
        }
    }
}
