//! A limit on concurrent work: each tenant may run three exports at once, on all machines together.
//!
//! Needs no server; with `REDIS_URL` the machines meet on Redis.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rlock_core::{LockClient, LockError, distributed_lock};
use tokio::{task::JoinSet, time::sleep};

const LIMIT: u32 = 3;

/// How many exports of each tenant run now, and the most that ran at once.
#[derive(Debug, Default)]
struct Running(Mutex<HashMap<&'static str, (u32, u32)>>);

impl Running {
    fn change(&self, tenant: &'static str, by: i32) -> (u32, u32) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (now, most) = all.entry(tenant).or_default();
        *now = now.saturating_add_signed(by);
        *most = (*most).max(*now);
        (*now, *most)
    }
}

/// Exports the data of a tenant. Waits while three other exports of that tenant run.
#[distributed_lock(key = "exports:<tenant>", permits = LIMIT, wait = "1m")]
async fn export(tenant: &'static str, running: &Running) -> Result<(), LockError> {
    running.change(tenant, 1);
    sleep(Duration::from_millis(50)).await; // writes a file
    running.change(tenant, -1);
    Ok(())
}

/// The same for a user who does not wait. Returns whether the export ran.
#[distributed_lock(key = "exports:<tenant>", permits = LIMIT, wait = "0s", if_taken = Ok(false))]
async fn export_now(tenant: &'static str, running: &Running) -> Result<bool, LockError> {
    running.change(tenant, 1);
    running.change(tenant, -1);
    Ok(true)
}

#[tokio::main]
async fn main() -> Result<(), LockError> {
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "memory:exports".to_owned());
    let machines = [
        LockClient::connect(&url).await?,
        LockClient::connect(&url).await?,
    ];
    let running = Arc::new(Running::default());
    let mut exports = JoinSet::new();
    for (n, tenant) in ["acme", "umbrella"].repeat(8).into_iter().enumerate() {
        let machine = machines[n / 2 % machines.len()].clone();
        let running = Arc::clone(&running);
        exports.spawn(async move { machine.scope(export(tenant, &running)).await });
    }
    sleep(Duration::from_millis(20)).await;
    let ran = machines[0].scope(export_now("acme", &running)).await?;
    println!(
        "a user of acme who does not wait: export {}",
        if ran { "done" } else { "refused" }
    );
    while let Some(export) = exports.join_next().await {
        export.expect("no panic")?;
    }
    for tenant in ["acme", "umbrella"] {
        let (_, most) = running.change(tenant, 0);
        println!("{tenant}: 8 exports, up to {most} at the same time");
        assert!(most <= LIMIT, "more than the limit");
    }
    for machine in machines {
        machine.shutdown().await?;
    }
    Ok(())
}
