//! How the clients of a group spread its elections: which clients there are, for which elections each campaigns, and
//! when a leader resigns in favour of another client.

use std::{
    collections::BTreeSet,
    fmt,
    future::{Future, pending},
    sync::{Arc, Mutex, Once, PoisonError},
    time::{Duration, Instant},
};

use futures_util::{StreamExt, future::try_join, stream::FuturesUnordered};
use rlock_proto::{key::Key, owner::OwnerId, store::StoredLock};
use tokio::sync::{Notify, watch};
use uuid::Uuid;

use super::{Election, Term, campaign::BRIEF, pause_after, shares};
use crate::{
    backoff::Backoff,
    client::LockClient,
    engine::{announcements::HoldListener, entries::Entries, shell::AcquiredFor},
    error::LockError,
    info::LockInfo,
};

/// How often a client asks who the clients of its group are, on average. It also learns at once of those that join or
/// drain.
const ASKS: Duration = Duration::from_secs(1);

impl LockClient {
    /// Returns a handle to the elections with these keys, such as one for each shard, which the clients of a group lead in
    /// equal shares. The group consists of all clients that [run](Elections::run) elections with the same name and keys.
    ///
    /// # Examples
    ///
    /// ```
    /// # use rlock_core::{LockClient, LockError};
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), LockError> {
    /// let client = LockClient::in_memory();
    /// let shards = client.elections("shards", (0..64).map(|n| format!("shard-{n}")));
    /// let led = tokio::spawn(shards.run(async |term| {
    ///     println!("leading {} in term {}", term.key(), term.token());
    ///     term.release_requested().await; // stands for work that ends when it is asked to
    /// }));
    /// // When the service stops:
    /// client.drain(Duration::from_secs(20)).await?;
    /// led.await.expect("no panic")
    /// # }
    /// ```
    pub fn elections<I>(&self, group: impl Into<String>, keys: I) -> Elections
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        let keys: BTreeSet<String> = keys.into_iter().map(Into::into).collect();
        // Clients that know other keys would wait for each other to lead them.
        let group = self.election(format!("{}:{:016x}", group.into(), shares::id(&keys)));
        Elections {
            group: Election {
                lock: group.lock.shared(),
                ..group
            },
            each: keys.iter().map(|key| self.election(key)).collect(),
            keys: Arc::new(keys),
        }
    }
}

/// A handle to elections that the clients of a group spread among them, from [`LockClient::elections`].
///
/// Each client of the group holds the [shared](crate::Lock::shared) lock `<group>:<hash of the keys>`, so the leases of
/// these holds tell which clients live. From their ids and the keys, each of them computes the same shares, which differ
/// by one election at most, and campaigns only for its own. When a client joins, the others ask the leaders of its share
/// to resign, each as soon as the new client waits for that election, so that the lead passes on without a gap. When a client
/// [drains](LockClient::drain), the others lead its share a moment later, and when it dies, once its leases have ended.
///
/// Each of them is an election like any other: a lock with the election's key, which [`Election::leader`],
/// [`Election::changes`] and `rlock leader` show.
///
/// **Requests.** Besides its renewals, a client sends one request a second, whatever the number of elections, and at most 25
/// while clients join or leave. No candidate waits while each election is led by the client whose share it is in.
///
/// **Other keys.** During a deployment that changes the keys, clients with the old and with the new ones are two groups,
/// because the lock of a group has a hash of the keys in its name. Both campaign for all of their keys, so none is without
/// a leader, but the shares are equal only when the old clients have ended.
///
/// **Limits.** At most 100 clients spread their elections. If a group has more, each of them campaigns for all elections,
/// which are then led, but not spread. If a client dies, or its process hangs, its share may have no leader: for a
/// [lease](Self::lease) and about a second, or for as long as the process hangs.
#[derive(Clone)]
#[must_use = "elections do nothing until a process runs them"]
pub struct Elections {
    /// The lock that all clients of the group hold.
    group: Election,
    keys: Arc<BTreeSet<String>>,
    each: Vec<Election>,
}

