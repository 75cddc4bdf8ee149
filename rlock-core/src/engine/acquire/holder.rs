//! Finds out who holds the lock that a call waits for, for its time-out.

use std::{future::pending, time::Duration};

use tokio::time::timeout;

use super::{AcquireError, Attempt};
use crate::{
    engine::{clients, ownership::Ownership, queries::ask_holder},
    error::TakenBy,
    key::Key,
    lease::Time,
    options::Wait,
    owner::OwnerId,
    store::SendOptions,
};

/// The last part of a wait, in which the holder is asked.
const LAST_PART: Duration = Duration::from_millis(250);
/// The limit of the request for the holder. Only a call for a key that another client of its process
/// owns sends it after its wait.
const ASK: Duration = Duration::from_millis(100);

impl Attempt<'_> {
    /// Waits for a report about a lock of another client. In the last part of the wait, asks that client who it is.
    pub(super) async fn until_reported(&self, ownership: &Ownership) {
        let last_part = self.last_part();
        ownership.until_reported(last_part).await;
        if self.now() < last_part || !ownership.is_waiting() {
            return;
        }
        // Boxed, because few calls come here.
        let asking = Box::pin(async {
            self.ask(&ownership.key).await;
            pending::<()>().await;
        });
        tokio::select! {
            biased;
            () = ownership.until_reported(self.deadline) => {}
            () = asking => {}
        }
    }

    /// Returns when the last part of the wait begins.
    fn last_part(&self) -> Time {
        match self.request.options.wait {
            Wait::Never | Wait::Forever => self.deadline,
            Wait::For(wait) => self.started + wait.saturating_sub(LAST_PART.min(wait / 2)),
        }
    }

    async fn ask(&self, key: &Key) {
        // Another call of this client has asked.
        if TakenBy::recent(self.core.id, key.as_str()).is_some() {
            return;
        }
        let send = SendOptions::background(self.core.options.response_timeout);
        let Ok(Some(entry)) = self.core.store.inspect(key, send).await else {
            return;
        };
        let Some(owner) = OwnerId::parse(&entry.owner).filter(|owner| !clients::is_local(*owner))
        else {
            return;
        };
        let told = ask_holder(self.core, key, owner).await;
        if let Some(holder) = told.and_then(|info| info.holder) {
            let ttl = entry.ttl.unwrap_or_default();
            TakenBy::remember(self.core.id, key.as_str(), ttl, holder);
        }
    }

    /// Records in a refusal who the holder is.
    pub(super) async fn with_holder(&self, mut refused: AcquireError) -> AcquireError {
        // Without a wait, a taken lock is no error.
        if let AcquireError::Taken { key, remaining, .. } = &mut refused
            && self.request.options.wait != Wait::Never
        {
            *remaining = self.marked(key, *remaining).await;
        }
        refused
    }

    async fn marked(&self, key: &Key, remaining: Option<Duration>) -> Option<Duration> {
        if let Some(own) = self.core.queues.owned(key) {
            let left = own.valid_until().since(self.now());
            return Some(TakenBy::ThisClient.mark(remaining.unwrap_or(left)));
        }
        // A call that does not wait sends only one request.
        if self.asks_once() {
            return remaining;
        }
        if let Some((by, left)) = TakenBy::recent(self.core.id, key.as_str()) {
            return Some(by.mark(remaining.unwrap_or(left)));
        }
        if !clients::another_holds(key, self.core) {
            return remaining;
        }
        let within = ASK.min(self.core.options.response_timeout);
        let send = SendOptions::background(within);
        let asked = timeout(within, self.core.store.inspect(key, send)).await;
        let Ok(Ok(Some(entry))) = asked else {
            return remaining;
        };
        if OwnerId::parse(&entry.owner).is_some_and(clients::is_local) {
            let left = remaining.or(entry.ttl)?;
            return Some(TakenBy::ThisProcess.mark(left));
        }
        remaining
    }
}
