//! A sample of everything that might grow.

use std::{fmt, fs};

use tokio::runtime::Handle;

use super::load::Load;
use rlock_testkit::{RedisServer, leftovers::channels};

/// The measurements at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample {
    pub(super) second: u64,
    /// The anonymous memory of this process, in KiB.
    pub(super) memory: u64,
    pub(super) threads: u64,
    pub(super) descriptors: u64,
    /// The tasks of the runtime for calls.
    pub(super) tasks: u64,
    /// The connections of the server.
    pub(super) connections: u64,
    pub(super) channels: u64,
    pub(super) locks: u64,
    pub(super) queues: u64,
    pub(super) fences: u64,
    /// The number of grants so far.
    pub(super) grants: u64,
}

impl Sample {
    pub(super) const HEAD: &str = "seconds memory/KiB threads descriptors tasks \
         connections channels locks queues fences grants";

    pub(super) async fn take(second: u64, server: &RedisServer, load: &Load) -> Self {
        let status = fs::read_to_string("/proc/self/status").expect("Linux has /proc/self/status");
        let fact = |name: &str| -> u64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let word = line.and_then(|line| line.split_whitespace().next());
            word.and_then(|word| word.parse().ok())
                .unwrap_or_else(|| panic!("/proc/self/status has {name}"))
        };
        let descriptors = fs::read_dir("/proc/self/fd").expect("Linux has /proc/self/fd");
        let keys = server.keys("lock:*").await;
        let number = |suffix: &str| keys.iter().filter(|key| key.ends_with(suffix)).count();
        let (queues, fences) = (number(":queue"), number(":fence"));
        Self {
            second,
            memory: fact("RssAnon:"),
            threads: fact("Threads:"),
            descriptors: descriptors.count() as u64,
            tasks: Handle::current().metrics().num_alive_tasks() as u64,
            connections: server.client_count().await as u64,
            channels: channels(server).await.len() as u64,
            locks: (keys.len() - queues - fences) as u64,
            queues: queues as u64,
            fences: fences as u64,
            grants: load.grants(),
        }
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:>7} {:>10} {:>7} {:>11} {:>5} {:>11} {:>8} {:>5} {:>6} {:>6} {:>6}",
            self.second,
            self.memory,
            self.threads,
            self.descriptors,
            self.tasks,
            self.connections,
            self.channels,
            self.locks,
            self.queues,
            self.fences,
            self.grants
        )
    }
}
