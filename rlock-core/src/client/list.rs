//! Lists all locks that are held in a store, page by page.

use std::{
    collections::{HashSet, VecDeque},
    mem,
    pin::Pin,
    task::{Context, Poll},
};

use futures_util::{
    FutureExt, Stream, StreamExt,
    future::{BoxFuture, join_all},
    stream::{self, BoxStream},
};
use rlock_proto::{key::Key, mode::LockMode, owner::OwnerId};
use uuid::Uuid;

use super::LockClient;
use crate::{
    engine::{
        core::Core,
        driver::ClientHandle,
        messages::{Question, Report},
        queries::{ask, info_of, texts},
    },
    error::LockError,
    info::LockInfo,
    limits, pattern,
    store::{SendOptions, StoreError, directory::Cursor},
};

/// How many clients are asked, and locks inspected, at once.
const AT_ONCE: usize = 64;

/// The approximate number of keys in each part of a scan.
const KEYS_OF_PART: usize = 1000;

impl LockClient {
    /// Lists the locks that are held or retained, with their holders.
    ///
    /// In the pattern, `*` stands for any text, `?` for one character, and `\` takes the character after it
    /// literally. The client asks all clients of the store with the same [prefix](crate::LockClientBuilder::prefix),
    /// which costs the store two messages for each client and each two hundred locks, and one request for each lock
    /// that other clients wait for. Locks of clients that do not reply within a second and locks whose guards were
    /// [detached](crate::LockGuard::detach) are missing, unless the list also [scans](LockList::scan) the store.
    /// [`missed`](LockList::missed) counts such clients.
    ///
    /// The request also reaches clients of other databases of the server, because channels have no
    /// database. Their locks are not listed, but [`missed`](LockList::missed) counts those that do not
    /// reply.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rlock_core::LockError> {
    /// let client = rlock_core::LockClient::in_memory();
    /// let held = client.lock("order:42").acquire().await?;
    /// let mut locks = client.list("order:*");
    /// while let Some(info) = locks.try_next().await? {
    ///     assert_eq!(info.key, "order:42");
    /// }
    /// # drop(held);
    /// # Ok(())
    /// # }
    /// ```
    pub fn list(&self, pattern: impl Into<String>) -> LockList {
        let search = Search {
            client: self.clone(),
            pattern: pattern.into(),
            step: ListStep::Begin,
            scan: Scan::None,
            scanned: 0,
            found: VecDeque::new(),
            seen: HashSet::new(),
            seen_owners: HashSet::new(),
            progress: Progress::default(),
        };
        LockList {
            scan: search.scan,
            found: VecDeque::new(),
            progress: search.progress,
            state: ListState::Idle(Box::new(search)),
        }
    }
}

/// The locks that are held, from [`LockClient::list`]: a stream, which ends after the last lock or with an error. The order
/// is not specified, and the list is not a snapshot.
///
/// # Errors
///
/// [`LockError::Unavailable`] if the store does not reply. [`LockError::Refused`] if it refuses: a user needs
/// `+pubsub|channels` and `+publish` to list, and `+scan` to scan. [`LockError::InvalidOption`] for a pattern of more
/// than 2,048 bytes, [`LockError::Closed`] after shutdown.
#[must_use = "a list sends no request until it is polled"]
pub struct LockList {
    scan: Scan,
    /// What the last step has found.
    found: VecDeque<LockInfo>,
    /// As of the last step.
    progress: Progress,
    state: ListState,
}

enum ListState {
    Idle(Box<Search>),
    Running(BoxFuture<'static, (Box<Search>, Result<bool, LockError>)>),
    /// The error is reported after what the failed step has found.
    Ended(Option<LockError>),
}

#[derive(Clone, Copy, Default)]
struct Progress {
    missed: usize,
    lost: u64,
    is_complete: bool,
}

/// The search for locks, which the running step owns.
struct Search {
    client: LockClient,
    pattern: String,
    step: ListStep,
    scan: Scan,
    /// How many parts of the store were scanned.
    scanned: usize,
    found: VecDeque<LockInfo>,
    /// The keys of exclusive locks that were listed, and all keys of the scan.
    seen: HashSet<String>,
    /// The owners that were listed of other locks, if the list scans.
    seen_owners: HashSet<OwnerId>,
    progress: Progress,
}

/// How much of the store is scanned.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scan {
    None,
    /// At most this many parts of about a thousand keys.
    Parts(usize),
    All,
}

impl Scan {
    /// Returns whether a scan goes on after this many parts.
    fn goes_on(self, scanned: usize) -> bool {
        match self {
            Self::None => false,
            Self::Parts(most) => scanned < most,
            Self::All => true,
        }
    }
}

enum ListStep {
    Begin,
    Clients(ClientParts),
    Scan(Cursor),
    End,
}

