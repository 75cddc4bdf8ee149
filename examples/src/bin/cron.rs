//! A scheduled job on three machines whose clocks differ a little. It runs once a night: those who
//! come second skip it (`wait = "0s"` and `on_error`), and those who come late find it done, because
//! the lock stays taken for longer than the clocks differ (`min_hold`). The night is in the key, so
//! the next one has a lock of its own.
//!
//! Needs no server; with `REDIS_URL` the machines meet on Redis.

use std::time::Duration;

use rlock_core::{LockClient, LockError, distributed_lock};

/// What became of the job on one machine.
#[derive(Debug, PartialEq)]
enum Night {
    Ran,
    Skipped,
    Failed(String),
}

impl Night {
    /// It is fine if another machine runs the job, but a failure if the server does not reply.
    fn without_lock(error: LockError) -> Self {
        match error {
            error if error.is_contention() => Self::Skipped,
            error => Self::Failed(format!("{error:#}")),
        }
    }
}

#[distributed_lock(
    key = "nightly-report:<night>",
    wait = "0s",
    min_hold = "800ms",
    on_error = Night::without_lock
)]
async fn nightly_report(night: u32) -> Night {
    tokio::time::sleep(Duration::from_millis(20)).await; // a quick job
    println!("   the report of night {night} is written");
    Night::Ran
}

/// One machine: its clock is off by some milliseconds.
async fn machine(clock_is_off: u64, night: u32) -> Night {
    tokio::time::sleep(Duration::from_millis(clock_is_off)).await;
    nightly_report(night).await
}

#[tokio::main]
async fn main() -> Result<(), LockError> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "memory:cron".to_owned());
    let clients = [
        LockClient::connect(&url).await?,
        LockClient::connect(&url).await?,
        LockClient::connect(&url).await?,
    ];
    for night in 1..=3 {
        println!("night {night}");
        let [one, two, three] = &clients;
        let (first, second, late) = tokio::join!(
            one.scope(machine(0, night)),
            two.scope(machine(5, night)),
            // The job is done by then, but the lock is kept.
            three.scope(machine(300, night)),
        );
        println!(
            "   machine 1: {first:?}, machine 2: {second:?}, machine 3, which is late: {late:?}"
        );
        let ran = [first, second, late]
            .iter()
            .filter(|night| **night == Night::Ran)
            .count();
        assert_eq!(ran, 1, "the job ran {ran} times");
    }
    Ok(())
}
