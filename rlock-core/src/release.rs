//! Giving locks back: awaited where somebody waits for the answer, else by the release queue in the
//! background, which takes over whatever was dropped half-way.

mod queue;

use std::sync::Arc;

use tokio::{task::JoinSet, time::timeout};

use self::queue::Done;
pub(crate) use self::queue::{ReleaseQueue, Work};
use crate::{
    core::Core,
    error::{LockError, LostCause},
    hold::{EntryId, Hold, Left, Succession},
    lease::Time,
    store::{Claim, GRACE, Onward, Release, Released, StoreError, TokenBlock},
    sync::atomic::Ordering,
    wait::Backoff,
    watchdog::lose_at_release,
};

/// How many background releases are under way at once.
const AT_ONCE: usize = 256;

/// Runs the release queue for as long as the client lives.
pub(crate) async fn run(core: Arc<Core>) {
    let mut tasks = JoinSet::new();
    loop {
        for work in core.releases().take(AT_ONCE - tasks.len()) {
            let core = Arc::clone(&core);
            tasks.spawn(async move {
                match work {
                    Work::Settle(hold) => settle_in_background(&core, &hold).await,
                    Work::Extend(hold, tokens) => extend(&core, &hold, tokens).await,
                }
            });
        }
        tokio::select! {
            () = core.releases().wake.notified(), if tasks.len() < AT_ONCE => {}
            Some(_) = tasks.join_next() => {}
        }
    }
}

/// Settles a hold that was taken from the queue.
pub(crate) async fn settle_in_background(core: &Core, hold: &Arc<Hold>) {
    let _done = Done(core.releases());
    // A retained one is looked after until here.
    core.watchdog.forget(hold);
    core.ended();
    // It is tried for as long as the lease may keep the lock taken.
    let give_up = core.clock.now() + hold.lease();
    if let Err(error) = settle(core, hold, give_up, true).await {
        tracing::warn!(key = %hold.key, owner = %hold.owner, %error,
            "could not release in the background, the lease will end it");
        hold.finish_if_empty();
    }
}

/// While armed, hands the hold to the release queue when dropped: what a future that is cancelled
/// half-way leaves behind.
pub(crate) struct Unsettled<'a> {
    core: &'a Core,
    hold: Arc<Hold>,
    armed: bool,
}

impl<'a> Unsettled<'a> {
    pub(crate) fn new(core: &'a Core, hold: &Arc<Hold>) -> Self {
        Self {
            core,
            hold: Arc::clone(hold),
            armed: true,
        }
    }

    /// The store is known to hold nothing that is not wanted.
    pub(crate) fn disarm(mut self) {
        self.armed = false;
    }
}

impl Drop for Unsettled<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.core.releases().push(Arc::clone(&self.hold));
        }
    }
}

/// Takes an entry out of its hold at once. Returns whether the store is to be told, which is left to the caller.
fn take_out(core: &Core, hold: &Arc<Hold>, entry: EntryId, succession: Succession) -> bool {
    let concerns_store = match hold.leave(entry, succession, core.counts_entries()) {
        Left::Lower => core.counts_entries(),
        Left::GiveBack => {
            // Renewal ends before the release is sent.
            core.watchdog.forget(hold);
            true
        }
        Left::HandedOver(passed) => {
            core.watchdog.forget(hold);
            extend_if_due(core, hold, true);
            passed.pass_on();
            false
        }
        Left::Retained => {
            core.watchdog.track(hold);
            extend_if_due(core, hold, false);
            if core.is_draining() {
                hold.end_retention();
            }
            core.queues.look_after(&hold.key);
            false
        }
    };
    core.ended();
    concerns_store
}

/// What may follow a hold that ends as it should.
fn succession(core: &Core) -> Succession {
    let is_alone = core.options.replicas.is_some() || core.is_closed();
    if is_alone || core.store.is_present().is_err() {
        // Replicas confirm each hold.
        Succession::None
    } else if core.is_draining() {
        Succession::Waiters
    } else {
        Succession::Retained
    }
}

/// Has the background reserve further tokens for the ownership.
fn extend_if_due(core: &Core, hold: &Arc<Hold>, callers_wait: bool) {
    if core.store.extends()
        && let Some(tokens) = hold.tokens.begin_extension(callers_wait)
    {
        core.releases().extend(Arc::clone(hold), tokens);
    }
}

/// Reserves further tokens that were asked for in the queue.
pub(crate) async fn extend(core: &Core, hold: &Arc<Hold>, tokens: u64) {
    let _done = Done(core.releases());
    let claim = Claim {
        key: hold.key.clone(),
        owner: hold.owner,
    };
    let within = core.options.response_timeout;
    let answer = core.store.extend(&claim, tokens, within).await;
    if let Ok(None) = answer {
        hold.tokens.make_void();
        core.watchdog.suspect(&hold.key);
    }
    // Without further tokens, the lock is given back when these are used.
    let block = answer.ok().flatten().unwrap_or(TokenBlock::EMPTY);
    hold.tokens.extended(block);
    core.queues.look_after(&hold.key);
}

/// Releases an entry without waiting.
pub(crate) fn leave_in_background(core: &Core, hold: &Arc<Hold>, entry: EntryId) {
    if take_out(core, hold, entry, succession(core)) {
        core.releases().push(Arc::clone(hold));
    }
}

