//! The machine of a client behind its mutex. Outputs are taken out of the mutex, and then acted on.

use std::{
    collections::BTreeMap,
    mem,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Waker},
    vec,
};

use smallvec::SmallVec;
use tokio::sync::Notify;
use tracing::{Span, field};
use uuid::Uuid;

use super::{
    background::RenewalFailure,
    elections::{Elections, Office},
    holders::Disputes,
    machine::{
        CallId, Entered, Event, Input, Loss, Machine, Output, Owner, Renew, Reply, Request,
        Revoked, Settings, Step,
    },
    messages::Messages,
};
use crate::{
    clock::ClientClock,
    error::{LostCause, shown},
    escape_control::escape_control,
    few::{self, Few},
    key::Key,
    lease::Time,
    metrics,
    mode::LockMode,
    observe::{EndedHold, HoldEnd},
    options::{Options, Reentry, Site},
    owner::OwnerId,
    store::TOKENS,
    wait::Spread,
};

pub(crate) struct Shell {
    client: Uuid,
    clock: ClientClock,
    state: Mutex<ClientState>,
    /// The number of the next call.
    calls: AtomicU64,
    pub(crate) messages: Messages,
    pub(crate) elections: Elections,
    pub(crate) disputes: Disputes,
    /// Wakes the background.
    pub(super) wake: Notify,
    /// Notified after each input of a client that ends.
    ended: Notify,
}

struct ClientState {
    machine: Machine,
    /// The calls that wait.
    calls: BTreeMap<CallId, Waker>,
    /// The present holds by owner and first entry, each counted until it ends or is lost.
    holds: BTreeMap<(Owner, u32), (Arc<SharedHold>, metrics::Held)>,
    work: BackgroundWork,
    /// When the background looks at the schedule next.
    planned: Time,
    losses: u64,
    is_ending: bool,
}

/// What the background has to do.
#[derive(Default)]
pub(super) struct BackgroundWork {
    pub(super) requests: Vec<(Request, Option<metrics::PendingRelease>)>,
    pub(super) renewals: Vec<Renew>,
    pub(super) failures: Vec<RenewalFailure>,
    /// How many locks were held and could not be released, and the first of them.
    pub(super) given_up: (usize, Option<(String, OwnerId)>),
    /// What a destructor has noticed, which must not log.
    unreported: Vec<Seen>,
}

/// What the handles of a hold share, and keep after its end.
pub(crate) struct SharedHold {
    pub(crate) key: Key,
    pub(crate) owner: Owner,
    pub(crate) mode: LockMode,
    /// Its fencing token.
    pub(crate) token: u64,
    pub(crate) site: Site,
    notes: OnceLock<Box<Notes>>,
    /// Set if the hold leads.
    pub(crate) office: OnceLock<Box<Office>>,
    /// The cause of its loss, and its entries then.
    lost: OnceLock<(LostCause, Arc<[u32]>)>,
    /// Until when it is valid unless it is lost, as far as is known without the client's mutex, in nanoseconds. Renewals
    /// make it valid for longer.
    valid_until: AtomicU64,
    /// Notified when an entry has ended, and of a loss.
    ended: Notify,
    /// Notified of a loss.
    loss: Notify,
}

/// What observers learn of a hold.
#[derive(Default)]
pub(crate) struct Notes {
    pub(crate) span: Option<Arc<Span>>,
    pub(crate) trace_id: Option<String>,
}

impl SharedHold {
    fn new(entered: &Entered, site: Site) -> Self {
        Self {
            key: entered.entry.key.clone(),
            owner: entered.entry.owner,
            mode: entered.mode,
            token: entered.token,
            site,
            notes: OnceLock::new(),
            office: OnceLock::new(),
            lost: OnceLock::new(),
            valid_until: AtomicU64::new(0),
            ended: Notify::new(),
            loss: Notify::new(),
        }
    }

    /// Returns the cause if the hold was lost.
    pub(super) fn cause(&self) -> Option<LostCause> {
        Some(self.lost.get()?.0)
    }

