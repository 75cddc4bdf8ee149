//! Opens and sets up one connection (RESP3 or RESP2, tracking, push messages), and sends commands over it. RESP2
//! cannot mix notifications with replies, so they have a connection of their own.

use std::{
    collections::HashMap,
    convert::Infallible,
    io,
    sync::{Arc, atomic::AtomicBool},
};

use futures_util::StreamExt;
use redis::{
    Client, Cmd, ConnectionAddr, InfoDict, ProtocolVersion, PushInfo, PushKind, RedisError,
    RedisResult, Value,
    aio::{MultiplexedConnection, PubSubSink},
    cmd, from_redis_value, pipe,
};
use rlock_proto::store::{KeyFilter, Listener, Notification};
use tokio::task::coop::unconstrained;
use uuid::Uuid;

use super::{
    address::Server,
    capabilities::{Capability, NOTIFICATIONS, RESP3, TRACKING, tracking},
    commands::{Commands, Operation},
    dial::{boxed, multiplexed, without_time_outs},
    errors::unless_refused,
    usage::Usage,
};
use crate::store::{
    keyspace::connection_name, options::StoreOptions, run_ids::Registration, tasks::AbortOnDrop,
};

/// A connection, which may have failed since it was opened.
pub(in crate::store) struct Connection {
    /// The number of this connection among those of its link.
    pub(super) epoch: u64,
    pub(super) server: ConnectionAddr,
    /// The promotion of its server, as this client counts them, if Sentinels named it.
    pub(super) promotion: u64,
    pub(super) multiplexed: MultiplexedConnection,
    pub(super) usage: Arc<Usage>,
    commands: Arc<Commands>,
    /// The server's id of this connection. Other connections redirect their reports of changes to it.
    pub(super) id: Option<i64>,
    pub(super) missing: Vec<Capability>,
    /// Whether the server reports changes of the keys read on this connection.
    pub(super) is_tracked: bool,
    /// The connection to which the server sends these reports, if not this one.
    pub(super) redirects_to: Option<i64>,
    /// Whether the server says that it is a replica. A node of a cluster is not asked, because it redirects requests.
    pub(super) is_replica: bool,
    /// Whether the server has refused `TYPE`, which errors about keys of other software need.
    pub(super) refuses_type: AtomicBool,
    /// The server's `run_id`, until it is registered.
    pub(super) run_id: Option<String>,
    /// The entry of this connection in the quorum's `RunIds`.
    pub(super) registration: Option<Registration>,
    /// The connection for notifications, with RESP2.
    subscription: Option<(PubSubSink, AbortOnDrop)>,
}

/// What a link needs to open its next connection.
pub(super) struct Opening<'a> {
    pub(super) epoch: u64,
    pub(super) options: &'a StoreOptions,
    pub(super) inbox: Inbox,
    /// The client's channel, if the connection subscribes to it.
    pub(super) channel: Option<String>,
    /// The connection to which the server sends its reports of changes, if not the new one.
    pub(super) redirects_to: Option<i64>,
}

impl Connection {
    pub(super) async fn open(
        opening: Opening<'_>,
        server: &Server,
        protocol: ProtocolVersion,
    ) -> RedisResult<Self> {
        let Opening {
            epoch,
            options,
            inbox,
            channel,
            redirects_to,
        } = opening;
        let (client, resp3) = (server.client(protocol)?, protocol != ProtocolVersion::RESP2);
        let mut config = without_time_outs();
        if resp3 {
            let inbox = inbox.clone();
            config = config.set_push_sender(move |push| {
                inbox.on_push(push);
                Ok::<(), Infallible>(())
            });
        }
        let multiplexed = multiplexed(&client, &config).await?;
        let mut opened = Self {
            epoch,
            server: server.info.addr().clone(),
            promotion: server.promotion,
            commands: Arc::clone(&inbox.commands),
            multiplexed: multiplexed.clone(),
            usage: Arc::new(Usage::new()),
            id: None,
            missing: Vec::from_iter((protocol != server.protocol()).then_some(RESP3)),
            is_tracked: false,
            redirects_to,
            is_replica: false,
            refuses_type: AtomicBool::new(false),
            run_id: None,
            registration: None,
            subscription: None,
        };
        let subscribe = async {
            match &channel {
                Some(channel) if resp3 => {
                    unless_refused(multiplexed.clone().subscribe(channel).await)
                }
                _ => Ok(Some(())),
            }
        };
        // In parallel, because holders wait for each round trip after an outage.
        let (mut subscribed, ()) =
            tokio::try_join!(boxed(subscribe), boxed(opened.set_up(options, resp3)))?;
        if !resp3
            && !opened.is_replica
            && let Some(channel) = &channel
        {
            subscribed = boxed(opened.subscribe(inbox, &client, channel)).await?;
        }
        if subscribed.is_none() {
            opened.missing.push(NOTIFICATIONS);
        }
        Ok(opened)
    }