/// Releases an entry that may be `broken` already, as far as that is done without the store; `None`: the
/// store is to be told, see [`give_back`].
pub(crate) fn leave(
    core: &Core,
    hold: &Arc<Hold>,
    entry: EntryId,
    broken: Option<LostCause>,
) -> Option<Result<(), LockError>> {
    let gone = hold.broken();
    if let Some(cause) = gone {
        core.watchdog.lose(hold, cause);
    }
    let succession = match broken.or(gone) {
        None => succession(core),
        Some(_) => Succession::None,
    };
    let concerns_store = take_out(core, hold, entry, succession);
    if let Some(cause) = gone {
        // The store may still have it, or some of its servers.
        if concerns_store {
            core.releases().push(Arc::clone(hold));
        } else {
            hold.finish_if_empty();
        }
        return Some(Err(hold.lost_error(broken.unwrap_or(cause))));
    }
    if concerns_store {
        return None;
    }
    Some(broken.map_or(Ok(()), |cause| Err(hold.lost_error(cause))))
}

/// Tells the store that an entry has left, and waits for its answer.
pub(crate) async fn give_back(
    core: &Core,
    hold: &Arc<Hold>,
    broken: Option<LostCause>,
) -> Result<(), LockError> {
    let unsettled = Unsettled::new(core, hold);
    let started = core.clock.now();
    let give_up = started + core.options.response_timeout * 2;
    let answer = tokio::select! {
        biased;
        () = core.background_ended() => {
            lose_at_release(hold, LostCause::Closed);
            return Err(hold.lost_error(LostCause::Closed));
        }
        answer = settle(core, hold, give_up, false) => answer,
    };
    match answer {
        Ok(Released::Done(_)) => {
            unsettled.disarm();
            broken.map_or(Ok(()), |cause| Err(hold.lost_error(cause)))
        }
        Ok(Released::NotHeld | Released::MovedOn) => {
            unsettled.disarm();
            Err(hold.lost_error(LostCause::Removed))
        }
        // Still unsettled, so the queue goes on.
        Err(error) => Err(error.into_lock_error(
            format!("release lock `{}`", hold.key),
            core.clock.now().since(started),
        )),
    }
}

/// Brings the store's count to the one that is wanted now, trying until `give_up`.
async fn settle(
    core: &Core,
    hold: &Arc<Hold>,
    give_up: Time,
    is_queued: bool,
) -> Result<Released, StoreError> {
    let left = || give_up.since(core.clock.now());
    // A change that is not polled to its end must not hold this up for ever.
    let changing = timeout(left(), hold.changing.lock()).await;
    if is_queued {
        // From here on a new push means another look, after this one.
        hold.queued.store(false, Ordering::Release);
    }
    let _changing = changing.map_err(|_| StoreError::busy())?;
    if hold.is_given_back() {
        // Another release was faster. The store would reply that the lock has moved on.
        return Ok(Released::Done(Onward::Unknown));
    }
    let mut backoff = Backoff::default();
    let mut in_doubt = false;
    let (count, answer) = loop {
        let Some((count, keep)) = hold.wanted() else {
            return Ok(Released::Done(Onward::Unknown));
        };
        if count == 0 {
            // An earlier release may have been sent by a future that was dropped.
            in_doubt |= hold.begin_release();
        }
        let doubt = hold.asking.route_in_doubt();
        let route = doubt.unwrap_or_else(|| core.store.route());
        let gives_back = count == 0 && keep.is_zero();
        let release = Release {
            key: &hold.key,
            owner: hold.owner,
            token: hold.tokens.fence(),
            count,
            keep,
            next: gives_back
                .then(|| hold.next(|told_by| core.fresh_owner(told_by), route))
                .flatten(),
        };
        if count > 0 {
            // One that is cancelled is followed by the same way, or it might set its count last.
            hold.asking.begin(route);
            hold.about_to_change(route);
        }
        // A runtime that stands still holds up what has to follow by its way; others wait for it.
        let most = match doubt {
            Some(_) => core.options.response_timeout.min(GRACE),
            None => core.options.response_timeout,
        };
        let patience = left().min(most);
        match core.store.release(release, (route, patience)).await {
            // Within its validity a lock is not lost by itself, so an earlier copy gave it back.
            Ok(Released::MovedOn) if in_doubt && hold.broken().is_none() => {
                break (count, Released::Done(Onward::Unknown));
            }
            Ok(answer) => break (count, answer),
            Err(error) => {
                in_doubt |= error.maybe_executed;
                if count == 0 && !in_doubt {
                    hold.end_release();
                }
                if count == 0 {
                    // Others may find out for themselves how the store is.
                    hold.pass_turn();
                }
                let pause = backoff.next();
                if !error.transient || left() <= pause {
                    return Err(error);
                }
                tokio::time::sleep(pause).await;
            }
        }
    };
    // Whatever was in doubt went before this, by the same way.
    hold.asking.certain();
    if let Released::Done(onward) = answer {
        hold.went_on(onward);
    }
    if count == 0 {
        hold.end_release();
        if matches!(answer, Released::Done(_)) {
            hold.confirm_release();
        } else {
            lose_at_release(hold, LostCause::Removed);
        }
        hold.finish();
    } else if matches!(answer, Released::Done(_)) {
        hold.lowered(count);
    } else {
        core.watchdog.lose(hold, LostCause::Removed);
    }
    Ok(answer)
}