    /// Resolves when the hold is lost.
    pub(super) async fn until_lost(&self) -> LostCause {
        loop {
            let mut loss = pin!(self.loss.notified());
            loss.as_mut().enable();
            if let Some(cause) = self.cause() {
                return cause;
            }
            loss.await;
        }
    }

    /// Returns whether the hold is known to be valid at this time, unless it is lost.
    pub(super) fn lasts(&self, now: Time) -> bool {
        now.nanos() < self.valid_until.load(Ordering::Acquire)
    }

    /// Notes until when the hold is valid. A hold never becomes valid for a shorter time.
    pub(super) fn lasts_until(&self, end: Time) {
        self.valid_until.fetch_max(end.nanos(), Ordering::AcqRel);
    }

    /// Wakes those who wait for the end of an entry, or for a loss.
    pub(super) fn notify(&self) {
        self.ended.notify_waiters();
    }

    /// Returns the cause if this entry was lost.
    pub(crate) fn lost(&self, number: u32) -> Option<LostCause> {
        let (cause, entries) = self.lost.get()?;
        entries.contains(&number).then_some(*cause)
    }

    pub(super) fn note(&self, notes: Notes) {
        if notes.span.is_some() || notes.trace_id.is_some() {
            let _ = self.notes.set(Box::new(notes));
        }
    }

    pub(super) fn span(&self) -> Option<&Arc<Span>> {
        self.notes.get()?.span.as_ref()
    }

    pub(super) fn trace_id(&self) -> Option<&str> {
        self.notes.get()?.trace_id.as_deref()
    }

    /// Writes an event in the span of the hold, or in the current span without one.
    pub(super) fn in_span(&self, write: impl FnOnce()) {
        match self.span() {
            Some(span) => span.in_scope(write),
            None => write(),
        }
    }
}

/// Something to log or to close outside of the mutex.
enum Seen {
    Lost(Box<Loss>, Option<Arc<SharedHold>>),
    Ended(EndedHold),
    GaveUp(GivenUp),
    Other(Box<dyn FnOnce() + Send>),
}

/// A lock that the background could not release in time.
struct GivenUp {
    key: Key,
    owner: Owner,
    mode: LockMode,
    was_held: bool,
}

/// What a call acquires its locks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AcquiredFor {
    Guard,
    /// A body, which a loss stops. A client that closes does not release its locks before it has stopped.
    Body,
}

/// The holds that a call begins or enters.
pub(super) struct Begins {
    site: Site,
    purpose: AcquiredFor,
    counters: metrics::LockCounters,
    /// The hold of each entry, once the call has them.
    pub(super) holds: Few<Arc<SharedHold>>,
}

impl Begins {
    pub(super) fn new(site: Site, purpose: AcquiredFor) -> Self {
        Self {
            site,
            purpose,
            counters: metrics::lock(site),
            holds: Few::new(),
        }
    }
}

/// The call that an input comes from, if any.
#[derive(Default)]
struct Caller<'a> {
    /// Its waker, if it is polled. A call that does not have to wait has none afterwards.
    call: Option<(CallId, Option<Waker>)>,
    begins: Option<&'a mut Begins>,
}

/// What follows from an input.
#[derive(Default)]
struct Effects {
    step: Option<Step>,
    revoked: Option<Revoked>,
    seen: Vec<Seen>,
}

/// What is done as soon as the mutex is free.
#[derive(Default)]
struct Actions {
    /// The call that is polled. It may have to be woken already.
    polled: Option<(CallId, Waker)>,
    wakers: SmallVec<[Waker; 2]>,
    /// The holds that have ended or are lost.
    ended: SmallVec<[(Arc<SharedHold>, HoldEnd, metrics::Held); 1]>,
    requests: Vec<Request>,
    has_work: bool,
}