    /// Loads the scripts, which saves the first calls a round trip, and checks the server's capabilities.
    async fn set_up(&mut self, options: &StoreOptions, resp3: bool) -> RedisResult<()> {
        let mut setup = pipe();
        if resp3 {
            setup.add_command(tracking(self.redirects_to));
            setup.cmd("CLIENT").arg("ID");
        }
        let name = connection_name(options.client);
        setup.cmd("CLIENT").arg("SETNAME").arg(name);
        let asks_role = !self.commands.keyspace.are_of_cluster;
        if asks_role {
            setup.add_command(role(resp3));
        }
        if options.run_ids.is_some() {
            setup.cmd("INFO").arg("server");
        }
        self.commands.scripts.load(&mut setup);
        let replies = self
            .multiplexed
            .send_packed_commands(&setup, 0, setup.len());
        let mut replies = replies.await?.into_iter().map(Value::extract_error);
        let mut next = || replies.next().unwrap_or(Ok(Value::Nil));
        if resp3 {
            self.is_tracked = unless_refused(next())?.is_some();
            if !self.is_tracked {
                self.missing.push(TRACKING);
            }
            let id = unless_refused(next())?;
            self.id = id.map(from_redis_value).transpose()?;
        }
        unless_refused(next())?;
        if asks_role {
            self.is_replica = unless_refused(next())?.is_some_and(has_role_of_replica);
        }
        if options.run_ids.is_some() {
            self.run_id = run_id(next())?;
        }
        // Without this permission, each script is loaded when a call finds it missing.
        for reply in replies {
            unless_refused(reply)?;
        }
        Ok(())
    }

    /// Subscribes on a separate connection. Returns `None` if the server refuses that.
    async fn subscribe(
        &mut self,
        inbox: Inbox,
        client: &Client,
        channel: &str,
    ) -> RedisResult<Option<()>> {
        let (mut sink, mut stream) = client.get_async_pubsub().await?.split();
        let subscribed = unless_refused(sink.subscribe(channel).await)?;
        let pump = tokio::spawn(async move {
            while let Some(message) = stream.next().await {
                inbox.on_message(message.get_payload_bytes());
            }
            (inbox.listener)(Notification::Disconnected);
        });
        self.subscription = Some((sink, AbortOnDrop::new(&pump)));
        Ok(subscribed)
    }

    /// Sends a request. `asking` is for a node of a cluster that imports the slot, and `with_text` for a server that loads
    /// no scripts. If the future is dropped before the request is written, it is not sent.
    pub(super) async fn send(
        &self,
        call: Operation<'_>,
        asking: bool,
        with_text: bool,
    ) -> RedisResult<Value> {
        if asking || with_text {
            return unconstrained(boxed(self.send_apart(call, asking, with_text))).await;
        }
        let (command, mut connection) = (self.commands.command(call), self.multiplexed.clone());
        // The first poll puts the request into the connection's queue, before any later request.
        let reply = connection.send_packed_command(&command);
        unconstrained(reply).await.and_then(Value::extract_error)
    }

