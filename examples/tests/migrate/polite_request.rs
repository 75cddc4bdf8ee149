//! Curator's `makeRevocable`: another process requests the release of a lock, and its holder ends after its current work.

use std::time::Duration;

use rlock_core::{LockClient, LockError, distributed_lock};
use tokio::{sync::mpsc, time::timeout};

use super::LONG;

/// Indexes pages until another process requests the release of the index. Returns how many.
#[distributed_lock(key = "index", guard = lock)]
async fn index(indexed: &mpsc::UnboundedSender<u32>) -> Result<u32, LockError> {
    for page in 1.. {
        let _ = indexed.send(page);
        tokio::select! {
            () = lock.release_requested() => return Ok(page), // no page is left half done
            () = tokio::time::sleep(Duration::from_millis(5)) => {}
        }
    }
    unreachable!("there are always more pages")
}

#[tokio::test]
async fn a_holder_that_is_asked_ends_after_its_current_work() -> Result<(), LockError> {
    let url = "memory:index";
    let (holder, other) = (
        LockClient::connect(url).await?,
        LockClient::connect(url).await?,
    );
    assert!(
        !other.request_release("index").await?,
        "no process holds it"
    );
    let (indexed, mut pages) = mpsc::unbounded_channel();
    let indexing = tokio::spawn(async move { holder.scope(index(&indexed)).await });
    timeout(LONG, pages.recv()).await.expect("it indexes");

    assert!(other.request_release("index").await?);
    let guard = other.lock("index").wait(LONG).acquire().await?;
    let done = indexing.await.expect("no panic")?;
    assert!(done > 0, "its result is not lost");
    guard.release().await
}
