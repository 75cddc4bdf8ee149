//! Acquires locks for a call, by the steps that the machine returns.

mod holder;
mod observed;

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use rlock_proto::{
    few::{self, Few},
    key::Key,
    lease::Time,
    machine::{Entered, HoldEnd, Input, Refusal, Step, WantedLock},
    mode::LockMode,
    options::{LockOptions, Site, Wait},
    store::Claim,
};

use crate::{
    engine::{
        call::CallGuard,
        call_chain,
        core::Core,
        driver::ClientHandle,
        entry::{EntryGuard, EntryHandle},
        hold_record::{HoldRecord, Notes},
        shell::AcquiredFor,
    },
    error::LockError,
    metrics,
    store::StoreError,
};

/// The locks of a call and their options, checked.
#[derive(Debug)]
pub(crate) struct CheckedLock {
    /// In ascending order of their keys, each once, so that calls for the same keys never wait for each other.
    pub(crate) locks: Few<WantedLock>,
    /// The place of each key of a guard among them, unless the guard has them in ascending order, too.
    pub(crate) order: Option<Vec<usize>>,
    /// The options without the wait, which each call has for itself.
    pub(crate) options: LockOptions,
}

/// A call of a lock.
#[derive(Debug)]
pub(crate) struct LockRequest {
    pub(crate) lock: Arc<CheckedLock>,
    pub(crate) wait: Wait,
    pub(crate) purpose: AcquiredFor,
}

impl LockRequest {
    fn site(&self) -> Site {
        self.lock.options.site
    }

    /// Returns the mode in which the call asks for this key.
    fn mode_of(&self, key: &Key) -> LockMode {
        let lock = self.lock.locks.iter().find(|lock| lock.key == *key);
        lock.map_or(LockMode::Exclusive, |lock| lock.mode)
    }

    /// Returns the keys, in ascending order.
    fn keys(&self) -> impl ExactSizeIterator<Item = &Key> {
        self.lock.locks.iter().map(|lock| &lock.key)
    }
}

/// Acquires the locks of all keys for the current call chain, or none of them.
pub(crate) async fn acquire(
    client: &ClientHandle,
    request: &LockRequest,
) -> Result<Few<EntryGuard>, LockError> {
    let core = client.core();
    let observed = observed::ObservedAcquire::begin(core, request);
    let attempt = Attempt {
        client,
        request,
        call: &observed,
    };
    let mut call = CallGuard::acquiring(core, request.site());
    let begin = |call| Input::Acquire {
        call,
        locks: request.lock.locks.clone(),
        inside: call_chain::inside(core.id),
        options: LockOptions {
            wait: request.wait,
            ..request.lock.options
        },
        // A client that closes releases locks whose replicas have not confirmed them.
        runs_body: request.purpose == AcquiredFor::Body && core.options.replicas.is_none(),
    };
    let mut asks_at = attempt.last_part();
    let mut step = call.begin(begin).await;
    // A client that was shut down before refuses the call at once.
    let has_waited = !step.is_last();
    let outcome = loop {
        step = match step {
            Step::Entered(entered) => {
                break attempt.entered(entered, call.take_holds()).await;
            }
            Step::Refused(refusal) => {
                let waited = has_waited.then(|| attempt.waited());
                break Err(attempt.refused(refusal, waited, &mut call));
            }
            Step::Send(request) => call.send(request).await,
            Step::Wait => {
                observed.waits();
                attempt.wait(&mut call, &mut asks_at).await
            }
            Step::Left(_) | Step::Downgraded | Step::Detached { .. } | Step::Renew(_) => {
                unreachable!("the call acquires")
            }
        };
    };
    attempt.report_disputes();
    observed.ends(&outcome);
    outcome
}

/// One call on its way to its locks.
struct Attempt<'a> {
    client: &'a ClientHandle,
    request: &'a LockRequest,
    call: &'a observed::ObservedAcquire<'a>,
}

