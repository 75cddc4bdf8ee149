//! Reads the state of a server over the fixture's own connections.

use std::collections::{BTreeMap, HashSet};

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, FromRedisValue};

use super::builder::FIXTURE_USER;
use super::{CommandWatch, RedisServer};
use crate::PATIENCE;

impl RedisServer {
    /// A connection apart from the tested ones: over the Unix socket, as a user with all
    /// permissions.
    pub async fn connection(&self) -> MultiplexedConnection {
        let socket = self.socket();
        patient(&format!(
            "unix://{}?user={FIXTURE_USER}&pass={FIXTURE_USER}",
            socket.display()
        ))
        .await
    }

    /// Runs one command and returns its reply.
    pub async fn command<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::Cmd::new();
        command.arg(words);
        let mut connection = self.connection().await;
        command
            .query_async(&mut connection)
            .await
            .unwrap_or_else(|error| panic!("the server refuses {words:?}: {error}"))
    }

    /// Returns all fields of a hash; empty if the key does not exist.
    pub async fn hgetall(&self, key: &str) -> BTreeMap<String, String> {
        self.command(&["HGETALL", key]).await
    }

    /// Returns whether the key exists.
    pub async fn exists(&self, key: &str) -> bool {
        self.command(&["EXISTS", key]).await
    }

    /// Returns the remaining time to live in milliseconds: -1 without an expiry, -2 without the
    /// key.
    pub async fn pttl(&self, key: &str) -> i64 {
        self.command(&["PTTL", key]).await
    }

    /// Returns all keys that match a pattern, in order.
    pub async fn keys(&self, pattern: &str) -> Vec<String> {
        let mut keys: Vec<String> = self.command(&["KEYS", pattern]).await;
        keys.sort();
        keys
    }

    /// Deletes a key and returns whether it existed.
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

    /// Returns the number of subscribers of a channel.
    pub async fn subscribers(&self, channel: &str) -> u64 {
        let (_, count): (String, u64) = self.command(&["PUBSUB", "NUMSUB", channel]).await;
        count
    }

    /// Returns how many rlock clients subscribe to messages.
    pub async fn listening_clients(&self) -> usize {
        self.listening().await.len()
    }

    /// The rlock clients that subscribe to messages, as [`client_of`] identifies them.
    pub(crate) async fn listening(&self) -> HashSet<u128> {
        let channels: Vec<String> = self.command(&["PUBSUB", "CHANNELS", "lock:client:*"]).await;
        let client = |channel: &String| client_of(channel.rsplit(':').next()?);
        channels.iter().filter_map(client).collect()
    }

    /// Returns how often a command ran, by `INFO commandstats`. `client|tracking` names a
    /// subcommand.
    ///
    /// Commands of scripts and of the fixture count, too. For commands that only clients send
    /// (`evalsha`, `subscribe`) this is the number of requests.
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

    /// Starts to watch the commands of clients.
    pub async fn watch_commands(&self) -> CommandWatch {
        CommandWatch::on(&self.socket()).await
    }

    /// Kills the connections of a type, `normal` or `pubsub`, except the fixture's own. Returns
    /// their number.
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

    /// Kills all connections but the fixture's own. Returns their number.
    pub async fn kill_all_clients(&self) -> u64 {
        self.kill_clients("normal").await + self.kill_clients("pubsub").await
    }

    /// Returns the number of connected clients, without the fixture, replicas, masters and
    /// Sentinels.
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

/// Returns the rlock client of a connection with this name.
pub(crate) fn client_of(name: &str) -> Option<u128> {
    u128::from_str_radix(&name.replace('-', ""), 16).ok()
}

/// A connection with time limits for a busy machine.
async fn patient(url: &str) -> MultiplexedConnection {
    let limits = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(PATIENCE))
        .set_response_timeout(Some(PATIENCE));
    let client = Client::open(url).expect("the fixture's own URLs are valid");
    client
        .get_multiplexed_async_connection_with_config(&limits)
        .await
        .unwrap_or_else(|error| panic!("the fixture cannot connect to {url}: {error}"))
}
