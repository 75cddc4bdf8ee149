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
use tokio::{sync::RwLock, task::yield_now, time::sleep};

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

/// The locks of readers and writers.
enum Locks {
    /// One lock for all keys.
    Tokio(Arc<RwLock<()>>),
    Ours(LockClient),
}

pub(super) struct RwLocks {
    locks: Locks,
    calls: Calls,
    tasks: AtomicU32,
}

impl RwLocks {
    pub(super) fn of_tokio(calls: Calls) -> Self {
        Self::new(Locks::Tokio(Arc::default()), calls)
    }

    pub(super) fn of(client: LockClient, calls: Calls) -> Self {
        Self::new(Locks::Ours(client), calls)
    }

    fn new(locks: Locks, calls: Calls) -> Self {
        Self {
            locks,
            calls,
            tasks: AtomicU32::new(0),
        }
    }
}

impl Contestant for RwLocks {
    fn seat<'a>(&'a self, key: &str) -> BoxFuture<'a, Result<Box<dyn Seat>>> {
        let task = self.tasks.fetch_add(1, Ordering::Relaxed);
        let calls = self.calls.of_task(task);
        let seat: Box<dyn Seat> = match &self.locks {
            Locks::Tokio(lock) => Box::new(TokioSeat(Arc::clone(lock), calls)),
            Locks::Ours(client) => {
                let write = client.lock(key).wait_forever();
                let read = write.clone().shared();
                Box::new(OurRwSeat { read, write, calls })
            }
        };
        Box::pin(async { Ok(seat) })
    }
}

struct TokioSeat(Arc<RwLock<()>>, CallsOfTask);

impl Seat for TokioSeat {
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

struct OurRwSeat {
    read: Lock,
    write: Lock,
    calls: CallsOfTask,
}

impl Seat for OurRwSeat {
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