impl Attempt<'_> {
    fn core(&self) -> &Arc<Core> {
        self.client.core()
    }

    async fn entered(
        &self,
        entered: Few<Entered>,
        holds: Few<Arc<HoldRecord>>,
    ) -> Result<Few<EntryGuard>, LockError> {
        let site = self.request.site();
        let guards = entered.iter().zip(holds).map(|(entered, hold)| {
            let number = entered.entry.number;
            EntryGuard::of(EntryHandle::new(self.client, hold, number), None)
        });
        // Before the holds are reported: if a subscriber panics, the guards release the locks.
        let guards = few::collect(guards);
        let trace_id = self.core().options.trace_id.as_ref();
        let mut is_new = false;
        for (entered, entry) in entered.iter().zip(&guards) {
            if let Some(by) = entered.began {
                is_new = true;
                entry.hold.note(Notes {
                    span: self.call.holds(entered, by),
                    trace_id: trace_id.and_then(|current| (current.0)()),
                });
            } else {
                metrics::lock(site).reentered();
            }
        }
        if self.core().options.replicas.is_none() {
            return Ok(guards);
        }
        let guards = if is_new {
            Box::pin(self.replicated(guards)).await?
        } else {
            guards
        };
        if self.request.purpose == AcquiredFor::Body {
            guards.iter().for_each(|guard| guard.runs_body());
        }
        Ok(guards)
    }

    /// Returns the guards once enough replicas have its locks; otherwise releases them. Until then, the watchdog renews
    /// them, and a cancelled call drops them.
    async fn replicated(&self, mut guards: Few<EntryGuard>) -> Result<Few<EntryGuard>, LockError> {
        // Nothing has run, so no `min_hold` keeps a lock without replicas.
        let cancelled = Some(HoldEnd::Cancelled);
        guards.iter_mut().for_each(|guard| guard.ends_by(cancelled));
        let claim = |entry: &EntryGuard| Claim {
            key: entry.hold.key.clone(),
            owner: entry.owner(),
        };
        let claims: Few<Claim> = guards.iter().map(claim).collect();
        let lease = self.request.lock.options.lease;
        let replicated = self.core().store.replicate(&claims, lease);
        let failed = match self.core().in_runtime_until_closed(replicated).await {
            Some(Ok(())) => {
                guards.iter_mut().for_each(|guard| guard.ends_by(None));
                return Ok(guards);
            }
            Some(Err(error)) => self.failed(error),
            None => LockError::closed(self.action()),
        };
        // A release that fails is repeated in the background.
        join_all(guards.into_iter().map(EntryGuard::release)).await;
        Err(failed)
    }

    fn refused(
        &self,
        refusal: Refusal,
        waited: Option<Duration>,
        call: &mut CallGuard<'_>,
    ) -> LockError {
        match refusal {
            Refusal::Taken(key, remaining) => self.taken(&key, remaining),
            Refusal::Split => self.failed(StoreError::split()),
            Refusal::Failed => {
                let keys: Few<&Key> = self.request.keys().collect();
                call.error(&keys, self.action(), self.waited())
            }
            Refusal::Lost(key, cause) => LockError::Lost {
                key: key.shown().to_owned(),
                cause,
            },
            Refusal::Upgrade(key, held) => LockError::Upgrade {
                key: key.shown().to_owned(),
                held,
                wanted: self.request.mode_of(&key),
            },
            Refusal::Nested(_) => unreachable!("a call that acquires downgrades nothing"),
            Refusal::Draining => LockError::Draining {
                action: self.action(),
            },
            Refusal::Closed => LockError::Closed {
                action: self.action(),
                waited,
            },
        }
    }

    /// Returns whether the call asks once and does not wait.
    fn asks_once(&self) -> bool {
        self.request.wait.is_none()
    }

    fn now(&self) -> Time {
        self.core().clock.now()
    }

    fn waited(&self) -> Duration {
        self.now().since(self.call.started)
    }

    fn action(&self) -> String {
        let mut keys: Vec<&str> = self.request.keys().map(Key::shown).collect();
        keys.dedup();
        format!("acquire lock `{}`", keys.join("`, `"))
    }

    fn failed(&self, error: StoreError) -> LockError {
        let error = error.hide(self.request.keys());
        error.into_lock_error(self.action(), self.waited())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LockClient;

    #[test]
    fn the_future_of_a_call_is_small() {
        let client = LockClient::in_memory();
        let lock = client.lock("k");
        let key = Key::parse("k").expect("valid");
        let request = LockRequest {
            lock: Arc::new(CheckedLock {
                locks: few::one(WantedLock {
                    key,
                    mode: LockMode::Exclusive,
                }),
                order: None,
                options: lock.options,
            }),
            wait: Wait::Never,
            purpose: AcquiredFor::Guard,
        };
        let size = size_of_val(&acquire(client.handle(), &request));
        // The C library of Linux takes several times as long to allocate more than that.
        assert!(size <= 1032, "{size} bytes");
    }
}
