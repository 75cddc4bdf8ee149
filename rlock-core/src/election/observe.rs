//! Which leader an observer believes: the order of announcements and replies, and when it asks who leads.

use std::{
    fmt,
    future::pending,
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures_util::stream::{self, Stream};
use rlock_proto::key::Key;
use tokio::{sync::watch, time::sleep};

use super::{Election, MOST_TIMES, pause_after};
use crate::{
    engine::announcements::HoldListener,
    error::ErrorKind,
    info::{Holder, LockInfo},
    token::Token,
};

/// A leader, as other processes see it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaderInfo {
    /// The number of the term. If the leader did not reply, it may differ from that of the
    /// [`Term`](crate::election::Term), and is `None` if the store does not know it either. [`LeaderChanges`] yields no
    /// leader without a number.
    pub term: Option<Token>,
    /// The value that the leader has [announced](crate::election::Term::announce).
    pub value: Option<String>,
    /// When its term began, by the clock of this process. `None` if the leader did not reply.
    pub since: Option<SystemTime>,
    /// The leader's process. `None` if it did not reply, because it has ended, is stuck or is cut off. Then no process
    /// succeeds it for the time in [`lease_left`](Self::lease_left), unless it resigns.
    pub holder: Option<Holder>,
    /// The rest of its lease when it replied or made an announcement, or when the store was asked. `None` if the lease has no end,
    /// because other software has written the lock.
    pub lease_left: Option<Duration>,
}

impl LeaderInfo {
    /// Returns the holder of the lock at this time as a leader, unless its client only retains the lock.
    pub(super) fn of(info: LockInfo, at: SystemTime) -> Option<Self> {
        info.owner_id().filter(|_| !info.retained)?;
        let term = info.token();
        let holder = info.holder;
        Some(Self {
            term,
            lease_left: info.ttl,
            value: holder.as_ref().and_then(|holder| holder.value.clone()),
            since: holder
                .as_ref()
                .and_then(|holder| at.checked_sub(holder.held_for)),
            holder,
        })
    }
}

/// What an observer knows of an election.
#[derive(Clone, Default)]
struct Observed {
    /// The latest term, as its leader described it, and when that was.
    latest: Option<(LockInfo, SystemTime)>,
    /// How often messages may have been missed.
    missed: u64,
}

/// The order of descriptions of leaders: by term, and within a term by the number of values that it has announced.
type Version = (u64, u32);

fn version(info: &LockInfo) -> Option<Version> {
    let values = info.holder.as_ref().map_or(0, |holder| holder.values);
    info.token.map(|term| (term, values))
}

impl Observed {
    fn version(&self) -> Option<Version> {
        version(&self.latest.as_ref()?.0)
    }

    /// Handles an announcement. Replaces the latest description if this one is newer. If its term is smaller, the
    /// announcement may be late, the latest term may be forged, or the store may have lost it, so the observer asks who
    /// leads. Returns whether the observer has to act.
    fn hear(&mut self, info: &LockInfo) -> bool {
        let (latest, heard) = (self.version(), version(info));
        if heard > latest {
            self.latest = Some((info.clone(), SystemTime::now()));
        } else if heard
            .zip(latest)
            .is_some_and(|((term, _), (latest, _))| term < latest)
        {
            self.missed += 1;
        } else {
            return false;
        }
        true
    }

    /// Replaces the latest description with the reply of the lock's holder, even if its term is smaller, unless a newer
    /// announcement has arrived since the holder was asked. Returns whether the reply differs.
    fn believe(&mut self, info: LockInfo, latest: Option<Version>) -> bool {
        let (present, told) = (self.version(), version(&info));
        let is_news = told.is_some() && told != present && (present == latest || told > present);
        if is_news {
            self.latest = Some((info, SystemTime::now()));
        }
        is_news
    }
}

impl HoldListener for watch::Sender<Observed> {
    fn hear(&self, info: &LockInfo) {
        self.send_if_modified(|observed| observed.hear(info));
    }

    fn missed(&self) {
        self.send_modify(|observed| observed.missed += 1);
    }
}

