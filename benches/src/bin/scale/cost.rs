//! Reads the resources that servers and this process have used. The clients are this process.

use std::{
    ops::Sub,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use redis::{FromRedisValue, InfoDict};
use rlock_testkit::RedisServer;
use rustix::time::{ClockId, clock_gettime};

use super::ground::Ground;

/// The resources that servers and clients have used up to a time, or between two times. Processor time is that of all threads, in seconds.
#[derive(Clone, Copy)]
pub(crate) struct Spent {
    pub(crate) seconds: f64,
    /// Processor time of the masters, which execute the requests of locks.
    pub(crate) masters: f64,
    pub(crate) replicas: f64,
    pub(crate) clients: f64,
    /// The number of script calls.
    pub(crate) scripts: f64,
}

impl Spent {
    pub(crate) async fn at(ground: &Ground, started: Instant) -> Result<Self> {
        let mut scripts = 0;
        for master in ground.masters() {
            scripts += u32::try_from(master.command_calls("evalsha").await)?;
        }
        Ok(Self {
            seconds: started.elapsed().as_secs_f64(),
            masters: processor_time(ground.masters()).await?,
            replicas: processor_time(ground.replicas()).await?,
            clients: own_processor_time(),
            scripts: scripts.into(),
        })
    }
}

impl Sub for Spent {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            seconds: self.seconds - before.seconds,
            masters: self.masters - before.masters,
            replicas: self.replicas - before.replicas,
            clients: self.clients - before.clients,
            scripts: self.scripts - before.scripts,
        }
    }
}

/// Returns the processor time of servers.
async fn processor_time(servers: Vec<&RedisServer>) -> Result<f64> {
    let mut all = 0.0;
    for server in servers {
        let used: InfoDict = server.command(&["INFO", "cpu"]).await;
        all += number::<f64>(&used, "used_cpu_user")? + number::<f64>(&used, "used_cpu_sys")?;
    }
    Ok(all)
}

/// Returns the processor time of all threads of this process, in seconds.
fn own_processor_time() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).map_or(0.0, |time| time.as_secs_f64())
}

/// Returns the memory of a server in bytes, without the buffers of its connections, which vary.
pub(crate) async fn memory(server: &RedisServer) -> Result<f64> {
    let memory: InfoDict = server.command(&["INFO", "memory"]).await;
    let used: f64 = number(&memory, "used_memory")?;
    Ok(used - number::<f64>(&memory, "mem_clients_normal")?)
}

/// Returns the name and version of a server.
pub(crate) async fn version(server: &RedisServer) -> Result<String> {
    let about: InfoDict = server.command(&["INFO", "server"]).await;
    number(&about, "redis_version")
}

fn number<T: FromRedisValue>(info: &InfoDict, name: &str) -> Result<T> {
    info.get(name)
        .with_context(|| format!("the server does not say its {name}"))
}
