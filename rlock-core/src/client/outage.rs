//! Outages of the embedded store, for tests.

use std::time::Duration;

use super::LockClient;
use crate::{error::LockError, store::memory::SimulatedOutage};

impl LockClient {
    /// Makes the embedded store unreachable for all of its clients until the returned value is dropped. Use it to
    /// test how a service behaves without its server, for example that it replies with status 503.
    ///
    /// While the outage lasts, every request fails at once, as if the server refused the connection. Requests that
    /// ask once, such as [`try_acquire`](crate::Lock::try_acquire), return [`LockError::Unavailable`]. An acquire with
    /// a `wait` tries again until the wait is over. A lock that is held survives an outage that is shorter than the
    /// rest of its lease, because its client goes on trying to renew it. After that it is lost, with
    /// [`LostCause::Expired`](crate::LostCause::Expired). Connections do not break, so the client does not check its
    /// locks when the outage ends, as it does when it has connected to a server again.
    ///
    /// If outages overlap, the store is reachable again after the last one has ended.
    ///
    /// # Errors
    ///
    /// [`LockError::Closed`] after shutdown. [`LockError::Refused`] if the store is not the embedded one: stop the
    /// server instead.
    ///
    /// # Examples
    ///
    /// ```
    /// use rlock_core::{ErrorKind, LockClient};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = LockClient::in_memory();
    /// let lock = client.lock("order:42");
    ///
    /// let outage = client.simulate_outage()?;
    /// let error = lock.try_acquire().await.expect_err("the store is down");
    /// assert_eq!(error.kind(), ErrorKind::Outage);
    ///
    /// drop(outage);
    /// assert!(lock.try_acquire().await?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn simulate_outage(&self) -> Result<SimulatedOutage, LockError> {
        let core = self.core();
        let action = "simulate an outage".to_owned();
        if core.is_closed() {
            return Err(LockError::closed(action));
        }
        let outage = core.store.simulate_outage();
        outage.map_err(|error| error.into_lock_error(action, Duration::ZERO))
    }
}
