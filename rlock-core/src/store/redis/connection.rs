//! One connection to the server, or two where the protocol cannot mix messages with answers.

use std::{
    convert::Infallible,
    sync::{Arc, Weak},
};

use futures_util::StreamExt;
use redis::{
    AsyncConnectionConfig, Client, Pipeline, ProtocolVersion, PushInfo, PushKind, RedisResult,
    Value,
    aio::{MultiplexedConnection, PubSubSink},
    cmd,
};
use tokio::task::JoinHandle;

use super::{
    abilities::{Missing, refused, try_scripts},
    address::Server,
    errors::{wants_password, wants_reconnect},
    link::Link,
    pipe::Pipe,
    roster::{Presence, run_id},
    tracking::try_tracking,
};
use crate::store::BoxFuture;

/// A connection that was up when it was handed out.
#[derive(Clone)]
pub(super) struct Connection {
    /// Counts the connections of a link.
    pub(super) epoch: u64,
    pub(super) commands: MultiplexedConnection,
    /// The same, for scripts.
    pub(super) pipe: Arc<Pipe>,
    /// What the server calls it, where other connections send their news here.
    pub(super) id: Option<i64>,
    /// What the server does not do.
    pub(super) missing: Missing,
    /// Messages for the client come by it.
    pub(super) listens: bool,
    /// Whether the server reports changes of the keys read on this connection.
    pub(super) is_told: bool,
    /// What the server calls its run, until that is in the roster.
    pub(super) run_id: Option<String>,
    /// Its entry there.
    pub(super) presence: Option<Arc<Presence>>,
    /// A connection of its own for messages, where the protocol cannot mix them with answers.
    _messages: Option<Messages>,
}

#[derive(Clone)]
struct Messages {
    refused: bool,
    _sink: PubSubSink,
    _pump: Arc<Pump>,
}

/// The task that passes messages on; ends with its connection.
struct Pump(JoinHandle<()>);

impl Drop for Pump {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Connection {
    /// Opens a connection that reports to `link`.
    pub(super) async fn open(link: &Arc<Link>, client: &Client, epoch: u64) -> RedisResult<Self> {
        let mut config = without_time_outs();
        let pushes = speaks_resp3(client);
        if pushes {
            let link = Arc::downgrade(link);
            config = config.set_push_sender(move |push| {
                receive(&link, epoch, push);
                Ok::<(), Infallible>(())
            });
        }
        let commands = multiplexed(client, &config).await?;
        let (mut id, mut missing) = (None, Missing::default());
        let mut listens = listens(link, pushes);
        let run_id;
        let messages = if pushes {
            // Sent together, because each round trip is one that holders wait for after an outage.
            let refused;
            (refused, missing.messages, (), id, (), run_id) = tokio::try_join!(
                boxed(try_tracking(commands.clone(), link.news_go_to())),
                boxed(listen(link, commands.clone(), listens)),
                boxed(load_scripts(link, commands.clone())),
                boxed(own_id(link, commands.clone())),
                boxed(note_time(link, commands.clone())),
                boxed(name_of_run(link, commands.clone())),
            )?;
            missing.tracking = refused.tracking;
            missing.scripts = refused.scripts;
            None
        } else {
            ((), missing.scripts, (), run_id) = tokio::try_join!(
                boxed(load_scripts(link, commands.clone())),
                boxed(try_scripts(commands.clone())),
                boxed(note_time(link, commands.clone())),
                boxed(name_of_run(link, commands.clone())),
            )?;
            if listens {
                let channel = link.channel();
                let opened = boxed(Messages::open(link, client, epoch, &channel)).await?;
                missing.messages = opened.refused;
                Some(opened)
            } else {
                None
            }
        };
        listens &= !missing.messages;
        Ok(Self {
            epoch,
            pipe: Arc::new(Pipe::new(commands.clone(), Arc::clone(&link.calls))),
            commands,
            id,
            missing,
            listens,
            is_told: pushes && !missing.tracking,
            run_id,
            presence: None,
            _messages: messages,
        })
    }
}

impl Messages {
    async fn open(
        link: &Arc<Link>,
        client: &Client,
        epoch: u64,
        channel: &str,
    ) -> RedisResult<Self> {
        let (mut sink, mut stream) = client.get_async_pubsub().await?.split();
        let refused = refused(sink.subscribe(channel).await)?;
        let link = Arc::downgrade(link);
        let pump = tokio::spawn(async move {
            while let (Some(message), Some(link)) = (stream.next().await, link.upgrade()) {
                link.heard(message.get_payload_bytes());
            }
            if let Some(link) = link.upgrade() {
                link.give_up(epoch);
            }
        });
        Ok(Self {
            refused,
            _sink: sink,
            _pump: Arc::new(Pump(pump)),
        })
    }
}

/// Boxes a future to keep its caller's future small.
pub(super) fn boxed<'a, T>(future: impl Future<Output = T> + Send + 'a) -> BoxFuture<'a, T> {
    Box::pin(future)
}

