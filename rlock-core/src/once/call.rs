//! Decides whether a call runs its tick: acquires the lock of the tick, or finds that another call has it or has done it.

use std::{
    future::{Future, pending},
    time::{Duration, SystemTime},
};

use rlock_proto::{lease::Time, machine::HoldEnd, options::Wait};

use super::Job;
use crate::{
    engine::{call_chain, entries::Entries, entry::EntryHandle, shell::AcquiredFor},
    error::LockError,
    info::LockInfo,
    lock::Lock,
};

/// The pause between two looks at a tick that another call has.
const LOOK: Duration = Duration::from_secs(1);

/// Why a call does not run its tick. [`Once`](super::Once) says what each reason means.
pub(super) enum NotRun {
    Done,
    Taken(Box<LockInfo>),
    Missed,
}

/// The entries of the call that runs the tick, or why it does not.
type Claimed = Result<Entries, NotRun>;

/// A call for a tick.
pub(super) struct Call {
    job: Job,
    purpose: AcquiredFor,
}

impl Call {
    /// Claims the tick for a call that begins now.
    pub(super) fn claim(
        job: Job,
        purpose: AcquiredFor,
    ) -> impl Future<Output = Result<Claimed, LockError>> + Send + use<> {
        // Boxed, because each caller's future would otherwise be as large as this one.
        Box::pin(async move {
            let now = job.client.core().clock.time_of_day();
            job.schedule.check(now, job.again)?;
            let (lock, call) = (lock_of(&job, now), Self { job, purpose });
            if call.job.again {
                call.claim_again(&lock).await
            } else {
                call.claim_in_window(&lock).await
            }
        })
    }

    async fn claim_in_window(&self, lock: &Lock) -> Result<Claimed, LockError> {
        while !self.is_over() {
            let acquired = tokio::select! {
                biased;
                acquired = self.acquire(lock) => acquired?,
                () = self.done(), if self.job.retry => None,
            };
            if let Some(mut entries) = acquired {
                if !self.is_over() {
                    return Ok(Ok(self.granted(entries)));
                }
                entries.ends_by(HoldEnd::Failed);
                // The lock ends with its lease if the store does not confirm this.
                let _ = entries.release().await;
            } else if let Some(refused) = self.refused(lock.key()).await? {
                return Ok(Err(refused));
            } else {
                // The lock is free again, so the call that had it has not run the tick.
                self.pause().await;
            }
        }
        let refused = self.refused(lock.key()).await?;
        Ok(Err(refused.unwrap_or(NotRun::Missed)))
    }

    /// Claims a tick that may be done.
    ///
    /// A second key excludes other calls with `again`. The lock of a done tick stays taken, so that no call without `again`
    /// runs the tick at the same time. Ending its `min_hold` by force could take it from a call that has just begun.
    async fn claim_again(&self, lock: &Lock) -> Result<Claimed, LockError> {
        let again = self.job.client.lock(format!("{}:again", lock.key()));
        let mut again = again.lease(self.job.lock.options.lease);
        again.options.site = self.job.lock.options.site;
        let claim = self.claim_by_hand(&again).await?;
        if claim.is_ok() && !self.is_done().await? {
            return self.claim_by_hand(lock).await;
        }
        Ok(claim)
    }

    async fn claim_by_hand(&self, lock: &Lock) -> Result<Claimed, LockError> {
        loop {
            if let Some(entries) = self.acquire_within(lock, Wait::Never).await? {
                return Ok(Ok(self.granted(entries)));
            }
            if let Some(refused) = self.refused(lock.key()).await? {
                return Ok(Err(refused));
            }
            self.pause().await;
        }
    }

    fn granted(&self, mut entries: Entries) -> Entries {
        if !self.job.retry {
            entries.keep_anyway();
        }
        entries
    }

    /// Acquires the lock. With `retry`, waits for it within the window, even during an outage. Returns `None` if another
    /// call has it.
    async fn acquire(&self, lock: &Lock) -> Result<Option<Entries>, LockError> {
        match self.acquire_within(lock, Wait::Never).await {
            Ok(None) if self.job.retry => {
                tracing::info!(
                    key = self.shown(),
                    "waiting, because another call has the tick"
                );
            }
            Err(error) if self.job.retry && error.is_outage() => {
                tracing::warn!(
                    error = format!("{error:#}"),
                    "waiting for the store until the window of the tick ends"
                );
            }
            attempted => return attempted,
        }
        let left = self.job.schedule.left(self.now(), 1);
        self.acquire_within(lock, Wait::For(left)).await
    }

