//! The loop in a client's background: wakes for the next deadline, and sends renewals, counts and releases.

pub(super) mod announcing;
mod failure;
mod renewal;

use std::{collections::VecDeque, mem, pin::pin, sync::Arc, time::Duration};

use rlock_proto::{lease::Time, machine::Input};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
    time::timeout,
};

use super::{
    call::{Sending, perform},
    core::Core,
};
use crate::{clock::LONGEST_SLEEP, metrics};

/// The number of background requests that are under way at once, without renewals and the slow ones.
const AT_ONCE: usize = 256;
/// After this time a request is slow, so requests to other servers no longer wait for it.
const SLOW: Duration = Duration::from_millis(100);
/// The most releases in flight of locks that were never held. An outage of one server leaves thousands of these, which
/// wait in a queue, where each needs little memory. Releases of locks that were held overtake them.
const MOST_IN_DOUBT: usize = 4 * AT_ONCE;
/// The least time between two warnings about releases that were given up, because an outage gives up many at once.
const GIVEN_UP_EVERY: Duration = Duration::from_secs(60);

/// A release, a count or a downgrade that waits to be sent.
type Queued = (Sending, Option<metrics::PendingRelease>);

/// Runs for as long as the client lives.
pub(super) async fn run(core: Arc<Core>) {
    let quick = Arc::new(Semaphore::new(AT_ONCE));
    let (mut held, mut tasks) = (VecDeque::<Queued>::new(), JoinSet::new());
    let (mut in_doubt, mut undoing) = (VecDeque::<Queued>::new(), JoinSet::new());
    let (mut given_up, mut is_quiet_until) = ((0, None), Time::default());
    loop {
        while tasks.try_join_next().is_some() {}
        while undoing.try_join_next().is_some() {}
        let (work, due) = core.shell.take_work();
        for (request, pending) in work.requests {
            let queue = if request.was_held() {
                &mut held
            } else {
                &mut in_doubt
            };
            queue.push_back((Sending::new(&core, Box::new(request)), pending));
        }
        while let Ok(place) = Arc::clone(&quick).try_acquire_owned() {
            let (next, tasks) = if held.is_empty() && undoing.len() < MOST_IN_DOUBT {
                (in_doubt.pop_front(), &mut undoing)
            } else {
                (held.pop_front(), &mut tasks)
            };
            let Some((request, pending)) = next else {
                break;
            };
            let core = Arc::clone(&core);
            tasks.spawn(async move { send(&core, request, place, pending).await });
        }
        if !work.renewals.is_empty() {
            tasks.spawn(renewal::run(Arc::clone(&core), work.renewals));
        }
        // Not before, because a subscriber may panic.
        failure::report(&core, &work.failures);
        let now = core.clock.now();
        given_up = (given_up.0 + work.given_up.0, given_up.1.or(work.given_up.1));
        if now >= is_quiet_until
            && let Some((key, owner)) = given_up.1.take()
        {
            let locks = mem::take(&mut given_up.0);
            is_quiet_until = now + GIVEN_UP_EVERY;
            tracing::warn!(%key, %owner, locks, "could not release in the background, the lease will end it");
        }
        let until = due.map_or(now + LONGEST_SLEEP, |due| due.min(now + LONGEST_SLEEP));
        tokio::select! {
            () = core.shell.wake.notified() => {}
            Some(_) = undoing.join_next(), if !in_doubt.is_empty() => {}
            Ok(_) = quick.acquire(), if !held.is_empty()
                || !in_doubt.is_empty() && undoing.len() < MOST_IN_DOUBT => {}
            () = core.clock.sleep_towards(until) => {
                metrics::overslept(core.clock.now().since(until));
            }
        }
        if due.is_none_or(|due| core.clock.now() >= due) {
            core.shell.on(Input::Time);
        }
    }
}

async fn send(
    core: &Core,
    request: Sending,
    place: OwnedSemaphorePermit,
    _pending: Option<metrics::PendingRelease>,
) {
    let mut sent = pin!(perform(core, request));
    if timeout(SLOW, sent.as_mut()).await.is_err() {
        drop(place);
        sent.await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::{LockClient, client::ClockOption};

    const HOUR: u64 = 60 * 60;

    #[tokio::test(start_paused = true)]
    async fn a_short_lease_that_begins_after_the_machine_slept_past_a_deadline_is_renewed() {
        let slept = Arc::new(AtomicU64::new(0));
        let builder = LockClient::builder().with_clock(ClockOption::Slept(Arc::clone(&slept)));
        let client = builder.in_memory().expect("a client");
        let lasting = client.lock("lasting").lease(Duration::from_secs(2 * HOUR));
        let lasting = lasting.acquire().await.expect("free");
        // The timer sleeps for the rest of a second.
        tokio::time::sleep(Duration::from_millis(100)).await;
        slept.store(HOUR, Ordering::SeqCst);
        let short = client.lock("short").lease(Duration::from_millis(700));
        let short = short.acquire().await.expect("free");
        tokio::time::sleep(Duration::from_millis(900)).await;
        assert!(short.is_valid() && lasting.is_valid());
    }
}
