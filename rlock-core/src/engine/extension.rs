//! Extends a hold: sends a renewal by the new lease at once, and repeats it until the store has confirmed it or the response
//! time-out has passed.

use std::{sync::Arc, time::Duration};

use rlock_proto::{
    lease::Time,
    lost::LostCause,
    machine::{Input, Renew, Step},
    store::{Claim, RenewalOutcome},
};

use crate::{
    engine::{core::Core, entry::EntryHandle, shell::Shell},
    error::LockError,
    store::{SendOptions, StoreError, retry_within},
};

impl EntryHandle {
    /// Sets the lease of the hold, from now on, and waits until the store has confirmed it.
    pub(crate) async fn extend(&self, lease: Duration) -> Result<(), LockError> {
        let core = self.client.core();
        let started = core.clock.now();
        let confirmed = retry_within(core.options.response_timeout, |left| {
            self.try_to_extend(lease, left)
        });
        let confirmed = core.in_runtime_until_closed(confirmed).await;
        if let Some(cause) = self.ended() {
            return Err(self.lost_error(cause));
        }
        let Some(confirmed) = confirmed else {
            return Err(self.lost_error(LostCause::Closed));
        };
        confirmed.map_err(|error| {
            let action = format!("extend lock `{}`", self.shown());
            let waited = core.clock.now().since(started);
            error.hide([&self.hold.key]).into_lock_error(action, waited)
        })
    }

    /// Sends one renewal. Succeeds also if the hold has ended.
    async fn try_to_extend(&self, lease: Duration, left: Duration) -> Result<(), StoreError> {
        let core = self.client.core();
        let Some(Step::Renew(renew)) = core.shell.on(Input::Extend(self.inner(), lease)) else {
            return Ok(());
        };
        // A shorter lease brings the end nearer at once.
        let _ = self.valid_until();
        self.hold.notify_lease();
        let (renewal, lease) = ([renew.for_store(core.id)], renew.lease);
        let send = SendOptions::new(left.min(renew.rest));
        let sending = Sending::new(core, *renew);
        let renewed = core.store.renew(&renewal, lease, send).await?;
        let outcome = renewed.kept.first().copied();
        sending.replied(renewed.sent_at, outcome);
        match outcome {
            Some(RenewalOutcome::Held { .. }) if core.options.replicas.is_some() => {
                let claim: [Claim; 1] = renewal.map(|renewal| renewal.claim);
                core.store.replicate(&claim, lease).await
            }
            // A downgrade has overtaken the renewal.
            Some(RenewalOutcome::Lost) if self.ended().is_none() => Err(StoreError::busy()),
            Some(RenewalOutcome::Held { .. } | RenewalOutcome::Lost) => Ok(()),
            Some(RenewalOutcome::Unknown) | None => Err(StoreError::no_majority()),
        }
    }
}

/// A renewal on its way. If this is dropped without a reply, the machine learns that none will come.
struct Sending {
    shell: Arc<Shell>,
    renew: Option<Renew>,
    sent_at: Time,
}

impl Sending {
    fn new(core: &Core, renew: Renew) -> Self {
        Self {
            shell: Arc::clone(&core.shell),
            renew: Some(renew),
            sent_at: core.clock.now(),
        }
    }

    fn replied(mut self, sent_at: Time, outcome: Option<RenewalOutcome>) {
        if let Some(renew) = self.renew.take() {
            self.shell.on(Input::Renewed {
                renew,
                sent_at,
                outcome,
            });
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if let Some(renew) = self.renew.take() {
            self.shell.on_drop(Input::Renewed {
                renew,
                sent_at: self.sent_at,
                outcome: None,
            });
        }
    }
}
