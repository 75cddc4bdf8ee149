//! One task of a history: a random call after the other.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use fastrand::Rng;
use futures_util::FutureExt as _;
use rlock_core::{LockClient, LockError, LockGuard, LockMode, current, distributed_lock};
use tokio::sync::watch;

use super::{
    Phase,
    caller::{Ask, Caller, Inside, outcome_of, print},
    clients::Clients,
    cut::Cut,
    section::Section,
    terms::Terms,
};
use crate::histories::{
    clock,
    mode::Usage,
    record::{FaultKind, Operation, Outcome, Record, Verb},
};

pub(super) struct Session {
    pub(super) caller: Caller,
    pub(super) clients: Arc<Clients>,
    /// The index of its client.
    pub(super) place: usize,
    pub(super) keys: u32,
    pub(super) rng: Rng,
}

/// The properties of a call.
struct Call {
    client: LockClient,
    key: String,
    terms: Terms,
    section: Section,
    /// What a writer does after it downgraded its lock.
    then: Option<Section>,
    invoke: u64,
}

impl Call {
    fn ask(&self, verb: Verb) -> Ask<'_> {
        Ask {
            verb,
            key: &self.key,
            terms: &self.terms,
            invoke: self.invoke,
        }
    }
}

impl Session {
    pub(super) async fn work(mut self, phase: watch::Receiver<Phase>) {
        while *phase.borrow() == Phase::Work {
            self.calls().await;
            let pause = Duration::from_micros(self.rng.u64(0..4_000));
            tokio::time::sleep(pause).await;
        }
    }

    pub(super) async fn calls(&mut self) {
        let call = self.call();
        match self.rng.u8(..100) {
            0..45 => self.run(call).await,
            45..80 => self.acquire(call).await,
            80..90 => self.try_acquire(call).await,
            _ => self.run_both(call).await,
        }
    }

    fn call(&mut self) -> Call {
        let rng = &mut self.rng;
        let number = rng.u32(..self.keys);
        let usage = self.clients.usage_of(number);
        let mode = usage.mode(rng);
        let terms = Terms::by_chance(rng, usage, mode);
        let downgrades = usage == Usage::ReadersAndWriters && mode == LockMode::Exclusive;
        Call {
            client: self.clients.at(self.place),
            key: format!("k{number}"),
            section: Section::by_chance(rng, terms.lease, usage, mode),
            then: (downgrades && rng.u8(..100) < 50)
                .then(|| Section::by_chance(rng, terms.lease, usage, LockMode::Shared)),
            terms,
            invoke: clock::now(),
        }
    }

    /// Runs a body, which stops when its lock is lost.
    async fn run(&mut self, call: Call) {
        let caller = &self.caller;
        let lock = call.terms.on(call.client.lock(&call.key));
        let mut was_inside = false;
        let body = async {
            was_inside = true;
            let held = current().expect("inside a lock");
            let mut inside = Inside::enter(caller, &held, call.ask(Verb::Run));
            let work = call.section.work(caller, &call.client, &held, &mut inside);
            work.await;
        };
        let cut = Cut::by_chance(&mut self.rng, 15);
        let ended = ending(cut.short(lock.run(body))).await;
        finish(caller, &call, Verb::Run, was_inside, ended);
    }

    /// Runs a body inside two locks. The first one may be shared.
    async fn run_both(&mut self, call: Call) {
        let (caller, rng) = (&self.caller, &mut self.rng);
        let ((first, second), mode) = two(rng, self.keys, &self.clients);
        let terms = [mode, LockMode::Exclusive].map(|mode| call.terms.in_mode(mode));
        let sections = [first, second].map(|number| {
            let usage = self.clients.usage_of(number);
            let outer = if number == first {
                mode
            } else {
                LockMode::Exclusive
            };
            Section::by_chance(rng, call.terms.lease, usage, outer)
        });
        let call = Call {
            terms: call.terms.in_mode(mode),
            ..call
        };
        let mut was_inside = false;
        let work = async {
            was_inside = true;
            // A nested entry returns the token of each.
            let mut held: Vec<LockGuard> = Vec::new();
            for (number, terms) in [first, second].into_iter().zip(&terms) {
                let key = format!("k{number}");
                let ask = Ask::now(Verb::Enter, &key, terms);
                match terms.on(call.client.lock(ask.key)).acquire().await {
                    Ok(guard) => held.push(guard),
                    Err(error) => return caller.failed(ask, Some(&error)),
                }
            }
            let entered = held.iter().zip(&terms);
            let ask = call.ask(Verb::RunBoth);
            let mut insides: Vec<Inside> = entered
                .map(|(guard, terms)| Inside::enter(caller, guard, Ask { terms, ..ask }))
                .collect();
            for ((guard, inside), section) in held.iter().zip(&mut insides).zip(&sections) {
                section.work(caller, &call.client, guard, inside).await;
            }
            // They leave before the outer holds.
            drop(insides);
        };
        let cut = Cut::by_chance(rng, 15);
        let (lease, wait) = (call.terms.lease, call.terms.wait());
        let body = async {
            match mode {
                LockMode::Shared => {
                    one_shared(&call.client, first, second, lease, wait, work).await
                }
                _ => both(&call.client, first, second, lease, wait, work).await,
            }
        };
        let ended = ending(cut.short(body)).await;
        finish(caller, &call, Verb::RunBoth, was_inside, ended);
    }

