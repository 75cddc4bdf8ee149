//! Readers and writers of a lock of this framework, or of a `tokio::sync::RwLock`, which is the limit within a process. A
//! task that does not stay inside yields there, so that the reads overlap.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use rlock_core::{Lock, LockClient};
use tokio::{task::yield_now, time::sleep};

use super::{BoxFuture, Contestant, Inside, Seat};
use crate::clock;

/// What the calls of a task do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Calls {
    Reads,
    /// One call of 20 writes, and the tasks do not write together.
    FewWrites,
    /// All write, with this pause after each.
    Writes(Duration),
}

impl Calls {
    fn of_task(self, task: u32) -> CallsOfTask {
        CallsOfTask {
            calls: self,
            next: task,
        }
    }
}

struct CallsOfTask {
    calls: Calls,
    next: u32,
}

impl CallsOfTask {
    /// Returns whether the next call writes.
    fn next_writes(&mut self) -> bool {
        self.next += 1;
        match self.calls {
            Calls::Reads => false,
            Calls::FewWrites => self.next.is_multiple_of(20),
            Calls::Writes(_) => true,
        }
    }

    async fn pause(&self) {
        if let Calls::Writes(pause) = self.calls {
            sleep(pause).await;
        }
    }
}

async fn inside(stay: Duration, is_shared: bool) -> Inside {
    let entered = clock::now();
    if stay.is_zero() {
        yield_now().await;
    } else {
        sleep(stay).await;
    }
    Inside {
        entered,
        left: clock::now(),
        is_shared,
    }
}

/// One lock for all keys.
pub(super) struct RwLocks {
    lock: Arc<tokio::sync::RwLock<()>>,
    calls: Calls,
    tasks: AtomicU32,
}

impl RwLocks {
    pub(super) fn new(calls: Calls) -> Self {
        Self {
            lock: Arc::default(),
            calls,
            tasks: AtomicU32::new(0),
        }
    }
}

impl Contestant for RwLocks {
    fn seat<'a>(&'a self, _key: &str) -> BoxFuture<'a, Result<Box<dyn Seat>>> {
        let task = self.tasks.fetch_add(1, Ordering::Relaxed);
        let seat = RwLockSeat(Arc::clone(&self.lock), self.calls.of_task(task));
        Box::pin(async { Ok(Box::new(seat) as Box<dyn Seat>) })
    }
}

struct RwLockSeat(Arc<tokio::sync::RwLock<()>>, CallsOfTask);

impl Seat for RwLockSeat {
    fn pair(&mut self, stay: Duration) -> BoxFuture<'_, Result<Inside>> {
        Box::pin(async move {
            let Self(lock, calls) = self;
            if calls.next_writes() {
                let _held = lock.write().await;
                return Ok(inside(stay, false).await);
            }
            let _held = lock.read().await;
            Ok(inside(stay, true).await)
        })
    }
}

pub(super) struct Shared {
    client: LockClient,
    calls: Calls,
    tasks: AtomicU32,
}

impl Shared {
    pub(super) async fn connect(url: &str, calls: Calls) -> Result<Self> {
        Ok(Self {
            client: LockClient::connect(url).await?,
            calls,
            tasks: AtomicU32::new(0),
        })
    }
}

impl Contestant for Shared {
    fn seat<'a>(&'a self, key: &str) -> BoxFuture<'a, Result<Box<dyn Seat>>> {
        let task = self.tasks.fetch_add(1, Ordering::Relaxed);
        let write = self.client.lock(key).wait_forever();
        let seat = SharedSeat {
            read: write.clone().shared(),
            write,
            calls: self.calls.of_task(task),
        };
        Box::pin(async { Ok(Box::new(seat) as Box<dyn Seat>) })
    }
}

struct SharedSeat {
    read: Lock,
    write: Lock,
    calls: CallsOfTask,
}

impl Seat for SharedSeat {
    fn pair(&mut self, stay: Duration) -> BoxFuture<'_, Result<Inside>> {
        Box::pin(async move {
            let is_shared = !self.calls.next_writes();
            let lock = if is_shared { &self.read } else { &self.write };
            let guard = lock.acquire().await?;
            let inside = inside(stay, is_shared).await;
            guard.release().await?;
            self.calls.pause().await;
            Ok(inside)
        })
    }
}
