//! The second connection of a client, on the runtime that made it, for the requests of its tasks. These therefore wake
//! no other thread. The background connection carries renewals, notifications and background releases. It is on the
//! client's own runtime, which the tasks cannot block.

use std::{sync::Arc, time::Duration};

use tokio::{
    runtime::{Handle, Id},
    time::timeout,
};

use super::{capabilities::tracking, errors::unless_refused, link::Link};
use crate::{caller::caller, store::tasks::AbortOnDrop};

/// The time that a new client waits for its second connection.
const TIMEOUT: Duration = Duration::from_millis(250);

pub(super) struct CallerLink {
    pub(super) link: Arc<Link>,
    runtime: Id,
    _keeper: AbortOnDrop,
}

impl CallerLink {
    /// Connects on this runtime as soon as `background` is connected. Until then `background` carries all requests.
    pub(super) fn new(background: &Arc<Link>, runtime: &Handle) -> Self {
        let link = Link::new(
            background.address.clone(),
            Arc::clone(&background.commands),
            background.options.clone(),
            Arc::clone(&background.listener),
            Some(Arc::clone(background)),
        );
        let (kept, background) = (EndOnDrop(Arc::clone(&link)), Arc::clone(background));
        let keeper = runtime.spawn(async move {
            background.next_connection(0).await;
            drop(background);
            Arc::clone(&kept.0).keep_up().await;
        });
        Self {
            link,
            runtime: runtime.id(),
            _keeper: AbortOnDrop::new(&keeper),
        }
    }

    /// Waits briefly for the connection. Must not run on the callers' runtime, which may not be driven.
    pub(super) async fn connected(&self) {
        let _ = timeout(TIMEOUT, self.link.connection()).await;
    }

    /// Makes the server send its reports of changes to the current connection of `background`. Either link may
    /// reconnect, or both at the same time. If one link connects to another server, the other reconnects.
    pub(super) async fn keep_tracked(&self, background: &Link) {
        let (mut of_background, mut of_caller) = (0, 0);
        loop {
            tokio::select! {
                next = background.next_connection(of_background) => {
                    of_background = next.epoch;
                    self.link.follow(background);
                }
                next = self.link.next_connection(of_caller) => {
                    of_caller = next.epoch;
                    // An idle background connection does not notice that its master was replaced.
                    background.follow(&self.link);
                }
            }
            let (caller, id) = (self.link.present(), self.link.reports_to());
            let Some(caller) = caller.filter(|caller| id.is_some() && caller.redirects_to != id)
            else {
                continue;
            };
            let mut commands = caller.multiplexed.clone();
            let track = tracking(id);
            // The callers' runtime may be blocked, or the connection silent.
            let tracked = timeout(
                self.link.options.response_timeout,
                track.query_async::<()>(&mut commands),
            );
            if !matches!(tracked.await.map(unless_refused), Ok(Ok(_))) {
                self.link.give_up(caller.epoch);
            }
        }
    }

    /// Returns whether the callers' runtime polls the current call.
    pub(super) fn is_callers(&self) -> bool {
        caller() == Some(self.runtime)
    }
}

/// A link that ends with the task that keeps it up, or with its runtime.
struct EndOnDrop(Arc<Link>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end();
    }
}
