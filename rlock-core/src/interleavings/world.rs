//! Clients of one embedded store whose background is threads of shuttle.

use std::{sync::Arc, time::Duration};

use shuttle::{future::block_on, thread};
use tokio::runtime::Builder;
use uuid::Uuid;

use crate::{
    client::LockClient,
    error::LostCause,
    release::settle_in_background,
    sync::atomic::{AtomicBool, Ordering},
};

/// Runs a test with that many clients, and their backgrounds to the end: the part that gives back. Then
/// nothing is left of these locks.
pub(super) fn with_clients(count: usize, keys: &[&str], test: impl FnOnce(&[LockClient])) {
    // Never driven: no timer fires, and nothing that is spawned on it runs.
    let runtime = Builder::new_current_thread().enable_time().build();
    let runtime = runtime.expect("a runtime");
    let _entered = runtime.enter();
    let url = format!("memory:{}", Uuid::new_v4());
    let connect = |_| {
        let builder = LockClient::builder().runtime(runtime.handle().clone());
        block_on(builder.connect(&url)).expect("the store is there")
    };
    let clients: Vec<_> = (0..count).map(connect).collect();
    let over = Arc::new(AtomicBool::new(false));
    let background = |client: &LockClient| {
        let (client, over) = (client.clone(), Arc::clone(&over));
        thread::spawn(move || block_on(give_back(&client, &over)))
    };
    let background: Vec<_> = clients.iter().map(background).collect();
    test(&clients);
    over.store(true, Ordering::SeqCst);
    for client in &clients {
        client.core().releases().wake.notify_one();
    }
    for thread in background {
        thread.join().expect("no panic");
    }
    for client in &clients {
        keys.iter().for_each(|key| assert_free(client, key));
        let core = client.core();
        assert!(core.watchdog.lose_all(LostCause::Closed).is_empty());
        assert!(core.queues.is_empty(), "nothing is left of the lines");
    }
}

/// The lock can be had, and nobody is in line for it.
fn assert_free(client: &LockClient, key: &str) {
    let guard = block_on(client.lock(key).wait(Duration::ZERO).acquire()).expect("free");
    block_on(guard.release()).expect("held");
    let info = block_on(client.inspect(key)).expect("an answer");
    assert!(info.is_none(), "{info:?}");
}

/// What the release queue's own task does, one hold after the other.
async fn give_back(client: &LockClient, over: &AtomicBool) {
    let core = client.core();
    loop {
        let last = over.load(Ordering::SeqCst);
        let holds = core.releases().take(usize::MAX);
        for hold in &holds {
            settle_in_background(core, hold).await;
        }
        if holds.is_empty() {
            if last {
                return;
            }
            core.releases().wake.notified().await;
        }
    }
}
