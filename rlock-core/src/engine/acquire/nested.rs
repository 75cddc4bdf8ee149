//! Re-enters a hold of the call chain.

use std::sync::Arc;

use tokio::time::timeout;

use super::Attempt;
use crate::{
    engine::{
        core::Core,
        driver::ClientHandle,
        entry::EntryGuard,
        ownership::{Ownership, Requests},
        release::ReleaseOnDrop,
    },
    error::{LockError, LostCause},
    options::LockOptions,
    store::{AcquireRequest, Acquired, Claim, SendOptions, StoreError},
    wait::Backoff,
};

impl Attempt<'_> {
    /// Enters the hold with this token again. Returns `None` if it has ended: the lock is acquired anew.
    pub(super) async fn enter(
        &self,
        ownership: &Arc<Ownership>,
        token: u64,
    ) -> Result<Option<EntryGuard>, LockError> {
        if self.core.counts_entries() {
            self.enter_counted(ownership, token).await
        } else {
            let options = &self.request.options;
            enter_locally(self.client, ownership, token, options).transpose()
        }
    }

    async fn enter_counted(
        &self,
        ownership: &Arc<Ownership>,
        token: u64,
    ) -> Result<Option<EntryGuard>, LockError> {
        let within = self.request_timeout().max(self.left());
        let Ok(_changing) = timeout(within, ownership.changing.lock()).await else {
            return Err(self.failed(StoreError::busy()));
        };
        let Some((count, enterable)) = ownership.enterable(token) else {
            return Ok(None);
        };
        enterable.map_err(|cause| lost(self.core, ownership, cause))?;
        let release_on_drop = ReleaseOnDrop::new(self.core, ownership);
        let claims: Arc<[Claim]> = [ownership.claim()].into();
        let mut backoff = Backoff::default();
        loop {
            let in_doubt = ownership.requests(|requests| requests.begin(self.now()));
            let renewals = ownership.settled_renewals();
            let request = AcquireRequest {
                claims: Arc::clone(&claims),
                lease: self.request.options.lease,
                count: count + 1,
                waits: false,
            };
            let send = SendOptions::new(self.request_timeout()).in_doubt(in_doubt);
            let reply = self.core.store.acquire(&request, send).await;
            if reply.is_ok() && !in_doubt {
                ownership.requests(Requests::all_replied);
            }
            match reply {
                Ok(Acquired::Granted { sent_at, .. }) => {
                    let (options, now) = (&self.request.options, self.now());
                    let entered = ownership.enter(options, sent_at, renewals, now);
                    let entered = entered.map_err(|cause| lost(self.core, ownership, cause))?;
                    release_on_drop.disarm();
                    let entry = EntryGuard::new(self.client, ownership, entered, now);
                    return Ok(Some(entry));
                }
                Ok(Acquired::Taken { .. } | Acquired::NotOwner) => {
                    return Err(lost(self.core, ownership, LostCause::Removed));
                }
                Err(error) => self.pause(&mut backoff, error).await?,
            }
            if let Some(cause) = ownership.broken(self.now()) {
                return Err(lost(self.core, ownership, cause));
            }
        }
    }
}

/// Enters the hold with this token again, in this process only. Returns `None` if it has ended.
pub(super) fn enter_locally(
    client: &ClientHandle,
    ownership: &Arc<Ownership>,
    token: u64,
    options: &LockOptions,
) -> Option<Result<EntryGuard, LockError>> {
    let now = client.core().clock.now();
    let entered = ownership
        .enter_locally(token, options)?
        .map(|entered| EntryGuard::new(client, ownership, entered, now))
        .map_err(|cause| lost(client.core(), ownership, cause));
    Some(entered)
}

/// Marks the ownership as lost, and returns the error of the nested acquire.
fn lost(core: &Core, ownership: &Arc<Ownership>, cause: LostCause) -> LockError {
    core.watchdog.lose(ownership, cause);
    ownership.lost_error(cause)
}
