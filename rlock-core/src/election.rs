//! Elections: one of several processes leads.

use std::{
    fmt,
    future::{Future, pending},
    time::{Duration, Instant, SystemTime},
};

use futures_util::stream::{self, Stream};
use tokio::{sync::watch, time::sleep};

use crate::{
    client::LockClient,
    engine::{
        elections::{Observed, Office},
        entry::EntryHandle,
        messages::{Answer, Question, Report},
        queries::ask,
        shell::AcquiredFor,
    },
    error::{ErrorKind, LockError, LostCause},
    fencing::{Fence, only_fence},
    guard::LockGuard,
    info::{Holder, LockInfo},
    key::Key,
    limits::MAX_VALUE,
    lock::Lock,
    metrics,
    scope::current,
    wait::{Backoff, Spread},
};

/// A leader that has not replied this many times is asked less often.
const MOST_TIMES: u32 = 10;
const LESS_OFTEN: Duration = Duration::from_secs(5);
/// A term that lasts no longer than this does not reset the back-off.
const BRIEF: Duration = Spread::LONGEST;

impl LockClient {
    /// Returns a handle to an election. The leader holds the lock of this name exclusively, so the name follows the
    /// rules for keys, and commands and metrics show it like any other lock.
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
    pub fn election(&self, name: impl Into<String>) -> Election {
        Election {
            // A client that retains its locks would keep one that it has resigned from.
            lock: self.lock(name).wait_forever().retain(Duration::ZERO),
            client: self.clone(),
        }
    }
}

