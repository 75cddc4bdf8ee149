//! Which leader an observer believes in, if any: orders announcements and replies, and decides when to ask the store who
//! leads.

use std::{
    fmt,
    future::pending,
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures_util::stream::{self, Stream};
use rlock_proto::{key::Key, lease::Time, wait::Spread};
use tokio::sync::watch;

use super::{Election, MOST_TIMES, pause_after};
use crate::{
    client::LockClient,
    clock::ClientClock,
    engine::{announcements::HoldListener, queries::info_of},
    error::{ErrorKind, LockError},
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

/// What an observer learns of an election, from [`LeaderChanges::next`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(
    clippy::large_enum_variant,
    reason = "it is read once, and a box would be in the way of a `match`"
)]
pub enum LeaderChange {
    /// This process leads.
    Leader(LeaderInfo),
    /// No process leads.
    Nobody,
}

impl LeaderChange {
    /// Returns the leader, or `None` if no process leads.
    #[must_use]
    pub fn leader(self) -> Option<LeaderInfo> {
        match self {
            Self::Leader(leader) => Some(leader),
            Self::Nobody => None,
        }
    }
}

/// The order of descriptions of leaders: by term, and within a term by the number of values that it has announced.
type Version = (u64, u32);

fn version(info: &LockInfo) -> Option<Version> {
    let values = info.holder.as_ref().map_or(0, |holder| holder.values);
    info.token.map(|term| (term, values))
}

/// After this time without a leader, an observer asks again: a leader that may not list the clients announces nothing.
const VACANT: Duration = Duration::from_secs(30);

/// When an observer asks who leads, and why.
#[derive(Clone, Copy)]
struct Ask {
    at: Time,
    why: Why,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Why {
    /// The lease of the leader ends unless it was renewed.
    Lease,
    /// Messages may have been missed.
    Missed,
    /// The latest term has ended, and the store may not know it yet.
    Ended,
}

/// What an observer knows of an election.
#[derive(Clone)]
struct Observed {
    /// The latest term, as its leader described it, and when that was.
    latest: Option<(LockInfo, SystemTime)>,
    /// Whether the store has said since that no process leads.
    is_vacant: bool,
    ask: Option<Ask>,
    /// The number of reasons to ask so far. A reply settles only the reasons before its question.
    reasons: u64,
    /// How often in a row the store or the leader did not reply.
    failures: u32,
}

impl Observed {
    /// Knows nothing, and asks at once.
    fn new(now: Time) -> Self {
        let ask = Ask {
            at: now,
            why: Why::Missed,
        };
        Self {
            latest: None,
            is_vacant: false,
            ask: Some(ask),
            reasons: 0,
            failures: 0,
        }
    }

    fn version(&self) -> Option<Version> {
        version(&self.latest.as_ref()?.0)
    }

    /// Returns what the observer believes, once it knows anything.
    fn change(&self) -> Option<LeaderChange> {
        if self.is_vacant {
            return Some(LeaderChange::Nobody);
        }
        let (info, at) = self.latest.as_ref()?;
        LeaderInfo::of(info.clone(), *at).map(LeaderChange::Leader)
    }

    /// Asks soon. Until then, the store may release the lock, and a successor announce itself.
    fn doubt(&mut self, why: Why, now: Time) {
        let former = self.ask.map_or(why, |ask| ask.why);
        let ask = Ask {
            at: now + pause_after(0),
            why: why.max(former),
        };
        (self.ask, self.reasons) = (Some(ask), self.reasons + 1);
    }

    /// Handles an announcement. Replaces the latest description if this one is newer. If its term is smaller, the
    /// announcement may be late, the latest term may be forged, or the store may have lost it, so the observer asks who
    /// leads. Returns whether the observer has to act.
    fn hear(&mut self, info: &LockInfo, now: Time) -> bool {
        let Some((term, values)) = version(info) else {
            return false;
        };
        let (latest, latest_values) = self.version().unzip();
        let is_next = Some(term) > latest;
        let is_value = Some(term) == latest && Some(values) > latest_values;
        if is_next || is_value && !self.is_vacant {
            self.latest = Some((info.clone(), SystemTime::now()));
            if is_next || self.ask.is_none_or(|ask| ask.why == Why::Lease) {
                (self.is_vacant, self.ask) = (false, at_end_of_lease(info, now));
            }
        } else if is_value || Some(term) < latest {
            self.doubt(Why::Missed, now);
        } else {
            return false;
        }
        true
    }

