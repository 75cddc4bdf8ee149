//! Elections: one of several processes leads, in numbered terms. [`LockClient::election`] begins here.

mod changes;
mod term;

use std::{
    collections::BTreeSet,
    future::Future,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use rlock_proto::{key::Key, wait::Spread};
use tokio::time::sleep;

pub use self::{
    changes::{LeaderChanges, LeaderInfo},
    term::{LeaderGuard, Term},
};
use crate::{
    backoff::Backoff,
    client::LockClient,
    engine::{
        entries::Entries,
        messages::{Answer, Question, Report},
        queries::ask,
        shell::AcquiredFor,
    },
    error::{ErrorKind, LockError},
    guard::LockGuard,
    limits::{MOST_LABELS, OTHER_LABEL},
    lock::Lock,
    metrics,
    scope::current,
};

/// After so many failures in a row, an observer or a candidate asks less often.
const MOST_TIMES: u32 = 10;
const LESS_OFTEN: Duration = Duration::from_secs(5);
/// A term that lasts no longer than this does not reset the back-off.
const BRIEF: Duration = Spread::LONGEST;
/// How many different refusals of a candidate are logged as warnings.
const LOGGED_REFUSALS: usize = 8;

/// Returns the pause after this many failures in a row.
fn pause_after(failures: u32) -> Duration {
    if failures < MOST_TIMES {
        Spread(fastrand::u64(..)).after_failures(failures)
    } else {
        LESS_OFTEN
    }
}

/// Returns the label of an election for metrics, spans and inspection. Labels live for as long as the process, so there
/// is a limit.
fn label(key: &str) -> &'static str {
    static LABELS: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
    let mut labels = LABELS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(label) = labels.get(key) {
        return label;
    }
    if labels.len() >= MOST_LABELS {
        return OTHER_LABEL;
    }
    let label = Box::leak(Box::from(key));
    labels.insert(label);
    label
}

impl LockClient {
    /// Returns a handle to an election. The leader holds the lock of this key exclusively, so commands and metrics show
    /// the election like any other lock.
    ///
    /// # Examples
    ///
    /// ```
    /// # use rlock_core::{LockClient, LockError};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), LockError> {
    /// let client = LockClient::in_memory();
    /// let election = client.election("scheduler");
    /// let rounds = election.run(async |term| {
    ///     // While this body runs, no other process leads.
    ///     println!("leading in term {}", term.token());
    ///     3 // usually an endless loop; when the leadership is lost, it is dropped at its next await
    /// });
    /// assert_eq!(rounds.await?, 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn election(&self, key: impl Into<String>) -> Election {
        // A client that retains its locks would keep one that it has resigned from.
        let lock = self.lock(key).wait_forever().retain(Duration::ZERO);
        let key = self.key(lock.key()).ok().filter(|key| !key.is_hidden());
        Election {
            lock: match key {
                Some(key) => lock.label(label(key.as_str())),
                None => lock,
            },
            client: self.clone(),
        }
    }
}

/// A handle to an election, from [`LockClient::election`]. It can be used any number of times.
///
/// Each leadership is a *term* with a number, its [fencing token](crate::Token), which is larger than
/// that of every earlier term. A process can check whether it leads, but another one may lead a moment later. So a
/// leader that writes to a database should do so with the [fence](crate::Hold::fence) of its term.
#[derive(Clone, Debug)]
#[must_use = "an election does nothing until a process campaigns"]
pub struct Election {
    lock: Lock,
    client: LockClient,
}

