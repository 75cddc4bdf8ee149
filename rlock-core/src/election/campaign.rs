//! When a candidate asks again: after a loss, and while the store refuses it or does not reply.

use std::{
    collections::BTreeSet,
    future::Future,
    time::{Duration, Instant},
};

use rlock_proto::{key::Key, wait::Spread};

use super::{Election, LeaderGuard, Term, pause_after};
use crate::{
    backoff::Backoff,
    engine::{entries::Entries, shell::AcquiredFor},
    error::{ErrorKind, LockError},
    guard::LockGuard,
    lock::Lock,
    metrics,
    scope::{CurrentHold, current},
    wording::shown,
};

/// A term that lasts no longer than this does not reset the back-off.
pub(super) const BRIEF: Duration = Spread::LONGEST;
/// How many different refusals of a candidate are logged as warnings.
const LOGGED_REFUSALS: usize = 8;

impl Election {
    /// Waits until this process leads. Candidates lead in the order of their calls, except on a quorum.
    ///
    /// The candidacy survives everything that an operator can fix. While the store is down, is full or cannot save, and
    /// while it refuses the candidate, for example because its password has changed or its user lacks a permission,
    /// the candidate asks again after pauses that grow to five seconds. The client logs each different refusal once, at
    /// WARN.
    ///
    /// # Errors
    ///
    /// - [`LockError::Draining`] and [`LockError::Closed`] when the client drains or is shut down.
    /// - [`LockError::InvalidKey`] and [`LockError::InvalidOption`], before any request is sent.
    /// - [`LockError::Upgrade`] inside a shared hold of the same key, and [`LockError::Lost`] inside one that is lost.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future withdraws the candidate.
    ///
    /// # Examples
    ///
    /// ```
    /// # use rlock_core::{LockClient, LockError};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), LockError> {
    /// let election = LockClient::in_memory().election("scheduler");
    /// let leadership = election.campaign().await?;
    /// leadership.announce("10.0.3.7:8080")?;
    /// let leader = election.leader().await?.expect("this process leads");
    /// assert_eq!(leader.value.as_deref(), Some("10.0.3.7:8080"));
    /// leadership.resign().await?;
    /// assert!(election.leader().await?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn campaign(&self) -> impl Future<Output = Result<LeaderGuard, LockError>> + Send + use<> {
        let (acquire, site) = (self.acquire(AcquiredFor::Guard), self.lock.options.site);
        async move {
            let guard = LockGuard::new(acquire.await?);
            let term = Term::begin(&guard, site);
            Ok(LeaderGuard { term, guard })
        }
    }

    /// Waits to lead, until the client drains.
    pub(super) fn acquire(
        &self,
        purpose: AcquiredFor,
    ) -> impl Future<Output = Result<Entries, LockError>> + Send + use<> {
        let candidate = self.clone();
        async move {
            candidate.checked_key()?;
            metrics::Leads::campaigns(candidate.lock.options.site);
            candidate.acquire_uncounted(purpose).await
        }
    }

    /// Waits for the lock, until the client drains: a process that is about to end must not begin a term.
    pub(super) fn acquire_uncounted(
        &self,
        purpose: AcquiredFor,
    ) -> impl Future<Output = Result<Entries, LockError>> + Send + use<> {
        let candidate = self.clone();
        async move {
            let key = candidate.checked_key()?;
            tokio::select! {
                biased;
                () = candidate.client.core().until_draining() => {
                    Err(LockError::Draining { action: format!("acquire lock `{key}`") })
                }
                acquired = candidate.accepted(&key, purpose) => acquired,
            }
        }
    }

    /// Waits to lead. If the store refuses the candidate, asks again, because an operator can end each refusal.
    async fn accepted(&self, key: &Key, purpose: AcquiredFor) -> Result<Entries, LockError> {
        let (mut refusals, mut logged) = (0, BTreeSet::new());
        loop {
            let error = match self.lock.acquire_for(purpose).await {
                Err(error @ LockError::Refused { .. }) => format!("{error:#}"),
                acquired => {
                    if refusals > 0 && acquired.is_ok() {
                        tracing::info!(election = %key, refusals, "the store accepts the candidate again");
                    }
                    return acquired;
                }
            };
            refusals += 1;
            if logged.len() < LOGGED_REFUSALS && logged.insert(error.clone()) {
                tracing::warn!(
                    election = %key, refusals, error,
                    "the store refuses the candidate, asking again until an operator fixes that"
                );
            } else {
                tracing::debug!(election = %key, refusals, error, "the store refuses the candidate again");
            }
            self.client.core().pause(pause_after(refusals)).await;
        }
    }

    /// Campaigns, runs the body while this process leads, and resigns when the body returns. If the leadership is
    /// lost, the body is dropped at its next await, and the process campaigns again after a pause. It also keeps
    /// campaigning while the store does not reply or refuses it, like [`campaign`](Self::campaign).
    ///
    /// Another process can lead only after the body has ended and its values are dropped, as in [`Lock::run`], unless
    /// the leadership is lost first.
    ///
    /// The future resolves to the body's output after the *first* term that ended because the body returned, even if
    /// it returned because the leader was [asked to resign](Self::request_release). A service that keeps running calls
    /// `run` again, which queues it behind the other candidates. If the leadership turns out to be lost when the body
    /// returns, its output is dropped, and the process campaigns again.
    ///
    /// The returned future borrows nothing from the election, so it can be spawned. The body is called for each term,
    /// so a body that owns state has to clone it: `move |term| { let db = db.clone(); async move { … } }`.
    ///
    /// # Errors
    ///
    /// Only errors that neither another attempt nor an operator can fix:
    ///
    /// - of kind [`Closing`](ErrorKind::Closing) when the client drains while this process does not lead, or is shut
    ///   down. If it leads when the client drains, [`release_requested`](crate::Hold::release_requested) resolves, and the body may return its
    ///   output.
    /// - of kind [`Invalid`](ErrorKind::Invalid) or [`Misuse`](ErrorKind::Misuse), as for [`campaign`](Self::campaign).
    ///
    /// # Panics
    ///
    /// Resumes a panic of the body after the process has resigned.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops the body, then resigns in the background.
    pub fn run<B, F>(
        &self,
        mut body: B,
    ) -> impl Future<Output = Result<F::Output, LockError>> + use<B, F>
    where
        B: FnMut(Term) -> F,
        F: Future,
    {
        let election = self.clone();
        async move {
            let site = election.lock.options.site;
            let acquire = || election.acquire(AcquiredFor::Body);
            let body = |hold: &CurrentHold| body(Term::begin(hold, site));
            election.run_after(acquire, body).await
        }
    }

    /// Acquires the lock in this way and runs the body inside, again and again until a body returns.
    pub(super) async fn run_after<A, F>(
        &self,
        acquire: impl Fn() -> A,
        mut body: impl FnMut(&CurrentHold) -> F,
    ) -> Result<F::Output, LockError>
    where
        A: Future<Output = Result<Entries, LockError>> + Send + 'static,
        F: Future,
    {
        let (key, mut backoff) = (self.checked_key()?, Backoff::default());
        loop {
            let mut began = None;
            let led = Lock::run_after(acquire(), async {
                began = Some(Instant::now());
                let hold = current().expect("the body is inside its lock");
                body(&hold).await
            });
            let error = match led.await {
                Ok(output) => return Ok(output),
                Err(error) => error,
            };
            let can_lead_again = matches!(
                error.kind(),
                ErrorKind::Lost | ErrorKind::Outage | ErrorKind::Contention
            );
            if !can_lead_again || self.client.core().is_closed() {
                return Err(error);
            }
            if began.is_some_and(|began| began.elapsed() > BRIEF) {
                backoff = Backoff::default();
            }
            let pause = backoff.next();
            if began.is_some() {
                // The client has logged the loss.
                tracing::info!(election = %key, pause = shown(pause), "campaigning again after a loss");
            }
            self.client.core().pause(pause).await;
        }
    }
}
