//! One write: the commands of the requests that were queued meanwhile.

use redis::{Cmd, Pipeline, Value};

use super::{Queued, QueuedRequest, Reply};
use crate::store::redis::commands::Commands;

/// The number of requests that one script serves. Such a script takes about 50 µs. A larger batch saves little.
const PER_SCRIPT: usize = 16;

/// The commands of one write.
pub(super) struct Batch {
    pub(super) commands: Pipeline,
    /// The callers, in the order of the commands.
    pub(super) parts: Vec<Part>,
}

/// The callers of one command.
pub(super) struct Part {
    pub(super) replies: Vec<Reply>,
    /// Makes a caller's reply from its share of the reply, if the script serves several requests.
    pub(super) share: Option<fn(i64) -> Value>,
}

impl Batch {
    /// Makes a batch with acquires first and releases last. An owner's acquire is therefore never overtaken, and its
    /// release overtakes nothing.
    pub(super) fn new(queued: Vec<Queued>, commands: &Commands) -> Self {
        let mut batch = Self {
            commands: Pipeline::with_capacity(queued.len()),
            parts: Vec::with_capacity(queued.len()),
        };
        let (mut acquires, mut others, mut releases) = (Vec::new(), Vec::new(), Vec::new());
        for Queued { request, reply } in queued {
            match request {
                QueuedRequest::Acquire(request) => acquires.push((request, reply)),
                QueuedRequest::Command(command) => others.push((command, reply)),
                QueuedRequest::Release(request) => releases.push((request, reply)),
            }
        }
        let granted = |token| Value::Array(vec![Value::Int(1), Value::Int(token)]);
        batch.add_batched(acquires, granted, |requests| match requests {
            [one] => commands.acquire(one),
            several => commands.acquire_batch(several),
        });
        for (command, reply) in others {
            batch.add(command, vec![reply], None);
        }
        batch.add_batched(releases, Value::Int, |requests| match requests {
            [one] => commands.release(one),
            several => commands.release_batch(several),
        });
        batch
    }

    fn add(&mut self, command: Cmd, replies: Vec<Reply>, share: Option<fn(i64) -> Value>) {
        self.commands.add_command(command);
        self.parts.push(Part { replies, share });
    }

    fn add_batched<T>(
        &mut self,
        mut queued: Vec<(T, Reply)>,
        share: fn(i64) -> Value,
        command: impl Fn(&[T]) -> Cmd,
    ) {
        while !queued.is_empty() {
            let some = queued.drain(..queued.len().min(PER_SCRIPT));
            let (requests, replies): (Vec<_>, Vec<_>) = some.unzip();
            let share = (requests.len() > 1).then_some(share);
            self.add(command(&requests), replies, share);
        }
    }
}
