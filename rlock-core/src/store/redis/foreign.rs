//! Which key of other software made the server refuse a request, and what type it has.

use std::sync::atomic::Ordering;

use redis::{Value, cmd};
use rlock_proto::escape_control::escape_control;
use tokio::time::Instant;

use super::{RedisStore, commands::Operation, errors::is_refused};
use crate::store::{SendOptions, Store};

impl RedisStore {
    /// Names a key that other software wrote, and its type, after the server refused a request for that reason.
    pub(super) async fn find_foreign(
        &self,
        call: Operation<'_>,
        deadline: Instant,
    ) -> Option<String> {
        const TYPES: [(&str, &str); 4] = [
            ("", "hash"),
            (":shared", "zset"),
            (":queue", "zset"),
            (":fence", "string"),
        ];
        let connection = self.background_connection(deadline).await.ok()?;
        for (suffix, own) in TYPES {
            for key in call.keys() {
                // Each refusal has a line in the server's `ACL LOG`.
                if connection.refuses_type.load(Ordering::Relaxed) {
                    return None;
                }
                let name = format!("{}{suffix}", self.commands.keyspace.lock(key));
                let ask = cmd("TYPE").arg(&name).take();
                let send = SendOptions::new(deadline.saturating_duration_since(Instant::now()));
                let reply = self.attempt(Operation::LookUp(&ask), send, deadline).await;
                if reply.as_ref().is_err_and(is_refused) {
                    connection.refuses_type.store(true, Ordering::Relaxed);
                }
                if let Value::SimpleString(found) = reply.ok()?.0
                    && found != own
                    && found != "none"
                {
                    let name = escape_control(&name);
                    // A quorum names the member.
                    let is_alone = self.background.options.run_ids.is_none();
                    let place = is_alone.then(|| format!(" on {}", self.describe()));
                    return Some(format!(
                        "the key `{name}`{} holds a {found} of other software (WRONGTYPE); delete it on the server, or \
                         use another `prefix`",
                        place.unwrap_or_default()
                    ));
                }
            }
        }
        None
    }
}
