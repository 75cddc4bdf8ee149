//! Reads the resources that servers and this process have used. The clients are this process.

use std::{
    ops::{AddAssign, Sub},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use redis::{FromRedisValue, InfoDict};
use rlock_testkit::RedisServer;
use rustix::time::{ClockId, clock_gettime};

use super::ground::Ground;

/// The resources that the servers have used up to a time, or between two times.
#[derive(Clone, Copy)]
pub(crate) struct Spent {
    pub(crate) seconds: f64,
    /// The masters, which execute the requests of locks.
    pub(crate) masters: Share,
    pub(crate) replicas: Share,
    /// Processor time of the clients, in seconds.
    pub(crate) clients: f64,
}

/// The resources of several servers together.
#[derive(Clone, Copy, Default)]
pub(crate) struct Share {
    /// Processor time of all their threads, in seconds.
    pub(crate) processor: f64,
    /// The number of script calls.
    pub(crate) scripts: f64,
}

impl Spent {
    pub(crate) async fn at(ground: &Ground, started: Instant) -> Result<Self> {
        Ok(Self {
            seconds: started.elapsed().as_secs_f64(),
            masters: Share::of(ground.masters()).await?,
            replicas: Share::of(ground.replicas()).await?,
            clients: own_processor_time(),
        })
    }
}

impl Share {
    async fn of(servers: Vec<&RedisServer>) -> Result<Self> {
        let mut all = Self::default();
        for server in servers {
            all += Self::by(server).await?;
        }
        Ok(all)
    }

    pub(crate) async fn by(server: &RedisServer) -> Result<Self> {
        let all: InfoDict = server.command(&["INFO"]).await;
        let scripts = u32::try_from(server.command_calls("evalsha").await)?;
        Ok(Self {
            processor: number::<f64>(&all, "used_cpu_user")? + number::<f64>(&all, "used_cpu_sys")?,
            scripts: f64::from(scripts),
        })
    }
}

impl AddAssign for Share {
    fn add_assign(&mut self, other: Self) {
        self.processor += other.processor;
        self.scripts += other.scripts;
    }
}

impl Sub for Share {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            processor: self.processor - before.processor,
            scripts: self.scripts - before.scripts,
        }
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
        }
    }
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
