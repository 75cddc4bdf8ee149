//! Messages that only the nodes of one slot pass on, where servers have them (7.0). A message on an
//! ordinary channel goes to every node of the cluster.
//!
//! They are heard only for slots in which this client has waited lately; whoever tells something tries the
//! ordinary channel when nobody hears it here. So nothing depends on them, and nobody waits for them.
//!
//! They come by a connection of their own: when a slot moves the server ends its subscriptions by itself,
//! and redis-rs takes that for the answer to whatever request is under way on the same connection.

use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use redis::{PushInfo, PushKind, RedisResult, Value, aio::MultiplexedConnection, cmd};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout},
};

use super::{
    super::{
        address::{Address, Server},
        connection::{multiplexed, without_time_outs},
        errors::wants_reconnect,
        link::Link,
    },
    slot::Slot,
};

/// For how many slots at most: a server keeps each of these for each client.
const MOST: usize = 128;
/// How long the server may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// A connection that was not heard of for this long may be gone without a word.
const UNHEARD: Duration = Duration::from_secs(5);
/// How many wishes are kept that were not looked at yet.
const WISHES: usize = 64;

pub(super) struct Shards {
    wishes: mpsc::Sender<Slot>,
    state: Arc<Mutex<State>>,
}

/// What is heard.
struct State {
    /// The oldest first.
    slots: VecDeque<Slot>,
    /// Counts the connections; what an earlier one says is over.
    connection: u64,
    /// When the server was last heard of.
    heard: Instant,
    /// The server has no such messages, or not for this user.
    refused: bool,
}

/// Looks after the subscriptions of one node.
pub(super) struct Keeper {
    wishes: mpsc::Receiver<Slot>,
    state: Arc<Mutex<State>>,
    address: Address,
    link: Arc<Link>,
}

impl Shards {
    pub(super) fn new(address: Address, link: Arc<Link>) -> (Self, Keeper) {
        let (sender, wishes) = mpsc::channel(WISHES);
        let state = Arc::new(Mutex::new(State {
            slots: VecDeque::new(),
            connection: 0,
            heard: Instant::now(),
            refused: false,
        }));
        let keeper = Keeper {
            wishes,
            state: Arc::clone(&state),
            address,
            link,
        };
        let wishes = sender;
        (Self { wishes, state }, keeper)
    }

    /// Somebody waits for a lock of this slot. Does not wait for anything.
    pub(super) fn wish(&self, slot: Slot) {
        let is_heard = {
            let state = lock(&self.state);
            state.refused || state.slots.contains(&slot) && state.heard.elapsed() < UNHEARD
        };
        if !is_heard {
            // One that is left out is told by the ordinary channel.
            let _ = self.wishes.try_send(slot);
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// A connection is there, or is not any more.
    fn begin_anew(&mut self) -> u64 {
        self.slots.clear();
        self.connection += 1;
        self.connection
    }

    fn is_heard_now(&mut self) {
        self.heard = Instant::now();
    }
}

impl Keeper {
    /// Runs for as long as there is somebody who may wish for something.
    pub(super) async fn run(mut self) {
        let mut connection = None;
        while let Some(slot) = self.wishes.recv().await {
            if lock(&self.state).refused {
                continue;
            }
            let outcome = timeout(PATIENCE, self.listen(&mut connection, slot)).await;
            if matches!(outcome, Ok(Ok(()))) {
                lock(&self.state).is_heard_now();
                continue;
            }
            connection = None;
            lock(&self.state).begin_anew();
        }
    }

    /// Fails where another connection may do better.
    async fn listen(
        &self,
        connection: &mut Option<(u64, MultiplexedConnection)>,
        slot: Slot,
    ) -> RedisResult<()> {
        let present = lock(&self.state).connection;
        let mut commands = match connection {
            Some((number, commands)) if *number == present => commands.clone(),
            _ => {
                let server = self.address.server(PATIENCE).await?;
                if server.fallback().is_none() {
                    lock(&self.state).refused = true;
                    return Ok(());
                }
                let (number, commands) = self.connect(&server).await?;
                connection.insert((number, commands)).1.clone()
            }
        };
        if lock(&self.state).slots.contains(&slot) {
            return cmd("PING").query_async(&mut commands).await;
        }
        let Some(channel) = self.channel(slot) else {
            return Ok(());
        };
        let mut subscribe = cmd("SSUBSCRIBE");
        let subscribed: RedisResult<Value> =
            subscribe.arg(channel).query_async(&mut commands).await;
        if let Err(error) = subscribed {
            return self.note_refusal(error);
        }
        let oldest = {
            let mut state = lock(&self.state);
            state.slots.push_back(slot);
            let too_many = state.slots.len() > MOST;
            too_many.then(|| state.slots.pop_front()).flatten()
        };
        if let Some(channel) = oldest.and_then(|oldest| self.channel(oldest)) {
            let mut end = cmd("SUNSUBSCRIBE");
            let _: Value = end.arg(channel).query_async(&mut commands).await?;
        }
        Ok(())
    }

    fn note_refusal(&self, error: redis::RedisError) -> RedisResult<()> {
        if wants_reconnect(&error) || error.is_io_error() {
            return Err(error);
        }
        // The slot may have moved on; else the server does not have this at all.
        if error.redirect_node().is_none() && !lock(&self.state).refused {
            lock(&self.state).refused = true;
            tracing::info!(address = %self.address, %error,
                "no messages by slot: who waits is told by channels that every node of the cluster passes on");
        }
        Ok(())
    }

    fn channel(&self, slot: Slot) -> Option<String> {
        self.link.channel_of(slot)
    }

    async fn connect(&self, server: &Server) -> RedisResult<(u64, MultiplexedConnection)> {
        let number = lock(&self.state).begin_anew();
        let (state, link) = (Arc::downgrade(&self.state), Arc::downgrade(&self.link));
        let config = without_time_outs().set_push_sender(move |push| {
            receive(&state, &link, number, push);
            Ok::<(), Infallible>(())
        });
        let client = server.preferred();
        let connection = multiplexed(client, &config).await?;
        Ok((number, connection))
    }
}

fn receive(state: &Weak<Mutex<State>>, link: &Weak<Link>, number: u64, push: PushInfo) {
    let (Some(state), Some(link)) = (state.upgrade(), link.upgrade()) else {
        return;
    };
    match (push.kind, push.data.as_slice()) {
        (PushKind::SMessage, [_, Value::BulkString(message)]) => {
            lock(&state).is_heard_now();
            link.heard(message);
        }
        // When the slot has moved on, the server does so by itself.
        (PushKind::SUnsubscribe, [Value::BulkString(channel), ..]) => {
            let is_ended = |slot: &Slot| {
                let name = link.channel_of(*slot);
                name.is_some_and(|name| name.as_bytes() == channel)
            };
            lock(&state).slots.retain(|slot| !is_ended(slot));
        }
        (PushKind::Disconnection, _) => {
            let mut state = lock(&state);
            if state.connection == number {
                state.begin_anew();
            }
        }
        _ => {}
    }
}
