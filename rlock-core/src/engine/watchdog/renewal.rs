//! One round of renewals: the ownerships that are due together, in batches.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};

use super::{
    Renewer,
    failure::{Failure, attempt_number},
};
use crate::{
    engine::ownership::Ownership,
    error::LostCause,
    escape_control::escape_control,
    lease::{Time, renewal_attempt},
    metrics,
    store::{Renewal, RenewalOutcome, Renewed, SendOptions, StoreError},
};

/// The number of ownerships that one script renews. A server that tracks keys goes through all the keys of a
/// script at each read in it. A renewal costs it 3.3 µs in a batch of 16, and 25 µs in a batch of 256.
const BATCH: usize = 16;
/// The number of batches of one round that are under way at once, as long as the server replies soon.
/// With more, other requests would wait longer for a busy server, and the replies take memory.
const AT_ONCE: usize = 64;

/// The properties that the ownerships of one batch share: the lease, because the shortest one limits the request,
/// and the group at the store.
pub(super) type Alike = (Duration, u16);

/// Ownerships that one script renews.
pub(super) struct Batch {
    lease: Duration,
    ownerships: Vec<Arc<Ownership>>,
}

/// Puts ownerships into batches. Those of the shortest lease come first.
pub(super) fn batches(mut ownerships: Vec<(Alike, Arc<Ownership>)>) -> Vec<Batch> {
    ownerships.sort_unstable_by_key(|(alike, _)| *alike);
    let alike = ownerships.chunk_by(|(one, _), (next, _)| one == next);
    alike
        .flat_map(|alike| alike.chunks(BATCH))
        .map(|batch| Batch {
            lease: batch[0].0.0,
            ownerships: batch
                .iter()
                .map(|(_, ownership)| Arc::clone(ownership))
                .collect(),
        })
        .collect()
}

