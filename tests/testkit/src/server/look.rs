//! Looks behind the scenes, over connections of the fixture's own.

use std::collections::{BTreeMap, HashSet};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, FromRedisValue};

use super::builder::FIXTURE_USER;
use super::{CommandWatch, RedisServer};
use crate::PATIENCE;

impl RedisServer {
    /// A connection that has nothing to do with what is tested: by the Unix socket, as a user who may
    /// do everything.
    pub async fn connection(&self) -> MultiplexedConnection {
        let socket = self.socket();
        patient(&format!(
            "unix://{}?user={FIXTURE_USER}&pass={FIXTURE_USER}",
            socket.display()
        ))
        .await
    }

    /// Runs one command and answers what it answers.
    pub async fn command<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::Cmd::new();
        command.arg(words);
        let mut connection = self.connection().await;
        command
            .query_async(&mut connection)
            .await
            .unwrap_or_else(|error| panic!("the server refuses {words:?}: {error}"))
    }

    /// All fields of a hash; empty if there is no such key.
    pub async fn hgetall(&self, key: &str) -> BTreeMap<String, String> {
        self.command(&["HGETALL", key]).await
    }

    /// Whether the key exists.
    pub async fn exists(&self, key: &str) -> bool {
        self.command(&["EXISTS", key]).await
    }

    /// The remaining time to live in milliseconds; -1 without one, -2 without the key.
    pub async fn pttl(&self, key: &str) -> i64 {
        self.command(&["PTTL", key]).await
    }

    /// All keys that match a pattern, in order.
    pub async fn keys(&self, pattern: &str) -> Vec<String> {
        let mut keys: Vec<String> = self.command(&["KEYS", pattern]).await;
        keys.sort();
        keys
    }

    /// Deletes a key and says whether it was there.
    pub async fn del(&self, key: &str) -> bool {
        self.command(&["DEL", key]).await
    }

    /// Forgets every script.
    pub async fn script_flush(&self) {
        let () = self.command(&["SCRIPT", "FLUSH", "SYNC"]).await;
    }

    /// Changes the configuration of the running server.
    pub async fn config_set(&self, name: &str, value: &str) {
        let () = self.command(&["CONFIG", "SET", name, value]).await;
    }

    /// How many subscribers a channel has.
    pub async fn subscribers(&self, channel: &str) -> u64 {
        let (_, count): (String, u64) = self.command(&["PUBSUB", "NUMSUB", channel]).await;
        count
    }

    /// How many clients of ours listen to messages.
    pub async fn listening_clients(&self) -> usize {
        self.listening().await.len()
    }

    /// The clients of ours that listen to messages, as [`client_of`] tells them apart.
    pub(crate) async fn listening(&self) -> HashSet<u128> {
        let channels: Vec<String> = self.command(&["PUBSUB", "CHANNELS", "lock:client:*"]).await;
        let client = |channel: &String| client_of(channel.rsplit(':').next()?);
        channels.iter().filter_map(client).collect()
    }

    /// How often a command ran, by `INFO commandstats`; `client|tracking` names a subcommand.
    ///
    /// Runs *inside* scripts count too, and so do the fixture's own. For a command that only clients
    /// send (`evalsha`, `subscribe`) this is the number of requests.
    pub async fn command_calls(&self, command: &str) -> u64 {
        let statistics: String = self.command(&["INFO", "commandstats"]).await;
        let name = format!("cmdstat_{}:calls=", command.to_lowercase());
        let calls = statistics.lines().find_map(|line| line.strip_prefix(&name));
        calls.map_or(0, |rest| {
            rest.split(',')
                .next()
                .and_then(|number| number.parse().ok())
                .expect("a number of calls")
        })
    }

    /// How many commands clients have sent since the first call of this method, which answers 0.
    ///
    /// Counted as in [`CommandWatch`]. The statistics that the server keeps do not serve: in 7.0.15 a
    /// script that runs 100 commands adds 101 to `total_commands_processed`, to the sum of
    /// `commandstats`, and to the slow log; only `MONITOR` tells the two apart. The count starts
    /// again after a [`kill`](Self::kill).
    pub async fn client_commands(&self) -> u64 {
        let mut watch = self.watch.lock().await;
        if let Some(watch) = watch.as_mut() {
            return watch.count().await;
        }
        *watch = Some(self.watch_commands().await);
        0
    }

    /// Starts to watch what clients send.
    pub async fn watch_commands(&self) -> CommandWatch {
        CommandWatch::on(&self.socket()).await
    }

    /// Kills the connections of a type, `normal` or `pubsub`, except the fixture's own. Answers how
    /// many.
    pub async fn kill_clients(&self, kind: &str) -> u64 {
        let mut connection = self.connection().await;
        let clients: String = redis::cmd("CLIENT")
            .arg(&["LIST", "TYPE", kind])
            .query_async(&mut connection)
            .await
            .expect("the server lists its clients");
        let mut killed = 0;
        for client in clients.lines() {
            let fact = |name: &str| {
                client
                    .split(' ')
                    .find_map(|word| word.strip_prefix(name))
                    .unwrap_or_default()
            };
            if fact("user=") == FIXTURE_USER {
                continue;
            }
            killed += redis::cmd("CLIENT")
                .arg(&["KILL", "ID", fact("id=")])
                .query_async::<u64>(&mut connection)
                .await
                .expect("the server kills clients");
        }
        killed
    }

    /// How many clients are connected, but for the fixture's own, replicas, masters and Sentinels.
    pub async fn client_count(&self) -> usize {
        let own = format!("user={FIXTURE_USER}");
        let is_other = |word: &str| {
            let server = ["flags=S", "flags=M"].contains(&word);
            word == own || server || word.starts_with("name=sentinel-")
        };
        let clients: String = self.command(&["CLIENT", "LIST"]).await;
        clients
            .lines()
            .filter(|client| !client.split(' ').any(is_other))
            .count()
    }
}

/// The client whose name this is.
pub(crate) fn client_of(name: &str) -> Option<u128> {
    u128::from_str_radix(&name.replace('-', ""), 16).ok()
}

/// A connection whose time limits are those of a busy machine.
pub(crate) async fn patient(url: &str) -> MultiplexedConnection {
    let limits = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE));
    let client = Client::open(url).expect("the fixture's own URLs are valid");
    client
        .get_multiplexed_async_connection_with_config(&limits)
        .await
        .unwrap_or_else(|error| panic!("the fixture cannot connect to {url}: {error}"))
}
