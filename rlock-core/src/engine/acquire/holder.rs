//! Records in a time-out that this process itself holds the lock.

use std::time::Duration;

use tokio::time::timeout;

use super::{AcquireError, Attempt};
use crate::{
    engine::clients, error::Holder, key::Key, options::Wait, owner::OwnerId, store::SendOptions,
};

/// The limit of the request for the holder. Only a call for a key that another client of its process
/// owns sends it.
const ASK: Duration = Duration::from_millis(100);

impl Attempt<'_> {
    /// Records in a refusal whether the holder is in this process.
    pub(super) async fn with_holder(&self, refused: AcquireError) -> AcquireError {
        let AcquireError::Taken {
            key,
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
            waited,
            remaining,
        }
    }

    async fn marked(&self, key: &Key, remaining: Option<Duration>) -> Option<Duration> {
        if let Some(own) = self.core.queues.owned(key) {
            let left = own.valid_until().since(self.now());
            return Some(Holder::ThisClient.mark(remaining.unwrap_or(left)));
        }
        // A call that does not wait sends only one request.
        if self.asks_once() || !clients::another_holds(key, self.core) {
            return remaining;
        }
        let within = ASK.min(self.core.options.response_timeout);
        let asked = timeout(
            within,
            self.core
                .store
                .inspect(key, SendOptions::background(within)),
        )
        .await;
        let Ok(Ok(Some(entry))) = asked else {
            return remaining;
        };
        if OwnerId::parse(&entry.owner).is_some_and(clients::is_local) {
            let left = remaining.or(entry.ttl)?;
            return Some(Holder::ThisProcess.mark(left));
        }
        remaining
    }
}
