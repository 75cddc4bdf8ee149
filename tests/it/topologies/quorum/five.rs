//! Quorums of five servers, or of another number.

use std::time::Instant;

use futures_util::future::join_all;
use rlock_core::{Lock, LockClient, LockGuard, StoreUrl};
use rlock_testkit::{RedisServer, eventually};

use crate::common::{LONG, assert_nothing_left, connect, count, ms, name};

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
        connect(StoreUrl::quorum(self.urls())).await
    }

    /// Returns a client that waits for the reply of a silent server for longer than a test lasts.
    pub(crate) async fn patient(&self) -> LockClient {
        let builder = LockClient::builder().response_timeout(LONG * 2);
        let client = builder.connect(StoreUrl::quorum(self.urls())).await;
        client.expect("a majority is up")
    }

    /// Pauses these servers.
    pub(crate) fn pause(&self, which: impl IntoIterator<Item = usize>) {
        which.into_iter().for_each(|n| self.0[n].pause());
    }

    /// Resumes these servers.
    pub(crate) fn resume(&self, which: impl IntoIterator<Item = usize>) {
        which.into_iter().for_each(|n| self.0[n].resume());
    }

    /// Acquires the lock again and again, until all of these servers have granted it. A server does not if the client connects
    /// to it late, or if a busy machine would send it the request only after a majority has decided.
    pub(crate) async fn granted_by(&self, which: &[usize], lock: &Lock) -> LockGuard {
        let end = Instant::now() + LONG;
        loop {
            let guard = lock.acquire().await.expect("free");
            for _ in 0..50 {
                if self.have_counted(&guard, which, 1).await {
                    return guard;
                }
                tokio::time::sleep(ms(20)).await;
            }
            guard.release().await.expect("held");
            assert!(Instant::now() < end, "not all of {which:?} grant the lock");
        }
    }

    /// Waits until all of these servers count this many entries of the guard.
    pub(crate) async fn assert_soon_count(&self, guard: &LockGuard, which: &[usize], entries: u32) {
        eventually(LONG, "the servers count the entries", async || {
            self.have_counted(guard, which, entries).await
        })
        .await;
    }

    async fn have_counted(&self, guard: &LockGuard, which: &[usize], entries: u32) -> bool {
        let counts = which.iter().map(|n| count(&self.0[*n], guard));
        let counts = join_all(counts).await;
        counts.iter().all(|count| *count == Some(entries))
    }

    /// Waits until no server has any key but fences.
    pub(crate) async fn assert_nothing_left(&self) {
        join_all(self.0.iter().map(assert_nothing_left)).await;
    }
}

pub(crate) const ALL: [usize; 5] = [0, 1, 2, 3, 4];
