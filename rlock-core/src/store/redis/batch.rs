//! Sends concurrent requests with one write, and several requests of a kind with one script. A write costs the client
//! and the server a system call each, which is most of the cost of a request.

mod write;

use std::{
    future::{Future, poll_fn},
    io, mem,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
};

use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::{Cmd, RedisError, RedisResult, Value, aio::MultiplexedConnection};
use tokio::{
    sync::{mpsc, oneshot},
    task::coop::unconstrained,
};

use self::write::{Batch, Part};
use super::{
    commands::{Call, Commands},
    dial::boxed,
};
use crate::store::AcquireRequest;

/// The number of requests that are taken from the queue at a time.
const PER_WRITE: usize = 4096;

/// Sends the requests of one connection. Its task ends with it.
pub(super) struct Batcher {
    connection: MultiplexedConnection,
    queue: mpsc::UnboundedSender<Queued>,
    in_flight: AtomicUsize,
    shared: Arc<Shared>,
}

/// The state that the task shares with the callers.
struct Shared {
    commands: Arc<Commands>,
    /// The number of queued requests that the connection's own queue does not have yet.
    leaving: AtomicUsize,
}

struct Queued {
    request: QueuedRequest,
    reply: Reply,
}

/// A request of the queue.
pub(super) enum QueuedRequest {
    Command(Cmd),
    /// An acquire of one lock that most likely is free. One script can serve several.
    Acquire(AcquireRequest),
}

/// The sender of a reply. Sends `None` if the request was batched and must be sent by itself.
type Reply = oneshot::Sender<RedisResult<Option<Value>>>;

impl Batcher {
    /// Starts the task that batches requests for this connection, on the current runtime.
    pub(super) fn new(connection: MultiplexedConnection, commands: Arc<Commands>) -> Self {
        let shared = Arc::new(Shared {
            commands,
            leaving: AtomicUsize::new(0),
        });
        let (queue, queued) = mpsc::unbounded_channel();
        tokio::spawn(Arc::clone(&shared).send_queued(queued, connection.clone()));
        Self {
            connection,
            queue,
            in_flight: AtomicUsize::new(0),
            shared,
        }
    }

    /// Sends a request. With `may_share`, one script may serve it together with others in flight. Returns `None` if it
    /// was batched and must be sent by itself. If the future is dropped before the request is sent, it is not sent.
    pub(super) async fn send(&self, call: Call<'_>, may_share: bool) -> RedisResult<Option<Value>> {
        let in_flight = InFlight::begin(&self.in_flight);
        let request = if let Some(request) = self.batchable(call, &in_flight).filter(|_| may_share)
        {
            request
        } else {
            let command = self.shared.commands.command(call);
            // A cancelled request is no longer in flight, but may still be sent. The request that settles it must not
            // overtake it.
            let is_direct = in_flight.alone || !may_share;
            if is_direct && self.shared.leaving.load(Ordering::Acquire) == 0 {
                let mut connection = self.connection.clone();
                // The first poll puts the request into the connection's queue, before any later request.
                let reply = boxed(unconstrained(async move {
                    connection.send_packed_command(&command).await
                }));
                return reply.await.and_then(Value::extract_error).map(Some);
            }
            QueuedRequest::Command(command)
        };
        self.enqueue(request).await.unwrap_or_else(|_| Err(gone()))
    }

    /// Returns the call as a request that one script can serve together with others in flight. Returns `None` if no
    /// other request is in flight, or if the call is of another kind. Also returns `None` for a cluster, where locks
    /// are in different slots.
    fn batchable(&self, call: Call<'_>, in_flight: &InFlight<'_>) -> Option<QueuedRequest> {
        if in_flight.alone || self.shared.commands.keyspace.are_of_cluster {
            return None;
        }
        match call {
            Call::Acquire(one, _) if one.count == 1 && one.claims.len() == 1 => {
                Some(QueuedRequest::Acquire(one.clone()))
            }
            _ => None,
        }
    }

    fn enqueue(&self, request: QueuedRequest) -> oneshot::Receiver<RedisResult<Option<Value>>> {
        let (reply, receiver) = oneshot::channel();
        self.shared.leaving.fetch_add(1, Ordering::AcqRel);
        // The task lives as long as the queue. If its runtime has ended, `receiver` fails.
        let _ = self.queue.send(Queued { request, reply });
        receiver
    }
}

struct InFlight<'a> {
    count: &'a AtomicUsize,
    alone: bool,
}

impl<'a> InFlight<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        let alone = count.fetch_add(1, Ordering::Relaxed) == 0;
        Self { count, alone }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Returns the error for a connection that ended before the reply.
pub(super) fn gone() -> RedisError {
    RedisError::from(io::Error::from(io::ErrorKind::BrokenPipe))
}

impl Shared {
    async fn send_queued(
        self: Arc<Self>,
        mut queue: mpsc::UnboundedReceiver<Queued>,
        connection: MultiplexedConnection,
    ) {
        let mut in_flight = FuturesUnordered::new();
        let mut queued = Vec::new();
        loop {
            tokio::select! {
                biased;
                taken = queue.recv_many(&mut queued, PER_WRITE) => {
                    if taken == 0 {
                        return;
                    }
                    // Lets tasks that are about to send a request do so.
                    tokio::task::yield_now().await;
                    queued.extend(std::iter::from_fn(|| queue.try_recv().ok()));
                    in_flight.push(self.send(connection.clone(), mem::take(&mut queued)));
                }
                Some(()) = in_flight.next() => {}
            }
        }
    }

    async fn send(&self, mut connection: MultiplexedConnection, mut queued: Vec<Queued>) {
        let taken = queued.len();
        queued.retain(|queued| !queued.reply.is_closed());
        let Batch { commands, parts } = Batch::new(queued, &self.commands);
        let replies = {
            let mut sent = pin!(unconstrained(async {
                match parts.len() {
                    0 => Ok(Vec::new()),
                    count => connection.send_packed_commands(&commands, 0, count).await,
                }
            }));
            // The first poll puts the batch into the connection's queue, or queues for a place in it.
            let first = poll_fn(|cx| Poll::Ready(sent.as_mut().poll(cx))).await;
            self.leaving.fetch_sub(taken, Ordering::AcqRel);
            match first {
                Poll::Ready(replies) => replies,
                Poll::Pending => sent.await,
            }
        };
        let replies = match replies {
            Ok(replies) => replies,
            Err(error) => {
                for reply in parts.into_iter().flat_map(|part| part.replies) {
                    let _ = reply.send(Err(error.clone()));
                }
                return;
            }
        };
        for (part, reply) in parts.into_iter().zip(replies) {
            Self::deliver(part, reply.extract_error());
        }
    }

    fn deliver(part: Part, reply: RedisResult<Value>) {
        let Part {
            mut replies,
            is_shared,
        } = part;
        if !is_shared {
            if let Some(caller) = replies.pop() {
                let _ = caller.send(reply.map(Some));
            }
            return;
        }
        // A refused script did nothing, so each request is sent by itself. If the server has lost the scripts, that loads
        // them.
        let shares = match reply {
            Ok(Value::Array(shares)) => shares,
            _ => Vec::new(),
        };
        let mut shares = shares.into_iter();
        for caller in replies {
            let done = match shares.next() {
                Some(Value::Int(fence)) if fence > 0 => {
                    Some(Value::Array(vec![Value::Int(1), Value::Int(fence)]))
                }
                _ => None,
            };
            let _ = caller.send(Ok(done));
        }
    }
}