    /// Acquires the lock, or returns `None` if another call has it. A call inside the run of the same tick would re-enter its
    /// lock, so it does not try.
    async fn acquire_within(&self, lock: &Lock, wait: Wait) -> Result<Option<Entries>, LockError> {
        let client = self.job.client.core().id;
        let is_it = |hold: &EntryHandle| hold.core().id == client && hold.key() == lock.key();
        if call_chain::holds().iter().any(is_it) {
            return Ok(None);
        }
        let mut lock = lock.clone();
        lock.options.wait = wait;
        match lock.acquire_for(self.purpose).await {
            Ok(entries) => Ok(Some(entries)),
            Err(LockError::Taken { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns which other call has the lock, or `None` if it is free.
    ///
    /// A call that acquires the lock too late releases it at once and runs nothing, so a holder counts only if it still has
    /// the lock after a pause. With `retry`, a holder that does not reply has to renew its lease: a process that died has
    /// not done the tick. Each call acquires the lock only once, so this loop ends.
    async fn refused(&self, key: &str) -> Result<Option<NotRun>, LockError> {
        let clock = &self.job.client.core().clock;
        let mut first: Option<(String, Time)> = None;
        loop {
            let asked = clock.now();
            let Some(info) = self.job.client.inspect(key).await? else {
                return Ok(None);
            };
            if is_record(&info) {
                return Ok(Some(NotRun::Done));
            }
            let may_be_dead = self.job.retry && info.holder.is_none();
            match &first {
                Some((owner, lease_end)) if *owner == info.owner => {
                    if !may_be_dead || asked > *lease_end {
                        return Ok(Some(NotRun::Taken(Box::new(info))));
                    }
                }
                _ => {
                    tracing::info!(
                        key = self.shown(),
                        owner = info.owner,
                        "looking again, because another call has the lock of the tick"
                    );
                    first = Some((info.owner, clock.now() + info.ttl.unwrap_or_default()));
                }
            }
            self.pause().await;
        }
    }

    /// Resolves when another call has done the tick. Asks again during an outage.
    async fn done(&self) {
        while !matches!(self.is_done().await, Ok(true)) {
            self.pause().await;
            if self.job.client.core().is_closed() {
                // Without this, the loop would never wait again. The acquire beside it ends the call.
                pending::<()>().await;
            }
        }
    }

    async fn is_done(&self) -> Result<bool, LockError> {
        let info = self.job.client.inspect_holder(self.job.key()).await?;
        Ok(info.is_some_and(|info| is_record(&info)))
    }

    fn is_over(&self) -> bool {
        self.job.schedule.is_over(self.now())
    }

    fn now(&self) -> SystemTime {
        self.job.client.core().clock.time_of_day()
    }

    async fn pause(&self) {
        self.job.client.core().pause(LOOK).await;
    }

    /// Returns the key of the tick for a log line.
    fn shown(&self) -> Option<&str> {
        let is_hidden = self.job.client.core().options.redact_keys;
        (!is_hidden).then(|| self.job.key())
    }
}

/// Returns whether the lock is the record of a run. The servers of a quorum also keep a released lock for some milliseconds,
/// until its waiters have heard of it.
fn is_record(info: &LockInfo) -> bool {
    info.is_kept() && info.ttl.is_some_and(|ttl| ttl >= LOOK)
}

/// Returns the lock of the tick, for a call at this time.
fn lock_of(job: &Job, now: SystemTime) -> Lock {
    let lock = job.lock.clone().min_hold(job.schedule.record(now));
    if job.retry {
        return lock;
    }
    // The tick also counts as done if this process dies.
    let lease = lock.options.lease.max(job.schedule.left(now, 2));
    lock.lease(lease)
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, thread};

    use futures_util::FutureExt;

    use super::*;
    use crate::LockClient;

    /// On a thread of its own, because a future that never waits does not return from its poll.
    #[test]
    fn a_call_that_looks_for_the_run_of_another_returns_from_its_poll_after_shutdown() {
        let client = LockClient::in_memory();
        let job = client.once("report", SystemTime::now()).retry();
        client.core().close();
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            let purpose = AcquiredFor::Guard;
            let is_done = Call { job, purpose }.done().now_or_never().is_some();
            let _ = sender.send(is_done);
        });
        let is_done = receiver.recv_timeout(Duration::from_secs(30));
        assert_eq!(is_done, Ok(false));
    }
}
