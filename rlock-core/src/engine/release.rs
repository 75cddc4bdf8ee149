//! Releases. A caller awaits the reply, or the release queue sends the request in the background. The queue also takes
//! over a release or an acquire whose future was dropped.

use std::{sync::Arc, time::Duration};

use tokio::{task::JoinSet, time::timeout};

use crate::{
    engine::{
        core::Core,
        ownership::{AfterLeave, Done, EntryId, Ownership, Succession, Work},
        watchdog::lose_at_release,
    },
    error::{LockError, LostCause},
    escape_control::escape_control,
    lease::Time,
    observe::{EndedHold, HoldEnd},
    store::{
        GRACE, HandOff, NextLocal, ReleaseRequest, Released, SendOptions, StoreError, TokenBlock,
    },
    sync::atomic::Ordering,
    wait::Backoff,
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
        let error = error.hide([&ownership.key]);
        tracing::warn!(key = %escape_control(ownership.shown()), owner = %ownership.owner, %error,
            "could not release in the background, the lease will end it");
        ownership.finish_if_empty();
    }
}

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

/// Removes an entry. Returns whether the store's count has to change, and the hold that has ended.
fn remove(
    core: &Core,
    ownership: &Arc<Ownership>,
    (entry, end): (EntryId, HoldEnd),
    succession: Succession,
    now: Time,
) -> (bool, Option<EndedHold>) {
    let (left, ended) = ownership.leave(entry, end, succession, core.counts_entries(), now);
    let concerns_store = match left {
        AfterLeave::Lower => core.counts_entries(),
        AfterLeave::Release => {
            // Renewal ends before the release is sent.
            core.watchdog.forget(ownership);
            true
        }
        AfterLeave::HandOver(turn) => {
            extend_if_due(core, ownership, true);
            drop(turn);
            false
        }
        AfterLeave::Retained { is_awaited } => {
            core.watchdog.track(ownership, now);
            extend_if_due(core, ownership, false);
            if is_awaited {
                core.queues.check_retained(&ownership.key);
            }
            false
        }
    };
    core.ended();
    (concerns_store, ended)
}

/// Returns which successors a hold may have that ends without a loss.
fn succession(core: &Core) -> Succession {
    // Replicas confirm each hold.
    if core.options.replicas.is_some() || core.is_closed() {
        Succession::None
    } else if core.is_draining() {
        Succession::Waiters
    } else {
        Succession::Retained
    }
}

/// Makes the background reserve further tokens for the ownership, if they run low.
fn extend_if_due(core: &Core, ownership: &Arc<Ownership>, callers_wait: bool) {
    if core.store.extends()
        && let Some(tokens) = ownership.begin_extension(callers_wait)
    {
        core.releases().extend(Arc::clone(ownership), tokens);
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
}

/// Removes an entry without waiting.
pub(crate) fn leave_in_background(
    core: &Core,
    ownership: &Arc<Ownership>,
    entry: (EntryId, HoldEnd),
) {
    let now = core.clock.now();
    let (concerns_store, ended) = remove(core, ownership, entry, succession(core), now);
    if concerns_store {
        core.releases().settle(Arc::clone(ownership));
    }
    if let Some(ended) = ended {
        core.watchdog.close_later(Box::new(|| ended.close()));
    }
}

/// Removes an entry, which may be `broken` already. Returns the outcome, or `None` if a request is necessary: see
/// [`settle_now`].
pub(crate) fn leave(
    core: &Core,
    ownership: &Arc<Ownership>,
    entry: (EntryId, HoldEnd),
    broken: Option<LostCause>,
    now: Time,
) -> Option<Result<(), LockError>> {
    let lost = broken.and_then(|_| ownership.broken(now));
    if let Some(cause) = lost {
        core.watchdog.lose(ownership, cause);
    }
    let succession = match broken {
        None => succession(core),
        Some(_) => Succession::None,
    };
    let (concerns_store, ended) = remove(core, ownership, entry, succession, now);
    if let Some(ended) = ended {
        ended.close();
    }
    if lost.is_some() {
        // The store, or some of its servers, may still have the lock.
        if concerns_store {
            core.releases().settle(Arc::clone(ownership));
        } else {
            ownership.finish_if_empty();
        }
    } else if concerns_store {
        return None;
    }
    let outcome = broken
        .or(lost)
        .map_or(Ok(()), |cause| Err(ownership.lost_error(cause)));
    Some(outcome)
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
    let reply = tokio::select! {
        biased;
        () = core.background_ended() => {
            lose_at_release(ownership, LostCause::Closed);
            return Err(ownership.lost_error(LostCause::Closed));
        }
        reply = settle(core, ownership, give_up, false) => reply,
    };
    let lost = match reply {
        Ok(Released::Done(_)) => broken,
        Ok(Released::NotHeld | Released::MovedOn) => Some(LostCause::Removed),
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
async fn settle(
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
            return Ok(Released::Done(HandOff::Unknown));
        };
        if count == 0 {
            // An earlier release may have been sent by a future that was dropped.
            in_doubt |= ownership.begin_release();
        }
        match send(core, ownership, count, at_least, left()).await {
            // Within its validity a lock is not lost by itself, so an earlier copy released it.
            Ok(Released::MovedOn) if in_doubt && ownership.broken(core.clock.now()).is_none() => {
                break (count, Released::Done(HandOff::Unknown));
            }
            Ok(reply) => break (count, reply),
            Err(error) => {
                in_doubt |= error.maybe_executed;
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
    // Requests in doubt took the same route, so they were executed before.
    ownership.certain();
    let is_done = matches!(reply, Released::Done(_));
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
    } else {
        ownership.end_release();
        lose_at_release(ownership, LostCause::Removed);
    }
    ownership.finish();
    Ok(reply)
}

/// Sends one release, which also acquires on behalf of the next local waiter.
async fn send(
    core: &Core,
    ownership: &Arc<Ownership>,
    count: u32,
    at_least: Duration,
    left: Duration,
) -> Result<Released, StoreError> {
    let doubt = ownership.route_in_doubt();
    let route = doubt.unwrap_or_else(|| core.store.via());
    let is_last = count == 0 && at_least.is_zero();
    let next = is_last
        .then(|| ownership.next(|| core.fresh_owner()))
        .flatten();
    let next_in_doubt = next
        .as_ref()
        .is_some_and(|(next, _)| next.begin_request(route));
    if count > 0 {
        // The request after a cancelled release takes the same route, or the cancelled one might set its count last.
        ownership.begin_request(route);
        ownership.about_to_change(route);
    }
    let release = ReleaseRequest {
        key: ownership.key.clone(),
        owner: ownership.owner,
        token: ownership.fence(),
        count,
        at_least,
        next: next.as_ref().map(|(next, lease)| NextLocal {
            owner: next.owner,
            lease: *lease,
        }),
    };
    // If the route's runtime is not driven, this request blocks those that wait for it. Hence the shorter limit.
    let most = match doubt {
        Some(_) => core.options.response_timeout.min(GRACE),
        None => core.options.response_timeout,
    };
    let reply = core
        .store
        .release(&release, SendOptions::new(route, left.min(most)))
        .await?;
    if let (Released::Done(onward), Some((next, _))) = (reply, next) {
        match onward {
            HandOff::Granted(grant) => {
                ownership.next_arrived(grant.wanted);
                next.granted(grant);
            }
            HandOff::InLine { since, place } => {
                next.refused(since, None, Some(place));
                if !next_in_doubt {
                    next.certain();
                }
            }
            HandOff::Unknown => {}
        }
    }
    Ok(reply)
}
