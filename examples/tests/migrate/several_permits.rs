//! Redisson's semaphore with `acquire(3)` of 8 permits: jobs of different sizes share the memory of a fleet.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use rlock_core::{LockClient, LockError};
use tokio::time::sleep;

/// The gigabytes that all jobs may use at the same time.
const MEMORY: u32 = 8;

/// Runs a job that needs so many gigabytes. Returns how many were in use while it ran.
async fn job(client: &LockClient, gigabytes: u32, used: &AtomicU32) -> Result<u32, LockError> {
    let memory = client.lock("memory").permits(MEMORY).take(gigabytes);
    memory
        .wait_forever()
        .run(async {
            let in_use = used.fetch_add(gigabytes, Ordering::SeqCst) + gigabytes;
            sleep(Duration::from_millis(5)).await;
            used.fetch_sub(gigabytes, Ordering::SeqCst);
            in_use
        })
        .await
}

#[tokio::test]
async fn jobs_of_different_sizes_use_no_more_than_there_is() -> Result<(), LockError> {
    let url = "memory:gigabytes";
    let clients = [
        LockClient::connect(url).await?,
        LockClient::connect(url).await?,
    ];
    let used = AtomicU32::new(0);
    let sizes = [3, 1, 8, 3, 2, 5, 1, 3, 8, 1];
    let jobs = sizes.iter().zip(clients.iter().cycle());
    let jobs = jobs.map(|(size, client)| job(client, *size, &used));
    for in_use in futures_util::future::try_join_all(jobs).await? {
        assert!(in_use <= MEMORY, "{in_use} GB are in use");
    }

    let memory = clients[0].lock("memory").permits(MEMORY);
    let [large, other] = [
        memory.clone().take(3).acquire().await?,
        memory.clone().take(3).acquire().await?,
    ];
    let elsewhere = clients[1].lock("memory").permits(MEMORY);
    assert!(
        elsewhere.clone().take(3).try_acquire().await?.is_none(),
        "two are left"
    );
    assert!(elsewhere.clone().take(2).try_acquire().await?.is_some());
    large.release().await?;
    elsewhere.take(3).acquire().await?.release().await?;
    other.release().await
}
