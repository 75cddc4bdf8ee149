//! The work inside a lock.

use std::{thread, time::Duration};

use fastrand::Rng;
use rlock_core::LockClient;

use super::{
    caller::{Caller, Held, Inside, outcome_of, print},
    terms::Terms,
};
use crate::histories::{
    clock,
    record::{FaultKind, Operation, Outcome, Record, Verb, hold_name},
};

/// A critical section: several writes with pauses between them.
#[derive(Clone, Debug)]
pub(super) struct Section {
    writes: u32,
    pause: Duration,
    /// Whether it checks its validity before each write. Fences exist for those that do not.
    careful: bool,
    /// Blocks its executor for this long, after the first write.
    blocks: Option<Duration>,
    /// Enters once more with each of these, after the first write.
    nested: Vec<Terms>,
    panics: bool,
}

impl Section {
    pub(super) fn by_chance(rng: &mut Rng, lease: Duration) -> Self {
        let chance = |rng: &mut Rng, percent| rng.u8(..100) < percent;
        // Some sections need several renewals.
        let pause = if chance(rng, 6) {
            lease.mul_f64(0.7 * rng.f64())
        } else {
            Duration::from_micros(rng.u64(0..10_000))
        };
        let nested = if chance(rng, 20) { rng.u8(1..4) } else { 0 };
        Self {
            writes: rng.u32(2..6),
            pause,
            careful: chance(rng, 60),
            blocks: chance(rng, 2).then(|| lease.mul_f64(0.5 + 1.5 * rng.f64())),
            nested: (0..nested).map(|_| Terms::nested(rng)).collect(),
            panics: chance(rng, 4),
        }
    }

    /// Works inside a hold. Returns when to stop; `inside` records the exit.
    pub(super) async fn work(
        &self,
        caller: &Caller,
        client: &LockClient,
        held: &impl Held,
        inside: &mut Inside,
    ) {
        let (key, owner, token) = (held.key(), held.owner(), held.token());
        for number in 0..self.writes {
            if !inside.look(held) && self.careful {
                return;
            }
            caller.resource.write(key, &owner, token).await;
            if number == 0 {
                self.block(caller);
                self.enter_again(caller, client, key).await;
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

    /// Enters as often as requested, writes inside, and leaves again.
    async fn enter_again(&self, caller: &Caller, client: &LockClient, key: &str) {
        let mut guards = Vec::new();
        for terms in &self.nested {
            let invoke = clock::now();
            match terms.on(client.lock(key)).acquire().await {
                Ok(guard) => {
                    print(&Record::Operation(Operation {
                        owner: Some(hold_name(guard.owner(), guard.fencing_token())),
                        count: Some(guard.count()),
                        token: Some(guard.fencing_token()),
                        outcome: Outcome::Granted,
                        ..caller.operation(Verb::Enter, key, terms, invoke)
                    }));
                    guards.push(guard);
                }
                Err(error) => caller.failed(Verb::Enter, key, terms, invoke, Some(&error)),
            }
        }
        if let Some(guard) = guards.last() {
            let token = guard.fencing_token();
            let owner = hold_name(guard.owner(), token);
            caller.resource.write(key, &owner, token).await;
        }
        // A random part of them leaves by a drop.
        let drops = self.pause.subsec_micros().is_multiple_of(2);
        while let Some(guard) = guards.pop() {
            if drops {
                continue;
            }
            let invoke = clock::now();
            let terms = &self.nested[guards.len()];
            let released = guard.release().await;
            let outcome = released
                .as_ref()
                .map_or_else(outcome_of, |()| Outcome::Released);
            caller.ended(Verb::Release, key, terms, invoke, outcome);
        }
    }
}
