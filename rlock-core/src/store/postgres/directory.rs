//! Lists the clients and locks of the server, and sends messages to its clients.

use std::time::Duration;

use rlock_proto::key::Key;
use uuid::Uuid;

use super::{
    PostgresStore,
    parameter::Parameter,
    replies::only,
    requests::{Request, call},
    session::{parts_of, place},
};
use crate::store::{
    ReplyFuture, SendOptions, StoreError,
    directory::{Cursor, Directory, Page},
};

impl PostgresStore {
    /// Sends a request that reads a list of texts.
    async fn look_up(
        &self,
        request: Request,
        timeout: Duration,
    ) -> Result<Vec<String>, StoreError> {
        let (rows, _) = self.call(request, SendOptions::new(timeout)).await?;
        Ok(only(&rows)?.get(0))
    }
}

impl Directory for PostgresStore {
    fn databases(&self) -> String {
        place(&self.schema, self.prefix())
    }

    fn publish(&self, client: Uuid, message: Vec<u8>, timeout: Duration) -> ReplyFuture<'_, bool> {
        Box::pin(async move {
            let parts = parts_of(&String::from_utf8_lossy(&message));
            let request = call!(publish(client.to_string(), parts));
            let (rows, _) = self.call(request, SendOptions::new(timeout)).await?;
            Ok(only(&rows)?.get(0))
        })
    }

    fn clients(&self, timeout: Duration) -> ReplyFuture<'_, Vec<Uuid>> {
        Box::pin(async move {
            let place = place(&self.schema, self.prefix());
            let clients = self.look_up(call!(clients(place)), timeout).await?;
            Ok(clients.iter().filter_map(|id| id.parse().ok()).collect())
        })
    }

    fn address(&self, client: Uuid, timeout: Duration) -> ReplyFuture<'_, Option<String>> {
        Box::pin(async move {
            let request = call!(address(client.to_string()));
            Ok(self.look_up(request, timeout).await?.pop())
        })
    }

    fn scan(&self, _from: Cursor, timeout: Duration) -> ReplyFuture<'_, Page> {
        Box::pin(async move {
            let request = call!(held(self.prefix().to_owned()));
            let names = self.look_up(request, timeout).await?;
            let key = |name: &String| self.keyspace.key(name.as_bytes());
            let keys: Vec<Key> = names.iter().filter_map(key).collect();
            Ok((keys, None))
        })
    }
}
