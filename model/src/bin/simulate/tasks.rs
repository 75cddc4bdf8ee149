//! Decides what a simulated task does next: acquire, enter again, write, leave or give up.

use std::time::Duration;

use crate::{
    clients::{Doing, Held, Life, Sent, Task},
    few::{Few, one},
    key::Key,
    known::Hold,
    machine::{Ask, CallId, Entered, HoldEnd, Input, Inside, Ownership, Step, WantedLock},
    mode::LockMode,
    options::{LockOptions, Site, Wait},
    plan::{MOST_PERMITS, Part, WorldKind},
    world::{MS, Place, World, nanos},
};

/// How much longer than its wait a call may take: its first request has the response time-out, and the reply may be late.
const SLACK: u64 = 3_500 * MS;
/// How long a call with a shorter wait, or without one, waits for releases of its own client.
const FOR_RELEASE: Duration = Duration::from_secs(1);
/// How long a call waits for its release.
const RELEASE: u64 = 4_000 * MS;
/// The last part of a wait in which no request is sent.
const LAST_PART: Duration = Duration::from_millis(10);

impl World {
    fn state(&mut self, client: usize, task: usize) -> &mut Task {
        &mut self.clients[client].tasks[task]
    }

    pub(crate) fn task(&mut self, client: usize, task: usize) {
        let is_open = self.clients[client].life == Life::Open && !self.is_over;
        let state = &self.clients[client].tasks[task];
        match state.doing {
            Doing::Ready if !state.entries.is_empty() => self.inside(client, task, is_open),
            Doing::Ready if is_open => self.begins_call(client, task),
            Doing::Ready => {}
            Doing::Acquiring(call) | Doing::Leaving(call) => {
                let is_acquiring = state.doing == Doing::Acquiring(call);
                if self.occurs(Part::CallCancelled) {
                    self.drops(client, call);
                } else if is_acquiring && self.occurs(Part::CallNotPolled) {
                    self.forgets(client, task, call);
                } else if !self.clients[client].tasks[task].is_sending {
                    self.on(client, Input::Poll(call), Some(call));
                }
            }
        }
    }

    /// Draws whether a call has an option.
    fn is(&mut self, option: Part) -> bool {
        self.plan.has(option) && self.rng.u32(..100) < self.plan[option]
    }

    /// Draws a time up to this size.
    fn time_up_to(&mut self, longest: Part) -> Duration {
        let ms = self.rng.u32(1..=self.plan[longest]) * self.plan.scale();
        Duration::from_millis(u64::from(ms))
    }

    fn terms(&mut self) -> LockOptions {
        let ms = |ms: u32| Duration::from_millis(u64::from(ms));
        let lease = self.any_lease();
        let wait = if self.is(Part::NeverWaits) {
            Wait::Never
        } else if self.is(Part::WaitsForever) {
            Wait::Forever
        } else {
            Wait::For(self.time_up_to(Part::LongestWait))
        };
        LockOptions {
            mode: LockMode::Exclusive,
            lease,
            wait,
            watchdog: !self.is(Part::Unrenewed) && !self.is(Part::NeverRenewed),
            max_hold: self.is(Part::MaxHold).then(|| ms(self.rng.u32(5..200))),
            min_hold: self.is(Part::MinHold).then(|| ms(self.rng.u32(1..100))),
            retain: if self.is(Part::Retains) {
                self.time_up_to(Part::LongestRetain)
            } else {
                Duration::ZERO
            },
            site: Site::default(),
        }
    }

    /// Acquires one key or several, perhaps inside a hold of another task.
    fn begins_call(&mut self, client: usize, task: usize) {
        if self.is(Part::EntersOthers) {
            let tasks = self.clients[client].tasks.iter();
            let entries: Vec<_> = tasks.flat_map(|other| &other.entries).collect();
            if !entries.is_empty() {
                let held = entries[self.rng.usize(..entries.len())];
                let (lock, inside) = (held.as_wanted(), held.inside());
                return self.acquires(client, task, one(lock), one(inside));
            }
        }
        let most = if self.is(Part::SeveralKeys) {
            self.rng.usize(1..=3)
        } else {
            1
        };
        let mode = self.any_mode();
        let mut keys: Vec<Key> = (0..most).map(|_| self.any_key()).collect();
        keys.sort();
        keys.dedup();
        let locks = keys.into_iter().map(|key| WantedLock { key, mode });
        self.acquires(client, task, locks.collect(), Few::new());
    }

    /// Draws the mode of a call.
    fn any_mode(&mut self) -> LockMode {
        if !self.is(Part::Shares) {
            LockMode::Exclusive
        } else if self.plan.world == WorldKind::Modes && self.rng.u8(..3) == 0 {
            // Calls disagree on the number of permits.
            let of = self.rng.u32(2..=MOST_PERMITS);
            let take = self.rng.u32(1..=of);
            LockMode::Permits { take, of }
        } else {
            LockMode::Shared
        }
    }

