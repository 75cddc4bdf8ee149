//! One round of renewals: the holds that are due together, in batches.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};

use super::{
    Renewer,
    failure::{Failure, attempt_number},
};
use crate::store::Servers;
use crate::{
    error::LostCause,
    hold::Hold,
    lease::{Time, renewal_attempt},
    store::{Kept, Renewal, Renewed, StoreError},
};

/// The number of holds that one script renews. A server that tracks keys goes through all the keys of a
/// script at each read in it, so a renewal costs it 3.3 µs in a batch of 16, and 25 µs in one of 256.
const BATCH: usize = 16;
/// The number of batches of one round that are under way at once, as long as the server replies soon.
/// With more, other requests would wait longer for a busy server, and the replies take memory.
const AT_ONCE: usize = 64;
/// How long the next change of a hold may have to wait for its mending.
const MEND: Duration = Duration::from_millis(100);

/// What the holds of one batch have in common: the lease, because a request is bound by its shortest,
/// and the group at the store.
pub(super) type Alike = (Duration, u16);

/// Holds that one script renews.
pub(super) struct Batch {
    lease: Duration,
    holds: Vec<Arc<Hold>>,
}

/// Puts holds into batches. Those of the shortest lease come first.
pub(super) fn batches(mut holds: Vec<(Alike, Arc<Hold>)>) -> Vec<Batch> {
    holds.sort_unstable_by_key(|(alike, _)| *alike);
    let alike = holds.chunk_by(|(one, _), (next, _)| one == next);
    alike
        .flat_map(|alike| alike.chunks(BATCH))
        .map(|batch| Batch {
            lease: batch[0].0.0,
            holds: batch.iter().map(|(_, hold)| Arc::clone(hold)).collect(),
        })
        .collect()
}

/// Sends all batches. If the replies are slow, the round does not wait for them: it sends everything
/// within half a lease, so that it ends before the last attempts start.
pub(super) async fn run(renewer: Arc<Renewer>, batches: Vec<Batch>) {
    let shortest = batches.first().map(|batch| batch.lease);
    let count = u32::try_from(batches.len()).unwrap_or(u32::MAX);
    let share = shortest.unwrap_or_default() / 2 / count.max(1);
    let mut latest = Instant::now();
    let slots = Arc::new(Semaphore::new(AT_ONCE));
    let mut requests = JoinSet::new();
    for batch in batches {
        latest += share;
        let slot = timeout_at(latest, Arc::clone(&slots).acquire_owned()).await;
        while requests.try_join_next().is_some() {}
        let renewer = Arc::clone(&renewer);
        requests.spawn(async move {
            renew(&renewer, batch).await;
            drop(slot);
        });
    }
    requests.join_all().await;
}

/// Sends one batch, and applies the reply to its holds.
pub(super) async fn renew(renewer: &Renewer, batch: Batch) {
    let now = renewer.watchdog.clock.now();
    let Some(request) = BatchRequest::begin(batch, now) else {
        return;
    };
    let BatchRequest { left, lease, .. } = request;
    // A late reply counts as long as the lease lasts. The next attempt does not wait for it.
    let mut reply = renewer.store.renew(&request.renewals, left, lease / 3);
    let pause = renewal_attempt(lease).min(renewer.response_timeout);
    let in_time = reply_in_time(renewer, &mut reply, now, pause).await;
    let is_late = in_time.is_none();
    let outcome = if let Some(outcome) = in_time {
        outcome
    } else {
        request.fail(renewer, StoreError::no_answer(pause), |_| true);
        reply.await
    };
    request.holds.iter().for_each(|hold| hold.end_renewal());
    match outcome {
        Ok(answer) => {
            request.apply(renewer, &answer);
            if !is_late {
                let unknown = |n: usize| answer.kept.get(n) == Some(&Kept::Unknown);
                request.fail(renewer, StoreError::no_majority(), unknown);
            }
            mend_all(renewer, &request.holds, &answer).await;
        }
        Err(error) if !is_late => request.fail(renewer, error, |_| true),
        Err(_) => {}
    }
}

/// Waits for the reply until the next attempt is due. The wait continues while the server replies to
/// earlier renewals: a busy server will come to this one.
async fn reply_in_time<F>(
    renewer: &Renewer,
    reply: &mut F,
    sent: Time,
    pause: Duration,
) -> Option<F::Output>
where
    F: Future + Unpin,
{
    let watchdog = &renewer.watchdog;
    loop {
        if let Ok(reply) = timeout(pause, &mut *reply).await {
            return Some(reply);
        }
        let now = watchdog.clock.now();
        if !watchdog.schedule().backlog.has(sent, now, pause) {
            return None;
        }
    }
}

/// A batch that is being renewed.
struct BatchRequest {
    holds: Vec<Arc<Hold>>,
    renewals: Vec<Renewal>,
    sent: Time,
    /// The least time that remains of a lease, and the shortest lease.
    left: Duration,
    lease: Duration,
}

