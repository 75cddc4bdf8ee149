//! Sends the count of an ownership to the store. A count of zero releases the lock.

use std::{sync::Arc, time::Duration};

use futures_util::future::join;
use smallvec::smallvec;
use tokio::time::timeout;

use crate::{
    engine::{
        ask::{Ask, Asked},
        core::Core,
        ownership::{Ownership, Requests},
    },
    error::{LockError, LostCause},
    lease::Time,
    store::{ReleaseRequest, Released, SendOptions, StoreError},
    sync::atomic::Ordering,
    wait::Backoff,
};

/// Puts the ownership into the release queue when dropped, unless disarmed: a cancelled future may leave a request in
/// doubt.
pub(crate) struct ReleaseOnDrop<'a> {
    core: &'a Core,
    ownership: Option<Arc<Ownership>>,
}

impl<'a> ReleaseOnDrop<'a> {
    pub(crate) fn new(core: &'a Core, ownership: &Arc<Ownership>) -> Self {
        Self {
            core,
            ownership: Some(Arc::clone(ownership)),
        }
    }

    /// Disarms the guard: the store's count is known to be the wanted one.
    pub(crate) fn disarm(mut self) {
        self.ownership = None;
    }
}

impl Drop for ReleaseOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(ownership) = self.ownership.take() {
            self.core.releases().settle(ownership);
        }
    }
}

/// Sends the count to the store after an entry has left, and waits for the reply.
pub(crate) async fn settle_now(
    core: &Core,
    ownership: &Arc<Ownership>,
    broken: Option<LostCause>,
) -> Result<(), LockError> {
    let release_on_drop = ReleaseOnDrop::new(core, ownership);
    let started = core.clock.now();
    let give_up = started + core.options.response_timeout * 2;
    let lost = match settle(core, ownership, give_up, false).await {
        Ok(Released::Done) => broken,
        Ok(Released::NotHeld) => Some(LostCause::Removed),
        // The release queue tries again.
        Err(error) => {
            let action = format!("release lock `{}`", ownership.shown());
            let error = error.hide([&ownership.key]);
            return Err(error.into_lock_error(action, core.clock.now().since(started)));
        }
    };
    release_on_drop.disarm();
    lost.map_or(Ok(()), |cause| Err(ownership.lost_error(cause)))
}

/// Sets the store's count to the wanted one. Tries until `give_up`.
pub(super) async fn settle(
    core: &Core,
    ownership: &Arc<Ownership>,
    give_up: Time,
    is_queued: bool,
) -> Result<Released, StoreError> {
    let left = || give_up.since(core.clock.now());
    // A change whose future is no longer polled must not block this one forever.
    let changing = timeout(left(), ownership.changing.lock()).await;
    if is_queued {
        // From here on, the ownership may be queued again.
        ownership.queued.store(false, Ordering::Release);
    }
    let _changing = changing.map_err(|_| StoreError::busy())?;
    let mut backoff = Backoff::default();
    let mut in_doubt = false;
    let (count, reply) = loop {
        let Some((count, at_least)) = ownership.wanted_count() else {
            // Another release was faster, or the ownership has a new hold.
            if ownership.is_ended() {
                ownership.finish();
            }
            return Ok(Released::Done);
        };
        if count == 0 {
            // An earlier release may have been sent by a future that was dropped.
            in_doubt |= ownership.begin_release();
        }
        let is_valid = ownership.broken(core.clock.now()).is_none();
        match send(core, ownership, count, at_least, left()).await {
            // Within its lease a lock is not lost by itself, so an earlier copy released it.
            Ok(Released::NotHeld) if in_doubt && count == 0 => break (count, Released::Done),
            Ok(reply) => break (count, reply),
            Err(error) => {
                in_doubt |= error.maybe_executed && is_valid;
                if count == 0 {
                    if !in_doubt {
                        ownership.end_release();
                    }
                    // The next local waiter asks the store itself.
                    ownership.pass_turn();
                }
                let pause = backoff.next();
                if !error.transient || left() <= pause {
                    return Err(error);
                }
                tokio::time::sleep(pause).await;
            }
        }
    };
    // The server executed requests in doubt before this one.
    ownership.requests(Requests::all_replied);
    let is_done = reply == Released::Done;
    if count > 0 {
        if is_done {
            ownership.lowered(count);
        } else {
            core.watchdog.lose(ownership, LostCause::Removed);
        }
        return Ok(reply);
    }
    if is_done {
        ownership.confirm_release();
        ownership.finish();
    } else {
        ownership.end_release();
        // Before the report, because a subscriber may panic.
        ownership.finish();
        core.watchdog.lose_at_release(ownership, LostCause::Removed);
    }
    Ok(reply)
}

/// Sends one release. The acquire of the next local waiter leaves in the same write.
async fn send(
    core: &Core,
    ownership: &Arc<Ownership>,
    count: u32,
    at_least: Duration,
    left: Duration,
) -> Result<Released, StoreError> {
    let in_doubt = ownership.requests(|requests| {
        if count > 0 {
            // If this is cancelled, the next request follows it. Otherwise this might set its count last.
            requests.begin(core.clock.now())
        } else {
            requests.is_in_doubt()
        }
    });
    let release = ReleaseRequest {
        key: ownership.key.clone(),
        owner: ownership.owner,
        fence: ownership.fence(),
        count,
        at_least,
    };
    let timeout = left.min(core.options.response_timeout);
    let send = SendOptions::new(timeout).in_doubt(in_doubt);
    let is_last = count == 0 && at_least.is_zero();
    let next = is_last.then(|| ownership.next(timeout, || core.fresh_owner()));
    let Some((next, lease)) = next.flatten() else {
        return core.store.release(&release, send).await;
    };
    let send = send.in_order();
    let released = core.store.release(&release, send);
    // The waiter asks again, unless this grants it the lock or queues it.
    let acquired = async {
        let ask = Ask::begin(core, smallvec![&next], lease, true);
        let send = send.in_doubt(ask.is_in_doubt());
        let reply = core.store.acquire(&ask.request, send).await;
        if let Ok(Asked::Granted(grants)) = ask.apply(reply) {
            ownership.next_arrived(grants[0].wanted);
        }
    };
    join(released, acquired).await.0
}
