//! A second connection, on the runtime that made the client. The requests of its tasks go by it, so that they wake no
//! other thread. Renewals, notifications and requests of the background go by the client's own runtime, which nothing
//! that the tasks do can hold up.

use std::{sync::Arc, time::Duration};

use tokio::{
    runtime::{Handle, Id},
    time::timeout,
};

use super::{
    capabilities::{tracking, unless_refused},
    connection::AbortOnDrop,
    link::Link,
};
use crate::caller::caller;

/// How long a new client waits for its second connection.
const TIMEOUT: Duration = Duration::from_millis(250);

pub(super) struct Near {
    pub(super) link: Arc<Link>,
    runtime: Id,
    _keeper: AbortOnDrop,
}

impl Near {
    /// Connects on this runtime as soon as `home` is connected. Until then all requests go by that.
    pub(super) fn new(home: &Arc<Link>, runtime: &Handle) -> Self {
        let link = Link::new(
            home.address.clone(),
            Arc::clone(&home.commands),
            home.options.clone(),
            Arc::clone(&home.listener),
            Some(Arc::clone(home)),
        );
        let (kept, home) = (EndOnDrop(Arc::clone(&link)), Arc::clone(home));
        let keeper = runtime.spawn(async move {
            home.another(0).await;
            drop(home);
            Arc::clone(&kept.0).keep_up().await;
        });
        Self {
            link,
            runtime: runtime.id(),
            _keeper: AbortOnDrop::new(&keeper),
        }
    }

    /// Waits a short while for the connection, on `home`, because the callers' runtime may not be driven.
    pub(super) async fn connected(&self, home: &Handle) {
        let link = Arc::clone(&self.link);
        let _ = home
            .spawn(async move { timeout(TIMEOUT, link.connection()).await.is_ok() })
            .await;
    }

    /// Has the server send its reports of changes to each new connection of `home`.
    pub(super) async fn keep_told(&self, home: &Link) {
        let mut told = home.present().map_or(0, |connection| connection.epoch);
        loop {
            let connection = home.another(told).await;
            told = connection.epoch;
            if let (Some(near), Some(_)) = (self.link.present(), connection.id) {
                let mut commands = near.multiplexed.clone();
                let tracked = tracking(connection.id)
                    .query_async::<()>(&mut commands)
                    .await;
                if unless_refused(tracked).is_err() {
                    self.link.give_up(near.epoch);
                }
            }
        }
    }

    /// Returns whether the present call comes from that runtime.
    pub(super) fn is_callers(&self) -> bool {
        caller() == Some(self.runtime)
    }
}

/// A link that ends with the task that keeps it up, or with its runtime.
struct EndOnDrop(Arc<Link>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.ends();
    }
}