impl Shell {
    pub(crate) fn new(
        client: Uuid,
        options: &Options,
        clock: ClientClock,
        needs_majority: bool,
    ) -> Self {
        let settings = Settings {
            response_timeout: options.response_timeout,
            local_handovers: options.max_local_handovers,
            counts_entries: options.reentry == Reentry::Counted,
            replicas: options.replicas.is_some(),
            needs_majority,
            fence_retention: options.fence_retention,
            tokens: TOKENS,
        };
        Self {
            client,
            clock,
            state: Mutex::new(ClientState {
                machine: Machine::new(settings, Spread(fastrand::u64(..) | 1)),
                calls: BTreeMap::new(),
                holds: BTreeMap::new(),
                work: BackgroundWork::default(),
                planned: Time::NEVER,
                losses: 0,
                is_ending: false,
            }),
            calls: AtomicU64::new(1),
            elections: Elections::default(),
            disputes: Disputes::default(),
            messages: Messages::new(options.inspectable),
            wake: Notify::new(),
            ended: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, ClientState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the machine.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Machine, Time) -> T) -> T {
        let now = self.clock.now();
        read(&self.state().machine, now)
    }

    pub(crate) fn call_id(&self) -> CallId {
        CallId(self.calls.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the number of losses so far.
    pub(crate) fn losses(&self) -> u64 {
        self.state().losses
    }

    /// Applies an input, and acts on what follows from it. Returns the step of the call that the input is about.
    pub(crate) fn on(&self, input: Input) -> Option<Step> {
        self.finish(self.apply([input], Caller::default()))
    }

    /// Applies an input of a call that begins these holds, and returns its next step. The call is not woken.
    pub(super) fn on_begun(&self, input: Input, begins: Option<&mut Begins>) -> Option<Step> {
        let caller = Caller {
            begins,
            ..Caller::default()
        };
        self.finish(self.apply([input], caller))
    }

    /// Applies events of several locks.
    pub(super) fn on_events(&self, events: impl IntoIterator<Item = (Key, Owner, Event)>) {
        let input = |(key, owner, event)| Input::Event(key, Some(owner), event);
        let outcome = self.apply(events.into_iter().map(input), Caller::default());
        self.finish(outcome);
    }

    /// Logs what was seen. Returns the step, which is undone if a subscriber panics.
    fn finish(&self, outcome: Effects) -> Option<Step> {
        if outcome.seen.is_empty() {
            return outcome.step;
        }
        let mut step = Unfinished(self, outcome.step);
        self.report_all(outcome.seen);
        step.1.take()
    }

    /// Logs the observations. If a subscriber panics, the background logs the rest.
    fn report_all(&self, seen: Vec<Seen>) {
        let mut rest = Unreported(self, seen.into_iter());
        for seen in rest.1.by_ref() {
            self.report(seen);
        }
    }

    /// Applies an event of a lock.
    pub(crate) fn on_event(&self, key: Key, owner: Option<Owner>, event: Event) {
        self.on(Input::Event(key, owner, event));
    }

    /// Applies the report that another client changed a lock.
    pub(super) fn changed(&self, key: Key) {
        let owner = self.read(|machine, _| {
            let own = machine.slot(&key)?.current()?;
            own.is_owned().then_some(own.owner)
        });
        self.on_event(key, None, Event::Changed);
        if let Some(hold) = owner.and_then(|owner| self.hold(owner)) {
            hold.in_span(|| {
                let key = escape_control(hold.key.shown(hold.site));
                let owner = OwnerId::new(self.client, hold.owner, hold.mode);
                tracing::debug!(%key, %owner, "another client changed the lock");
            });
        }
    }

    /// The same as [`on`](Self::on) for a destructor, which must not log: the thread-locals of a subscriber may be gone.
    pub(crate) fn on_drop(&self, input: Input) {
        self.after_drop(self.apply([input], Caller::default()));
    }

    /// Ends a call whose future was dropped.
    pub(crate) fn cancel(&self, call: CallId) {
        let caller = Caller {
            call: Some((call, None)),
            ..Caller::default()
        };
        self.after_drop(self.apply([Input::Cancel(call)], caller));
    }

    /// Leaves it to the background to log what was seen.
    fn after_drop(&self, outcome: Effects) {
        drop(Unreported(self, outcome.seen.into_iter()));
    }

    /// Applies an input of a call, and returns its next step. If it has to wait, it is woken.
    pub(super) fn on_call(
        &self,
        input: Input,
        call: CallId,
        begins: Option<&mut Begins>,
        cx: &Context<'_>,
    ) -> Step {
        let caller = Caller {
            // Wakers are cloned and dropped outside of the mutex, because they are foreign code.
            call: Some((call, Some(cx.waker().clone()))),
            begins,
        };
        let outcome = self.apply([input], caller);
        self.finish(outcome).unwrap_or(Step::Wait)
    }

    fn apply(&self, inputs: impl IntoIterator<Item = Input>, caller: Caller<'_>) -> Effects {
        let now = self.clock.now();
        let (mut outcome, mut actions) = (Effects::default(), Actions::default());
        let Caller { call, mut begins } = caller;
        let id = call.as_ref().map(|(id, _)| *id);
        actions.polled = call.and_then(|(id, waker)| Some((id, waker?)));
        let (_dropped, is_ending) = {
            let state = &mut *self.state();
            for input in inputs {
                for output in state.machine.on(input, now) {
                    state.act(output, &mut outcome, &mut actions);
                }
            }
            if let (Some(Step::Entered(entered)), Some(begins)) = (&outcome.step, &mut begins) {
                let holds = entered
                    .iter()
                    .map(|entered| state.enter(entered, begins, now));
                begins.holds = few::collect(holds);
            }
            let is_over = outcome.step != Some(Step::Wait);
            let dropped = match actions.polled.take_if(|_| !is_over) {
                Some((call, waker)) => state.calls.insert(call, waker),
                None => id
                    .filter(|_| is_over)
                    .and_then(|call| state.calls.remove(&call)),
            };
            // A sleep of the computer may have passed what was planned.
            if let Some(due) = state.machine.due()
                && (due < state.planned || state.planned < now)
            {
                (actions.has_work, state.planned) = (true, due);
            }
            (dropped, state.is_ending)
        };
        for request in actions.requests {
            let pending = request.is_release().then(metrics::PendingRelease::begin);
            self.state().work.requests.push((request, pending));
        }
        actions.wakers.into_iter().for_each(Waker::wake);
        // Before subscribers learn of the holds: one that panics ends them, so they have to be counted by then.
        if let (Some(Step::Entered(entered)), Some(begins)) = (&outcome.step, &begins) {
            let begun = entered.iter().filter(|entered| entered.began.is_some());
            begun.for_each(|_| begins.counters.holds());
        }
        for seen in &outcome.seen {
            if let Seen::Lost(loss, _) = seen {
                metrics::lock(loss.site).lost(loss.cause);
            }
        }
        for (hold, end, held) in actions.ended {
            held.ends(end, || now);
            hold.office.get().inspect(|office| office.ends());
            if end == HoldEnd::Lost {
                hold.loss.notify_waiters();
            }
            hold.notify();
        }
        if actions.has_work {
            self.wake.notify_one();
        }
        if is_ending {
            self.ended.notify_waiters();
        }
        outcome
    }

    /// Takes what the background has to do, and notes when it looks at the schedule next.
    pub(super) fn take_work(&self) -> (BackgroundWork, Option<Time>) {
        let unreported = mem::take(&mut self.state().work.unreported);
        self.report_all(unreported);
        // Not before, because a subscriber may panic.
        let mut state = self.state();
        let due = state.machine.due();
        state.planned = due.unwrap_or(Time::NEVER);
        (mem::take(&mut state.work), due)
    }

    /// Makes the background write something that a destructor must not.
    pub(crate) fn later(&self, write: impl FnOnce() + Send + 'static) {
        let seen = Seen::Other(Box::new(write));
        self.state().work.unreported.push(seen);
        self.wake.notify_one();
    }

    /// Makes the background log a failed renewal, in one line with others.
    pub(super) fn fail(&self, failure: RenewalFailure) {
        self.state().work.failures.push(failure);
        self.wake.notify_one();
    }

    /// Resolves when this holds.
    pub(crate) async fn until(&self, holds: impl Fn(&Machine) -> bool) {
        loop {
            let mut ended = pin!(self.ended.notified());
            ended.as_mut().enable();
            {
                let mut state = self.state();
                state.is_ending = true;
                if holds(&state.machine) {
                    return;
                }
            }
            ended.await;
        }
    }

    /// Returns what is noted about the present hold of an owner, or the first of several.
    pub(crate) fn hold(&self, owner: Owner) -> Option<Arc<SharedHold>> {
        let state = self.state();
        let mut holds = state.holds.range((owner, 0)..=(owner, u32::MAX));
        let (_, (hold, _)) = holds.next()?;
        Some(Arc::clone(hold))
    }

    /// Returns the cause if the entry has left: `Released`, unless the lock was lost before.
    pub(super) fn left(&self, hold: &SharedHold, number: u32) -> Option<LostCause> {
        let is_present = self.read(|machine, _| {
            let own = machine.own(&hold.key, hold.owner);
            own.is_some_and(|own| own.has(number))
        });
        (!is_present).then(|| hold.lost(number).unwrap_or(LostCause::Released))
    }

    /// Resolves when the entry has left, or its ownership was marked as lost.
    pub(super) async fn lost(&self, hold: &SharedHold, number: u32) -> LostCause {
        loop {
            let mut ended = pin!(hold.ended.notified());
            ended.as_mut().enable();
            let lost = || self.read(|machine, _| machine.own(&hold.key, hold.owner)?.lost());
            if let Some(cause) = self.left(hold, number).or_else(lost) {
                return cause;
            }
            ended.await;
        }
    }

    /// Gives up a lock that another client revokes. Returns the outcome.
    pub(crate) fn revoke(&self, key: Key, owner: Owner, event: Event, by: &str) -> Revoked {
        let input = Input::Event(key, Some(owner), event);
        let outcome = self.apply([input], Caller::default());
        let mut rest = Unreported(self, outcome.seen.into_iter());
        for seen in rest.1.by_ref() {
            match seen {
                Seen::Lost(loss, hold) => {
                    let cause = match event {
                        Event::Revoke { at_once: true, .. } => "another client took it by force",
                        _ => "another client revoked it",
                    };
                    self.write_loss(&loss, hold.as_deref(), |key, owner| {
                        tracing::warn!(%key, %owner, by, %cause, "lock lost");
                    });
                }
                other => self.report(other),
            }
        }
        outcome.revoked.unwrap_or(Revoked::NotHeld)
    }

    fn write_loss(
        &self,
        loss: &Loss,
        hold: Option<&SharedHold>,
        write: impl FnOnce(&str, OwnerId),
    ) {
        let key = escape_control(loss.key.shown(loss.site));
        let owner = OwnerId::new(self.client, loss.owner, loss.mode);
        match hold {
            Some(hold) => hold.in_span(|| write(&key, owner)),
            None => write(&key, owner),
        }
    }

    /// Logs or closes what was seen.
    fn report(&self, seen: Seen) {
        match seen {
            Seen::Lost(loss, hold) => {
                let cause = loss.cause;
                // After a hand-off, the lease is shorter than the call asked for.
                let lease =
                    (cause == LostCause::Expired).then(|| field::display(shown(loss.lease)));
                self.write_loss(&loss, hold.as_deref(), |key, owner| {
                    tracing::warn!(%key, %owner, %cause, lease, "lock lost");
                });
            }
            Seen::Ended(ended) => ended.close(),
            Seen::GaveUp(given_up) => {
                let key = escape_control(given_up.key.shown(Site::default()));
                let owner = OwnerId::new(self.client, given_up.owner, given_up.mode);
                tracing::debug!(%key, %owner, was_held = given_up.was_held, "release given up");
                if given_up.was_held {
                    let given_up = &mut self.state().work.given_up;
                    given_up.0 += 1;
                    given_up.1.get_or_insert((key, owner));
                }
            }
            Seen::Other(write) => write(),
        }
    }
}

/// Observations that are not logged yet. Hands them to the background when dropped.
struct Unreported<'a>(&'a Shell, vec::IntoIter<Seen>);

impl Drop for Unreported<'_> {
    fn drop(&mut self) {
        if self.1.len() > 0 {
            self.0.state().work.unreported.extend(self.1.by_ref());
            self.0.wake.notify_one();
        }
    }
}

