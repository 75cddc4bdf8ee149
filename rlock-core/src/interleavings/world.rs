//! Clients of one embedded store whose background runs on threads of shuttle.

use std::{sync::Arc, time::Duration};

use futures_util::FutureExt;
use shuttle::{future::block_on, thread};
use tokio::{runtime::Builder, time::advance};
use uuid::Uuid;

use crate::{
    client::LockClient,
    engine::release::background::settle_in_background,
    error::LostCause,
    lease::Time,
    options::Reentry,
    sync::atomic::{AtomicBool, Ordering},
};

pub(super) struct World {
    pub(super) clients: Vec<LockClient>,
}

impl World {
    pub(super) fn now(&self) -> Time {
        self.clients[0].core().clock.now()
    }

    /// Lets this much time pass at once.
    pub(super) fn jump(&self, by: Duration) {
        // The first poll advances the clock.
        let _ = advance(by).now_or_never();
    }

    /// Waits until the release queues have nothing to do.
    pub(super) fn settled(&self) {
        for client in &self.clients {
            block_on(client.core().releases().idle());
        }
    }
}

/// Runs a test with this many clients and their release queues. Asserts that nothing is left of these
/// locks.
pub(super) fn with_clients(
    count: usize,
    reentry: Reentry,
    keys: &[&str],
    test: impl FnOnce(&World),
) {
    // The runtime is never driven: no timer fires, no spawned task runs, and its clock stands still until it jumps.
    let mut builder = Builder::new_current_thread();
    let runtime = builder.enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    let _entered = runtime.enter();
    let url = format!("memory:{}", Uuid::new_v4());
    let connect = |_| {
        let builder = LockClient::builder().tokio_time().reentry(reentry);
        block_on(builder.connect(&url)).expect("the store is there")
    };
    let world = World {
        clients: (0..count).map(&connect).collect(),
    };
    let over = Arc::new(AtomicBool::new(false));
    let background = |client: &LockClient| {
        let (client, over) = (client.clone(), Arc::clone(&over));
        thread::spawn(move || block_on(give_back(&client, &over)))
    };
    let background: Vec<_> = world.clients.iter().map(background).collect();
    test(&world);
    for client in &world.clients {
        client.core().queues.drain();
    }
    over.store(true, Ordering::SeqCst);
    for client in &world.clients {
        client.core().releases().wake.notify_one();
    }
    for thread in background {
        thread.join().expect("no panic");
    }
    // The others take no new calls.
    let fresh = connect(count);
    for key in keys {
        assert_free(&fresh, key);
    }
    for client in &world.clients {
        let core = client.core();
        let tracked = core.watchdog.lose_all(LostCause::Closed);
        assert!(tracked.is_empty(), "nothing is renewed");
        assert!(core.queues.is_empty(), "nothing is left of the lines");
    }
}

/// Asserts that the lock is free and has no waiters.
fn assert_free(client: &LockClient, key: &str) {
    let guard = block_on(client.lock(key).wait(Duration::ZERO).acquire()).expect("free");
    block_on(guard.release()).expect("held");
    let info = block_on(client.inspect(key)).expect("an answer");
    assert!(info.is_none(), "{info:?}");
}

/// Does the work of the release queue's task, one ownership after another.
async fn give_back(client: &LockClient, over: &AtomicBool) {
    let core = client.core();
    loop {
        let last = over.load(Ordering::SeqCst);
        let queued = core.releases().take(usize::MAX);
        let is_idle = queued.is_empty();
        for queued in queued {
            settle_in_background(core, &queued).await;
        }
        if is_idle {
            if last {
                return;
            }
            core.releases().wake.notified().await;
        }
    }
}
