//! The two connections of a client, as its server lists them.

use std::collections::BTreeSet;

use rlock_core::LockClient;
use rlock_testkit::{ClientCommand, CommandWatch, RedisServer, eventually};

use super::LONG;

/// A connection as the server lists it.
#[derive(Debug, Clone)]
pub(crate) struct Listed(String);

impl Listed {
    pub(crate) fn fact(&self, name: &str) -> &str {
        let mut words = self.0.split(' ');
        let value = words.find_map(|word| word.strip_prefix(name));
        value.unwrap_or_default()
    }
}

/// Returns the two connections of the only client: the background connection, and the one that redirects its reports there.
pub(crate) async fn both(server: &RedisServer) -> Option<(Listed, Listed)> {
    let list: String = server.command(&["CLIENT", "LIST"]).await;
    let all = list.lines().map(|line| Listed(line.to_owned()));
    // The connections through the socket are the fixture's.
    let all: Vec<Listed> = all.filter(|one| !one.fact("addr=").contains('/')).collect();
    let reports_to = |one: &Listed, other: &Listed| one.fact("redir=") == other.fact("id=");
    match all.as_slice() {
        [one, other] if reports_to(other, one) => Some((one.clone(), other.clone())),
        [one, other] if reports_to(one, other) => Some((other.clone(), one.clone())),
        _ => None,
    }
}

/// Acquires and releases `k` until the second connection carries this runtime's requests. The background connection carries them
/// until then.
pub(crate) async fn both_in_use(server: &RedisServer, made: &LockClient) -> (Listed, Listed) {
    let (mut watch, mut found) = (server.watch_commands().await, None);
    eventually(LONG, "both connections are in use", async || {
        cycle(made).await;
        let used = script_connections(&mut watch).await;
        let both = both(server).await;
        found = both.filter(|(_, callers)| used == [callers.fact("addr=").to_owned()].into());
        found.is_some()
    })
    .await;
    found.expect("both are in use")
}

/// Returns the addresses that sent scripts since the last call.
pub(crate) async fn script_connections(watch: &mut CommandWatch) -> BTreeSet<String> {
    let scripts = |command: &&ClientCommand| command.is("EVALSHA");
    let seen = watch.seen().await.iter().filter(scripts);
    let used = seen.map(|command| command.client.clone()).collect();
    watch.clear().await;
    used
}

/// Acquires and releases `k`.
pub(crate) async fn cycle(client: &LockClient) {
    let guard = client.lock("k").wait(LONG).acquire().await.expect("free");
    guard.release().await.expect("held");
}
