//! `LockExtender.extendActiveLock` of `ShedLock`: code deep inside a scheduled job asks for more time.

use std::time::Duration;

use rlock_core::{
    LockClient, LockError, current, distributed_lock,
    testing::{self, Clock},
};

/// Cleans two tables up. Returns whether this machine ran the job.
#[distributed_lock(key = "cleanup", wait = "0s", lease = "1m", watchdog = false, if_taken = Ok(false))]
async fn clean_up(clock: &Clock) -> Result<bool, LockError> {
    for _table in ["sessions", "carts"] {
        sweep(clock).await?;
    }
    Ok(true)
}

async fn sweep(clock: &Clock) -> Result<(), LockError> {
    let hold = current().expect("called inside a lock"); // LockAssert.assertLocked()
    hold.extend(Duration::from_secs(600)).await?; // LockExtender.extendActiveLock(…)
    clock.advance(Duration::from_secs(500)); // the work
    hold.check()
}

#[tokio::test]
async fn a_job_extends_its_lock_from_deep_inside() -> Result<(), LockError> {
    let clock = Clock::new();
    let machine = || testing::use_clock(LockClient::builder(), &clock).connect("memory:cleanup");
    let (one, other) = (machine().await?, machine().await?);
    assert!(one.scope(clean_up(&clock)).await?);
    assert!(
        other.scope(clean_up(&clock)).await?,
        "the lock was released"
    );
    let held = one.lock("cleanup").acquire().await?;
    assert!(!other.scope(clean_up(&clock)).await?, "it is skipped");
    held.release().await
}