impl BatchRequest {
    /// Begins the renewal of all holds of a batch that still want one. `None`: there are none.
    fn begin(Batch { mut holds, .. }: Batch, now: Time) -> Option<Self> {
        let mut renewals = Vec::with_capacity(holds.len());
        let (mut left, mut lease) = (Duration::MAX, Duration::MAX);
        holds.retain(|hold| {
            let Some((renewal, confirmed)) = hold.begin_renewal(now) else {
                return false;
            };
            renewals.push(renewal);
            left = left.min(hold.valid_until().since(now));
            lease = lease.min(confirmed);
            true
        });
        (!holds.is_empty()).then_some(Self {
            holds,
            renewals,
            sent: now,
            left,
            lease,
        })
    }

    /// Confirms the leases that the store renewed, and reports the holds that it does not know as lost.
    fn apply(&self, renewer: &Renewer, answer: &Renewed) {
        let watchdog = &renewer.watchdog;
        let now = watchdog.clock.now();
        let (mut gone, mut wanted) = (Vec::new(), Vec::new());
        {
            let mut schedule = watchdog.schedule();
            schedule.backlog.replied(self.sent, now);
            let holds = self.holds.iter().zip(&self.renewals);
            for ((hold, renewal), kept) in holds.zip(&answer.kept) {
                // A later hold of the same ownership may have begun meanwhile.
                let present = schedule.hold(&hold.key);
                let present = present.filter(|present| present.owner == hold.owner);
                let hold = present.unwrap_or_else(|| Arc::clone(hold));
                match kept {
                    Kept::No => gone.push(hold),
                    // The next attempt repeats it.
                    Kept::Unknown => {}
                    Kept::Yes | Kept::Wanted | Kept::NotOn(_) => {
                        schedule.renewed(&hold, answer.sent_at, renewal.lease, now);
                        if *kept == Kept::Wanted {
                            wanted.push(hold);
                        }
                    }
                }
            }
        }
        for hold in wanted {
            hold.note_wanted();
        }
        for hold in gone {
            // One that has not begun yet learns it from the tokens.
            hold.tokens.make_void();
            watchdog.lose(&hold, LostCause::Removed);
        }
    }

    /// Has the watchdog log that the renewal of these holds failed.
    fn fail(&self, renewer: &Renewer, error: StoreError, failed: impl Fn(usize) -> bool) {
        let holds = self.holds.iter().enumerate();
        let holds: Vec<_> = holds
            .filter(|(n, _)| failed(*n))
            .map(|(_, hold)| Arc::clone(hold))
            .collect();
        if !holds.is_empty() {
            renewer.watchdog.report_failure(Failure {
                holds,
                attempt: attempt_number(self.lease, self.left),
                error,
            });
        }
    }
}

/// Mends holds that a majority of the servers renewed and others do not know.
async fn mend_all(renewer: &Renewer, holds: &[Arc<Hold>], answer: &Renewed) {
    let holds = holds.iter().zip(&answer.kept);
    let mend = |(hold, kept): (&Arc<Hold>, &Kept)| match *kept {
        Kept::NotOn(servers) => Some(mend(renewer, Arc::clone(hold), servers)),
        _ => None,
    };
    join_all(holds.filter_map(mend)).await;
}

async fn mend(renewer: &Renewer, hold: Arc<Hold>, servers: Servers) {
    let limit = MEND.min(hold.lease() / 8);
    // A change that is under way reaches all servers anyway.
    let Ok(_changing) = hold.changing.try_lock() else {
        return;
    };
    if let Some(mending) = hold.mending(renewer.counts_entries) {
        renewer.store.mend(mending, servers, limit).await;
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::{clock::ClientClock, key::Key, owner::OwnerId};

    #[test]
    fn only_alike_holds_share_a_batch_and_never_more_than_fit() {
        let (short, long) = (Duration::from_secs(1), Duration::from_secs(2));
        let alike = [(long, 1), (short, 0), (short, 1)];
        let counts = [1, BATCH + 1, 1];
        let hold = |lease| {
            let (key, owner) = (Key::parse("k"), OwnerId::new(Uuid::nil(), 1));
            let hold = Hold::new(ClientClock::default(), key.expect("valid"), owner, lease);
            Arc::new(hold)
        };
        let holds = alike.iter().zip(counts);
        let holds = holds.flat_map(|(alike, count)| vec![(*alike, hold(alike.0)); count]);
        let batches = batches(holds.collect());
        let sizes: Vec<_> = batches
            .iter()
            .map(|batch| (batch.lease, batch.holds.len()))
            .collect();
        assert_eq!(sizes, [(short, BATCH), (short, 1), (short, 1), (long, 1)]);
    }
}