    /// Handles the announcement that a term has ended. Returns whether the observer has to act.
    fn ended(&mut self, term: u64, now: Time) -> bool {
        let latest = self.version().map(|(latest, _)| latest);
        let is_news = !self.is_vacant && latest <= Some(term);
        if is_news {
            self.doubt(Why::Ended, now);
        }
        is_news
    }

    /// Handles the reply to the question who leads, which this reason caused when this was known. Ignores it if a leader
    /// was announced since, unless the reply is newer.
    fn learn(
        &mut self,
        before: (Option<Version>, u64, Why),
        reply: Result<Option<LockInfo>, LockError>,
        now: Time,
    ) {
        let (version_then, reasons_then, why) = before;
        let replied = reply.as_ref().ok().and_then(Option::as_ref);
        let replied = replied
            .filter(|info| info.holder.is_some())
            .and_then(version);
        if self.version() != version_then && replied <= self.version() {
            return;
        }
        let failures = self.failures.saturating_add(1);
        let again = |failures| Ask {
            at: now + pause_after(failures),
            why,
        };
        let (failures, ask) = match reply {
            Ok(Some(info)) if info.owner_id().is_some() && !info.retained => {
                let at_end = at_end_of_lease(&info, now);
                let latest = self.latest.as_ref().map(|(latest, _)| &latest.owner);
                let is_announced = latest == Some(&info.owner) && why != Why::Ended;
                if info.holder.is_some() {
                    self.latest = Some((info, SystemTime::now()));
                    self.is_vacant = false;
                    (0, at_end)
                } else if is_announced {
                    // It may be busy or paused.
                    (0, at_end)
                } else {
                    // Only the leader knows the number of its term.
                    let again = again(failures);
                    let is_first = |ask: &Ask| ask.at < again.at;
                    (failures, at_end.filter(is_first).or(Some(again)))
                }
            }
            // The lock is free, other software has written it, or its client only retains it.
            Ok(_) => {
                self.is_vacant = true;
                let again = Ask {
                    at: now + VACANT,
                    why: Why::Missed,
                };
                (0, Some(again))
            }
            Err(error) => {
                tracing::debug!(%error, "could not ask who leads");
                // Only an operator can end a refusal, so asking often is pointless.
                let is_outage = error.kind() == ErrorKind::Outage;
                let failures = if is_outage { failures } else { MOST_TIMES };
                (failures, Some(again(failures)))
            }
        };
        if self.reasons == reasons_then {
            (self.failures, self.ask) = (failures, ask);
        }
    }
}

/// Asks when this lease has ended, but not all observers at once.
fn at_end_of_lease(info: &LockInfo, now: Time) -> Option<Ask> {
    let spread = Spread(fastrand::u64(..)).after_failures(4);
    info.ttl.map(|ttl| Ask {
        at: now + ttl + spread,
        why: Why::Lease,
    })
}

/// Listens for announcements.
struct Ear {
    observed: watch::Sender<Observed>,
    clock: ClientClock,
}

impl HoldListener for Ear {
    fn hear(&self, info: &LockInfo) {
        let now = self.clock.now();
        let hear = |observed: &mut Observed| observed.hear(info, now);
        self.observed.send_if_modified(hear);
    }

    fn ended(&self, token: u64) {
        let now = self.clock.now();
        let end = |observed: &mut Observed| observed.ended(token, now);
        self.observed.send_if_modified(end);
    }

