//! One write: the commands of the requests that were queued meanwhile.

use redis::{Cmd, Pipeline};

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
    /// Whether the script serves several requests, each with its share of the reply.
    pub(super) is_shared: bool,
}

impl Batch {
    /// Makes a batch with shared acquires first. An owner's acquire is therefore never overtaken.
    pub(super) fn new(queued: Vec<Queued>, commands: &Commands) -> Self {
        let mut batch = Self {
            commands: Pipeline::with_capacity(queued.len()),
            parts: Vec::with_capacity(queued.len()),
        };
        let (mut acquires, mut others) = (Vec::new(), Vec::new());
        for Queued { request, reply } in queued {
            match request {
                QueuedRequest::Acquire(request) => acquires.push((request, reply)),
                QueuedRequest::Command(command) => others.push((command, reply)),
            }
        }
        while !acquires.is_empty() {
            let some = acquires.drain(..acquires.len().min(PER_SCRIPT));
            let (requests, replies): (Vec<_>, Vec<_>) = some.unzip();
            match &*requests {
                [one] => batch.add(commands.acquire(one), replies, false),
                several => batch.add(commands.acquire_batch(several), replies, true),
            }
        }
        for (command, reply) in others {
            batch.add(command, vec![reply], false);
        }
        batch
    }

    fn add(&mut self, command: Cmd, replies: Vec<Reply>, is_shared: bool) {
        self.commands.add_command(command);
        self.parts.push(Part { replies, is_shared });
    }
}
