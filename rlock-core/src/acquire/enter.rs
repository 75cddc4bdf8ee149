//! Entering a hold of the call chain once more.

use std::sync::Arc;

use tokio::time::timeout;

use super::{Attempt, Refused};
use crate::{
    client::LockClient,
    core::Core,
    error::{LockError, LostCause},
    guard::LockGuard,
    hold::{EntryId, Hold, Terms},
    release::Unsettled,
    store::{Acquired, Claim, StoreError},
    wait::Backoff,
};

impl Attempt<'_> {
    /// Enters once more; `None` when the hold has ended, and the key is to be asked for afresh.
    pub(super) async fn enter(&self, hold: &Arc<Hold>) -> Result<Option<LockGuard>, Refused> {
        if self.core.counts_entries() {
            self.enter_counted(hold).await
        } else {
            self.enter_locally(hold)
        }
    }

    fn enter_locally(&self, hold: &Arc<Hold>) -> Result<Option<LockGuard>, Refused> {
        let terms = self.terms();
        let Some(entered) = hold.enter_locally(terms) else {
            return Ok(None);
        };
        let entry = entered.map_err(|cause| lost(self.core, hold, cause))?;
        Ok(Some(guard(self.client, hold, entry, terms)))
    }

    async fn enter_counted(&self, hold: &Arc<Hold>) -> Result<Option<LockGuard>, Refused> {
        let patience = if self.asks_once() {
            self.request_timeout()
        } else {
            self.left()
        };
        let Ok(_changing) = timeout(patience, hold.changing.lock()).await else {
            return Err(self.failed(StoreError::busy()));
        };
        match hold.enterable() {
            None => return Ok(None),
            Some(Err(cause)) => return Err(lost(self.core, hold, cause).into()),
            Some(Ok(())) => {}
        }
        let unsettled = Unsettled::new(self.core, hold);
        let claim = [Claim {
            key: hold.key.clone(),
            owner: hold.owner,
        }];
        let count = hold.count() + 1;
        let mut backoff = Backoff::default();
        loop {
            let route = hold.asking.route_in_doubt();
            let route = route.unwrap_or_else(|| self.core.store.route());
            let in_doubt = hold.asking.begin(route);
            hold.about_to_change(route);
            let answer = self.ask(&claim, count, false, route).await;
            if answer.is_ok() && !in_doubt {
                hold.asking.certain();
            }
            match answer {
                Ok(Acquired::Granted { sent_at, .. }) => {
                    let terms = self.terms();
                    let entry = hold.enter(terms, sent_at);
                    let entry = entry.map_err(|cause| lost(self.core, hold, cause))?;
                    unsettled.disarm();
                    return Ok(Some(guard(self.client, hold, entry, terms)));
                }
                Ok(Acquired::Held { .. } | Acquired::NotHeld) => {
                    return Err(lost(self.core, hold, LostCause::Removed).into());
                }
                Err(error) => self.pause(&mut backoff, error).await?,
            }
            if let Some(cause) = hold.broken() {
                return Err(lost(self.core, hold, cause).into());
            }
        }
    }
}

/// Marks the hold as lost, and returns the error of the nested acquire.
pub(super) fn lost(core: &Core, hold: &Arc<Hold>, cause: LostCause) -> LockError {
    core.watchdog.lose(hold, cause);
    hold.lost_error(cause)
}

/// The guard of an entry; from here on the watchdog is in charge.
pub(super) fn guard(
    client: &LockClient,
    hold: &Arc<Hold>,
    entry: EntryId,
    terms: Terms,
) -> LockGuard {
    let guard = LockGuard::new(client, hold, entry, terms);
    client.core().watchdog.track(hold);
    guard
}
