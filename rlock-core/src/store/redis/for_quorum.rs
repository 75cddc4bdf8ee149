//! What only a quorum asks of a server: whether it is up, an acquire that may be decided already, and restored locks.

use std::{sync::atomic::AtomicBool, time::Duration};

use rlock_proto::store::{AcquireRequest, Acquired, Renewal};

use super::{RedisStore, commands::Operation, replies};
use crate::store::{SendOptions, StoreError};

impl RedisStore {
    /// Returns whether there is a connection, which may be silent.
    pub(crate) fn is_connected(&self) -> bool {
        self.background.present().is_some()
    }

    /// Returns whether there is a connection that is not silent.
    pub(crate) fn is_up(&self) -> bool {
        self.background.is_up()
    }

    /// Waits for a connection. Fails if the server refuses this client.
    pub(crate) async fn until_up(&self) -> Result<(), StoreError> {
        self.background.connection().await.map(drop)
    }

    /// Waits until there is a connection that is not silent.
    pub(crate) async fn until_replying(&self) {
        self.background.until(true).await;
    }

    pub(crate) fn why_down(&self) -> StoreError {
        self.background.why_down()
    }

    /// Acquires locks, unless the acquire is decided before the request is sent.
    pub(crate) async fn acquire_unless(
        &self,
        decided: &AtomicBool,
        request: &AcquireRequest,
        send: SendOptions,
    ) -> Result<Acquired, StoreError> {
        let call = Operation::Acquire(request, Some(decided));
        let (claims, watched) = (request.claims.len(), self.is_watched());
        let read = |reply, sent_at| replies::read_acquired(reply, claims, sent_at, watched);
        self.call(call, send, read).await
    }

    /// Restores locks that this member lacks. Returns how many.
    pub(crate) async fn restore(
        &self,
        renewals: &[Renewal],
        lease: Duration,
        send: SendOptions,
    ) -> Result<usize, StoreError> {
        let read = |reply, _| replies::read_restored(reply);
        let call = Operation::Restore(renewals, lease);
        self.call(call, send, read).await
    }
}
