//! The trait `Directory`: which clients and locks a store has, and how messages get from client to client.

use std::time::Duration;

use rlock_proto::key::Key;
use uuid::Uuid;

use super::{ReplyFuture, StoreError};

/// What a message of a client begins with. Messages of the store begin with an owner.
pub(crate) const FROM_CLIENT: &[u8] = b"@";

/// Where a scan continues.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    /// The number of the server in the store.
    pub(super) server: usize,
    /// The server's own cursor.
    pub(super) position: u64,
}

impl Cursor {
    /// Returns the begin of the next server.
    pub(super) fn next_server(self, servers: usize) -> Option<Self> {
        let server = self.server + 1;
        (server < servers).then_some(Self {
            server,
            position: 0,
        })
    }
}

/// A part of a scan: the keys of some locks, and where the scan continues.
pub(crate) type Page = (Vec<Key>, Option<Cursor>);

/// Access to the locks on the store that this client does not know of.
pub(crate) trait Directory {
    /// Returns the databases that have the locks: one number if the servers agree on it, or one for each server.
    /// Clients of other databases also receive messages.
    fn databases(&self) -> String {
        "0".to_owned()
    }

    /// Sends a message to a client. Returns whether the client was there to receive it.
    fn publish(&self, client: Uuid, message: Vec<u8>, timeout: Duration) -> ReplyFuture<'_, bool>;

    /// Returns the clients that receive messages.
    fn clients(&self, timeout: Duration) -> ReplyFuture<'_, Vec<Uuid>>;

    /// Returns the address of a client that is connected, as a server sees it. Returns `None` if the client has no name
    /// there.
    fn address(&self, client: Uuid, timeout: Duration) -> ReplyFuture<'_, Option<String>> {
        let _ = (client, timeout);
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Returns a part of the locks. A lock may be named twice. One that is taken or released during the scan may be
    /// missing.
    fn scan(&self, from: Cursor, timeout: Duration) -> ReplyFuture<'_, Page>;
}

/// Returns the first address that one of several servers knows, or the first error.
pub(super) fn first_known(
    replies: Vec<Result<Option<String>, StoreError>>,
) -> Result<Option<String>, StoreError> {
    let (known, failed): (Vec<_>, Vec<_>) = replies.into_iter().partition(Result::is_ok);
    let address = known.into_iter().flatten().flatten().next();
    match (address, failed.into_iter().next()) {
        (None, Some(error)) => error,
        (address, _) => Ok(address),
    }
}
