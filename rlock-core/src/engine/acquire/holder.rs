//! Finds out who holds the lock that a call waits for, for its time-out.

use std::{future::pending, time::Duration};

use super::{AcquireError, Attempt};
use crate::{
    engine::{
        ownership::Ownership,
        queries::{ask_holder, describe},
    },
    error::TakenBy,
    key::Key,
    lease::Time,
    options::Wait,
    owner::OwnerId,
    store::SendOptions,
};

/// The last part of a wait, in which the holder is asked.
const LAST_PART: Duration = Duration::from_millis(250);
/// How long a holder counts for other calls that wait for the same lock.
const RECENT: Duration = Duration::from_secs(1);

impl Attempt<'_> {
    /// Waits for a report about a lock of another client. In the last part of the wait, asks that client who it is.
    pub(super) async fn until_reported(&self, ownership: &Ownership) {
        // Boxed, because most calls do not wait.
        if ownership.requests(|requests| requests.is_waiting()) {
            Box::pin(self.report(ownership)).await;
        }
    }

    async fn report(&self, ownership: &Ownership) {
        let last_part = self.last_part();
        ownership.until_reported(last_part).await;
        if self.now() < last_part || !ownership.requests(|requests| requests.is_waiting()) {
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
            Wait::For(wait) => self.call.started + wait.saturating_sub(LAST_PART.min(wait / 2)),
        }
    }

    async fn ask(&self, key: &Key) {
        let client = self.core.id;
        // Another call of this client has just asked.
        if TakenBy::recent(client, key.as_str(), None, LAST_PART).is_some() {
            return;
        }
        let send = SendOptions::background(self.core.options.response_timeout);
        let Ok(Some(entry)) = self.core.store.inspect(key, send).await else {
            return;
        };
        let owner = OwnerId::parse(&entry.owner).filter(|owner| !owner.is_of(client));
        let Some(owner) = owner else {
            return;
        };
        let info = ask_holder(self.core, key, owner).await;
        if let Some(holder) = info.and_then(|info| info.holder) {
            let ttl = entry.ttl.unwrap_or_default();
            TakenBy::remember(client, key.as_str(), ttl, holder, None);
        }
    }

    /// Records in a refusal who the holder is.
    pub(super) fn with_holder(&self, mut refused: AcquireError) -> AcquireError {
        // Without a wait, a taken lock is no error.
        if let AcquireError::Taken { key, remaining, .. } = &mut refused
            && self.request.options.wait != Wait::Never
            && let Some((by, left)) = self.own_holder(key).or_else(|| self.other_holder(key))
        {
            *remaining = Some(by.mark(remaining.unwrap_or(left)));
        }
        refused
    }

    /// Returns the holder of a lock of this client, and the rest of its lease.
    fn own_holder(&self, key: &Key) -> Option<(TakenBy, Duration)> {
        let info = describe(self.core, key)?;
        let (client, key, token) = (self.core.id, key.as_str(), info.token);
        let remember = |(holder, ttl)| (TakenBy::remember(client, key, ttl, holder, token), ttl);
        TakenBy::recent(client, key, token, RECENT)
            .or_else(|| info.holder.zip(info.ttl).map(remember))
    }

    /// Returns the holder of a lock of another client, if a call of this client has asked for it.
    fn other_holder(&self, key: &Key) -> Option<(TakenBy, Duration)> {
        // A call that does not wait sends only one request.
        if self.asks_once() {
            return None;
        }
        TakenBy::recent(self.core.id, key.as_str(), None, RECENT)
    }
}