    pub(super) async fn load_scripts(&self) -> RedisResult<()> {
        let (mut load, mut connection) = (pipe(), self.multiplexed.clone());
        self.commands.scripts.load(&mut load);
        let replies = connection.send_packed_commands(&load, 0, load.len());
        Value::Array(replies.await?).extract_error().map(drop)
    }

    /// Sends a request with one write, so that no other command separates `ASKING` from it.
    async fn send_apart(
        &self,
        call: Operation<'_>,
        asking: bool,
        with_text: bool,
    ) -> RedisResult<Value> {
        let (mut commands, mut connection) = (pipe(), self.multiplexed.clone());
        if asking {
            commands.cmd("ASKING");
        }
        let mut command = self.commands.command(call);
        if with_text {
            command = self.commands.with_text(&command);
        }
        commands.add_command(command);
        let last = commands.len() - 1;
        let mut replies = connection.send_packed_commands(&commands, last, 1).await?;
        replies.pop().ok_or_else(gone)?.extract_error()
    }
}

/// Returns the error for a connection that ended before the reply.
pub(super) fn gone() -> RedisError {
    RedisError::from(io::Error::from(io::ErrorKind::BrokenPipe))
}

/// Returns the command whose reply has the server's role. Every user may call `HELLO`, but it is unknown to some proxies that
/// support RESP2 only.
fn role(resp3: bool) -> Cmd {
    let (name, arg) = if resp3 {
        ("HELLO", "3")
    } else {
        ("INFO", "replication")
    };
    cmd(name).arg(arg).take()
}

/// Returns whether this reply to [`role`] is that of a replica.
fn has_role_of_replica(reply: Value) -> bool {
    let role = match reply {
        map @ Value::Map(_) => from_redis_value::<HashMap<String, Value>>(map)
            .ok()
            .and_then(|mut hello| from_redis_value::<String>(hello.remove("role")?).ok()),
        info => from_redis_value::<InfoDict>(info)
            .ok()
            .and_then(|info| info.get("role")),
    };
    role.is_some_and(|role| role == "replica" || role == "slave")
}

/// Returns the `run_id` in a reply to INFO, if the server shows it.
fn run_id(reply: RedisResult<Value>) -> RedisResult<Option<String>> {
    let info = unless_refused(reply)?.map(from_redis_value::<InfoDict>);
    let id: Option<String> = info.transpose()?.and_then(|info| info.get("run_id"));
    // Some services hide it: they show one character again and again.
    Ok(id.filter(|id| id.chars().any(|other| !id.starts_with(other))))
}

/// Reads the messages of one connection.
#[derive(Clone)]
pub(super) struct Inbox {
    /// Gets the events of this connection, and `Disconnected` when it ends.
    pub(super) listener: Listener,
    pub(super) commands: Arc<Commands>,
    pub(super) client: Uuid,
}

impl Inbox {
    /// Handles a push message of the server.
    pub(super) fn on_push(&self, push: PushInfo) {
        match (push.kind, push.data.as_slice()) {
            (PushKind::Message, [_, Value::BulkString(message)]) => {
                self.on_message(message);
            }
            (PushKind::Invalidate, [Value::Array(names)]) => {
                for name in names {
                    if let Value::BulkString(name) = name
                        && let Some(key) = self.commands.keyspace.key(name)
                    {
                        (self.listener)(Notification::Changed(key));
                    }
                }
            }
            // A message without names reports a flush.
            (PushKind::Invalidate, _) => (self.listener)(Notification::SomeChanged(KeyFilter::All)),
            (PushKind::Disconnection, _) => (self.listener)(Notification::Disconnected),
            _ => {}
        }
    }

    /// Handles a message on the client's channel.
    fn on_message(&self, message: &[u8]) {
        if let Some(event) = self.commands.keyspace.read_message(self.client, message) {
            if let Notification::Granted { fence, .. } = &event {
                self.commands.floor.note(*fence);
            }
            (self.listener)(event);
        }
    }
}
