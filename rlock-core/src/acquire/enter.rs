//! Entering a hold of the call chain once more.

use std::sync::Arc;

use tokio::time::timeout;

use super::{Attempt, Refused};
use crate::{
    client::LockClient,
    error::LostCause,
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
        Ok(Some(guard(self.client, hold, entered?, terms)))
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
            Some(Err(lost)) => return Err(lost.into()),
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
                    let entry = hold.enter(terms, sent_at)?;
                    unsettled.disarm();
                    return Ok(Some(guard(self.client, hold, entry, terms)));
                }
                Ok(Acquired::Held { .. } | Acquired::NotHeld) => {
                    self.core.watchdog.lose(hold, LostCause::Removed);
                    return Err(hold.lost_error(LostCause::Removed).into());
                }
                Err(error) => self.pause(&mut backoff, error).await?,
            }
            if let Some(cause) = hold.broken() {
                return Err(hold.lost_error(cause).into());
            }
        }
    }
}

/// The guard of an entry; from here on the watchdog is in charge.
pub(super) fn guard(
    client: &LockClient,
    hold: &Arc<Hold>,
    entry: EntryId,
    terms: Terms,
) -> LockGuard {
    let guard = LockGuard::new(client, hold, entry, terms.until);
    client.core().watchdog.track(hold);
    guard
}