/// A step that no call has taken yet. Undoes it when dropped.
struct Unfinished<'a>(&'a Shell, Option<Step>);

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        match self.1.take() {
            Some(Step::Send(request)) => self.0.on_drop(Input::Reply(request, Reply::None)),
            Some(Step::Entered(entered)) => {
                for Entered { entry, .. } in entered {
                    let (end, call) = (HoldEnd::Panicked, None);
                    self.0.on_drop(Input::Leave { entry, end, call });
                }
            }
            _ => {}
        }
    }
}

impl ClientState {
    /// Returns the hold of an entry. Notes a hold that begins.
    fn enter(&mut self, entered: &Entered, begins: &Begins, now: Time) -> Arc<SharedHold> {
        let Entered { entry, first, .. } = entered;
        let place = (entry.owner, *first);
        if begins.purpose == AcquiredFor::Body {
            // No output follows.
            self.machine.on(Input::Run(entry.clone()), now);
        }
        if entered.began.is_none()
            && let Some((hold, _)) = self.holds.get(&place)
            && hold.token == entered.token
        {
            return Arc::clone(hold);
        }
        let hold = Arc::new(SharedHold::new(entered, begins.site));
        let own = self.machine.own(&entry.key, entry.owner);
        match own.map_or(Err(LostCause::Released), |own| own.valid_until(now)) {
            Ok(end) => hold.lasts_until(end),
            // The same input may have ended it.
            Err(cause) => {
                let entries = Arc::from([entry.number]);
                let _ = hold.lost.set((cause, entries));
            }
        }
        if entered.began.is_some() {
            let counted = metrics::Held::begin(begins.counters, now);
            self.holds.insert(place, (Arc::clone(&hold), counted));
        }
        hold
    }

