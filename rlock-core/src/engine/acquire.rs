//! Acquires locks: a call takes the steps that the machine tells it.

mod holder;
mod observed;

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;

use crate::{
    engine::{
        call::CallGuard,
        call_chain,
        core::Core,
        driver::ClientHandle,
        entry::EntryGuard,
        machine::{Entered, Input, Refusal, Step},
        shared_hold::{Notes, SharedHold},
        shell::AcquiredFor,
    },
    error::LockError,
    few::{self, Few},
    key::Key,
    lease::Time,
    metrics,
    mode::LockMode,
    observe::HoldEnd,
    options::LockOptions,
    store::{Claim, StoreError},
};

/// The keys and options of a call, checked.
#[derive(Debug)]
pub(crate) struct LockRequest {
    /// In ascending order, each once, so that calls for the same keys never wait for each other.
    pub(crate) keys: Few<(Key, LockMode)>,
    pub(crate) options: LockOptions,
    pub(crate) purpose: AcquiredFor,
}

impl LockRequest {
    /// Returns the mode in which the call asks for this key.
    fn mode_of(&self, key: &Key) -> LockMode {
        let of_key = self.keys.iter().find(|(own, _)| own == key);
        of_key.map_or(LockMode::Exclusive, |(_, mode)| *mode)
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
    let inside = |(key, mode): &(Key, LockMode)| {
        let inside = call_chain::hold_of(core.id, key.as_str());
        (key.clone(), *mode, inside)
    };
    let purpose = match core.options.replicas {
        // A client that closes releases locks whose replicas have not confirmed them.
        Some(_) => AcquiredFor::Guard,
        None => request.purpose,
    };
    let mut call = CallGuard::acquiring(core, request.options.site, purpose);
    let begin = |call| Input::Acquire {
        call,
        keys: few::collect(request.keys.iter().map(inside)),
        terms: request.options,
        is_inside: call_chain::is_inside_hold_of(core.id),
    };
    let mut asks_at = attempt.last_part();
    let mut step = call.begin(begin).await;
    // A client that was shut down before refuses the call at once.
    let waits = !step.is_last();
    let outcome = loop {
        step = match step {
            Step::Entered(entered) => {
                break attempt.entered(entered, call.take_holds()).await;
            }
            Step::Refused(refusal) => {
                let waited = waits.then(|| attempt.waited());
                break Err(attempt.refused(refusal, waited, &mut call));
            }
            Step::Send(request) => call.send(request).await,
            Step::Wait => {
                observed.waits();
                attempt.wait(&mut call, &mut asks_at).await
            }
            Step::Left(_) => unreachable!("the call acquires"),
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
        holds: Few<Arc<SharedHold>>,
    ) -> Result<Few<EntryGuard>, LockError> {
        let site = self.request.options.site;
        // Before the holds are reported: if a subscriber panics, these guards release the locks.
        let guards = entered.iter().zip(holds).map(|(entered, hold)| {
            let number = entered.entry.number;
            EntryGuard::new(self.client, hold, number)
        });
        let guards = few::collect(guards);
        let trace_id = self.core().options.trace_id.as_ref();
        let mut is_new = false;
        for (entered, guard) in entered.iter().zip(&guards) {
            if let Some(by) = entered.began {
                is_new = true;
                guard.hold.note(Notes {
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

    /// Returns the entries once enough replicas have their locks; otherwise releases them. Until then, the watchdog
    /// renews them, and a cancelled call drops them.
    async fn replicated(&self, mut entries: Few<EntryGuard>) -> Result<Few<EntryGuard>, LockError> {
        // Nothing has run, so no `min_hold` keeps a lock without replicas.
        for entry in &mut entries {
            entry.ends_by(HoldEnd::Cancelled);
        }
        let claims: Few<Claim> = entries
            .iter()
            .map(|entry| Claim {
                key: entry.hold.key.clone(),
                owner: entry.owner(),
            })
            .collect();
        let lease = self.request.options.lease;
        let replicated = self.core().store.replicate(&claims, lease);
        let Err(error) = self.core().in_runtime(replicated).await else {
            for entry in &mut entries {
                entry.begins();
            }
            return Ok(entries);
        };
        // A release that fails is repeated in the background.
        join_all(entries.into_iter().map(EntryGuard::release)).await;
        Err(self.failed(error))
    }

    fn refused(
        &self,
        refusal: Refusal,
        waited: Option<Duration>,
        call: &mut CallGuard<'_>,
    ) -> LockError {
        let site = self.request.options.site;
        match refusal {
            Refusal::Taken(key, remaining) => self.taken(&key, remaining),
            Refusal::Split => self.failed(StoreError::split()),
            Refusal::Failed => {
                let keys: Few<&Key> = self.request.keys.iter().map(|(key, _)| key).collect();
                call.error(&keys, self.action(), self.waited())
            }
            Refusal::Lost(key, cause) => LockError::Lost {
                key: key.shown(site).to_owned(),
                cause,
            },
            Refusal::Upgrade(key, held) => LockError::Upgrade {
                key: key.shown(site).to_owned(),
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
        self.request.options.wait.is_none()
    }

    fn now(&self) -> Time {
        self.core().clock.now()
    }

    fn waited(&self) -> Duration {
        self.now().since(self.call.started)
    }

    fn action(&self) -> String {
        let site = self.request.options.site;
        let mut keys: Vec<&str> = (self.request.keys.iter())
            .map(|(key, _)| key.shown(site))
            .collect();
        keys.dedup();
        format!("acquire lock `{}`", keys.join("`, `"))
    }

    fn failed(&self, error: StoreError) -> LockError {
        let error = error.hide(self.request.keys.iter().map(|(key, _)| key));
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
            keys: crate::few::one((key, LockMode::Exclusive)),
            options: lock.options,
            purpose: AcquiredFor::Guard,
        };
        let size = size_of_val(&acquire(client.handle(), &request));
        // The C library of Linux takes several times as long to allocate more than that.
        assert!(size <= 1032, "{size} bytes");
    }
}
