//! What a client of a history does inside a lock: reads, writes and checks tokens.

use std::{thread, time::Duration};

use fastrand::Rng;
use rlock_core::{Hold, LockClient, LockError};

use super::{
    caller::{Caller, Inside, outcome_of, print},
    terms::Terms,
};
use crate::histories::{
    clock,
    mode::{Mode, Usage},
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
    pub(super) fn by_chance(rng: &mut Rng, lease: Duration, usage: Usage, outer: Mode) -> Self {
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
            let invoke = clock::now();
            match terms.on(client.lock(key)).acquire().await {
                Ok(guard) => {
                    print(&Record::Operation(Operation {
                        owner: Some(inside.name_of(&guard)),
                        count: Some(guard.depth()),
                        token: Some(guard.token().as_u64()),
                        outcome: Outcome::Granted,
                        ..caller.operation(Verb::Enter, key, terms, invoke)
                    }));
                    guards.push((guard, terms));
                }
                Err(LockError::Upgrade { .. }) if !terms.mode.may_enter(inside.mode) => {
                    caller.ended(Verb::Enter, key, terms, invoke, Outcome::Upgrade);
                }
                Err(error) => caller.failed(Verb::Enter, key, terms, invoke, Some(&error)),
            }
        }
        if !guards.is_empty() {
            inside.access(caller).await;
        }
        // A random part of them leaves by a drop.
        let drops = self.pause.subsec_micros().is_multiple_of(2);
        while let Some((guard, terms)) = guards.pop() {
            if drops {
                continue;
            }
            let invoke = clock::now();
            let released = guard.release().await;
            let outcome = released
                .as_ref()
                .map_or_else(outcome_of, |()| Outcome::Released);
            caller.ended(Verb::Release, key, terms, invoke, outcome);
        }
    }
}