    /// Acquires a guard, and releases or drops it.
    async fn acquire(&mut self, call: Call) {
        let lock = call.terms.on(call.client.lock(&call.key));
        let cut = Cut::by_chance(&mut self.rng, 20);
        match cut.short(lock.acquire()).await {
            Some(Ok(guard)) => self.hold(call, guard, Verb::Acquire).await,
            Some(Err(error)) => self.caller.failed(call.ask(Verb::Acquire), Some(&error)),
            None => self.caller.cancelled(call.ask(Verb::Acquire)),
        }
    }

    async fn try_acquire(&mut self, call: Call) {
        let lock = call.terms.on(call.client.lock(&call.key));
        let cut = Cut::by_chance(&mut self.rng, 10);
        let (caller, verb) = (&self.caller, Verb::TryAcquire);
        match cut.short(lock.try_acquire()).await {
            Some(Ok(Some(guard))) => self.hold(call, guard, verb).await,
            Some(Ok(None)) => caller.failed(call.ask(verb), None),
            Some(Err(error)) => caller.failed(call.ask(verb), Some(&error)),
            None => caller.cancelled(call.ask(verb)),
        }
    }

    async fn hold(&mut self, call: Call, guard: LockGuard, verb: Verb) {
        let (caller, client) = (&self.caller, &call.client);
        let mut inside = Inside::enter(caller, &guard, call.ask(verb));
        let owner = inside.owner().to_owned();
        let work = async {
            let section = &call.section;
            section.work(caller, client, &guard, &mut inside).await;
            if let Some(section) = &call.then {
                downgrade(caller, &call, &guard, &mut inside);
                section.work(caller, client, &guard, &mut inside).await;
            }
        };
        let panicked = AssertUnwindSafe(guard.scope(work)).catch_unwind().await;
        drop(inside);
        let ask = Ask::now(Verb::Release, &call.key, &call.terms);
        if panicked.is_err() || self.rng.u8(..100) < 20 {
            drop(guard);
            return caller.fault(FaultKind::GuardDropped, ask.invoke);
        }
        let released = Cut::by_chance(&mut self.rng, 5)
            .short(guard.release())
            .await;
        let outcome = match &released {
            None => Outcome::Cancelled,
            Some(Ok(())) => Outcome::Released,
            Some(Err(error)) => outcome_of(error),
        };
        print(&Record::Operation(Operation {
            owner: Some(owner),
            outcome,
            ..caller.operation(ask)
        }));
    }
}

/// Downgrades the lock of a writer.
fn downgrade(caller: &Caller, call: &Call, guard: &LockGuard, inside: &mut Inside) {
    let ask = Ask::now(Verb::Downgrade, &call.key, &call.terms);
    match inside.downgrade(guard) {
        Ok(()) => caller.ended(ask, Outcome::Shared),
        Err(error) => caller.failed(ask, Some(&error)),
    }
}

/// The end of a body and its call.
enum Ending {
    By(Result<(), LockError>),
    Cancelled,
    Panicked,
}

async fn ending(call: impl Future<Output = Option<Result<(), LockError>>>) -> Ending {
    match AssertUnwindSafe(call).catch_unwind().await {
        Ok(Some(outcome)) => Ending::By(outcome),
        Ok(None) => Ending::Cancelled,
        Err(_) => Ending::Panicked,
    }
}

/// Records the end of a body, or the reason why it did not run.
fn finish(caller: &Caller, call: &Call, verb: Verb, was_inside: bool, ending: Ending) {
    let ask = call.ask(verb);
    match ending {
        Ending::By(Err(error)) if !was_inside => caller.failed(ask, Some(&error)),
        Ending::By(outcome) => {
            let outcome = outcome.as_ref();
            caller.ended(ask, outcome.map_or_else(outcome_of, |()| Outcome::Released));
        }
        Ending::Cancelled if was_inside => {
            caller.fault(FaultKind::BodyCancelled, clock::now());
            caller.ended(ask, Outcome::Cancelled);
        }
        Ending::Cancelled => caller.cancelled(ask),
        Ending::Panicked => caller.ended(ask, Outcome::Panicked),
    }
}

/// Returns two different numbers, and the mode of the first.
fn two(rng: &mut Rng, below: u32, clients: &Clients) -> ((u32, u32), LockMode) {
    let first = rng.u32(..below);
    let both = (first, (first + rng.u32(1..below)) % below);
    match clients.usage_of(first) {
        usage @ Usage::ReadersAndWriters => (both, usage.mode(rng)),
        _ => (both, LockMode::Exclusive),
    }
}

macro_rules! of_two_keys {
    ($($name:ident: $key:tt,)+) => {$(
        #[distributed_lock(key = $key, client = client, lease = lease, wait = wait, crate = rlock_core)]
        async fn $name(
            client: &LockClient,
            first: u32,
            second: u32,
            lease: Duration,
            wait: Duration,
            work: impl Future<Output = ()>,
        ) -> Result<(), LockError> {
            work.await;
            Ok(())
        }
    )+};
}

of_two_keys! {
    both: ["k<first>", "k<second>"],
    one_shared: [shared "k<first>", "k<second>"],
}