    /// Does what an output wants, or notes it for outside of the mutex.
    fn act(&mut self, output: Output, outcome: &mut Effects, actions: &mut Actions) {
        match output {
            Output::Step(step) => outcome.step = Some(step),
            Output::Revoked(revoked) => outcome.revoked = Some(revoked),
            Output::Wake(call) => match actions.polled.take_if(|(polled, _)| *polled == call) {
                Some((_, waker)) => actions.wakers.push(waker),
                None => actions.wakers.extend(self.calls.remove(&call)),
            },
            Output::Send(request) => {
                actions.requests.push(*request);
                actions.has_work = true;
            }
            Output::Renew(renew) => {
                self.work.renewals.push(*renew);
                actions.has_work = true;
            }
            Output::Lost(loss) => {
                self.losses += 1;
                let mut first = None;
                let entries: Arc<[u32]> = loss.entries.as_slice().into();
                let of_owner = (loss.owner, 0)..=(loss.owner, u32::MAX);
                // A release may find that an earlier hold was lost.
                let holds = (!loss.entries.is_empty()).then(|| self.holds.range_mut(of_owner));
                for (_, (hold, held)) in holds.into_iter().flatten() {
                    let _ = hold.lost.set((loss.cause, Arc::clone(&entries)));
                    let ended = (Arc::clone(hold), HoldEnd::Lost, mem::take(held));
                    actions.ended.push(ended);
                    first.get_or_insert_with(|| Arc::clone(hold));
                }
                outcome.seen.push(Seen::Lost(loss, first));
            }
            Output::Ended {
                owner,
                first,
                end,
                renewals,
            } => {
                if let Some((hold, held)) = self.holds.remove(&(owner, first)) {
                    if let Some(span) = hold.span().cloned() {
                        let ended = EndedHold {
                            span,
                            end,
                            renewals,
                        };
                        outcome.seen.push(Seen::Ended(ended));
                    }
                    actions.ended.push((hold, end, held));
                }
            }
            Output::GaveUp {
                key,
                owner,
                mode,
                was_held,
            } => {
                let given_up = GivenUp {
                    key,
                    owner,
                    mode,
                    was_held,
                };
                outcome.seen.push(Seen::GaveUp(given_up));
            }
        }
    }
}
