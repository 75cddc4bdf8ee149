//! One round of renewals: what came due together, sent by a few messages.

use std::{iter, sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::{
    sync::Semaphore,
    task::JoinSet,
    time::{Instant, timeout_at},
};

use super::{Watchdog, attempt::Attempt, cohort::Cohort};
use crate::store::Servers;
use crate::{
    core::Core,
    error::LostCause,
    hold::Hold,
    lease::Time,
    store::{Kept, Renewal, Renewed, StoreError},
};

/// How many holds are renewed by one script. A server that tracks keys goes through all the keys of a
/// script at each read in it, so a renewal costs it 3.3 µs in a batch of 16, and 25 µs in one of 256.
const BATCH: usize = 16;
/// How many batches leave by one message, for which the client has one task, one timer and one write.
const TOGETHER: usize = 32;
/// How many batches of one round are under way at once, as long as the server answers soon: a server
/// that is kept busy by more lets everybody else wait, and so many requests take memory.
const AT_ONCE: usize = 64;

/// How long a hold's next change may have to wait for the mending of it.
const MEND: Duration = Duration::from_millis(100);

/// What holds have in common that are renewed by one message: their lease, because a request is bound by
/// its shortest, and their group at the store.
pub(super) type Alike = (Duration, u16);

/// Batches that leave together.
pub(super) struct Message {
    lease: Duration,
    batches: Vec<Batch>,
}

/// Holds that are renewed by one script.
enum Batch {
    Cohort(Arc<Cohort>),
    Holds(Vec<Arc<Hold>>),
}

/// Puts together what is to be renewed. Those of the shortest lease come first.
pub(super) fn messages(
    cohorts: Vec<(Alike, Arc<Cohort>)>,
    mut singly: Vec<(Alike, Arc<Hold>)>,
) -> Vec<Message> {
    singly.sort_unstable_by_key(|(alike, _)| *alike);
    let holds = grouped(singly, BATCH).map(|(alike, holds)| (alike, Batch::Holds(holds)));
    let cohorts = cohorts.into_iter();
    let cohorts = cohorts.map(|(alike, cohort)| (alike, Batch::Cohort(cohort)));
    let mut batches: Vec<_> = cohorts.chain(holds).collect();
    batches.sort_unstable_by_key(|(alike, _)| *alike);
    grouped(batches, TOGETHER)
        .map(|((lease, _), batches)| Message { lease, batches })
        .collect()
}

/// Groups of what is alike, none larger than that. What is alike has to stand together.
fn grouped<T>(all: Vec<(Alike, T)>, size: usize) -> impl Iterator<Item = (Alike, Vec<T>)> {
    let mut all = all.into_iter().peekable();
    iter::from_fn(move || {
        let (alike, first) = all.next()?;
        let mut group = vec![first];
        while group.len() < size
            && let Some((_, next)) = all.next_if(|(other, _)| *other == alike)
        {
            group.push(next);
        }
        Some((alike, group))
    })
}

/// Sends all. A few batches are under way at once; where the answers take their time, the round does
/// not wait for them: all is sent in half a lease, so that it ends before the last attempts start.
pub(super) async fn run(core: Arc<Core>, messages: Vec<Message>) {
    let shortest = messages.first().map(|message| message.lease);
    let count = messages.iter().map(|message| message.batches.len()).sum();
    let share = shortest.unwrap_or_default() / 2 / count_of(count).max(1);
    let mut latest = Instant::now();
    let room = Arc::new(Semaphore::new(AT_ONCE));
    let mut requests = JoinSet::new();
    for message in messages {
        let size = count_of(message.batches.len());
        latest += share * size;
        let free = Arc::clone(&room).acquire_many_owned(size);
        let taken = timeout_at(latest, free).await;
        while requests.try_join_next().is_some() {}
        let core = Arc::clone(&core);
        requests.spawn(async move {
            renew(&core, message).await;
            drop(taken);
        });
    }
    requests.join_all().await;
}

fn count_of(batches: usize) -> u32 {
    u32::try_from(batches).unwrap_or(u32::MAX)
}

/// Sends one message, and tells all that it concerns.
pub(super) async fn renew(core: &Core, message: Message) {
    let now = core.clock.now();
    let batches = message.batches.into_iter();
    let under_way: Vec<_> = batches.filter_map(|batch| batch.begin(core, now)).collect();
    let Some(first) = under_way.first() else {
        return;
    };
    // A late answer is as good as an early one while the lease lasts; the next attempt does not
    // wait for it.
    let (left, lease) = under_way.iter().fold(first.good_for, |least, batch| {
        let (left, lease) = batch.good_for;
        (left.min(least.0), lease.min(least.1))
    });
    let renewals: Vec<&[Renewal]> = under_way.iter().map(UnderWay::renewals).collect();
    let attempt = Attempt::new(core, now, lease, left);
    let mut answer = core.store.renew_several(&renewals, left, lease / 3);
    let in_time = attempt.in_time(&core.watchdog, &mut answer).await;
    let is_late = in_time.is_none();
    let outcomes = if let Some(outcomes) = in_time {
        outcomes
    } else {
        let holds = under_way.iter().flat_map(UnderWay::holds);
        attempt.report(&core.watchdog, holds, &attempt.no_answer());
        answer.await
    };
    for (batch, outcome) in under_way.iter().zip(&outcomes) {
        batch.end(&core.watchdog, outcome, now);
    }
    if !is_late {
        report_failures(&core.watchdog, &attempt, &under_way, &outcomes);
    }
    mend_all(core, &under_way, &outcomes).await;
}

impl Batch {
    /// A renewal is about to be sent; `None`: there is nothing to send.
    fn begin(self, core: &Core, now: Time) -> Option<UnderWay> {
        match self {
            Self::Cohort(cohort) => begin_cohort(&core.watchdog, cohort, now),
            Self::Holds(holds) => begin_singly(holds, now),
        }
    }
}

fn begin_cohort(watchdog: &Watchdog, cohort: Arc<Cohort>, now: Time) -> Option<UnderWay> {
    let shared = &cohort.shared;
    let Some(left) = cohort.begin_renewal(now) else {
        if watchdog.agenda().part(shared, now) {
            watchdog.wake.notify_one();
        }
        return None;
    };
    Some(UnderWay {
        good_for: (left, shared.lease),
        what: What::Cohort(cohort),
    })
}

fn begin_singly(mut holds: Vec<Arc<Hold>>, now: Time) -> Option<UnderWay> {
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
    (!holds.is_empty()).then_some(UnderWay {
        good_for: (left, lease),
        what: What::Holds(holds, renewals),
    })
}

/// A batch whose renewal was sent.
struct UnderWay {
    /// What is left of the lease that was confirmed last, and how long that is.
    good_for: (Duration, Duration),
    what: What,
}

enum What {
    Cohort(Arc<Cohort>),
    Holds(Vec<Arc<Hold>>, Vec<Renewal>),
}

impl UnderWay {
    fn holds(&self) -> &[Arc<Hold>] {
        match &self.what {
            What::Cohort(cohort) => &cohort.holds,
            What::Holds(holds, _) => holds,
        }
    }

    fn renewals(&self) -> &[Renewal] {
        match &self.what {
            What::Cohort(cohort) => &cohort.renewals,
            What::Holds(_, renewals) => renewals,
        }
    }

    /// The renewal that was sent at `sent` was answered, or given up.
    fn end(&self, watchdog: &Watchdog, outcome: &Result<Renewed, StoreError>, sent: Time) {
        match &self.what {
            What::Cohort(cohort) => cohort.end_renewal(),
            What::Holds(holds, _) => holds.iter().for_each(|hold| hold.end_renewal()),
        }
        let holds = self.holds();
        match (outcome, &self.what) {
            (Ok(answer), What::Cohort(cohort)) if goes_on(watchdog, cohort, answer, sent) => {}
            (Ok(answer), _) => answered(watchdog, holds, self.renewals(), answer, sent),
            // The next attempt retries it.
            (Err(_), _) => {}
        }
    }
}

/// Reports the holds whose renewal failed, in one line.
fn report_failures(
    watchdog: &Watchdog,
    attempt: &Attempt,
    sent: &[UnderWay],
    outcomes: &[Result<Renewed, StoreError>],
) {
    let (mut failed, mut reason) = (Vec::new(), None);
    for (batch, outcome) in sent.iter().zip(outcomes) {
        match outcome {
            Err(error) => {
                failed.extend(batch.holds());
                reason = reason.or_else(|| Some(error.clone()));
            }
            Ok(answer) => {
                let answers = batch.holds().iter().zip(&answer.kept);
                let unknown = answers.filter(|(_, kept)| **kept == Kept::Unknown);
                let before = failed.len();
                failed.extend(unknown.map(|(hold, _)| hold));
                if failed.len() > before {
                    reason = reason.or_else(|| Some(StoreError::no_majority()));
                }
            }
        }
    }
    if let Some(reason) = reason {
        attempt.report(watchdog, failed, &reason);
    }
}

/// Whether a cohort goes on as it is; else each hold is to be told by itself.
fn goes_on(watchdog: &Watchdog, cohort: &Cohort, answer: &Renewed, sent: Time) -> bool {
    let all = answer.kept.iter().all(|kept| *kept == Kept::Yes);
    let now = watchdog.clock.now();
    let mut agenda = watchdog.agenda();
    let goes_on = all && agenda.cohort_renewed(cohort, answer.sent_at, now);
    if goes_on {
        agenda.line.moved(sent, now);
    } else {
        agenda.part(&cohort.shared, cohort.shared.due());
    }
    goes_on
}

/// Each hold is told by itself.
fn answered(
    watchdog: &Watchdog,
    holds: &[Arc<Hold>],
    batch: &[Renewal],
    answer: &Renewed,
    sent: Time,
) {
    let now = watchdog.clock.now();
    let mut gone = Vec::new();
    {
        let mut agenda = watchdog.agenda();
        agenda.line.moved(sent, now);
        for ((hold, renewal), kept) in holds.iter().zip(batch).zip(&answer.kept) {
            match kept {
                Kept::No => gone.push(hold),
                // It will be tried again.
                Kept::Unknown => {}
                _ => agenda.renewed(hold, answer.sent_at, renewal.lease, now),
            }
        }
        if gone.is_empty() {
            agenda.join(holds, batch, answer.sent_at);
        }
    }
    for hold in gone {
        watchdog.lose(hold, LostCause::Removed);
    }
}

/// Has the servers that do not know of a hold which others renewed know of it again.
async fn mend_all(core: &Core, sent: &[UnderWay], outcomes: &[Result<Renewed, StoreError>]) {
    let answered = sent.iter().zip(outcomes);
    let answered = answered.filter_map(|(batch, outcome)| Some((batch, outcome.as_ref().ok()?)));
    let each = answered.flat_map(|(batch, answer)| batch.holds().iter().zip(&answer.kept));
    let mend = |(hold, kept): (&Arc<Hold>, &Kept)| match *kept {
        Kept::NotOn(servers) => Some(mend(core, Arc::clone(hold), servers)),
        _ => None,
    };
    join_all(each.filter_map(mend)).await;
}

async fn mend(core: &Core, hold: Arc<Hold>, servers: Servers) {
    let patience = MEND.min(hold.lease() / 8);
    // Whoever changes it now tells all servers anyway.
    let Ok(_changing) = hold.changing.try_lock() else {
        return;
    };
    if let Some(mending) = hold.mending(core.counts_entries()) {
        core.store.mend(mending, servers, patience).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_alike_goes_together_and_never_more_than_fits() {
        let (short, long) = (Duration::from_secs(1), Duration::from_secs(2));
        let all = [(short, 0), (short, 0), (short, 0), (short, 1), (long, 1)];
        let all = all.into_iter().zip(0..).collect();
        let groups: Vec<_> = grouped(all, 2).collect();
        let expected = [
            ((short, 0), vec![0, 1]),
            ((short, 0), vec![2]),
            ((short, 1), vec![3]),
            ((long, 1), vec![4]),
        ];
        assert_eq!(groups, expected);
    }
}
