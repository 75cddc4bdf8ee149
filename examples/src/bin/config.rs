//! A configuration that many calls read and few calls write. Readers share its lock, so they read at the same time. The
//! writer has the lock alone, so no reader finds one part of the old configuration and one part of the new one.
//!
//! Needs no server; with `REDIS_URL` the instances meet on Redis.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use rlock_core::{LockClient, LockError, distributed_lock};
use tokio::{task::JoinSet, time::sleep};

const INSTANCES: u32 = 3;
const READERS: u32 = 10;

/// The storage of the configuration: two parts, of which each has a version.
#[derive(Debug, Default)]
struct Storage {
    hosts: AtomicU32,
    limits: AtomicU32,
    readers: AtomicU32,
    most_readers: AtomicU32,
}

/// Reads both parts, and returns their version.
///
/// After a read, the instance keeps its share of the lock for ten seconds, so its next read sends no request. A writer
/// that waits ends that time at once.
#[distributed_lock(key = "config", shared, retain = "10s")]
async fn read(storage: &Storage) -> Result<u32, LockError> {
    let readers = storage.readers.fetch_add(1, Ordering::SeqCst) + 1;
    storage.most_readers.fetch_max(readers, Ordering::SeqCst);
    let hosts = storage.hosts.load(Ordering::SeqCst);
    sleep(Duration::from_millis(20)).await;
    let limits = storage.limits.load(Ordering::SeqCst);
    storage.readers.fetch_sub(1, Ordering::SeqCst);
    assert_eq!(hosts, limits, "one part is old");
    Ok(hosts)
}

/// Writes both parts, one after the other.
#[distributed_lock(key = "config")]
async fn write(storage: &Storage, version: u32) -> Result<(), LockError> {
    assert_eq!(storage.readers.load(Ordering::SeqCst), 0, "a reader reads");
    storage.hosts.store(version, Ordering::SeqCst);
    sleep(Duration::from_millis(20)).await;
    storage.limits.store(version, Ordering::SeqCst);
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), LockError> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "memory:config".to_owned());
    let storage = Arc::new(Storage::default());
    let mut instances = Vec::new();
    for _ in 0..INSTANCES {
        instances.push(LockClient::connect(&url).await?);
    }
    for version in 1..=3 {
        let started = Instant::now();
        instances[0].scope(write(&storage, version)).await?;
        println!("version {version} is written after {:?}", started.elapsed());
        let mut reads = JoinSet::new();
        for n in 0..INSTANCES * READERS {
            let storage = Arc::clone(&storage);
            let instance = instances[(n % INSTANCES) as usize].clone();
            reads.spawn(async move { instance.scope(read(&storage)).await });
        }
        let started = Instant::now();
        while let Some(read) = reads.join_next().await {
            assert_eq!(read.expect("no panic")?, version);
        }
        println!(
            "   {} reads took {:?}, up to {} at the same time",
            INSTANCES * READERS,
            started.elapsed(),
            storage.most_readers.load(Ordering::SeqCst)
        );
    }
    for instance in instances {
        instance.shutdown().await?;
    }
    Ok(())
}