    fn missed(&self) {
        let now = self.clock.now();
        let doubt = |observed: &mut Observed| observed.doubt(Why::Missed, now);
        self.observed.send_modify(doubt);
    }
}

/// Who leads an election, and each change, from [`Election::changes`].
#[must_use = "changes are read with `next`"]
pub struct LeaderChanges {
    election: Election,
    key: Key,
    ear: Arc<Ear>,
    observed: watch::Receiver<Observed>,
    /// What was returned last.
    last: Option<LeaderChange>,
}

impl LeaderChanges {
    /// Follows the election with this key.
    pub(super) fn follow(election: &Election, key: Key) -> Self {
        let core = election.client.core();
        let clock = core.clock.clone();
        let ear = Arc::new(Ear {
            observed: watch::Sender::new(Observed::new(clock.now())),
            clock,
        });
        core.shell.announcements.listen(&key, &ear);
        Self {
            election: election.clone(),
            key,
            observed: ear.observed.subscribe(),
            ear,
            last: None,
        }
    }

    /// Returns who leads at the first call. Later calls wait for a change: for the next term, for another value of the
    /// same one, or until no process leads. A new leader is often returned twice: without its value, and then with it.
    /// Returns `None` when the client is shut down.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses no change.
    pub async fn next(&mut self) -> Option<LeaderChange> {
        let client = self.election.client.clone();
        let next = client.core().in_runtime_until_closed(self.later());
        next.await
    }

    async fn later(&mut self) -> LeaderChange {
        loop {
            let observed = self.observed.borrow_and_update().clone();
            let change = observed.change();
            let is_same = |last: &LeaderChange, change: &LeaderChange| match (last, change) {
                (LeaderChange::Leader(last), LeaderChange::Leader(leader)) => {
                    (last.term, &last.value) == (leader.term, &leader.value)
                }
                (last, change) => last == change,
            };
            if let Some(change) = change
                && !self
                    .last
                    .as_ref()
                    .is_some_and(|last| is_same(last, &change))
            {
                self.last = Some(change.clone());
                return change;
            }
            let ask = async {
                let Some(ask) = observed.ask else {
                    return pending().await;
                };
                self.ear.clock.sleep_until(ask.at).await;
                let leader = Self::ask(&self.election.client, &self.key, &observed, ask.why).await;
                (leader, ask.why)
            };
            let (leader, why) = tokio::select! {
                // The sender lives as long as this receiver.
                _ = self.observed.changed() => continue,
                replied = ask => replied,
            };
            let before = (observed.version(), observed.reasons, why);
            let now = self.ear.clock.now();
            let learn = |observed: &mut Observed| observed.learn(before, leader, now);
            self.ear.observed.send_modify(learn);
        }
    }

    /// Asks the store who has the lock, and that process for its term, unless it has announced it.
    async fn ask(
        client: &LockClient,
        key: &Key,
        known: &Observed,
        why: Why,
    ) -> Result<Option<LockInfo>, LockError> {
        let Some(entry) = client.entry(key).await? else {
            return Ok(None);
        };
        let latest = known.latest.as_ref().map(|(latest, _)| &latest.owner);
        Ok(Some(if why == Why::Lease && latest == Some(&entry.owner) {
            info_of(key, entry)
        } else {
            client.ask_holder(key, entry).await
        }))
    }

    /// Converts these changes into a stream.
    pub fn into_stream(self) -> impl Stream<Item = LeaderChange> + Send {
        stream::unfold(self, async |mut changes| {
            let change = changes.next().await?;
            Some((change, changes))
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

#[cfg(test)]
mod tests {
    use rlock_proto::store::StoredLock;

    use super::*;

    /// The store may have passed the lock to the next candidate.
    #[test]
    fn the_end_of_a_term_does_not_mean_that_nobody_leads() {
        let stored = StoredLock {
            owner: "b9b1a3b0-8a8f-4a43-8d3f-0f5f6f7f8f9f:1".to_owned(),
            count: 1,
            ttl: Some(Duration::from_secs(30)),
            fence: Some(7),
            other_fences: Vec::new(),
            queue: Vec::new(),
            holders: 1,
            permits_taken: 0,
            others: Vec::new(),
        };
        let leader = info_of(&Key::parse("scheduler").expect("valid"), stored);
        let term = leader.token.expect("the store has a fence");
        let now = Time::from_nanos(1);
        let mut observed = Observed::new(now);
        assert!(observed.hear(&leader, now), "it leads");
        assert!(observed.ended(term, now), "the store is asked");
        assert!(observed.change().is_some_and(|it| it.leader().is_some()));
        assert!(observed.ask.is_some_and(|ask| ask.why == Why::Ended));
    }
}
