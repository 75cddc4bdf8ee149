//! Owns the mutex of a client's machine: applies inputs, and carries out their effects once the mutex is free.

mod begins;
mod effects;
mod report;
mod state;

use std::{
    mem,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::Context,
};

use rlock_proto::{
    escape_control::escape_control,
    few,
    key::Key,
    lease::Time,
    machine::{CallId, Event, Input, Machine, Owner, Settings, Step},
    owner::OwnerId,
    store::TOKENS,
};
use tokio::sync::Notify;
use uuid::Uuid;

pub(crate) use self::state::AcquiredFor;
pub(super) use self::{
    begins::Begins,
    state::{BackgroundWork, RenewalFailure},
};
use self::{
    effects::{Effects, Seen},
    state::ClientState,
};
use super::{
    announcements::Announcements, hold_record::HoldRecord, holders::Disputes, messages::Messages,
};
use crate::{
    clock::ClientClock,
    options::{Options, Reentry},
};

pub(crate) struct Shell {
    client: Uuid,
    clock: ClientClock,
    state: Mutex<ClientState>,
    /// The number of the next call.
    calls: AtomicU64,
    pub(crate) messages: Messages,
    pub(crate) announcements: Announcements,
    pub(crate) disputes: Disputes,
    /// Wakes the background.
    pub(super) wake: Notify,
    /// Notified after each input of a client that ends.
    ended: Notify,
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
            state: Mutex::new(ClientState::new(settings)),
            calls: AtomicU64::new(1),
            announcements: Announcements::default(),
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
        self.state().ledger.losses
    }

    /// Applies an input, and carries out its effects. Returns the step of the call that the input concerns.
    pub(crate) fn on(&self, input: Input) -> Option<Step> {
        self.on_begun(input, None)
    }

    /// Applies an input of a call that begins these holds, and returns its next step. The call is not woken.
    pub(super) fn on_begun(&self, input: Input, begins: Option<&mut Begins>) -> Option<Step> {
        let mut effects = Effects::default();
        self.apply(input, &mut effects, begins);
        self.finish(&mut effects)
    }

    /// Applies inputs of several locks that no call waits for.
    pub(super) fn on_all(&self, inputs: impl IntoIterator<Item = Input>) {
        let (mut effects, now) = (Effects::default(), self.clock.now());
        {
            let mut state = self.state();
            for input in inputs {
                state.on(input, now, &mut effects);
            }
            state.conclude(&mut effects, now);
        }
        self.act(&mut effects, None, now);
        self.finish(&mut effects);
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
                let key = escape_control(hold.key.shown());
                let owner = OwnerId::new(self.client, hold.owner, hold.mode);
                tracing::debug!(%key, %owner, "another client changed the lock");
            });
        }
    }

    /// The same as [`on`](Self::on) for a destructor, which must not log: the thread-locals of a subscriber may be gone.
    pub(crate) fn on_drop(&self, input: Input) {
        let mut effects = Effects::default();
        self.apply(input, &mut effects, None);
        self.after_drop(effects);
    }

    /// Ends a call whose future was dropped.
    pub(crate) fn cancel(&self, call: CallId) {
        let mut effects = Effects {
            call: Some(call),
            ..Effects::default()
        };
        self.apply(Input::Cancel(call), &mut effects, None);
        self.after_drop(effects);
    }

    /// Applies an input of a call, and returns its next step. The shell wakes a call that has to wait.
    pub(super) fn on_call(
        &self,
        input: Input,
        call: CallId,
        begins: Option<&mut Begins>,
        cx: &Context<'_>,
    ) -> Step {
        let mut effects = Effects {
            call: Some(call),
            // Wakers are cloned and dropped outside of the mutex, because they are foreign code.
            waker: Some(cx.waker().clone()),
            ..Effects::default()
        };
        self.apply(input, &mut effects, begins);
        self.finish(&mut effects).unwrap_or_else(|| Step::Wait)
    }

    /// Applies an input, and carries out its effects, except for the logs.
    fn apply(&self, input: Input, effects: &mut Effects, mut begins: Option<&mut Begins>) {
        let now = self.clock.now();
        {
            let mut state = self.state();
            state.on(input, now, effects);
            if let (Some(Step::Entered(entered)), Some(begins)) = (&effects.step, &mut begins) {
                let holds = entered.iter();
                begins.holds = few::collect(holds.map(|entered| state.enter(entered, begins, now)));
            }
            state.conclude(effects, now);
        }
        self.act(effects, begins, now);
    }

    /// Takes what the background has to do, and notes when it looks at the schedule next.
    pub(super) fn take_work(&self) -> (BackgroundWork, Option<Time>) {
        let unreported = mem::take(&mut self.state().ledger.work.unreported);
        self.report_all(unreported);
        // Not before, because a subscriber may panic.
        let mut state = self.state();
        let due = state.machine.due();
        state.planned = due.unwrap_or(Time::NEVER);
        (mem::take(&mut state.ledger.work), due)
    }

    /// Makes the background write a log that a destructor must not write.
    pub(crate) fn later(&self, write: impl FnOnce() + Send + 'static) {
        let seen = Seen::Other(Box::new(write));
        self.state().ledger.work.unreported.push(seen);
        self.wake.notify_one();
    }

    /// Makes the background log a failed renewal, in one line with others.
    pub(super) fn fail(&self, failure: RenewalFailure) {
        self.state().ledger.work.failures.push(failure);
        self.wake.notify_one();
    }

    /// Resolves when this condition holds.
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
    pub(crate) fn hold(&self, owner: Owner) -> Option<Arc<HoldRecord>> {
        self.state().ledger.holds(owner).next().cloned()
    }

    /// Returns the present holds of an owner, of which a shared lock may have several.
    pub(crate) fn holds(&self, owner: Owner) -> Vec<Arc<HoldRecord>> {
        self.state().ledger.holds(owner).cloned().collect()
    }
}
