//! The clients and the locks of an embedded store.

use std::time::Duration;

use uuid::Uuid;

use super::MemoryStore;
use crate::store::{
    ReplyFuture,
    directory::{Cursor, Directory, Page},
};

impl Directory for MemoryStore {
    fn publish<'a>(
        &'a self,
        client: Uuid,
        message: &'a [u8],
        _timeout: Duration,
    ) -> ReplyFuture<'a, bool> {
        let message = message.to_vec();
        self.answer(move |state, _| state.publish(client, message))
    }

    fn clients(&self, _timeout: Duration) -> ReplyFuture<'_, Vec<Uuid>> {
        self.answer(|state, _| state.clients.keys().copied().collect())
    }

    fn scan(&self, _from: Cursor, _timeout: Duration) -> ReplyFuture<'_, Page> {
        self.answer(|state, now| (state.held(now), None))
    }
}