impl Election {
    /// Sets the [lease](Lock::lease): how long a leader that has died or is cut off blocks its successor. A leader
    /// that dies right after it has taken over blocks it for a second, even if the lease is shorter.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lock = self.lock.lease(lease);
        self
    }

    /// Limits each term: a leader that still leads after this time loses its leadership, as with [`Lock::max_hold`].
    /// By default, there is no limit, so a body that hangs leads for as long as its process lives.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.lock = self.lock.max_hold(max_hold);
        self
    }

    fn checked_key(&self) -> Result<Key, LockError> {
        self.client.key(self.key())
    }

    /// Returns the key of the lock that the leader holds.
    #[must_use]
    pub fn key(&self) -> &str {
        self.lock.key()
    }

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
        let acquire = self.acquire(AcquiredFor::Guard);
        async move {
            let guard = LockGuard::new(acquire.await?);
            let term = Term::begin(guard.first().clone());
            Ok(LeaderGuard { term, guard })
        }
    }

    /// Waits to lead, until the client drains: a process that is about to end must not begin a term.
    fn acquire(
        &self,
        purpose: AcquiredFor,
    ) -> impl Future<Output = Result<Entries, LockError>> + Send + use<> {
        let candidate = self.clone();
        async move {
            let key = candidate.checked_key()?;
            metrics::Leads::campaigns(candidate.lock.options.site);
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
            // Made when it is polled, because the caller's executor may have no timers.
            let pause = async { sleep(pause_after(refusals)).await };
            self.client.core().in_runtime_until_closed(pause).await;
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
    /// it returned because the leader was [asked to resign](Self::request_resign). A service that keeps running calls
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
    ///   down. If it leads when the client drains, [`Term::resign_requested`] resolves, and the body may return its
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
            let mut backoff = Backoff::default();
            loop {
                let mut began = None;
                let led = Lock::run_after(election.acquire(AcquiredFor::Body), async {
                    began = Some(Instant::now());
                    let hold = current().expect("the body is inside its lock");
                    body(Term::begin(hold.first().clone())).await
                });
                let error = match led.await {
                    Ok(output) => return Ok(output),
                    Err(error) => error,
                };
                let can_lead_again = matches!(
                    error.kind(),
                    ErrorKind::Lost | ErrorKind::Outage | ErrorKind::Contention
                );
                if !can_lead_again || election.client.core().is_closed() {
                    return Err(error);
                }
                if let Some(began) = began {
                    if began.elapsed() > BRIEF {
                        backoff = Backoff::default();
                    }
                    tracing::warn!(
                        error = format!("{error:#}"),
                        "leadership lost, campaigning again"
                    );
                }
                // Made when it is polled, because the caller's executor may have no timers.
                let pause = async { sleep(backoff.next()).await };
                election.client.core().in_runtime_until_closed(pause).await;
            }
        }
    }

    /// Returns the current leader, or `None` if no process leads.
    ///
    /// A leader whose process has ended, is stuck or is cut off has no successor before its lease ends. Until then, it
    /// is returned without its [`holder`](LeaderInfo::holder), and [`lease_left`](LeaderInfo::lease_left) shows how
    /// long that takes.
    ///
    /// # Errors
    ///
    /// Same as [`LockClient::inspect`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    pub async fn leader(&self) -> Result<Option<LeaderInfo>, LockError> {
        let info = self.client.inspect_holder(self.key()).await?;
        Ok(info.and_then(|info| LeaderInfo::of(info, SystemTime::now())))
    }

    /// Follows the election: [`next`](LeaderChanges::next) returns the current leader first, if there is one, and then
    /// each change.
    ///
    /// Leaders announce their terms and values to all clients of the store, so no client polls. A slow reader may
    /// miss terms in between, but never the latest. A client that was cut off asks for the leader when it is
    /// connected again, and leaves out a leader that does not reply until it does. A leader that resigns or dies is
    /// not announced; the next change is its successor.
    ///
    /// A term that ends at once may not be announced. If an announced term is smaller than the latest one, this client
    /// asks for the leader, and returns the reply. So after the store has lost its data, terms may have smaller numbers
    /// than before.
    ///
    /// The messages are not signed, so a user who may publish to the clients' channels can announce a term that no
    /// process leads. An observer sees a forged term, unless its number is 2^53 or more, and the term stays until the
    /// client is connected again or the leader announces a term or a value. [`Election::leader`] is not affected,
    /// because it asks the store, and no message changes a [fence](crate::Hold::fence).
    ///
    /// # Errors
    ///
    /// [`LockError::InvalidKey`] if no lock can have the key of the election.
    ///
    /// # Examples
    ///
    /// ```
    /// # use rlock_core::{LockClient, LockError};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), LockError> {
    /// let election = LockClient::in_memory().election("scheduler");
    /// let mut changes = election.changes()?;
    /// let first = election.campaign().await?;
    /// let leader = changes.next().await.expect("the client is not shut down");
    /// assert_eq!(leader.term, Some(first.token()));
    /// # Ok(())
    /// # }
    /// ```
    pub fn changes(&self) -> Result<LeaderChanges, LockError> {
        let key = self.checked_key()?;
        Ok(LeaderChanges {
            observed: self.client.core().shell.elections.observe(&key),
            election: self.clone(),
            asked: None,
            failures: 0,
            last: None,
        })
    }

    /// Asks the leader to resign after its current work. Returns whether a leader has received the request.
    ///
    /// In the leader, [`Term::resign_requested`] resolves, which it may ignore. To stop the leader's body at its next
    /// await instead, call [`LockClient::revoke`].
    ///
    /// # Errors
    ///
    /// Same as [`LockClient::revoke`].
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the leader may have received the request.
    pub async fn request_resign(&self) -> Result<bool, LockError> {
        let info = self.client.inspect_holder(self.key()).await?;
        let term = info.and_then(|info| Some((info.owner_id()?, info.token?)));
        let Some((owner, token)) = term else {
            return Ok(false);
        };
        let key = self.checked_key()?;
        let question = Question::Resign {
            key: key.clone(),
            owner,
            token,
        };
        let core = self.client.core();
        let asked = ask(core, owner.client(), &question);
        let action = || format!("ask the leader of `{key}` to resign");
        let reply = self.client.ask(asked, action).await?;
        Ok(reply == Some(Report::Released(Answer::Released)))
    }
}
