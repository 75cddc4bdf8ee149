//! Locks of one slot share a renewal.

use futures_util::future::try_join_all;
use rlock_testkit::ClientCommand;

use super::{client, shared};
use crate::common::ms;

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
    let lease = ms(1500);
    let takes = (0..LOCKS).map(|n| {
        let lock = client
            .lock(format!("{{renewed-together}}:{n}"))
            .lease(lease);
        async move { lock.acquire().await }
    });
    let guards = try_join_all(takes).await.expect("all are free");
    let owner = cluster.owner_of("{renewed-together}").await;
    // From here on the locks are due at the same times.
    tokio::time::sleep(lease).await;
    let mut watch = owner.watch_commands().await;
    tokio::time::sleep(lease * 2).await;
    let each: Vec<usize> = watch
        .seen()
        .await
        .iter()
        .map(renewed_by)
        .filter(|locks| *locks > 0)
        .collect();
    let renewed: usize = each.iter().sum();
    // Each lock is renewed after a third of its lease.
    assert!(renewed >= LOCKS * 3, "{each:?}");
    // On a busy machine some renewals may be late.
    assert!(each.len() * 4 <= renewed, "{each:?}");
    for guard in guards {
        assert!(guard.is_valid(), "{}", guard.key());
        guard.release().await.expect("held");
    }
}
