//! Databases of one server. Channels know no databases, so clients of all of them share their messages.

use rlock_core::{LockClient, LostCause};
use rlock_testkit::RedisServer;

use crate::common::{LASTING, LONG, assert_lost, connect, hold, name};

/// Returns the keys and the owners of all locks that the client lists, and how many clients were silent.
async fn listed(client: &LockClient) -> (Vec<(String, String)>, usize) {
    let mut list = client.list("*");
    let mut found = Vec::new();
    while let Some(info) = list.next().await.expect("a reply") {
        assert!(info.holder.is_some(), "{info:?}");
        found.push((info.key, info.owner));
    }
    found.sort();
    (found, list.missed())
}

/// Lists, inspects and takes locks of one database of a store while clients of the other hold the same keys.
async fn assert_apart(one: LockClient, other: LockClient) {
    let (mut held, mut others) = (Vec::new(), Vec::new());
    for key in ["asked", "forced", "kept"] {
        held.push(hold(&one, key).await);
        others.push(hold(&other, key).await);
    }
    others.push(hold(&other, "only here").await);
    for (client, guards) in [(&one, &held), (&other, &others)] {
        let mut expected: Vec<_> = guards
            .iter()
            .map(|guard| (guard.key().to_owned(), guard.owner().to_string()))
            .collect();
        expected.sort();
        assert_eq!(listed(client).await, (expected, 0));
        let info = client.inspect("kept").await.expect("a reply");
        let info = info.expect("held");
        assert_eq!(info.owner_id(), Some(guards[2].owner()));
        assert!(info.holder.is_some(), "it replies");
    }
    assert!(one.inspect("only here").await.expect("a reply").is_none());
    assert!(!one.ask_release("only here").await.expect("a reply"));
    assert!(!one.force_release("only here").await.expect("a reply"));
    assert!(one.ask_release("asked").await.expect("a reply"));
    assert!(one.force_release("forced").await.expect("a reply"));
    for guard in &held[..2] {
        assert_lost(guard, LONG, LostCause::Revoked).await;
    }
    for guard in others.iter().chain([&held[2]]) {
        assert!(guard.is_valid(), "{}", guard.key());
    }
}

#[tokio::test]
async fn clients_show_and_take_the_locks_of_their_own_database() {
    let server = RedisServer::start();
    for options in ["", "?protocol=resp2"] {
        let url = |database: u8| format!("{}{database}{options}", server.url());
        assert_apart(connect(&url(0)).await, connect(&url(3)).await).await;
    }
}

#[tokio::test]
async fn clients_of_a_quorum_show_and_take_the_locks_of_its_databases() {
    let servers = [(); 3].map(|()| RedisServer::start());
    let quorum = async |databases: [u8; 3]| {
        let urls = servers.iter().zip(databases);
        let urls = urls.map(|(server, database)| format!("{}{database}", server.url()));
        LockClient::quorum(urls).await.expect("all are up")
    };
    assert_apart(quorum([0, 0, 0]).await, quorum([1, 2, 1]).await).await;
}

/// The text of a question, and the channel of its client.
struct Asked {
    number: String,
    answers: String,
}

/// A client of an earlier version, which does not report its database.
struct Former {
    messages: tokio::sync::mpsc::UnboundedReceiver<redis::PushInfo>,
    connection: redis::aio::MultiplexedConnection,
}

impl Former {
    const CLIENT: &str = "11111111-2222-4333-8444-555555555555";

    async fn start(server: &RedisServer) -> Self {
        let url = format!("{}?protocol=resp3", server.url());
        let (sender, messages) = tokio::sync::mpsc::unbounded_channel();
        let config = redis::AsyncConnectionConfig::new().set_push_sender(sender);
        let redis = redis::Client::open(url).expect("a URL");
        let connecting = redis.get_multiplexed_async_connection_with_config(&config);
        let mut connection = connecting.await.expect("it runs");
        let channel = format!("lock:client:{}", Self::CLIENT);
        connection.subscribe(&channel).await.expect("it may");
        Self {
            messages,
            connection,
        }
    }

    /// Returns the fields of the next message.
    async fn message(&mut self) -> Vec<String> {
        loop {
            let push = self.messages.recv().await.expect("connected");
            if let Some(redis::Value::BulkString(message)) = push.data.last() {
                let message = String::from_utf8_lossy(message);
                return message.split('\t').map(str::to_owned).collect();
            }
        }
    }

    /// Waits for the question of a list.
    async fn question(&mut self) -> Asked {
        let fields = self.message().await;
        assert_eq!((&*fields[0], &*fields[3]), ("@ask", "locks"));
        Asked {
            number: fields[2].clone(),
            answers: format!("lock:client:{}", fields[1]),
        }
    }

    async fn publish(&mut self, channel: &str, message: &str) {
        let mut publish = redis::cmd("PUBLISH");
        let publish = publish.arg(channel).arg(message);
        let received: u64 = publish
            .query_async(&mut self.connection)
            .await
            .expect("it may");
        assert_eq!(received, 1);
    }
}

/// During a deployment, clients that do not report their database share a server with those that do.
#[tokio::test]
async fn locks_of_a_client_that_does_not_report_its_database_are_looked_up() {
    let server = RedisServer::start();
    let client = connect(&server.url()).await;
    let guard = hold(&client, "mine").await;
    let mut former = Former::start(&server).await;
    let owner = format!("{}:1", Former::CLIENT);
    // The other lock is in another database.
    let _: u64 = server.command(&["HSET", &name("here"), &owner, "1"]).await;
    let lasts = LASTING.as_millis().to_string();
    let _: u64 = server.command(&["PEXPIRE", &name("here"), &lasts]).await;
    let asking = client.clone();
    let list = tokio::spawn(async move { listed(&asking).await });
    let asked = former.question().await;
    let lock = |key: &str| {
        format!("\t{key}\t{owner}\t1\t30000\t7\t0\t\t\thost\t4711\t1000\t\t\t\t0\t0\t0")
    };
    let answer = format!(
        "@tell\t{}\tlocks\t0\t0{}{}",
        asked.number,
        lock("elsewhere"),
        lock("here")
    );
    former.publish(&asked.answers, &answer).await;
    let (found, missed) = list.await.expect("no panic");
    let mine = ("mine".to_owned(), guard.owner().to_string());
    assert_eq!(found, [("here".to_owned(), owner.clone()), mine]);
    assert_eq!(missed, 0);

    // It reads the answers of today's clients.
    let channel = format!("lock:client:{}", client_of(&guard.owner().to_string()));
    let question = format!("@ask\t{}\t5\tlocks\t%2A\t", Former::CLIENT);
    former.publish(&channel, &question).await;
    let answer = former.message().await;
    assert_eq!(answer[..5], ["@tell", "5", "locks", "0", "0"]);
    assert_eq!((answer.len(), &*answer[5]), (5 + 17, "mine"));
}

fn client_of(owner: &str) -> &str {
    owner.split_once(':').expect("an owner").0
}