/// Listens to what concerns this client. Answers whether that is refused.
async fn listen(
    link: &Link,
    mut commands: MultiplexedConnection,
    listens: bool,
) -> RedisResult<bool> {
    if !listens {
        return Ok(false);
    }
    refused(commands.subscribe(link.channel()).await)
}

/// Whether messages are to come by this connection. On the runtime of the callers they are not worth one
/// more connection, and owners in a cluster are named after the background connection.
fn listens(link: &Link, pushes: bool) -> bool {
    link.is_home() || pushes && !link.calls.names.are_of_cluster()
}

/// Loads the scripts ahead, which saves the first calls a round trip; without the permission
/// they are loaded when they are missed.
async fn load_scripts(link: &Link, mut commands: MultiplexedConnection) -> RedisResult<()> {
    let mut loads = Pipeline::new();
    for script in link.calls.scripts.all() {
        script.load_with(&mut loads);
    }
    let answers = commands.send_packed_commands(&loads, 0, loads.len());
    for answer in answers.await? {
        server_may_refuse(answer.extract_error().map(drop))?;
    }
    Ok(())
}

fn speaks_resp3(client: &Client) -> bool {
    client.get_connection_info().redis_settings().protocol() != ProtocolVersion::RESP2
}

/// What the server calls a connection to which others send their news.
async fn own_id(link: &Link, mut commands: MultiplexedConnection) -> RedisResult<Option<i64>> {
    if !link.is_home() {
        return Ok(None);
    }
    let id = cmd("CLIENT").arg("ID").query_async(&mut commands).await;
    match id {
        Err(error) => server_may_refuse(Err(error)).map(|()| None),
        id => id.map(Some),
    }
}

/// Without the permission to ask for the time, tokens from before a failover may be given again.
async fn note_time(link: &Link, mut commands: MultiplexedConnection) -> RedisResult<()> {
    match cmd("TIME").query_async::<(u64, u64)>(&mut commands).await {
        Ok((seconds, micros)) => {
            link.calls.opened_at(seconds * 1_000_000 + micros);
            Ok(())
        }
        Err(error) => server_may_refuse(Err(error)),
    }
}

/// What tells the server from the others of a quorum, where it is one of these.
async fn name_of_run(link: &Link, commands: MultiplexedConnection) -> RedisResult<Option<String>> {
    match link.roster() {
        Some(_) => run_id(commands).await,
        None => Ok(None),
    }
}

/// Time-outs are ours: one for the whole of connecting, one for each request.
pub(super) fn without_time_outs() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
}

/// A connection for a few commands, to which nothing is sent without being asked for.
pub(super) async fn plain(server: &Server) -> RedisResult<MultiplexedConnection> {
    multiplexed(server.without_pushes(), &without_time_outs()).await
}

/// Opens a connection. Boxed, so that it is compiled once for all callers.
pub(super) fn multiplexed<'a>(
    client: &'a Client,
    config: &'a AsyncConnectionConfig,
) -> BoxFuture<'a, RedisResult<MultiplexedConnection>> {
    boxed(client.get_multiplexed_async_connection_with_config(config))
}

/// Lets an answer pass that refuses, but not a connection that failed.
pub(super) fn server_may_refuse(outcome: RedisResult<()>) -> RedisResult<()> {
    match outcome {
        Err(error) if wants_reconnect(&error) || error.is_io_error() => Err(error),
        Err(error) if wants_password(&error) => Err(error),
        _ => Ok(()),
    }
}

/// Takes what the server sends without being asked.
pub(super) fn receive(link: &Weak<Link>, epoch: u64, push: PushInfo) {
    let Some(link) = link.upgrade() else {
        return;
    };
    match (push.kind, push.data.as_slice()) {
        (PushKind::Message, [_, Value::BulkString(message)]) => link.heard(message),
        (PushKind::Invalidate, [Value::Array(names)]) => link.changed(Some(names)),
        // Without names: everything was flushed.
        (PushKind::Invalidate, _) => link.changed(None),
        (PushKind::Disconnection, _) => link.give_up(epoch),
        _ => {}
    }
}