    fn any_key(&mut self) -> Key {
        self.keys[self.rng.usize(..self.keys.len())].clone()
    }

    fn acquires(
        &mut self,
        client: usize,
        task: usize,
        locks: Few<WantedLock>,
        inside: Few<Inside>,
    ) {
        let is_inside = !inside.is_empty();
        let (call, mut terms) = (CallId(self.number()), self.terms());
        if is_inside && terms.wait == Wait::Forever {
            // Calls that nest locks in different orders block each other.
            terms.wait = Wait::For(Duration::from_millis(500));
        }
        let (shortest, longest) = match terms.wait {
            Wait::Never => (0, nanos(FOR_RELEASE) + SLACK),
            // Clocks drift.
            Wait::For(wait) => (
                nanos(wait.saturating_sub(LAST_PART)) / 100 * 95,
                nanos(wait.max(FOR_RELEASE)) / 100 * 105 + SLACK,
            ),
            Wait::Forever => (u64::MAX / 2, u64::MAX / 2),
        };
        let (now, slow, runs_body) = (self.now, self.slowness(), self.rng.bool());
        let machine = &self.clients[client].machine;
        let is_held = |key: &Key| {
            inside
                .iter()
                .any(|hold| machine.own(key, hold.owner).is_some())
        };
        let wants = locks.iter().filter(|lock| !is_held(&lock.key));
        let wants = wants.map(|lock| lock.key.clone()).collect();
        let state = self.state(client, task);
        state.wants = wants;
        state.runs_body = runs_body;
        (state.doing, state.is_inside, state.terms) = (Doing::Acquiring(call), is_inside, terms);
        (state.since, state.asked) = (now, 0);
        (state.has_failed, state.was_late) = (false, false);
        (state.not_before, state.deadline) = (now + shortest, now + longest + slow);
        self.clients[client].calls.insert(call, task);
        let input = Input::Acquire {
            call,
            locks,
            inside,
            options: terms,
            runs_body,
        };
        self.on(client, input, Some(call));
        self.may_be_dropped(client, task, call);
    }

    /// Returns how much later calls may end because their executor is slow.
    fn slowness(&self) -> u64 {
        u64::from(self.plan.has(Part::ExecutorSlow)) * 1_000 * MS
    }

    /// The future of a call may be dropped, or polled, at any time.
    fn may_be_dropped(&mut self, client: usize, task: usize, call: CallId) {
        if self.clients[client].calls.contains_key(&call) && self.occurs(Part::CallCancelled) {
            let after = self.rng.u64(..20 * MS);
            self.at_client(client, after, move |world| world.drops(client, call));
        }
        if self.clients[client].calls.contains_key(&call) && self.occurs(Part::CallPolledEarly) {
            let after = self.rng.u64(..20 * MS);
            self.goes_on(client, task, after);
        }
    }

    /// Does something with the locks that a task holds.
    fn inside(&mut self, client: usize, task: usize, is_open: bool) {
        let entries = &self.clients[client].tasks[task].entries;
        let (depth, held) = (entries.len(), entries[entries.len() - 1].clone());
        let stays = self.clients[client].life < Life::Closed && !self.is_over;
        if stays && depth < 5 && self.is(Part::Nests) {
            let mut locks = one(held.as_wanted());
            if is_open && self.rng.u8(..5) == 0 {
                // Another lock, or another one with it.
                let other = self.any_key();
                let entries = &self.clients[client].tasks[task].entries;
                let outer = entries.iter().rev().find(|held| held.entry.key == other);
                let mode = outer.map(|held| held.mode);
                let mode = mode.unwrap_or_else(|| self.any_mode());
                let is_alone = self.rng.bool();
                locks.retain(|lock| lock.key != other && !is_alone);
                locks.push(WantedLock { key: other, mode });
                locks.sort_by(|one, other| one.key.cmp(&other.key));
            }
            let entries = &self.clients[client].tasks[task].entries;
            let inside = entries.iter().rev().map(Held::inside).collect();
            return self.acquires(client, task, locks, inside);
        }
        if stays && self.is(Part::Downgrades) {
            self.downgrades(client, &held);
            let after = self
                .rng
                .u64(..=u64::from(self.plan[Part::LongestHold]) * MS);
            return self.goes_on(client, task, after);
        }
        if stays && self.is(Part::Extends) {
            self.extends(client, &held);
            let after = self
                .rng
                .u64(..=u64::from(self.plan[Part::LongestHold]) * MS);
            return self.goes_on(client, task, after);
        }
        if stays && self.is(Part::Detaches) && self.detaches(client, &held) {
            self.state(client, task).entries.pop();
            return self.goes_on(client, task, MS);
        }
        if stays && self.is(Part::KeepsEntries) {
            let mut kept = held.clone();
            let step = self.on(client, Input::Keep(kept.entry.clone()), None);
            if let Some(Step::Entered(entered)) = step {
                (kept.entry.number, kept.kept_until) = (entered[0].entry.number, None);
                self.state(client, task).entries.insert(0, kept);
            }
        }
        let writer = self.hold(client, &held);
        // Those who share a lock only read.
        let may_write = held.mode == LockMode::Exclusive && self.relies(&held.entry.key, &writer);
        if self.is(Part::Writes) && may_write {
            let is_late = self.rng.u8(..10) == 0;
            let after = self.rng.u64(..if is_late { 3_000 * MS } else { 5 * MS });
            self.later(Place::World, after, move |world| {
                world.writes(&held.entry.key, writer);
            });
        }
        self.leaves(client, task);
    }

