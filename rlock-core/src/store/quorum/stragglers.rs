//! Requests whose answers nobody waits for any more. They are followed to their end all the same: that
//! is how a dead connection is noticed, and how a release reaches a server that was away.

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::sync::{Mutex, mpsc};

use crate::store::BoxFuture;

/// How many are followed at once.
const MOST: usize = 4096;
/// How many more may come before they are followed.
const ROOM: usize = 1024;

pub(super) struct Stragglers {
    sender: mpsc::Sender<BoxFuture<'static, ()>>,
    receiver: Mutex<mpsc::Receiver<BoxFuture<'static, ()>>>,
}

impl Stragglers {
    pub(super) fn new() -> Self {
        let (sender, receiver) = mpsc::channel(ROOM);
        Self {
            sender,
            receiver: Mutex::new(receiver),
        }
    }

    /// Follows a request to its end; not if there are too many of them, because all that is lost by
    /// that is time.
    pub(super) fn follow(&self, request: BoxFuture<'static, ()>) {
        if self.sender.try_send(request).is_err() {
            tracing::debug!("too many late answers: one is not waited for");
        }
    }

    pub(super) async fn run(&self) {
        let mut receiver = self.receiver.lock().await;
        let mut followed = FuturesUnordered::new();
        loop {
            tokio::select! {
                Some(request) = receiver.recv(), if followed.len() < MOST => followed.push(request),
                Some(()) = followed.next() => {}
                else => return,
            }
        }
    }
}
