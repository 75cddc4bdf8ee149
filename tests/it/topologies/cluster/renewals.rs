//! Locks of one slot of a cluster share a renewal.

use futures_util::future::try_join_all;
use rlock_testkit::{ClientCommand, eventually};

use super::{client, shared};
use crate::{common::LONG, topologies::RENEWED};

const LOCKS: usize = 16;

/// Returns how many of the locks a script renews.
fn renewed_by(command: &ClientCommand) -> usize {
    if !command.is("EVALSHA") {
        return 0;
    }
    let words = command.words.iter();
    words
        .filter(|word| word.starts_with("lock:{renewed-together}:"))
        .count()
}

#[tokio::test]
async fn locks_of_one_slot_are_renewed_by_one_request() {
    let cluster = shared().await;
    let client = client(cluster).await;
    let takes = (0..LOCKS).map(|n| {
        let lock = client.lock(format!("{{renewed-together}}:{n}"));
        let lock = lock.lease(RENEWED).wait(LONG);
        async move { lock.acquire().await }
    });
    let guards = try_join_all(takes).await.expect("all are free");
    let owner = cluster.owner_of("{renewed-together}").await;
    let mut watch = owner.watch_commands().await;
    // A busy machine may renew some of them later than the others.
    eventually(LONG, "one request renews most of them", async || {
        let seen = watch.seen().await;
        seen.iter().any(|command| renewed_by(command) > LOCKS / 2)
    })
    .await;
    for guard in guards {
        guard.release().await.expect("held");
    }
}
