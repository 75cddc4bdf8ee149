//! Five servers, or any number.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use rlock_core::{LockClient, LockClientBuilder, LockGuard};
use rlock_testkit::{RedisServer, eventually};

use crate::common::{LONG, count, ms, name};

/// Gives the lock to another owner at these servers.
pub(crate) async fn give_to_another(servers: &[RedisServer], key: &str) {
    let take = "redis.call('DEL', KEYS[1]) return redis.call('HSET', KEYS[1], 'another', 1)";
    for server in servers {
        let () = server.command(&["EVAL", take, "1", &name(key)]).await;
    }
}

pub(crate) struct Servers(pub(crate) Vec<RedisServer>);

impl Servers {
    pub(crate) fn five() -> Self {
        Self::some(5)
    }

    pub(crate) fn some(many: usize) -> Self {
        Self((0..many).map(|_| RedisServer::start()).collect())
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.0.iter().map(RedisServer::url).collect()
    }

    pub(crate) async fn client(&self) -> LockClient {
        LockClient::quorum(self.urls())
            .await
            .expect("a majority is up")
    }

    /// Returns a client with short time-outs.
    pub(crate) async fn impatient(&self) -> LockClient {
        impatient()
            .quorum(self.urls())
            .await
            .expect("a majority is up")
    }

    /// Pauses these servers.
    pub(crate) fn pause(&self, which: impl IntoIterator<Item = usize>) {
        which.into_iter().for_each(|n| self.0[n].pause());
    }

    /// Resumes these servers.
    pub(crate) fn resume(&self, which: impl IntoIterator<Item = usize>) {
        which.into_iter().for_each(|n| self.0[n].resume());
    }

    /// Waits until all of these servers count this many entries of the guard.
    pub(crate) async fn assert_soon_count(&self, guard: &LockGuard, which: &[usize], entries: u32) {
        eventually(LONG, "the servers count the entries", async || {
            let counts = which.iter().map(|n| count(&self.0[*n], guard));
            let counts = join_all(counts).await;
            counts.iter().all(|count| *count == Some(entries))
        })
        .await;
    }

    /// Waits until these servers have no key of the lock but its fence.
    pub(crate) async fn assert_soon_clean(&self, key: &str, which: &[usize]) {
        // A wait queue whose owner did not leave it at each server ends after 20 s.
        let (name, end) = (name(key), Instant::now() + LONG * 3 / 2);
        loop {
            let keys = which.iter().map(|n| self.0[*n].keys("lock:*"));
            let keys = join_all(keys).await;
            let is_left = |key: &String| *key != format!("{name}:fence");
            if !keys.iter().flatten().any(is_left) {
                return;
            }
            if Instant::now() >= end {
                let holders = which.iter().map(|n| self.0[*n].hgetall(&name));
                panic!("left are {keys:?}, {:?}", join_all(holders).await);
            }
            tokio::time::sleep(ms(5)).await;
        }
    }
}

pub(crate) fn impatient() -> LockClientBuilder {
    LockClient::builder()
        .response_timeout(ms(500))
        .connect_timeout(ms(500))
}

pub(crate) const ALL: [usize; 5] = [0, 1, 2, 3, 4];

/// A limit for calls that must not depend on a time-out, on a busy machine.
pub(crate) const SOON: Duration = Duration::from_millis(1500);
