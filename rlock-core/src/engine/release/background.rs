//! The work of the release queue: releases that no caller awaits, and reservations of further tokens.

use std::sync::Arc;

use tokio::task::JoinSet;

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

/// The number of background releases that are under way at once.
const AT_ONCE: usize = 256;

/// Works on the release queue for as long as the client lives.
pub(crate) async fn run(core: Arc<Core>) {
    let mut tasks = JoinSet::new();
    loop {
        for work in core.releases().take(AT_ONCE - tasks.len()) {
            let core = Arc::clone(&core);
            tasks.spawn(async move { work_on(&core, work).await });
        }
        tokio::select! {
            () = core.releases().wake.notified(), if tasks.len() < AT_ONCE => {}
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
