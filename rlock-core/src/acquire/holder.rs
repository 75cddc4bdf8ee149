//! Records in a time-out that this process itself holds the lock.

use std::time::Duration;

use tokio::time::timeout;

use super::{Attempt, Refused};
use crate::{clients, error::Holder, key::Key, options::Wait, owner::OwnerId};

/// Limits the request for the holder. Only a call for a key that another client of its process
/// holds sends it.
const ASK: Duration = Duration::from_millis(100);

impl Attempt<'_> {
    /// Records in a refusal whether the holder is in this process.
    pub(super) async fn with_holder(&self, refused: Refused) -> Refused {
        let Refused::Taken {
            key,
            waited,
            remaining,
        } = refused
        else {
            return refused;
        };
        let remaining = match self.request.wait {
            // Without a wait, a taken lock is no error.
            Wait::Never => remaining,
            Wait::For(_) | Wait::Forever => self.marked(&key, remaining).await,
        };
        Refused::Taken {
            key,
            waited,
            remaining,
        }
    }

    async fn marked(&self, key: &Key, remaining: Option<Duration>) -> Option<Duration> {
        let own = self.core.watchdog.hold(key).filter(|hold| hold.is_held());
        if let Some(hold) = own {
            let left = hold.valid_until().since(self.now());
            return Some(Holder::ThisClient.mark(remaining.unwrap_or(left)));
        }
        // A call that does not wait sends one request.
        if self.asks_once() || !clients::another_holds(key, self.core) {
            return remaining;
        }
        let patience = ASK.min(self.core.options.response_timeout);
        let asked = timeout(patience, self.core.store.inspect(key, patience)).await;
        let Ok(Ok(Some(entry))) = asked else {
            return remaining;
        };
        if OwnerId::parse(&entry.owner).is_some_and(clients::have) {
            let left = remaining.or(entry.ttl)?;
            return Some(Holder::ThisProcess.mark(left));
        }
        remaining
    }
}
