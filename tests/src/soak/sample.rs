//! A sample of everything that might grow.

use std::{fmt, fs};

use tokio::runtime::Handle;

use super::load::Load;
use rlock_testkit::{RedisServer, leftovers::channels};

/// What must not grow: its name, and by how many percent and by how much more it may nevertheless.
pub(super) const MEASURES: [(&str, u64, u64); 9] = [
    // An allocator keeps some anonymous memory for each thread.
    ("memory/KiB", 10, 1024),
    ("threads", 0, 1),
    ("descriptors", 0, 4),
    // As many as concurrent calls.
    ("tasks", 0, 8),
    ("connections", 0, 3),
    ("channels", 0, 1),
    ("locks", 0, 8),
    ("queues", 0, 8),
    // The warm-up uses all keys.
    ("fences", 0, 8),
];

/// The values of [`MEASURES`] at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample {
    pub(super) second: u64,
    pub(super) values: [u64; MEASURES.len()],
    /// The number of grants so far.
    pub(super) grants: u64,
}

impl Sample {
    /// Returns the titles of the columns.
    pub(super) fn head() -> String {
        let names = MEASURES.map(|(name, ..)| format!("{name:>12}"));
        format!("{:>12}{}{:>12}", "seconds", names.concat(), "grants")
    }

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
        let number = |suffix: &str| keys.iter().filter(|key| key.ends_with(suffix)).count() as u64;
        let (queues, fences, releases) = (number(":queue"), number(":fence"), number(":released"));
        let values = [
            fact("RssAnon:"),
            fact("Threads:"),
            descriptors.count() as u64,
            // Of the runtime for calls.
            Handle::current().metrics().num_alive_tasks() as u64,
            server.client_count().await as u64,
            channels(server).await.len() as u64,
            keys.len() as u64 - queues - fences - releases,
            queues,
            fences,
        ];
        Self {
            second,
            values,
            grants: load.grants(),
        }
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = self.values.map(|value| format!("{value:>12}"));
        write!(
            f,
            "{:>12}{}{:>12}",
            self.second,
            values.concat(),
            self.grants
        )
    }
}
