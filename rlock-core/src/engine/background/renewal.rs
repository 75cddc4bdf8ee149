//! Sends one round of renewals: batches the locks that are due together, 16 in a request and 64 requests at once.

use std::{sync::Arc, time::Duration};

use futures_util::future::{BoxFuture, join_all};
use rlock_proto::{
    escape_control::escape_control,
    lease::renewal_retry,
    machine::{Input, Renew},
    store::{Renewal, RenewalOutcome},
};
use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};

use super::failure::present;
use crate::{
    engine::{core::Core, shell::RenewalFailure},
    metrics,
    store::{SendOptions, StoreError},
};

/// The number of locks that one script renews. A server that tracks keys goes through all the keys of a
/// script at each read in it. A renewal costs it 3.3 µs in a batch of 16, and 25 µs in a batch of 256.
const BATCH: usize = 16;
/// The number of batches of one round that are under way at once, as long as the server replies soon.
/// With more, other requests would wait longer for a busy server, and the replies take memory.
const AT_ONCE: usize = 64;

/// Puts renewals into batches: those of one lease and one group at the store. Those of the shortest lease come first.
fn batches(core: &Core, mut renewals: Vec<Renew>) -> Vec<Vec<Renew>> {
    let alike = |renew: &Renew| (renew.lease, core.store.group(&renew.key));
    renewals.sort_by_key(alike);
    let alike = renewals.chunk_by(|one, next| alike(one) == alike(next));
    let batches = alike.flat_map(|alike| alike.chunks(BATCH));
    batches.map(<[Renew]>::to_vec).collect()
}

/// Sends all batches. If the replies are slow, the round does not wait for them: it sends everything
/// within half a lease, so that it ends before the last attempts start.
pub(super) async fn run(core: Arc<Core>, renewals: Vec<Renew>) {
    let batches = batches(&core, renewals);
    let mut leases = batches.iter().map(|batch| batch[0].lease);
    let shortest = leases.find(|lease| !lease.is_zero());
    let count = u32::try_from(batches.len()).unwrap_or(u32::MAX);
    let share = shortest.unwrap_or(core.options.response_timeout) / 2 / count.max(1);
    let mut latest = Instant::now();
    let slots = Arc::new(Semaphore::new(AT_ONCE));
    let mut requests = JoinSet::new();
    for batch in batches {
        latest += share;
        let slot = timeout_at(latest, Arc::clone(&slots).acquire_owned()).await;
        while requests.try_join_next().is_some() {}
        let core = Arc::clone(&core);
        requests.spawn(async move {
            renew(&core, batch).await;
            drop(slot);
        });
    }
    requests.join_all().await;
}

/// Sends one batch, and tells the machine the reply.
async fn renew(core: &Core, batch: Vec<Renew>) {
    let sent = core.clock.now();
    let renewals: Vec<Renewal> = batch.iter().map(|renew| renew.for_store(core.id)).collect();
    let smallest = |of: fn(&Renew) -> Duration| batch.iter().map(of).min().unwrap_or_default();
    let (remaining, confirmed) = (
        smallest(|renew| renew.rest),
        smallest(|renew| renew.confirmed),
    );
    let by = batch[0].lease;
    // A late reply counts as long as the lease lasts. The next attempt does not wait for it.
    let options = SendOptions::new(remaining).silence(confirmed / 3);
    let mut reply = core.store.renew(&renewals, by, options);
    let pause = renewal_retry(confirmed).min(core.options.response_timeout);
    let in_time = timeout(pause, &mut reply).await;
    let is_late = in_time.is_err();
    let outcome = if let Ok(outcome) = in_time {
        outcome
    } else {
        fail(core, batch.clone(), StoreError::no_reply(pause));
        reply.await
    };
    if let Err(error) = &outcome
        && !error.transient
        && batch.len() > 1
    {
        // One of the locks may be the cause.
        join_all(batch.into_iter().map(|one| alone(core, one))).await;
        return;
    }
    let (kept, sent_at) = match &outcome {
        Ok(renewed) => (&*renewed.kept, renewed.sent_at),
        Err(_) => (&[][..], sent),
    };
    let (mut confirmed, mut lost, mut unknown) = (0, 0, Vec::new());
    for (n, renew) in batch.iter().enumerate() {
        match kept.get(n) {
            Some(RenewalOutcome::Held { .. }) => confirmed += 1,
            // A release over another connection may have overtaken the renewal. Such a renewal finds no loss.
            Some(RenewalOutcome::Lost) => lost += usize::from(present(core, renew).is_some()),
            Some(RenewalOutcome::Unknown) | None => unknown.push(renew.clone()),
        }
    }
    if confirmed > 0 {
        metrics::lease_margin(remaining.saturating_sub(core.clock.now().since(sent)));
    }
    let late = if is_late { confirmed } else { 0 };
    metrics::renewals([confirmed - late, late, unknown.len(), lost]);
    if is_late {
        for renew in &batch {
            log_late(core, renew);
        }
    }
    let replies = batch.into_iter().enumerate().map(|(n, renew)| {
        let outcome = kept.get(n).copied();
        Input::Renewed {
            renew,
            sent_at,
            outcome,
        }
    });
    core.shell.on_all(replies);
    if !is_late && !unknown.is_empty() {
        let error = outcome.err().unwrap_or_else(StoreError::no_majority);
        fail(core, unknown, error);
    }
}

fn alone(core: &Core, one: Renew) -> BoxFuture<'_, ()> {
    Box::pin(renew(core, vec![one]))
}

fn fail(core: &Core, batch: Vec<Renew>, error: StoreError) {
    core.shell.fail(RenewalFailure { batch, error });
}

/// Logs that the reply came after the next attempt was due.
fn log_late(core: &Core, renew: &Renew) {
    if let Some((_, hold)) = present(core, renew) {
        hold.in_span(|| {
            let key = escape_control(hold.key.shown());
            let owner = core.owner_id(hold.owner, hold.mode);
            tracing::debug!(%key, %owner, "renewal arrived late");
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LockClient;
    use rlock_proto::{key::Key, machine::SlotId, mode::LockMode};

    #[test]
    fn only_renewals_by_the_same_lease_share_a_batch_and_never_more_than_fit() {
        let client = LockClient::in_memory();
        let renew = |lease| Renew {
            slot: SlotId::default(),
            key: Key::parse("k").expect("valid"),
            owner: 1,
            mode: LockMode::Exclusive,
            lease,
            confirmed: lease,
            rest: lease,
            fence: 0,
            last_fence: 0,
            keeps_fence: false,
            count: 1,
        };
        let (short, long) = (Duration::from_secs(1), Duration::from_secs(2));
        let mut renewals = vec![renew(long)];
        renewals.resize(BATCH + 2, renew(short));
        let batches = batches(client.core(), renewals);
        let sizes: Vec<_> = batches
            .iter()
            .map(|batch| (batch[0].lease, batch.len()))
            .collect();
        assert_eq!(sizes, [(short, BATCH), (short, 1), (long, 1)]);
    }
}