impl LockList {
    /// Also finds the locks whose clients do not reply, by a scan of all keys on the store. Off by
    /// default.
    ///
    /// The scan takes one request for each thousand keys that the servers have, locks or not, and one
    /// for each lock that it finds. Those locks have no [`holder`](LockInfo::holder). Locks may be
    /// missing if a cluster fails over or moves slots during the scan.
    pub fn scan(mut self, enabled: bool) -> Self {
        self.scan = if enabled { Scan::All } else { Scan::None };
        self
    }

    /// Scans like [`scan`](Self::scan), but at most about this many keys, so that the list finds all locks on a store
    /// with few keys and costs little on one with many. Scans nothing if the server's user may not scan.
    pub fn scan_at_most(mut self, keys: usize) -> Self {
        self.scan = match keys.div_ceil(KEYS_OF_PART) {
            0 => Scan::None,
            parts => Scan::Parts(parts),
        };
        self
    }

    /// Returns whether a scan has seen all keys on the store. Otherwise locks without a
    /// [`holder`](LockInfo::holder) may be missing, and so may those that [`min_hold`](crate::Lock::min_hold) keeps.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.progress.is_complete
    }

    /// Returns how many clients did not reply so far, plus how many locks the scan found and could not
    /// inspect. If it is not zero, the list may be incomplete.
    #[must_use]
    pub fn missed(&self) -> usize {
        self.progress.missed
    }

    /// Returns how many locks the clients that replied so far have lost since they started. Locks that
    /// do not match the pattern count, too.
    #[must_use]
    pub fn lost_locks(&self) -> u64 {
        self.progress.lost
    }

    /// Returns the next lock, or `None` after the last one or after an error. Same as `TryStreamExt::try_next`, for
    /// programs that do not use the crate `futures`.
    ///
    /// # Errors
    ///
    /// Same as the [list](Self).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future skips no lock: the next call continues.
    pub async fn try_next(&mut self) -> Result<Option<LockInfo>, LockError> {
        self.next().await.transpose()
    }
}

impl Stream for LockList {
    type Item = Result<LockInfo, LockError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(info) = self.found.pop_front() {
                return Poll::Ready(Some(Ok(info)));
            }
            self.state = match mem::replace(&mut self.state, ListState::Ended(None)) {
                ListState::Idle(mut search) => {
                    search.scan = self.scan;
                    ListState::Running(search.run().boxed())
                }
                ListState::Running(mut step) => {
                    let Poll::Ready((mut search, more)) = step.as_mut().poll(cx) else {
                        self.state = ListState::Running(step);
                        return Poll::Pending;
                    };
                    self.found = mem::take(&mut search.found);
                    self.progress = search.progress;
                    match more {
                        Ok(true) => ListState::Idle(search),
                        more => ListState::Ended(more.err()),
                    }
                }
                ListState::Ended(error) => return Poll::Ready(error.map(Err)),
            }
        }
    }
}

impl Search {
    /// Makes one step. Returns whether there are more.
    async fn run(mut self: Box<Self>) -> (Box<Self>, Result<bool, LockError>) {
        if let Err(error) = limits::pattern(&self.pattern) {
            return (self, Err(error));
        }
        let client = self.client.clone();
        let action = || "list the locks that are held".to_owned();
        let more = client.ask(self.advance(), action).await;
        (self, more)
    }

    /// Records a listed lock, so that the scan skips it.
    fn note(&mut self, info: &LockInfo) {
        match (info.mode(), info.owner_id()) {
            (LockMode::Shared | LockMode::Permits { .. }, Some(owner)) => {
                self.seen_owners.insert(owner);
            }
            _ => {
                self.seen.insert(info.key.clone());
            }
        }
    }

    /// Returns a scanned lock without the holders that have replied.
    fn silent(&self, info: LockInfo) -> Option<LockInfo> {
        let owner = OwnerId::parse(&info.owner);
        let others = info
            .other_owners
            .iter()
            .filter_map(|name| OwnerId::parse(name));
        let all: Vec<OwnerId> = owner.into_iter().chain(others).collect();
        let is_silent = |owner: &&OwnerId| !self.seen_owners.contains(owner);
        let silent: Vec<OwnerId> = all.iter().filter(is_silent).copied().collect();
        if silent.len() == all.len() {
            return Some(info);
        }
        let (first, others) = silent.split_first()?;
        let taken = |owners: &[OwnerId]| -> u64 {
            let each = owners.iter().map(|owner| owner.mode().permits_taken());
            each.map(u64::from).sum()
        };
        Some(LockInfo {
            owner: first.to_string(),
            holder_count: info.holder_count - (all.len() - silent.len()),
            permits_taken: info
                .permits_taken
                .saturating_sub(taken(&all) - taken(&silent)),
            other_owners: texts(others),
            ..info
        })
    }

