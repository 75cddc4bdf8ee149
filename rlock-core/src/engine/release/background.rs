//! The work of the release queue: releases that no caller awaits.

use std::{pin::pin, sync::Arc, time::Duration};

use tokio::{sync::Semaphore, task::JoinSet, time::timeout};

use super::settle::settle;
use crate::{
    engine::{
        core::Core,
        ownership::{Done, Queued},
    },
    escape_control::escape_control,
};

/// The number of background releases that are under way at once, without the slow ones.
const AT_ONCE: usize = 256;
/// After this time, a release is slow, and keeps no place: releases at other servers would wait for it.
const SLOW: Duration = Duration::from_millis(100);

/// Works on the release queue for as long as the client lives.
pub(crate) async fn run(core: Arc<Core>) {
    let (slots, mut tasks) = (Arc::new(Semaphore::new(AT_ONCE)), JoinSet::new());
    loop {
        let room = slots.available_permits();
        let queued = core.releases().take(room);
        let is_full = queued.len() == room;
        for queued in queued {
            let (core, slot) = (Arc::clone(&core), Arc::clone(&slots).try_acquire_owned());
            tasks.spawn(async move {
                let mut settled = pin!(settle_in_background(&core, &queued));
                if timeout(SLOW, settled.as_mut()).await.is_err() {
                    drop(slot);
                    settled.await;
                }
            });
        }
        tokio::select! {
            () = core.releases().wake.notified(), if !is_full => {}
            _ = slots.acquire(), if is_full => {}
            Some(_) = tasks.join_next() => {}
        }
    }
}

/// Settles an ownership that was taken from the queue.
pub(crate) async fn settle_in_background(core: &Core, (ownership, _): &Queued) {
    let _done = Done(core.releases());
    // A retained ownership is tracked until here.
    core.watchdog.forget(ownership);
    core.ended();
    // After this time the lease has ended the lock anyway.
    let give_up = core.clock.now() + ownership.lease();
    if let Err(error) = settle(core, ownership, give_up, true).await {
        ownership.finish();
        let error = error.hide([&ownership.key]);
        tracing::warn!(key = %escape_control(ownership.shown()), owner = %ownership.owner, %error,
            "could not release in the background, the lease will end it");
    }
}
