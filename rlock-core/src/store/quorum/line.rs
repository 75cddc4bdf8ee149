//! The line of those who wait. The lines of several servers would share a lock out among those who are
//! first in them, so one server keeps it, the *lead*: the first that answers.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::Notify,
    time::{Instant, sleep, timeout_at},
};

use super::node::{Health, Node};
use crate::store::{Listener, News};

/// How often a server is asked whether it is still there while somebody stands in line at it, unless it
/// answered something else.
const PULSE: Duration = Duration::from_millis(200);

/// The number of the server that keeps the line.
pub(super) fn lead(nodes: &[Arc<Node>]) -> usize {
    let well = nodes.iter().position(|node| node.is_well());
    let up = || nodes.iter().position(|node| node.store.is_up());
    well.or_else(up).unwrap_or(0)
}

/// Tells the client what one server tells, as far as it concerns more than that server.
pub(super) fn listener(health: Arc<Health>, told: Listener) -> Listener {
    Arc::new(move |news| match news {
        // One server's grant is not yet the lock: whoever waits for it asks all, and whoever holds it
        // already makes it last there.
        News::Granted { key, owner, .. } => {
            let after = Duration::ZERO;
            told(News::Changed(key.clone()));
            told(News::AskAgain { key, owner, after });
        }
        News::Disconnected => {
            health.fails();
            if health.leave_line() {
                told(News::Disconnected);
            }
        }
        News::AskAgain { .. }
        | News::Wanted { .. }
        | News::Changed(_)
        | News::AllChanged
        | News::SomeChanged(_) => {
            told(news);
        }
    })
}

/// Looks after the servers at which somebody stands in line: one that stands still would never tell.
pub(super) async fn watch(nodes: &[Arc<Node>], stood: &Notify, told: &Listener) {
    let mut answers = vec![0; nodes.len()];
    loop {
        if !nodes.iter().any(|node| node.health.has_line()) {
            stood.notified().await;
        }
        sleep(PULSE).await;
        for (node, answers) in nodes.iter().zip(&mut answers) {
            let before = std::mem::replace(answers, node.health.answers());
            if before == *answers
                && node.health.has_line()
                && !node.answers(PULSE).await
                && node.health.leave_line()
            {
                tracing::debug!(
                    address = node.address,
                    "silent: waiters turn to another server"
                );
                told(News::Disconnected);
            }
        }
    }
}

/// Waits for what is likely to come soon.
pub(super) async fn shortly<F: Future>(until: Instant, future: F) -> Option<F::Output> {
    timeout_at(until, future).await.ok()
}
