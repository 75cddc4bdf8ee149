//! The way of requests into a connection: those that are under way together leave in one write. Each
//! write costs the client and the server a system call, which is most of what a request costs.

use std::{
    future::{Future, poll_fn},
    io,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::Poll,
};

use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::{Cmd, RedisError, RedisResult, Value, aio::MultiplexedConnection};
use tokio::{
    sync::{Notify, oneshot},
    task::{JoinHandle, coop::unconstrained},
};

use super::{
    calls::{Calls, Usual},
    load::{Load, Request, What},
};

/// A connection that gathers requests. Its task ends with it.
pub(super) struct Pipe {
    commands: MultiplexedConnection,
    gathered: Arc<Gathered>,
    under_way: AtomicUsize,
    task: JoinHandle<()>,
}

/// What is to leave with the next write.
struct Gathered {
    calls: Arc<Calls>,
    leaving: Mutex<Leaving>,
    some: Notify,
    /// The server refuses the scripts that serve several requests.
    one_by_one: AtomicBool,
}

/// Requests that are not yet in the connection's own line.
#[derive(Default)]
struct Leaving {
    requests: Vec<Request>,
    /// How many loads were made of such and are still to be handed over.
    loads: usize,
}

impl Pipe {
    /// Gathers requests for this connection, on the present runtime.
    pub(super) fn new(commands: MultiplexedConnection, calls: Arc<Calls>) -> Self {
        let gathered = Arc::new(Gathered {
            calls,
            leaving: Mutex::default(),
            some: Notify::new(),
            one_by_one: AtomicBool::new(false),
        });
        let task = tokio::spawn(send_gathered(Arc::clone(&gathered), commands.clone()));
        Self {
            commands,
            gathered,
            under_way: AtomicUsize::new(0),
            task,
        }
    }

    /// Sends a request. One that is dropped before it left is not sent.
    pub(super) async fn send(&self, call: Cmd) -> RedisResult<Value> {
        let under_way = UnderWay::begin(&self.under_way);
        // One that was cancelled is not under way any more, but may leave all the same: what sets it
        // right must not overtake it.
        if under_way.alone && self.gathered.all_left() {
            let mut commands = self.commands.clone();
            // The first look at it puts it into the connection's line, before whatever comes later.
            let answer = unconstrained(commands.send_packed_command(&call)).await;
            return answer.and_then(Value::extract_error);
        }
        // A request by itself has an answer.
        let answer = self.gathered.send(What::Call(call)).await?;
        answer.ok_or_else(gone)
    }

    /// Whether a usual request would share a script with others.
    pub(super) fn shares(&self) -> bool {
        self.under_way.load(Ordering::Relaxed) > 0
            && !self.gathered.one_by_one.load(Ordering::Relaxed)
    }

    /// Sends a usual request together with others, if there are any. `None`: it is to be sent by
    /// itself, because there are none, or because it turned out not to be usual.
    pub(super) async fn send_usual(&self, usual: &Usual) -> RedisResult<Option<Value>> {
        if !self.shares() {
            return Ok(None);
        }
        let _under_way = UnderWay::begin(&self.under_way);
        self.gathered.send(What::Usual(usual.clone())).await
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct UnderWay<'a> {
    count: &'a AtomicUsize,
    alone: bool,
}

impl<'a> UnderWay<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        let alone = count.fetch_add(1, Ordering::Relaxed) == 0;
        Self { count, alone }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Gathered {
    fn leaving(&self) -> MutexGuard<'_, Leaving> {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether whatever is sent from here on comes after all that was gathered.
    fn all_left(&self) -> bool {
        let leaving = self.leaving();
        let mut waiting = leaving.requests.iter().map(|request| &request.answer);
        // What nobody wants any more does not leave.
        leaving.loads == 0 && waiting.all(oneshot::Sender::is_closed)
    }

    async fn send(&self, what: What) -> RedisResult<Option<Value>> {
        let (answer, receiver) = oneshot::channel();
        let first = {
            let requests = &mut self.leaving().requests;
            requests.push(Request { what, answer });
            requests.len() == 1
        };
        if first {
            self.some.notify_one();
        }
        receiver.await.unwrap_or_else(|_| Err(gone()))
    }

    /// What is still wanted of all that was gathered, to be sent together at once.
    fn take(&self) -> Vec<Request> {
        let mut leaving = self.leaving();
        let mut requests = std::mem::take(&mut leaving.requests);
        requests.retain(|request| !request.answer.is_closed());
        leaving.loads += usize::from(!requests.is_empty());
        requests
    }

    /// Sends a load for which [`take`](Self::take) counted.
    async fn hand_over(
        &self,
        commands: &mut MultiplexedConnection,
        load: &Load,
    ) -> RedisResult<Vec<Value>> {
        let answers = commands.send_packed_commands(&load.commands, 0, load.len());
        let mut answers = pin!(unconstrained(answers));
        // The first look at it puts the load into the connection's line, or into the line for that.
        let answer = poll_fn(|cx| Poll::Ready(answers.as_mut().poll(cx))).await;
        self.leaving().loads -= 1;
        match answer {
            Poll::Ready(answers) => answers,
            Poll::Pending => answers.await,
        }
    }

    async fn send_together(&self, mut commands: MultiplexedConnection, requests: Vec<Request>) {
        let load = Load::new(requests, &self.calls);
        let answers = self.hand_over(&mut commands, &load).await;
        let lesson = load.answered(answers);
        if lesson.refused && !self.one_by_one.swap(true, Ordering::Relaxed) {
            tracing::debug!("the server refuses scripts for several requests: one by one");
        }
        if lesson.forgotten {
            for script in self.calls.scripts.together() {
                // Otherwise the next ones learn it.
                let _ = script.load(&mut commands).await;
            }
        }
    }
}

/// The connection ended before there was an answer.
fn gone() -> RedisError {
    RedisError::from(io::Error::from(io::ErrorKind::BrokenPipe))
}

async fn send_gathered(gathered: Arc<Gathered>, commands: MultiplexedConnection) {
    let mut under_way = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            () = gathered.some.notified() => {
                // Whoever else is about to send something does so now.
                tokio::task::yield_now().await;
                let requests = gathered.take();
                if !requests.is_empty() {
                    under_way.push(gathered.send_together(commands.clone(), requests));
                }
            }
            Some(()) = under_way.next() => {}
        }
    }
}