impl Elections {
    /// Sets the [lease](Election::lease) of the elections and of the group's lock.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.group = self.group.lease(lease);
        self.map(|election| election.lease(lease))
    }

    /// Limits [each term](Election::max_hold) of the elections.
    pub fn max_hold(self, max_hold: Duration) -> Self {
        self.map(|election| election.max_hold(max_hold))
    }

    fn map(mut self, set: impl Fn(Election) -> Election) -> Self {
        self.each = self.each.into_iter().map(set).collect();
        self
    }

    /// Joins the group, and runs the body in each term in which this process leads one of the elections, whose
    /// [key](crate::Hold::key) the term has. Call it once in a process.
    ///
    /// A body leads its election for as long as it runs. **It should return when
    /// [`release_requested`](crate::Hold::release_requested) resolves**, because then another client waits for the
    /// election. The request does not stop the body, so a client that joins gets no election whose body does not return. To
    /// drop the work at its next await, race the two: `tokio::select! { () = term.release_requested() => {}, () = work => {} }`.
    ///
    /// If a body returns although it was not asked to, this process campaigns again after a pause, which grows to half a
    /// second for bodies that return at once. A loss drops the body at its next await, as in [`Election::run`]. The
    /// candidacy survives everything that an operator can fix, like [`Election::campaign`].
    ///
    /// All bodies run in the task that polls this future. Let a body that keeps a processor busy spawn its work, in a
    /// `JoinSet` that it owns.
    ///
    /// Resolves to `Ok` when the client drains, after all bodies have returned, or is shut down.
    ///
    /// # Errors
    ///
    /// [`LockError::InvalidKey`] and [`LockError::InvalidOption`].
    ///
    /// # Panics
    ///
    /// Resumes a panic of a body after the process has resigned from that election. The other bodies are dropped.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops all bodies, resigns, and leaves the group in the background.
    pub fn run<B, F>(&self, body: B) -> impl Future<Output = Result<(), LockError>> + use<B, F>
    where
        B: FnMut(Term) -> F,
        F: Future,
    {
        let this = self.clone();
        async move {
            let (views, view) = watch::channel(View::without_share(this.keys.len()));
            let body = Arc::new(Mutex::new(body));
            let present = this.group.run_after(
                || this.group.acquire_uncounted(AcquiredFor::Body),
                |hold| {
                    hold.first().announce();
                    this.follow(&views)
                },
            );
            let seats = this.each.iter().enumerate().map(|(index, election)| Seat {
                election: election.clone(),
                index,
                view: view.clone(),
            });
            let mut candidates: FuturesUnordered<_> =
                seats.map(|seat| seat.run(Arc::clone(&body))).collect();
            let all = async {
                while let Some(ended) = candidates.next().await {
                    unless_closing(ended)?;
                }
                Ok(())
            };
            try_join(async { unless_closing(present.await) }, all).await?;
            Ok(())
        }
    }

    /// Computes the share of this client again and again, until the client drains.
    async fn follow(&self, views: &watch::Sender<View>) {
        let client = &self.group.client;
        let core = client.core();
        let Ok(key) = self.group.checked_key() else {
            return;
        };
        let ear = Arc::new(Ear::default());
        core.shell.announcements.listen(&key, &ear);
        while !core.is_closed() {
            match client.entry(&key).await {
                Ok(Some(entry)) => {
                    let clients = clients(&key, &entry, core.id);
                    views.send_modify(|view| view.update(&self.keys, clients, core.id));
                }
                // The lock is lost, which drops this future.
                Ok(None) => {}
                Err(error) => {
                    tracing::debug!(%error, "could not ask which clients are in the group");
                }
            }
            tokio::select! {
                () = core.until_draining() => return,
                () = core.pause(ASKS.mul_f64(0.75 + fastrand::f64() / 2.0)) => {}
                // A client that leaves announces that before the store has released its lock.
                () = ear.0.notified() => core.pause(pause_after(3)).await,
            }
        }
    }
}

impl fmt::Debug for Elections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut elections = f.debug_struct("Elections");
        elections
            .field("group", &self.group)
            .field("keys", &self.keys.len());
        elections.finish_non_exhaustive()
    }
}

fn unless_closing(ended: Result<(), LockError>) -> Result<(), LockError> {
    ended.or_else(|error| {
        if error.is_closing() {
            Ok(())
        } else {
            Err(error)
        }
    })
}

