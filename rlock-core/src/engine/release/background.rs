//! The work of the release queue: releases that no caller awaits, and reservations of further tokens.

use std::{pin::pin, sync::Arc, time::Duration};

use tokio::{sync::Semaphore, task::JoinSet, time::timeout};

use super::settle::settle;
use crate::{
    engine::{
        core::Core,
        ownership::{Done, Ownership, Work},
    },
    error::LostCause,
    escape_control::escape_control,
    store::{SendOptions, TokenBlock},
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
        let work = core.releases().take(room);
        let is_full = work.len() == room;
        for work in work {
            let (core, slot) = (Arc::clone(&core), Arc::clone(&slots).try_acquire_owned());
            tasks.spawn(async move {
                let mut work = pin!(work_on(&core, work));
                if timeout(SLOW, work.as_mut()).await.is_err() {
                    drop(slot);
                    work.await;
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

/// Does the work that was taken from the queue.
pub(crate) async fn work_on(core: &Core, work: Work) {
    let _done = Done(core.releases());
    match work {
        Work::Settle(ownership, _pending) => settle_in_background(core, &ownership).await,
        Work::Extend(ownership, tokens) => extend(core, &ownership, tokens).await,
    }
}

async fn settle_in_background(core: &Core, ownership: &Arc<Ownership>) {
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

/// Reserves further tokens.
async fn extend(core: &Core, ownership: &Arc<Ownership>, tokens: u64) {
    let claim = ownership.claim();
    let reply = core
        .store
        .extend(
            &claim,
            tokens,
            SendOptions::background(core.options.response_timeout),
        )
        .await;
    if let Ok(None) = reply {
        core.watchdog.lose(ownership, LostCause::Removed);
    }
    // Without further tokens, the lock is released when these are used.
    ownership.extended(reply.ok().flatten().unwrap_or(TokenBlock::EMPTY));
    core.queues.check_retained(&ownership.key);
    ownership.end_wait_for_tokens();
}
