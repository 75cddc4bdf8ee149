//! Finds out who holds the lock that a call waits for, for its time-out.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
    time::Duration,
};

use futures_util::FutureExt;
use tokio::time::timeout;

use super::{AcquireError, Attempt};
use crate::{
    engine::{clients, entry::EntryGuard, queries::ask_holder},
    error::TakenBy,
    few::Few,
    key::Key,
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
    /// Runs a negotiation. In the last part of a wait for a lock of another client, asks that client who it is.
    pub(super) async fn asking_holder(
        &self,
        negotiation: impl Future<Output = Result<Few<EntryGuard>, AcquireError>>,
    ) -> Result<Few<EntryGuard>, AcquireError> {
        let mut negotiation = pin!(negotiation);
        let mut asking = None;
        let outcome = poll_fn(|cx| {
            if let Poll::Ready(outcome) = negotiation.as_mut().poll(cx) {
                return Poll::Ready(outcome);
            }
            // Boxed, because few calls come here.
            if asking.is_none() && self.contended().is_some() {
                asking = Some(Box::pin(self.ask_at_the_end().fuse()));
            }
            if let Some(asking) = &mut asking {
                let _ = asking.as_mut().poll(cx);
            }
            Poll::Pending
        });
        match outcome.await {
            Err(refused) => Err(self.with_holder(refused).await),
            acquired => acquired,
        }
    }

    async fn ask_at_the_end(&self) {
        let Wait::For(wait) = self.request.options.wait else {
            return;
        };
        let last_part = LAST_PART.min(wait / 2);
        let begin = self.left().saturating_sub(last_part);
        self.core.clock.sleep_until(self.now() + begin).await;
        let contended = self.contended().clone();
        let Some(key) = contended else {
            return;
        };
        // Another call of this client has asked.
        if TakenBy::recent(self.core.id, key.as_str()).is_some() {
            return;
        }
        let send = SendOptions::background(self.core.options.response_timeout);
        let Ok(Some(entry)) = self.core.store.inspect(&key, send).await else {
            return;
        };
        let Some(owner) = OwnerId::parse(&entry.owner).filter(|owner| !clients::is_local(*owner))
        else {
            return;
        };
        let told = ask_holder(self.core, &key, owner).await;
        if let Some(holder) = told.and_then(|info| info.holder) {
            let ttl = entry.ttl.unwrap_or_default();
            TakenBy::remember(self.core.id, key.as_str(), ttl, holder);
        }
    }

    /// Records in a refusal who the holder is.
    async fn with_holder(&self, refused: AcquireError) -> AcquireError {
        let AcquireError::Taken {
            key,
            site,
            waited,
            remaining,
        } = refused
        else {
            return refused;
        };
        let remaining = match self.request.options.wait {
            // Without a wait, a taken lock is no error.
            Wait::Never => remaining,
            Wait::For(_) | Wait::Forever => self.marked(&key, remaining).await,
        };
        AcquireError::Taken {
            key,
            site,
            waited,
            remaining,
        }
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