/// Sends all batches. If the replies are slow, the round does not wait for them: it sends everything
/// within half a lease, so that it ends before the last attempts start.
pub(super) async fn run(renewer: Arc<Renewer>, batches: Vec<Batch>) {
    let mut leases = batches.iter().map(|batch| batch.lease);
    let shortest = leases.find(|lease| !lease.is_zero());
    let count = u32::try_from(batches.len()).unwrap_or(u32::MAX);
    let share = shortest.unwrap_or(renewer.response_timeout) / 2 / count.max(1);
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

/// Sends one batch, and applies the reply to its ownerships.
pub(super) async fn renew(renewer: &Renewer, batch: Batch) {
    let now = renewer.watchdog.clock.now();
    let Some(request) = BatchRequest::begin(batch, now) else {
        return;
    };
    let BatchRequest {
        left, confirmed, ..
    } = request;
    // A late reply counts as long as the lease lasts. The next attempt does not wait for it.
    let send = SendOptions::new(left).silence(confirmed / 3);
    let mut reply = renewer.store.renew(&request.renewals, request.lease, send);
    let pause = renewal_attempt(confirmed).min(renewer.response_timeout);
    let in_time = timeout(pause, &mut reply).await;
    let is_late = in_time.is_err();
    let outcome = if let Ok(outcome) = in_time {
        outcome
    } else {
        request.fail(renewer, StoreError::no_reply(pause), |_| true);
        reply.await
    };
    for (n, ownership) in request.ownerships.iter().enumerate() {
        let kept = outcome.as_ref().ok().and_then(|reply| reply.kept.get(n));
        // A server of a minority that did not reply may still execute it.
        if renewer.store.needs_majority() || !matches!(kept, Some(RenewalOutcome::Held { .. })) {
            ownership.abandon_renewal(request.lease);
        }
    }
    match outcome {
        Ok(answer) => {
            request.apply(renewer, &answer, is_late);
            if is_late {
                request.log_late();
            }
            if !is_late {
                let unknown = |n: usize| answer.kept.get(n) == Some(&RenewalOutcome::Unknown);
                request.fail(renewer, StoreError::no_majority(), unknown);
            }
        }
        Err(error) => {
            metrics::renewals([0, 0, request.ownerships.len(), 0]);
            if !is_late {
                request.fail(renewer, error, |_| true);
            }
        }
    }
    for (renewal, ownership) in request.renewals.iter().zip(&request.ownerships) {
        if renewal.fence > 0 {
            renewer.queues.check_retained(&ownership.key);
            ownership.end_wait_for_tokens();
        }
    }
}

/// A batch that is being renewed.
struct BatchRequest {
    ownerships: Vec<Arc<Ownership>>,
    renewals: Vec<Renewal>,
    lease: Duration,
    sent: Time,
    /// The least time that remains of a confirmed lease, and the shortest of these leases.
    left: Duration,
    confirmed: Duration,
}

impl BatchRequest {
    /// Begins the renewal of all ownerships of a batch that still need one. Returns `None` if there are none.
    fn begin(batch: Batch, now: Time) -> Option<Self> {
        let Batch {
            lease,
            mut ownerships,
        } = batch;
        let mut renewals = Vec::with_capacity(ownerships.len());
        let (mut left, mut shortest) = (Duration::MAX, Duration::MAX);
        ownerships.retain(|ownership| {
            let Some((confirmed, fence)) = ownership.begin_renewal(lease, now) else {
                return false;
            };
            let claim = ownership.claim();
            renewals.push(Renewal { claim, fence });
            left = left.min(ownership.valid_until().since(now));
            shortest = shortest.min(confirmed);
            true
        });
        (!ownerships.is_empty()).then_some(Self {
            ownerships,
            renewals,
            lease,
            sent: now,
            left,
            confirmed: shortest,
        })
    }

    /// Confirms the leases that the store renewed, and reports the ownerships that it does not know as lost.
    fn apply(&self, renewer: &Renewer, answer: &Renewed, is_late: bool) {
        let watchdog = &renewer.watchdog;
        let now = watchdog.clock.now();
        let (mut gone, mut wanted) = (Vec::new(), Vec::new());
        let mut confirmed = 0;
        let is_due = {
            let mut schedule = watchdog.schedule();
            for (ownership, kept) in self.ownerships.iter().zip(&answer.kept) {
                match kept {
                    RenewalOutcome::Lost => gone.push(ownership),
                    // The next attempt repeats it.
                    RenewalOutcome::Unknown => {}
                    RenewalOutcome::Held {
                        wanted: is_wanted,
                        fence,
                    } => {
                        let lease_and_fence = (self.lease, *fence);
                        schedule.renewed(ownership, answer.sent_at, lease_and_fence, now);
                        confirmed += 1;
                        if *is_wanted {
                            wanted.push(ownership);
                        }
                    }
                }
            }
            // The tokens may have run low while the renewal was under way.
            schedule.first_due().is_some_and(|due| due <= now)
        };
        if is_due {
            watchdog.wake.notify_one();
        }
        if confirmed > 0 {
            metrics::lease_margin(self.left.saturating_sub(now.since(self.sent)));
        }
        let failed = self.ownerships.len() - confirmed - gone.len();
        let late = if is_late { confirmed } else { 0 };
        // A release over another connection may have overtaken the renewal. That is no loss.
        let lost = gone.iter().filter(|ownership| ownership.is_held()).count();
        metrics::renewals([confirmed - late, late, failed, lost]);
        for ownership in wanted {
            renewer.queues.wanted(&ownership.key, ownership.owner);
        }
        for ownership in gone {
            watchdog.lose(ownership, LostCause::Removed);
        }
    }

    /// Logs that the reply came after the next attempt was due.
    fn log_late(&self) {
        for ownership in self.ownerships.iter().filter(|hold| hold.is_held()) {
            ownership.in_span(|| {
                let key = escape_control(ownership.shown());
                tracing::debug!(%key, owner = %ownership.owner, "renewal arrived late");
            });
        }
    }

    /// Makes the watchdog log that the renewal of these ownerships failed.
    fn fail(&self, renewer: &Renewer, error: StoreError, failed: impl Fn(usize) -> bool) {
        let ownerships = self.ownerships.iter().enumerate();
        let ownerships: Vec<_> = ownerships
            .filter(|(n, _)| failed(*n))
            .map(|(_, ownership)| Arc::clone(ownership))
            .collect();
        if !ownerships.is_empty() {
            renewer.watchdog.report_failure(Failure {
                ownerships,
                attempt: attempt_number(self.confirmed, self.left),
                error,
            });
        }
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
        let ownership = |lease| {
            let (key, owner) = (Key::parse("k"), OwnerId::new(Uuid::nil(), 1));
            Ownership::new(ClientClock::default(), key.expect("valid"), owner, lease)
        };
        let ownerships = alike.iter().zip(counts);
        let ownerships =
            ownerships.flat_map(|(alike, count)| vec![(*alike, ownership(alike.0)); count]);
        let batches = batches(ownerships.collect());
        let sizes: Vec<_> = batches
            .iter()
            .map(|batch| (batch.lease, batch.ownerships.len()))
            .collect();
        assert_eq!(sizes, [(short, BATCH), (short, 1), (short, 1), (long, 1)]);
    }
}
