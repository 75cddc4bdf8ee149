//! The way of requests into a connection: those that are under way together leave in one write. Each
//! write costs the client and the server a system call, which is most of what a request costs.

use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures_util::stream::{FuturesUnordered, StreamExt};
use redis::{Cmd, Pipeline, RedisError, RedisResult, Value, aio::MultiplexedConnection};
use tokio::{
    sync::{Notify, oneshot},
    task::JoinHandle,
};

/// A connection that gathers requests. Its task ends with it.
pub(super) struct Pipe {
    commands: MultiplexedConnection,
    gathered: Arc<Gathered>,
    under_way: AtomicUsize,
    task: JoinHandle<()>,
}

/// What is to leave with the next write.
#[derive(Default)]
struct Gathered {
    requests: Mutex<Vec<Request>>,
    some: Notify,
}

struct Request {
    call: Cmd,
    answer: oneshot::Sender<RedisResult<Value>>,
}

impl Pipe {
    /// Gathers requests for this connection, on the present runtime.
    pub(super) fn new(commands: MultiplexedConnection) -> Self {
        let gathered = Arc::default();
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
        let alone = self.under_way.fetch_add(1, Ordering::Relaxed) == 0;
        let _under_way = UnderWay(&self.under_way);
        let answer = if alone {
            self.commands.clone().send_packed_command(&call).await
        } else {
            self.gathered.add(call).await.unwrap_or_else(|_| {
                let gone = io::Error::from(io::ErrorKind::BrokenPipe);
                Err(RedisError::from(gone))
            })
        };
        answer.and_then(Value::extract_error)
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct UnderWay<'a>(&'a AtomicUsize);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Gathered {
    fn requests(&self) -> MutexGuard<'_, Vec<Request>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, call: Cmd) -> oneshot::Receiver<RedisResult<Value>> {
        let (answer, receiver) = oneshot::channel();
        let first = {
            let mut requests = self.requests();
            requests.push(Request { call, answer });
            requests.len() == 1
        };
        if first {
            self.some.notify_one();
        }
        receiver
    }

    /// What is still wanted of all that was gathered.
    fn take(&self) -> Vec<Request> {
        let mut requests = std::mem::take(&mut *self.requests());
        requests.retain(|request| !request.answer.is_closed());
        requests
    }
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
                    under_way.push(send_together(commands.clone(), requests));
                }
            }
            Some(()) = under_way.next() => {}
        }
    }
}

async fn send_together(mut commands: MultiplexedConnection, requests: Vec<Request>) {
    let count = requests.len();
    let mut together = Pipeline::with_capacity(count);
    let mut waiting = Vec::with_capacity(count);
    for Request { call, answer } in requests {
        together.add_command(call);
        waiting.push(answer);
    }
    // Whoever does not wait any more needs no answer.
    match commands.send_packed_commands(&together, 0, count).await {
        Ok(answers) => {
            for (waiting, answer) in waiting.into_iter().zip(answers) {
                let _ = waiting.send(Ok(answer));
            }
        }
        Err(error) => {
            for waiting in waiting {
                let _ = waiting.send(Err(error.clone()));
            }
        }
    }
}
