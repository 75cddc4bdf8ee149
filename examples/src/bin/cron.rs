//! A scheduled job on three machines whose clocks differ a little. One of them runs each tick, and the others find it
//! taken or done, even one that comes late, because the store remembers the run.
//!
//! Needs no server; with `REDIS_URL` the machines meet on Redis.

use std::time::{Duration, SystemTime};

use rlock_core::{LockClient, LockError, once::Once};
use tokio::time::sleep;

async fn nightly_report(night: u32) {
    sleep(Duration::from_millis(20)).await; // a quick job
    println!("   the report of night {night} is written");
}

/// One machine, whose clock is off by some milliseconds. Returns the outcome of the tick there.
async fn machine(
    client: &LockClient,
    clock_is_off: u64,
    (night, tick): (u32, SystemTime),
) -> Result<&'static str, LockError> {
    sleep(Duration::from_millis(clock_is_off)).await;
    let job = client.once("nightly-report", tick);
    Ok(match job.run(nightly_report(night)).await? {
        Once::Ran(()) => "ran",
        Once::Done => "done by another machine",
        Once::Taken(_) => "taken by another machine",
        Once::Missed => "missed",
    })
}

#[tokio::main]
async fn main() -> Result<(), LockError> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "memory:cron".to_owned());
    let [one, two, three] = [
        LockClient::connect(&url).await?,
        LockClient::connect(&url).await?,
        LockClient::connect(&url).await?,
    ];
    // The ticks of a schedule, which are the same on all machines.
    let first = SystemTime::now();
    for night in 1..=3 {
        println!("night {night}");
        let tick = (night, first + Duration::from_secs(night.into()));
        let (first, second, late) = tokio::try_join!(
            machine(&one, 0, tick),
            machine(&two, 5, tick),
            machine(&three, 300, tick),
        )?;
        println!("   machine 1: {first}, machine 2: {second}, machine 3, which is late: {late}");
        let outcomes = [first, second, late];
        let ran = outcomes.iter().filter(|outcome| **outcome == "ran").count();
        assert_eq!(ran, 1, "the job ran {ran} times");
    }
    Ok(())
}