/// A handle to an election, from [`LockClient::election`]. It can be used any number of times.
///
/// Each leadership is a *term* with a number, its [fencing token](LockGuard::fencing_token), which is larger than
/// that of every earlier term. A process can check whether it leads, but another one may lead a moment later. So a
/// leader that writes to a database should do so with the [fence](Term::fence) of its term.
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

    fn key(&self) -> Result<Key, LockError> {
        self.client.key(self.name())
    }

    /// Returns the name of the election.
    #[must_use]
    pub fn name(&self) -> &str {
        self.lock.key()
    }

    /// Waits until this process leads. Candidates lead in the order of their calls, except on a quorum.
    ///
    /// # Errors
    ///
    /// Same as [`Lock::acquire`], except `Timeout`.
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
    /// leadership.term().announce("10.0.3.7:8080")?;
    /// let leader = election.leader().await?.expect("this process leads");
    /// assert_eq!(leader.value.as_deref(), Some("10.0.3.7:8080"));
    /// leadership.resign().await?;
    /// assert!(election.leader().await?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    pub fn campaign(&self) -> impl Future<Output = Result<Leadership, LockError>> + Send + use<> {
        let acquire = self.acquire(AcquiredFor::Guard);
        async move {
            let guard = acquire.await?;
            let term = Term::begin(guard.entry().clone());
            Ok(Leadership { term, guard })
        }
    }

    /// Waits to lead, until the client drains: a process that is about to end must not begin a term.
    fn acquire(
        &self,
        purpose: AcquiredFor,
    ) -> impl Future<Output = Result<LockGuard, LockError>> + Send + use<> {
        let (acquire, client) = (self.lock.acquire_for(purpose), self.client.clone());
        let key = self.key();
        async move {
            let _ = key.as_ref().map(metrics::Leads::campaigns);
            tokio::select! {
                biased;
                () = client.core().until_draining() => Err(LockError::Draining { action: format!("acquire lock `{}`", key?) }),
                acquired = acquire => acquired,
            }
        }
    }

    /// Campaigns, runs the body while this process leads, and resigns when the body returns. If the leadership is
    /// lost, the body is dropped at its next await, and the process campaigns again after a pause. It also keeps
    /// campaigning while the store does not reply.
    ///
    /// Another process can lead only after the body has ended and its values are dropped, as in [`Lock::run`], unless
    /// the leadership is lost first.
    ///
    /// If the leadership turns out to be lost when the body returns, its output is dropped, and the process campaigns again.
    ///
    /// The returned future borrows nothing from the election, so it can be spawned. The body is called for each term,
    /// so a body that owns state has to clone it: `move |term| { let db = db.clone(); async move { … } }`.
    ///
    /// # Errors
    ///
    /// Only errors that another attempt cannot solve: the client is shut down or drained, an option is out of bounds,
    /// or the store refuses the request.
    ///
    /// # Panics
    ///
    /// If the body panics, the panic resumes after the process has resigned.
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
                    body(Term::begin(hold.entry().clone())).await
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

    /// Returns the current leader, or `None` if there is none.
    ///
    /// # Errors
    ///
    /// Same as [`LockClient::inspect`].
    pub async fn leader(&self) -> Result<Option<Leader>, LockError> {
        let info = self.client.inspect_holder(self.name()).await?;
        Ok(info.and_then(|info| Leader::of(info, SystemTime::now())))
    }

    /// Follows the election: yields the current leader first, if there is one, and then each change.
    ///
    /// Leaders announce their terms and values to all clients of the store, so no client polls. A slow reader may
    /// miss terms in between, but never the latest. A client that was cut off asks for the leader when it is
    /// connected again, and leaves out a leader that does not reply until it does. A leader that resigns or dies is
    /// not announced; the next change is its successor.
    ///
    /// A term that ends at once may not be announced. The messages are not signed, so a user who may publish to the
    /// clients' channels can announce a term that no process leads. That hides terms with smaller numbers from this
    /// client until it has dropped all [`Changes`] of the election. [`Election::leader`] is not affected, because it
    /// asks the store, and no message changes a [fence](Term::fence).
    ///
    /// # Errors
    ///
    /// [`LockError::InvalidKey`] if no lock can have the name of the election.
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
    /// assert_eq!(leader.term, first.term().token());
    /// # Ok(())
    /// # }
    /// ```
    pub fn changes(&self) -> Result<Changes, LockError> {
        let key = self.key()?;
        Ok(Changes {
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
    /// await instead, call [`LockClient::ask_release`].
    ///
    /// # Errors
    ///
    /// Same as [`LockClient::ask_release`].
    pub async fn request_resign(&self) -> Result<bool, LockError> {
        let info = self.client.inspect_holder(self.name()).await?;
        let term = info.and_then(|info| Some((info.owner_id()?, info.token?)));
        let Some((owner, token)) = term else {
            return Ok(false);
        };
        let key = self.key()?;
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

/// A leadership, from [`Election::campaign`]. Dropping it resigns in the background.
#[must_use = "if unused, the process resigns at once"]
pub struct Leadership {
    term: Term,
    guard: LockGuard,
}

impl Leadership {
    /// Returns the term in which this process leads.
    #[must_use]
    pub fn term(&self) -> &Term {
        &self.term
    }

    /// Returns the guard of the lock by which this process leads.
    pub fn guard(&self) -> &LockGuard {
        &self.guard
    }

    /// Resolves to the cause when the leadership is lost, like [`LockGuard::lost`].
    pub async fn lost(&self) -> LostCause {
        self.guard.lost().await
    }

    /// Resigns, so that the next candidate leads.
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`] if the leadership was lost before. Otherwise as [`LockGuard::release`].
    ///
    /// # Cancel safety
    ///
    /// Same as [`LockGuard::release`].
    pub async fn resign(self) -> Result<(), LockError> {
        self.guard.release().await
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Leadership").field(&self.guard).finish()
    }
}

/// A term in which this process leads. The handle can be sent to other tasks, and does not prolong the term.
#[derive(Clone)]
pub struct Term(EntryHandle);

impl Term {
    /// Begins a term of this client, and announces it.
    fn begin(entry: EntryHandle) -> Self {
        let term = Self(entry);
        term.office();
        // A hold that ended before it had an office did not end the office.
        if term.0.left().or_else(|| term.0.broken()).is_some() {
            term.office().ends();
        }
        term.0.core().shell.elections.announce(&term.0.hold);
        term
    }

    fn office(&self) -> &Office {
        self.0
            .hold
            .office
            .get_or_init(|| Box::new(Office::new(&self.0.hold.key)))
    }

    /// Returns the number of the term: its fencing token.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.0.token()
    }

    /// Returns the fence, with which a database can refuse the writes of a former leader, as
    /// [`fencing`](crate::fencing) describes.
    #[must_use]
    pub fn fence(&self) -> Fence {
        only_fence([&self.0].into_iter())
    }

    /// Returns whether this process still leads. Reads the clock, so the result is right even after a pause of the whole
    /// process.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.0.left().is_none() && !self.0.valid_for().is_zero()
    }

    /// Resolves to the cause when the term has ended: [`LostCause::Released`] after the process has resigned.
    pub async fn lost(&self) -> LostCause {
        self.0.lost().await
    }

    /// Announces a value of at most 1,024 bytes, such as the address of this process, to all observers of the
    /// election. The value belongs to the term. A later value replaces it, and an empty one withdraws it.
    ///
    /// # Errors
    ///
    /// [`LockError::InvalidOption`] if the value is too long. [`LockError::Lost`] if the term has ended.
    pub fn announce(&self, value: impl Into<String>) -> Result<(), LockError> {
        let value = value.into();
        if value.len() > MAX_VALUE {
            let length = format!("of {} bytes", value.len());
            let reason = "a leader announces at most 1,024 bytes: announce an address, and serve the rest there";
            return Err(LockError::invalid_option("announce", length, reason));
        }
        if let Some(cause) = self.0.left().or_else(|| self.0.broken()) {
            return Err(self.0.lost_error(cause));
        }
        self.office().announce(value);
        self.0.core().shell.elections.announce(&self.0.hold);
        Ok(())
    }

    /// Resolves when another client has [asked](Election::request_resign) this leader to resign, or its own client
    /// [drains](LockClient::drain). Finish the current work, then return from the body, or call
    /// [`Leadership::resign`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect, because once the leader is asked to resign, each later call resolves at
    /// once.
    pub async fn resign_requested(&self) {
        tokio::select! {
            () = self.office().resign.wait() => {}
            () = self.0.core().until_draining() => {}
        }
    }
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Term").field(&self.token()).finish()
    }
}

/// A leader, as other processes see it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// The number of the term. If the leader did not reply, it may differ from that of the [`Term`].
    pub term: u64,
    /// The value that the leader has [announced](Term::announce).
    pub value: Option<String>,
    /// When its term began, by the clock of this process. `None` if the leader did not reply.
    pub since: Option<SystemTime>,
    /// The leader's process. `None` if it did not reply.
    pub holder: Option<Holder>,
}

impl Leader {
    /// Returns the leader that the holder of the lock was at this time. A client that only retains the lock does not lead.
    fn of(info: LockInfo, at: SystemTime) -> Option<Self> {
        info.owner_id().filter(|_| !info.retained)?;
        let holder = info.holder;
        Some(Self {
            term: info.token?,
            value: holder.as_ref().and_then(|holder| holder.value.clone()),
            since: holder
                .as_ref()
                .and_then(|holder| at.checked_sub(holder.held_for)),
            holder,
        })
    }
}

/// The leaders of an election, from [`Election::changes`].
#[must_use = "changes are read with `next`"]
pub struct Changes {
    election: Election,
    observed: watch::Receiver<Observed>,
    /// The count of missed messages after which the client has last asked who leads.
    asked: Option<u64>,
    /// How often in a row the store or the leader did not reply.
    failures: u32,
    /// The term and the value that were returned last.
    last: Option<(u64, Option<String>)>,
}

impl Changes {
    /// Returns the current leader at the first call. Later calls wait for the next term, or for another value of the
    /// same one. Returns `None` when the client is shut down.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no change.
    pub async fn next(&mut self) -> Option<Leader> {
        let client = self.election.client.clone();
        let next = client.core().in_runtime_until_closed(self.later());
        next.await
    }

    async fn later(&mut self) -> Leader {
        let client = &self.election.client;
        loop {
            let Observed { latest, missed } = self.observed.borrow_and_update().clone();
            let is_new = |leader: &Leader| {
                self.last.as_ref().is_none_or(|(term, value)| {
                    leader.term > *term || leader.term == *term && leader.value != *value
                })
            };
            let latest = latest.and_then(|(info, at)| Leader::of(info, at));
            if let Some(leader) = latest.filter(is_new) {
                self.last = Some((leader.term, leader.value.clone()));
                return leader;
            }
            let (is_known, failures) = (self.asked == Some(missed), self.failures);
            let ask = async {
                match failures {
                    _ if is_known => pending().await,
                    0 => {}
                    1..MOST_TIMES => {
                        sleep(Spread(fastrand::u64(..)).after_failures(failures)).await;
                    }
                    _ => sleep(LESS_OFTEN).await,
                }
                client.inspect_holder(self.election.name()).await
            };
            let reply = tokio::select! {
                // The sender is there for as long as a receiver is.
                _ = self.observed.changed() => continue,
                reply = ask => reply,
            };
            let is_answer = match &reply {
                // A leader that does not reply may be busy or paused, or has announced its term. Only the leader knows the
                // number of its term.
                Ok(Some(info)) => {
                    let observed = self.observed.borrow();
                    let announced = observed.latest.as_ref();
                    let is_announced =
                        announced.is_some_and(|(latest, _)| latest.owner == info.owner);
                    info.holder.is_some() || info.owner_id().is_none() || is_announced
                }
                Ok(None) => true,
                Err(error) => error.kind() != ErrorKind::Outage,
            };
            if is_answer {
                (self.asked, self.failures) = (Some(missed), 0);
            } else {
                self.failures = failures.saturating_add(1);
            }
            match reply {
                Ok(Some(info)) if info.holder.is_some() => {
                    client.core().shell.elections.learn(info);
                }
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, "could not ask who leads"),
            }
        }
    }

    /// Converts these changes into a stream.
    pub fn into_stream(self) -> impl Stream<Item = Leader> + Send {
        stream::unfold(self, async |mut changes| {
            let leader = changes.next().await?;
            Some((leader, changes))
        })
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut changes = f.debug_struct("Changes");
        changes
            .field("election", &self.election)
            .field("last", &self.last);
        changes.finish_non_exhaustive()
    }
}
