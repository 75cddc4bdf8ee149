//! Implements `Directory` on one server: lists its clients and locks, and publishes messages to its clients.

use std::time::Duration;

use redis::{Cmd, FromRedisValue, cmd, from_redis_value};
use rlock_proto::escape_control::shown;
use uuid::Uuid;

use super::{RedisStore, commands::Operation, errors::unexpected};
use crate::store::{
    ReplyFuture, SendOptions, StoreError,
    directory::{Cursor, Directory, Page},
    keyspace::connection_name,
};

/// How many keys the server looks at for one part of a scan, during which it serves no other client.
const SCANNED: usize = 1_000;

impl RedisStore {
    /// Sends a command that calls no script.
    pub(in crate::store) async fn ask<T: FromRedisValue>(
        &self,
        command: &Cmd,
        send: SendOptions,
    ) -> Result<T, StoreError> {
        let read = |reply, _| from_redis_value(reply).map_err(unexpected);
        self.call(Operation::LookUp(command), send, read).await
    }
}

impl Directory for RedisStore {
    fn databases(&self) -> String {
        self.background.address.database().to_string()
    }

    fn publish(&self, client: Uuid, message: Vec<u8>, timeout: Duration) -> ReplyFuture<'_, bool> {
        Box::pin(async move {
            let mut publish = cmd("PUBLISH");
            publish
                .arg(self.commands.keyspace.channel(client))
                .arg(message);
            let receivers: u64 = self.ask(&publish, SendOptions::new(timeout)).await?;
            Ok(receivers > 0)
        })
    }

    fn clients(&self, timeout: Duration) -> ReplyFuture<'_, Vec<Uuid>> {
        Box::pin(async move {
            let channels = self.commands.keyspace.channels();
            let mut list = cmd("PUBSUB");
            list.arg("CHANNELS").arg(format!("{}*", literal(channels)));
            let names: Vec<Vec<u8>> = self.ask(&list, SendOptions::new(timeout)).await?;
            let client = |name: Vec<u8>| {
                let name = name.strip_prefix(channels.as_bytes())?;
                std::str::from_utf8(name).ok()?.parse().ok()
            };
            Ok(names.into_iter().filter_map(client).collect())
        })
    }

    fn address(&self, client: Uuid, timeout: Duration) -> ReplyFuture<'_, Option<String>> {
        Box::pin(async move {
            let list = cmd("CLIENT").arg("LIST").take();
            let list: String = self.ask(&list, SendOptions::new(timeout)).await?;
            let name = connection_name(client);
            let address = list.lines().find_map(|line| {
                let fact = |name| line.split(' ').find_map(|fact| fact.strip_prefix(name));
                fact("addr=").filter(|_| fact("name=") == Some(&name))
            });
            Ok(address.map(shown))
        })
    }

    fn scan(&self, from: Cursor, timeout: Duration) -> ReplyFuture<'_, Page> {
        Box::pin(async move {
            let keyspace = &self.commands.keyspace;
            let mut scan = cmd("SCAN");
            scan.arg(from.position)
                .arg("MATCH")
                .arg(format!("{}*}}", literal(&keyspace.prefix)))
                .arg("COUNT")
                .arg(SCANNED);
            let (position, names): (u64, Vec<Vec<u8>>) =
                self.ask(&scan, SendOptions::new(timeout)).await?;
            let keys = names.iter().filter_map(|name| keyspace.key(name));
            let next = (position != 0).then_some(Cursor { position, ..from });
            Ok((keys.collect(), next))
        })
    }
}

/// Returns a pattern of the server that matches this text only.
fn literal(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}
