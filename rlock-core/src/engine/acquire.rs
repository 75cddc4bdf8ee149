//! Acquires locks: first by re-entry through the call chain, then through the local queues, then from the store.

mod holder;
mod negotiate;
mod nested;
mod observed;
mod turns;

use std::{pin::pin, time::Duration};

use tokio::time::sleep;

use crate::{
    engine::{call_chain, core::Core, driver::ClientHandle, entry::EntryGuard},
    error::LockError,
    few::Few,
    key::Key,
    lease::Time,
    metrics,
    options::{LockOptions, Wait},
    store::{Claim, StoreError},
    wait::Backoff,
};

/// The last part of a wait, in which no further request is sent.
const LEAST_REQUEST_TIME: Duration = Duration::from_millis(10);

/// The keys and options of a call, checked.
#[derive(Debug)]
pub(crate) struct Request {
    /// In ascending order, each once, so that calls for the same keys never wait for each other.
    pub(crate) keys: Few<Key>,
    pub(crate) options: LockOptions,
}

/// Acquires the locks of all keys for the current call chain, or none of them.
pub(crate) async fn acquire(
    client: &ClientHandle,
    request: &Request,
) -> Result<Few<EntryGuard>, LockError> {
    let core = client.core();
    let _call = core.call();
    // Read once: a call that began before the drain is served. Calls inside a hold may need further locks to finish.
    let is_too_late = core.queues.is_draining() && !call_chain::is_inside_hold_of(core.id);
    let call = observed::Call::begin(core, request);
    let outcome = {
        let attempt = &Attempt {
            client,
            core,
            request,
            call: &call,
            deadline: match request.options.wait {
                Wait::Never => call.started,
                Wait::For(wait) => call.started + wait,
                Wait::Forever => Time::NEVER,
            },
        };
        let stop = move || {
            let action = || attempt.action();
            if core.is_closed() {
                Some(LockError::Closed { action: action() })
            } else if is_too_late {
                Some(LockError::Draining { action: action() })
            } else {
                None
            }
        };
        // Pinned here: a function that takes a future by value doubles its size.
        let mut run = pin!(attempt.run());
        core.in_runtime_until(stop, run.as_mut()).await.flatten()
    };
    call.ends(&outcome);
    outcome
}

/// Enters the hold that the current call is inside of. Returns `None` without such a hold, or if entering needs a
/// request or a wait.
pub(crate) fn enter_at_once(
    client: &ClientHandle,
    key: &str,
    options: &LockOptions,
) -> Option<Result<EntryGuard, LockError>> {
    let core = client.core();
    if core.counts_entries() {
        return None;
    }
    let _call = core.call();
    if core.is_closed() {
        return None;
    }
    let (ownership, token) = call_chain::hold_of(core.id, key)?;
    let entered = nested::enter_locally(client, &ownership, token, options)?;
    if entered.is_ok() {
        if let Some(least) = options.at_least {
            ownership.keep_until(core.clock.now() + least);
        }
        metrics::lock(options.site).reentered();
    }
    Some(entered)
}

/// One call on its way to its locks.
struct Attempt<'a> {
    client: &'a ClientHandle,
    core: &'a Core,
    request: &'a Request,
    call: &'a observed::Call<'a>,
    deadline: Time,
}

impl Attempt<'_> {
    async fn run(&self) -> Result<Few<EntryGuard>, LockError> {
        let mut entries: Few<EntryGuard> = Few::new();
        let mut fresh = Few::new();
        for key in &self.request.keys {
            let entry = match call_chain::hold_of(self.core.id, key.as_str()) {
                Some((ownership, token)) => self.enter(&ownership, token).await?,
                None => None,
            };
            match entry {
                Some(entry) => {
                    metrics::lock(self.request.options.site).reentered();
                    entries.push(entry);
                }
                None => fresh.push(key),
            }
        }
        if !fresh.is_empty() {
            let mut acquired = self.negotiate(&fresh).await?;
            if self.core.options.replicas.is_some() {
                acquired = Box::pin(self.replicated(acquired)).await?;
            }
            entries.extend(acquired);
            entries.sort_by(|one, other| one.key().cmp(other.key()));
        }
        if let Some(least) = self.request.options.at_least {
            let until = self.now() + least;
            entries
                .iter()
                .for_each(|entry| entry.ownership.keep_until(until));
        }
        Ok(entries)
    }

    /// Returns the entries once enough replicas have their locks; otherwise releases them. Meanwhile the watchdog
    /// renews them, and a cancelled call drops them.
    async fn replicated(&self, entries: Few<EntryGuard>) -> Result<Few<EntryGuard>, LockError> {
        let claims: Few<Claim> = entries
            .iter()
            .map(|entry| entry.ownership.claim())
            .collect();
        let confirmed = self
            .core
            .store
            .replicate(&claims, self.request.options.lease)
            .await;
        let Err(error) = confirmed else {
            return Ok(entries);
        };
        for entry in entries {
            // A release that fails is repeated in the background.
            let _ = entry.release().await;
        }
        Err(self.failed(error))
    }

    /// Returns whether the call asks once and does not wait.
    fn asks_once(&self) -> bool {
        self.request.options.wait.is_none()
    }

    fn now(&self) -> Time {
        self.core.clock.now()
    }

    fn left(&self) -> Duration {
        self.deadline.since(self.now())
    }

    fn waited(&self) -> Duration {
        self.now().since(self.call.started)
    }

    /// Returns the time-out of one request.
    fn request_timeout(&self) -> Duration {
        let most = self.core.options.response_timeout;
        if self.asks_once() {
            most
        } else {
            self.left().min(most)
        }
    }

    fn action(&self) -> String {
        let site = self.request.options.site;
        let mut keys: Vec<&str> = (self.request.keys.iter())
            .map(|key| key.shown(site))
            .collect();
        keys.dedup();
        format!("acquire lock `{}`", keys.join("`, `"))
    }

    fn failed(&self, error: StoreError) -> LockError {
        let error = error.hide(&self.request.keys);
        error.into_lock_error(self.action(), self.waited())
    }

    /// Pauses after a failure, or returns the error. Pauses are at most half of the time left, so that none ends the
    /// wait.
    async fn pause(&self, backoff: &mut Backoff, error: StoreError) -> Result<(), LockError> {
        if !error.transient || self.asks_once() {
            return Err(self.failed(error));
        }
        sleep(backoff.next().min(self.left() / 2)).await;
        // A request without time left would return a less precise error.
        if self.left() <= LEAST_REQUEST_TIME {
            return Err(self.failed(error));
        }
        Ok(())
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
        let request = Request {
            keys: Few::from_elem(key, 1),
            options: lock.options,
        };
        let size = size_of_val(&acquire(client.handle(), &request));
        // The C library of Linux takes several times as long to allocate more than that.
        assert!(size <= 1032, "{size} bytes");
    }
}