/// Returns the clients of a group, this one among them, or only this one if the store does not list all of them.
fn clients(key: &Key, entry: &StoredLock, own: Uuid) -> BTreeSet<Uuid> {
    static WARNED: Once = Once::new();
    let mut clients = BTreeSet::from([own]);
    if entry.holders > 1 + entry.others.len() {
        WARNED.call_once(|| {
            tracing::warn!(
                group = key.shown(),
                clients = entry.holders,
                "a group has more than 100 clients: each of them campaigns for all elections"
            );
        });
        return clients;
    }
    let first = OwnerId::parse(&entry.owner);
    let owners = first.iter().chain(&entry.others);
    clients.extend(owners.map(OwnerId::client));
    clients
}

/// Wakes a client that follows its group.
#[derive(Default)]
struct Ear(Notify);

impl HoldListener for Ear {
    fn hear(&self, _: &LockInfo) {
        self.0.notify_one();
    }

    fn ended(&self, _: u64) {
        self.0.notify_one();
    }

    fn missed(&self) {
        self.0.notify_one();
    }
}

/// What a client knows of its group.
struct View {
    clients: BTreeSet<Uuid>,
    /// Which elections are in the share of this client.
    share: Vec<bool>,
    /// The share before the latest reply of the store.
    former: Vec<bool>,
}

impl View {
    fn without_share(elections: usize) -> Self {
        Self {
            clients: BTreeSet::new(),
            share: vec![false; elections],
            former: vec![false; elections],
        }
    }

    fn update(&mut self, keys: &BTreeSet<String>, clients: BTreeSet<Uuid>, own: Uuid) {
        self.former.clone_from(&self.share);
        if clients != self.clients {
            self.share = shares::share(keys, &clients, own);
            self.clients = clients;
        }
    }
}

/// The candidacy of a client for one of the elections.
#[derive(Clone)]
struct Seat {
    election: Election,
    index: usize,
    view: watch::Receiver<View>,
}

impl Seat {
    /// Leads term after term, until the client drains.
    async fn run<B, F>(self, body: Arc<Mutex<B>>) -> Result<(), LockError>
    where
        B: FnMut(Term) -> F,
        F: Future,
    {
        let (site, mut backoff) = (self.election.lock.options.site, Backoff::default());
        loop {
            let mut began = Instant::now();
            let led = self.election.run_after(
                || self.clone().acquire(),
                |hold| {
                    began = Instant::now();
                    let term = Term::begin(hold, site);
                    let asked = self.clone().until_asked(term.clone());
                    let mut body = body.lock().unwrap_or_else(PoisonError::into_inner);
                    let body = body(term);
                    async move {
                        tokio::select! {
                            biased;
                            _ = body => {}
                            () = asked => {}
                        }
                    }
                },
            );
            led.await?;
            if began.elapsed() > BRIEF {
                backoff = Backoff::default();
            }
            self.election.client.core().pause(backoff.next()).await;
        }
    }

    /// Resolves when the share of this client has the election, or no longer has it.
    async fn until(&mut self, has: bool) {
        let index = self.index;
        if self
            .view
            .wait_for(|view| view.share[index] == has)
            .await
            .is_err()
        {
            pending::<()>().await;
        }
    }

    /// Waits to lead while the share of this client has the election.
    async fn acquire(mut self) -> Result<Entries, LockError> {
        let election = self.election.clone();
        let client = election.client.clone();
        loop {
            tokio::select! {
                // Then the store is not asked any more.
                () = client.core().until_draining() => {}
                () = self.until(true) => {}
            }
            tokio::select! {
                biased;
                acquired = election.acquire(AcquiredFor::Body) => return acquired,
                () = self.until(false) => {}
            }
        }
    }

    /// Asks the leader to resign once another client waits for an election that is not in the share of this one. The store
    /// has to say so twice, because the members of a quorum may not agree at once. Never resolves.
    async fn until_asked(mut self, term: Term) {
        let index = self.index;
        let makes_way = |view: &View| !view.share[index] && !view.former[index] && term.is_wanted();
        if self.view.wait_for(makes_way).await.is_ok() {
            term.ask_to_resign();
        }
        pending::<()>().await;
    }
}
