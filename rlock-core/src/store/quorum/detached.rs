//! Requests that no caller waits for any more. They are followed to their end all the same: that is how a dead
//! connection is noticed, and how a release reaches a member that was away.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream};
use tokio::{
    sync::{Mutex, mpsc},
    time::{sleep, timeout},
};

use super::member::Member;
use crate::{
    store::{BoxFuture, ReleaseRequest},
    wait::Backoff,
};

/// How many requests to one member are followed at once, and how many may wait for that: a bound for the memory that a
/// silent member takes.
const MOST: usize = 4096;
/// For how long a member that did not reply is sent a release: as long as the default lease.
const PENDING_RELEASE: Duration = Duration::from_secs(30);

type Request = BoxFuture<'static, ()>;

/// The detached requests to one member.
pub(super) struct Detached {
    sender: mpsc::Sender<Request>,
    receiver: Mutex<mpsc::Receiver<Request>>,
}

impl Detached {
    pub(super) fn new() -> Self {
        let (sender, receiver) = mpsc::channel(MOST);
        Self {
            sender,
            receiver: Mutex::new(receiver),
        }
    }

    /// Follows a request to its end; not if there are too many, because that only costs time.
    pub(super) fn follow(&self, request: impl Future<Output = ()> + Send + 'static) {
        if self.sender.try_send(Box::pin(request)).is_err() {
            tracing::debug!("too many late replies: one is not waited for");
        }
    }

    pub(super) async fn run(&self) {
        let mut receiver = self.receiver.lock().await;
        stream::poll_fn(|cx| receiver.poll_recv(cx))
            .for_each_concurrent(MOST, |request| request)
            .await;
    }
}

/// Delivers a release that a member has not carried out yet: sends it until the member replies, or refuses this client.
pub(super) async fn deliver(member: Arc<Member>, request: ReleaseRequest) {
    let delivered = async {
        let mut backoff = Backoff::default();
        while member.store.until_up().await.is_ok() {
            match member.release(&request, PENDING_RELEASE).await {
                Err(error) if error.transient => sleep(backoff.next()).await,
                _ => return,
            }
        }
    };
    let _ = timeout(PENDING_RELEASE, delivered).await;
}
