//! A second connection, on the runtime that made the client: requests of its tasks go by it, so that
//! no other thread has to be woken on their way, and so do messages for them. Renewals, messages for all
//! others and whatever is done in the background go by the client's own runtime, which nothing that the
//! tasks do can hold up.

use std::{sync::Arc, time::Duration};

use tokio::{
    runtime::{Handle, Id},
    task::JoinHandle,
    time::timeout,
};

use super::{connection::Connection, link::Link, tracking::track_changes};
use crate::caller::caller;

/// How long a new client waits for its second connection.
const PATIENCE: Duration = Duration::from_millis(250);

pub(super) struct Near {
    pub(super) link: Arc<Link>,
    runtime: Id,
    keeper: JoinHandle<()>,
}

impl Near {
    /// Connects on this runtime. The wait runs on `home` and is short, because this runtime may not
    /// be driven.
    pub(super) async fn connect(link: Arc<Link>, runtime: &Handle, home: &Handle) -> Self {
        let kept = Kept(Arc::clone(&link));
        let near = Self {
            keeper: runtime.spawn(async move { Arc::clone(&kept.0).keep_up().await }),
            link: Arc::clone(&link),
            runtime: runtime.id(),
        };
        let up = async move { timeout(PATIENCE, link.connection()).await };
        // Without it everything goes by the other connection until it is there.
        let _ = home.spawn(up).await;
        near
    }

    /// Connects on this runtime as soon as `home` is connected. Until then everything goes by that.
    pub(super) fn behind(link: Arc<Link>, home: &Arc<Link>, runtime: &Handle) -> Self {
        let (kept, home) = (Kept(Arc::clone(&link)), Arc::clone(home));
        Self {
            keeper: runtime.spawn(async move {
                home.another(0).await;
                drop(home);
                Arc::clone(&kept.0).keep_up().await;
            }),
            link,
            runtime: runtime.id(),
        }
    }

    /// Has the server send its news of changes to the home connection whenever that is a new one.
    pub(super) async fn keep_told(&self, home: &Link) {
        let mut told = home.present().map_or(0, |connection| connection.epoch);
        loop {
            let Connection { epoch, id, .. } = home.another(told).await;
            told = epoch;
            if let (Some(near), Some(_)) = (self.link.present(), id)
                && track_changes(near.commands, id).await.is_err()
            {
                self.link.give_up(near.epoch);
            }
        }
    }

    /// Whether the present call comes from that runtime.
    pub(super) fn is_callers(&self) -> bool {
        caller() == Some(self.runtime)
    }
}

/// A link that is kept up until this is dropped: with its runtime ends the connection.
struct Kept(Arc<Link>);

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.ends();
    }
}

impl Drop for Near {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}