    /// Makes the exclusive hold of a task a shared one.
    fn downgrades(&mut self, client: usize, held: &Held) {
        let entry = &held.entry;
        let step = self.on(client, Input::Downgrade(entry.clone()), None);
        if self.downgraded(client, held, step.as_ref()) {
            let tasks = self.clients[client].tasks.iter_mut();
            let entries = tasks.flat_map(|task| &mut task.entries);
            let of_hold = entries.filter(|held| held.entry.owner == entry.owner);
            of_hold.for_each(|held| held.mode = LockMode::Shared);
        }
    }

    fn hold(&self, client: usize, held: &Held) -> Hold {
        let life = self.clients[client].life_number;
        Hold {
            client,
            life,
            owner: held.entry.owner,
            token: held.token,
            mode: held.mode,
            is_of_quorum: self.servers.len() > 1,
        }
    }

    /// Ends the innermost entry of a task, by a release or by dropping its guard.
    fn leaves(&mut self, client: usize, task: usize) {
        let held = self.clients[client].tasks[task].entries.pop();
        let Some(Held {
            entry, kept_until, ..
        }) = held
        else {
            return;
        };
        self.moves(&entry.key, self.now);
        let has_panicked = self.occurs(Part::BodyPanicked);
        let end = if has_panicked {
            HoldEnd::Panicked
        } else {
            self.keeps(client, &entry, kept_until);
            HoldEnd::Released
        };
        if has_panicked || self.rng.bool() {
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
        let deadline = self.now + RELEASE + SLACK + self.slowness();
        let state = self.state(client, task);
        (state.doing, state.deadline) = (Doing::Leaving(call), deadline);
        state.leaves = Some((entry.key.clone(), entry.owner, false));
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
        if self.clients[client].calls.contains_key(&call) && self.occurs(Part::CallNotPolled) {
            self.forgets(client, task, call);
        }
        self.may_be_dropped(client, task, call);
    }

    /// Takes the next step of a call.
    pub(crate) fn step(&mut self, client: usize, call: CallId, step: Step) {
        let Some(task) = self.clients[client].calls.get(&call).copied() else {
            return;
        };
        if step.is_last() {
            self.is_in_time(client, task);
        }
        let longest = match step {
            Step::Wait | Step::Downgraded | Step::Detached { .. } | Step::Renew(_) => return,
            Step::Send(request) => {
                let state = self.state(client, task);
                state.is_sending = true;
                state.asked += u32::from(matches!(request.what, Ask::Acquire { .. }));
                if let (Ask::Release { .. }, Some((.., releases))) =
                    (&request.what, &mut state.leaves)
                {
                    *releases = true;
                }
                return self.sends(client, Sent::Request(request));
            }
            Step::Entered(entered) => {
                let is_single = entered.len() == 1;
                for one in entered {
                    self.entered(client, task, one, is_single);
                }
                let longest = self.plan[Part::LongestHold] * self.plan.scale();
                if self.is_over {
                    5 * MS
                } else {
                    u64::from(longest) * MS
                }
            }
            Step::Left(outcome) => {
                self.has_left(client, task, outcome);
                5 * MS
            }
            Step::Refused(why) => {
                self.refused(client, task, &why);
                5 * MS
            }
        };
        self.ended(client, task, call);
        let after = self.rng.u64(..=longest);
        self.goes_on(client, task, after);
    }

    /// Ends a call of a task.
    pub(crate) fn ended(&mut self, client: usize, task: usize, call: CallId) {
        let client = &mut self.clients[client];
        client.calls.remove(&call);
        (client.tasks[task].doing, client.tasks[task].is_sending) = (Doing::Ready, false);
    }

    /// A task has an entry. `is_single`: its call has no other.
    fn entered(&mut self, client: usize, task: usize, entered: Entered, is_single: bool) {
        let in_body = self.state(client, task).runs_body;
        let (entry, token, by) = (entered.entry, entered.token, entered.began);
        let own = self.clients[client].machine.own(&entry.key, entry.owner);
        let mut held = Held {
            mode: own.map_or(entered.mode, Ownership::used),
            entry,
            token,
            in_body,
            kept_until: None,
        };
        let (begun, terms) = (self.hold(client, &held), self.state(client, task).terms);
        if let Some(by) = by {
            self.begins(client, &held.entry.key, begun, by, &terms);
        }
        held.kept_until = self.enters(client, task, &held.entry, is_single, by.is_some());
        self.state(client, task).entries.push(held);
    }
}
