//! redsync's mutex, which its holder extends after each chunk: a holder that hangs loses the lock, although its process lives.

use std::time::Duration;

use rlock_core::{
    LockClient, LockError,
    testing::{self, Clock},
};

/// redsync: `WithExpiry(time.Minute)`.
const LEASE: Duration = Duration::from_secs(60);

/// Imports the chunks, each of which takes so long. Returns how many were imported under the lock.
async fn import(
    client: &LockClient,
    chunks: &[Duration],
    store: impl AsyncFn(Duration),
) -> (usize, Result<(), LockError>) {
    let mut done = 0;
    let result = async {
        let guard = client
            .lock("import")
            .lease(LEASE)
            .watchdog(false)
            .acquire()
            .await?;
        for chunk in chunks {
            store(*chunk).await;
            guard.extend(LEASE).await?; // redsync: `mutex.Extend()`
            done += 1;
        }
        guard.release().await
    };
    let result = result.await;
    (done, result)
}

#[tokio::test]
async fn a_holder_keeps_the_lock_for_as_long_as_it_extends_it() -> Result<(), LockError> {
    let clock = Clock::new();
    let client = || testing::use_clock(LockClient::builder(), &clock).connect("memory:import");
    let (one, other) = (client().await?, client().await?);
    let busy = Duration::from_secs(40);
    let (done, result) = import(&one, &[busy; 5], async |time| {
        clock.advance(time);
        let taken = other.lock("import").try_acquire().await;
        assert!(taken.expect("a reply").is_none());
    })
    .await;
    result?;
    assert_eq!(done, 5);

    let (done, result) = import(&one, &[busy, LEASE, busy], async |time| clock.advance(time)).await;
    assert!(result.is_err_and(|error| error.is_lost()));
    assert_eq!(done, 1, "the second chunk took too long");
    assert!(other.lock("import").try_acquire().await?.is_some());
    Ok(())
}
