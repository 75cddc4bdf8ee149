//! Leaders as other processes observe them: the current one, and each change.

use std::{
    fmt,
    future::pending,
    time::{Duration, SystemTime},
};

use futures_util::stream::{self, Stream};
use tokio::{sync::watch, time::sleep};

use super::{Election, MOST_TIMES, pause_after};
use crate::{
    engine::elections::Observed,
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

/// The leaders of an election, from [`Election::changes`].
#[must_use = "changes are read with `next`"]
pub struct LeaderChanges {
    pub(super) election: Election,
    pub(super) observed: watch::Receiver<Observed>,
    /// The count of missed messages after which the client has last asked who leads.
    pub(super) asked: Option<u64>,
    /// How often in a row the store or the leader did not reply.
    pub(super) failures: u32,
    /// The term and the value that were returned last.
    pub(super) last: Option<(Option<Token>, Option<String>)>,
}

impl LeaderChanges {
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
                // The sender is there for as long as a receiver is.
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
                    client.core().shell.elections.believe(info, version);
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