/// The leaders of an election, from [`Election::changes`].
#[must_use = "changes are read with `next`"]
pub struct LeaderChanges {
    election: Election,
    /// Listens for announcements.
    listener: Arc<watch::Sender<Observed>>,
    observed: watch::Receiver<Observed>,
    /// The count of missed messages after which the observer has last asked who leads.
    asked: Option<u64>,
    /// How often in a row the store or the leader did not reply.
    failures: u32,
    /// The term and the value that were returned last.
    last: Option<(Option<Token>, Option<String>)>,
}

impl LeaderChanges {
    /// Follows the election with this key.
    pub(super) fn follow(election: &Election, key: &Key) -> Self {
        let listener = Arc::new(watch::Sender::default());
        let core = election.client.core();
        core.shell.announcements.listen(key, &listener);
        Self {
            election: election.clone(),
            observed: listener.subscribe(),
            listener,
            asked: None,
            failures: 0,
            last: None,
        }
    }

    /// Returns the current leader at the first call, or waits for one. Later calls wait for the next term, or for
    /// another value of the same one, so a new leader is often returned twice: without its value, and then with it.
    /// Returns `None` when the client is shut down.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no change.
    pub async fn next(&mut self) -> Option<LeaderInfo> {
        let client = self.election.client.clone();
        let next = client.core().in_runtime_until_closed(self.later());
        next.await
    }

    async fn later(&mut self) -> LeaderInfo {
        let client = &self.election.client;
        loop {
            let observed = self.observed.borrow_and_update().clone();
            let (version, Observed { latest, missed }) = (observed.version(), observed);
            let is_new = |leader: &LeaderInfo| {
                let last = self.last.as_ref();
                last.is_none_or(|(term, value)| (leader.term, &leader.value) != (*term, value))
            };
            let latest = latest.and_then(|(info, at)| LeaderInfo::of(info, at));
            if let Some(leader) = latest.filter(is_new) {
                self.last = Some((leader.term, leader.value.clone()));
                return leader;
            }
            let (is_known, failures) = (self.asked == Some(missed), self.failures);
            let ask = async {
                if is_known {
                    pending::<()>().await;
                } else if failures > 0 {
                    sleep(pause_after(failures)).await;
                }
                client.inspect_holder(self.election.key()).await
            };
            let reply = tokio::select! {
                // The sender lives as long as this receiver.
                _ = self.observed.changed() => continue,
                reply = ask => reply,
            };
            self.failures = match &reply {
                // A leader that does not reply may be busy or paused, or has announced its term. Only the leader knows the
                // number of its term.
                Ok(Some(info)) => {
                    let observed = self.observed.borrow();
                    let announced = observed.latest.as_ref();
                    let is_announced =
                        announced.is_some_and(|(latest, _)| latest.owner == info.owner);
                    let is_answer =
                        info.holder.is_some() || info.owner_id().is_none() || is_announced;
                    if is_answer {
                        0
                    } else {
                        failures.saturating_add(1)
                    }
                }
                Ok(None) => 0,
                Err(error) if error.kind() == ErrorKind::Outage => failures.saturating_add(1),
                // Only an operator can end the refusal, so asking often is pointless.
                Err(_) => MOST_TIMES,
            };
            if self.failures == 0 {
                self.asked = Some(missed);
            }
            match reply {
                Ok(Some(info)) if info.holder.is_some() => {
                    let believe = |observed: &mut Observed| observed.believe(info, version);
                    self.listener.send_if_modified(believe);
                }
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, "could not ask who leads"),
            }
        }
    }

    /// Converts these changes into a stream.
    pub fn into_stream(self) -> impl Stream<Item = LeaderInfo> + Send {
        stream::unfold(self, async |mut changes| {
            let leader = changes.next().await?;
            Some((leader, changes))
        })
    }
}

impl fmt::Debug for LeaderChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut changes = f.debug_struct("LeaderChanges");
        changes
            .field("election", &self.election)
            .field("last", &self.last);
        changes.finish_non_exhaustive()
    }
}
