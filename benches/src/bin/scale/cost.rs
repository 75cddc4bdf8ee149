//! What a server has spent.

use std::{ops::Sub, time::Instant};

use anyhow::{Context, Result};
use redis::{FromRedisValue, InfoDict};
use rlock_tests::RedisServer;

/// What a server has spent up to some time, or between two times.
#[derive(Clone, Copy)]
pub(crate) struct Spent {
    pub(crate) seconds: f64,
    /// Processor time of all its threads, in seconds.
    pub(crate) processor: f64,
    pub(crate) received: f64,
    pub(crate) sent: f64,
}

impl Spent {
    pub(crate) async fn by(server: &RedisServer, started: Instant) -> Result<Self> {
        let all: InfoDict = server.command(&["INFO"]).await;
        Ok(Self {
            seconds: started.elapsed().as_secs_f64(),
            processor: number::<f64>(&all, "used_cpu_user")? + number::<f64>(&all, "used_cpu_sys")?,
            received: number(&all, "total_net_input_bytes")?,
            sent: number(&all, "total_net_output_bytes")?,
        })
    }
}

impl Sub for Spent {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            seconds: self.seconds - before.seconds,
            processor: self.processor - before.processor,
            received: self.received - before.received,
            sent: self.sent - before.sent,
        }
    }
}

/// The memory that a server uses, in bytes, but for the buffers of its connections, which come and go.
pub(crate) async fn memory(server: &RedisServer) -> Result<f64> {
    let memory: InfoDict = server.command(&["INFO", "memory"]).await;
    let used: f64 = number(&memory, "used_memory")?;
    Ok(used - number::<f64>(&memory, "mem_clients_normal")?)
}

/// What a server is.
pub(crate) async fn version(server: &RedisServer) -> Result<String> {
    let about: InfoDict = server.command(&["INFO", "server"]).await;
    number(&about, "redis_version")
}

fn number<T: FromRedisValue>(info: &InfoDict, name: &str) -> Result<T> {
    info.get(name)
        .with_context(|| format!("the server does not say its {name}"))
}
