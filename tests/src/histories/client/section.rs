//! What a client of a history does inside a lock: reads, writes and checks tokens.

use std::{thread, time::Duration};

use fastrand::Rng;
use rlock_core::{Hold, LockClient, LockError, LockMode};
use rlock_model::witness::may_enter;

use super::{
    caller::{Ask, Caller, Inside, outcome_of, print},
    terms::Terms,
};
use crate::histories::{
    clock,
    mode::Usage,
    record::{FaultKind, Operation, Outcome, Record, Verb},
};

/// A critical section: several accesses with pauses between them.
#[derive(Clone, Debug)]
pub(super) struct Section {
    accesses: u32,
    pause: Duration,
    /// Whether it checks its validity before each access. Fences protect against holders that do not.
    careful: bool,
    /// Blocks its executor for this long, after the first access.
    blocks: Option<Duration>,
    /// Enters once more with each of these, after the first access.
    nested: Vec<Terms>,
    panics: bool,
}

impl Section {
    /// `outer`: the mode of the hold that it works in.
    pub(super) fn by_chance(rng: &mut Rng, lease: Duration, usage: Usage, outer: LockMode) -> Self {
        let chance = |rng: &mut Rng, percent| rng.u8(..100) < percent;
        // Some sections need several renewals.
        let pause = if chance(rng, 6) {
            lease.mul_f64(0.7 * rng.f64())
        } else {
            Duration::from_micros(rng.u64(0..10_000))
        };
        let nested = if chance(rng, 20) { rng.u8(1..4) } else { 0 };
        let nested = (0..nested).map(|_| {
            let mode = usage.nested(outer, rng);
            Terms::nested(rng, usage, mode)
        });
        let nested = nested.collect();
        Self {
            accesses: rng.u32(2..6),
            pause,
            careful: chance(rng, 60),
            blocks: chance(rng, 2).then(|| lease.mul_f64(0.5 + 1.5 * rng.f64())),
            nested,
            panics: chance(rng, 4),
        }
    }

    /// Works inside a hold. Returns when to stop; `inside` records the exit.
    pub(super) async fn work(
        &self,
        caller: &Caller,
        client: &LockClient,
        held: &Hold,
        inside: &mut Inside,
    ) {
        for number in 0..self.accesses {
            if !inside.look(held) && self.careful {
                return;
            }
            inside.access(caller).await;
            if number == 0 {
                self.block(caller);
                self.enter_again(caller, client, inside).await;
                if self.panics {
                    caller.fault(FaultKind::BodyPanicked, clock::now());
                    // Like `panic!`, without the message.
                    std::panic::resume_unwind(Box::new("on purpose"));
                }
            }
            tokio::time::sleep(self.pause).await;
        }
        inside.look(held);
    }

    fn block(&self, caller: &Caller) {
        if let Some(pause) = self.blocks {
            let start = clock::now();
            thread::sleep(pause);
            caller.fault(FaultKind::ExecutorBlocked, start);
        }
    }

    /// Enters as often as requested, accesses the resource inside, and leaves again.
    async fn enter_again(&self, caller: &Caller, client: &LockClient, inside: &Inside) {
        let key = inside.key();
        let mut guards = Vec::new();
        for terms in &self.nested {
            let ask = Ask::now(Verb::Enter, key, terms);
            match terms.on(client.lock(key)).acquire().await {
                Ok(guard) => {
                    print(&Record::Operation(Operation {
                        owner: Some(inside.name_of(&guard)),
                        token: Some(guard.token().as_u64()),
                        outcome: Outcome::Granted,
                        ..caller.operation(ask)
                    }));
                    guards.push((guard, ask));
                }
                Err(LockError::Upgrade { .. }) if !may_enter(terms.mode, inside.mode) => {
                    caller.ended(ask, Outcome::Upgrade);
                }
                Err(error) => caller.failed(ask, Some(&error)),
            }
        }
        if !guards.is_empty() {
            inside.access(caller).await;
        }
        // A random part of them leaves by a drop.
        let drops = self.pause.subsec_micros().is_multiple_of(2);
        while let Some((guard, ask)) = guards.pop() {
            if drops {
                continue;
            }
            let ask = Ask::now(Verb::Release, key, ask.terms);
            let released = guard.release().await;
            let outcome = released.as_ref();
            caller.ended(ask, outcome.map_or_else(outcome_of, |()| Outcome::Released));
        }
    }
}