    /// Finds more locks. Returns `false` after the last.
    async fn advance(&mut self) -> Result<bool, StoreError> {
        let client = self.client.clone();
        let core = client.core();
        let timeout = core.options.response_timeout;
        match &mut self.step {
            ListStep::Begin => {
                let clients = match core.store.clients(timeout).await {
                    // A scan finds the locks even if this user may not list the clients.
                    Err(error) if self.scan == Scan::All && !error.transient => {
                        tracing::warn!(%error, "clients cannot be listed, so the list has no holders");
                        Vec::new()
                    }
                    clients => clients?,
                };
                let (handle, pattern) = (client.handle().clone(), self.pattern.clone());
                let parts = stream::iter(clients)
                    .map(move |client| parts_of(client, handle.clone(), pattern.clone()));
                self.step = ListStep::Clients(parts.flatten_unordered(AT_ONCE).boxed());
            }
            ListStep::Clients(parts) => {
                match parts.next().await {
                    Some(Ok(Some((locks, lost)))) => {
                        let known = &mut self.progress.lost;
                        *known = known.saturating_add(lost);
                        if self.scan != Scan::None {
                            for info in &locks {
                                self.note(info);
                            }
                        }
                        self.found.extend(locks);
                    }
                    // The scan finds the locks of a client that cannot be asked.
                    Some(Err(error)) if !error.transient && self.scan != Scan::All => {
                        return Err(error);
                    }
                    Some(Ok(None) | Err(_)) => self.progress.missed += 1,
                    None if self.scan == Scan::None => self.step = ListStep::End,
                    None => self.step = ListStep::Scan(Cursor::default()),
                }
            }
            ListStep::Scan(from) => {
                let scanned = core.store.scan(*from, timeout).await;
                if let (Scan::Parts(_), Err(error)) = (self.scan, &scanned) {
                    tracing::debug!(%error, "the store is not scanned for locks without a holder");
                    self.step = ListStep::End;
                    return Ok(true);
                }
                let (mut keys, next) = scanned?;
                keys.retain(|key| {
                    pattern::matches(&self.pattern, key.as_str())
                        && !self.seen.contains(key.as_str())
                });
                for keys in keys.chunks(AT_ONCE) {
                    let inspected = keys.iter().map(|key| async move {
                        let send = SendOptions::new(timeout);
                        let entry = core.store.inspect(key, send).await?;
                        Ok::<_, StoreError>(entry.map(|entry| info_of(key, entry)))
                    });
                    for info in join_all(inspected).await {
                        match info {
                            Ok(Some(info)) if self.seen.insert(info.key.clone()) => {
                                self.found.extend(self.silent(info));
                            }
                            Ok(_) => {}
                            // The servers of a quorum may disagree on a lock for as long as its lease.
                            Err(error) if error.transient => self.progress.missed += 1,
                            Err(error) => return Err(error),
                        }
                    }
                }
                self.scanned += 1;
                self.progress.is_complete = next.is_none();
                let next = next.filter(|_| self.scan.goes_on(self.scanned));
                self.step = next.map_or(ListStep::End, ListStep::Scan);
            }
            ListStep::End => return Ok(false),
        }
        Ok(true)
    }
}

impl std::fmt::Debug for LockList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LockList").finish_non_exhaustive()
    }
}

/// Parts of the locks of clients. A silent client has the part `None`. With its first part, a client reports how
/// many locks it has lost so far.
type ClientParts = BoxStream<'static, Result<Option<(Vec<LockInfo>, u64)>, StoreError>>;

/// Asks a client for its locks, part by part.
fn parts_of(client: Uuid, handle: ClientHandle, pattern: String) -> ClientParts {
    let parts = stream::try_unfold(Some(None), move |after: Option<Option<Key>>| {
        let (handle, pattern) = (handle.clone(), pattern.clone());
        async move {
            let Some(after) = after else {
                return Ok(None);
            };
            let core = handle.core();
            let question = Question::Locks {
                pattern: pattern.clone(),
                after: after.clone(),
            };
            let report = ask(core, client, &question).await?;
            let Some(Report::Locks {
                mut locks,
                databases,
                more,
                lost,
            }) = report
            else {
                return Ok(Some((None, None)));
            };
            if databases != core.store.databases() {
                return Ok(Some((Some((Vec::new(), 0)), None)));
            }
            // A client may lie, and must neither name locks of others nor repeat its own.
            locks.retain(|info| {
                info.owner_id().is_some_and(|owner| owner.is_of(client))
                    && pattern::matches(&pattern, &info.key)
                    && after
                        .as_ref()
                        .is_none_or(|after| info.key.as_str() > after.as_str())
            });
            let end = locks.last().and_then(|info| Key::parse(&info.key).ok());
            let wanted = locks.iter_mut().filter(|info| info.wanted);
            join_all(wanted.map(|info| add_queue(core, info))).await;
            let lost = if after.is_none() { lost } else { 0 };
            Ok(Some((Some((locks, lost)), end.filter(|_| more).map(Some))))
        }
    });
    parts.boxed()
}

/// Adds the owners that wait on the store, unless the lock has changed hands.
async fn add_queue(core: &Core, info: &mut LockInfo) {
    let send = SendOptions::new(core.options.response_timeout);
    if let Ok(key) = Key::parse(&info.key)
        && let Ok(Some(entry)) = core.store.inspect(&key, send).await
        && entry.has(&info.owner)
    {
        info.queued_owners = texts(&entry.queue);
    }
}
