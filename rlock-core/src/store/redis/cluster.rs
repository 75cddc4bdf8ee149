//! Locks on a Redis Cluster. All that belongs to a lock lies in one slot, by its hash tag, and each slot
//! with one master; each master is a server like any other, with connections of its own. This module
//! finds the one that has a lock, and asks there.
//!
//! While a slot moves from one node to another, its keys move one by one, and those of one lock may lie
//! at both. What is gone from the node that has the slot is nowhere else but at the one that gets it, and
//! only there can it come into being again. So:
//!
//! - At the old node a lock is served as long as it is held there. There no key comes into being.
//! - A lock that the old node does not have is asked for at the new one only when its token and its line
//!   have left the old node too. Else tokens would be counted anew beside those that are still to come,
//!   which would be put in their place, and lower: such a request is tried again until all is moved.
//! - Renewals go where the lock is: they need nothing else.

mod keys;
mod layout;
mod nodes;
mod seeds;
mod several;
mod shards;
mod slot;

pub(super) use self::slot::Slot;

use std::{future::Future, sync::Arc, time::Duration};

use futures_util::{
    future::{join_all, try_join_all},
    stream::{FuturesUnordered, StreamExt},
};
use redis::{ErrorKind, ServerErrorKind};
use tokio::{
    runtime::{Handle, Id},
    time::{Instant, sleep, timeout_at},
};

use self::{
    layout::Place,
    nodes::{Node, Nodes},
    seeds::Seeds,
};
use super::{
    By, Connecting, RedisOptions,
    errors::{Elsewhere, is_settling, not_sent, unexpected},
    process::Process,
};
use crate::{
    caller::caller,
    clock::ClientClock,
    error::LockError,
    key::Key,
    store::{
        Acquired, Answer, BoxFuture, Claim, Entry, Listener, News, Onward, Release, Released,
        Renewal, Renewed, Route, Store, StoreError, Which,
    },
    wait::Backoff,
};

/// How long a new client waits for the other masters when one is there.
const OTHERS: Duration = Duration::from_millis(250);
/// How long a node may take to say who has which slots.
const PATIENCE: Duration = Duration::from_millis(500);
/// How many are asked for that at once.
const ASKED: usize = 3;
/// The pause between two looks at the cluster.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest, while a node is missing.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause between tries while a slot is on its way.
const SETTLING: Duration = Duration::from_millis(100);

pub(crate) struct ClusterStore {
    nodes: Nodes,
    listener: Listener,
    /// The runtime whose tasks have connections of their own.
    near: Option<Id>,
    process: Process,
    clock: ClientClock,
    /// How long replicas are waited for, with what may go on before.
    replicas_patience: Duration,
}

/// Whether a slot moved, as a node says that does not have the lock.
enum Redirection {
    Moved(Place),
    /// It is about to.
    Ask(Place),
}

/// What a request needs of a lock whose slot is about to move.
#[derive(Clone, Copy)]
enum Needs<'a> {
    /// All that belongs to these locks, in one place.
    All(&'a [&'a Key]),
    /// The lock, wherever it is.
    Lock,
    /// One answer for all that it asks for: else it asks in parts.
    OnePlace,
}

impl ClusterStore {
    /// Connects to a cluster of which the URL names some nodes; the connections live on `runtime`.
    pub(crate) async fn connect(
        url: &str,
        options: RedisOptions,
        listener: Listener,
        runtime: &Handle,
        own_runtime: bool,
    ) -> Result<Arc<Self>, LockError> {
        let (clock, patience) = (options.clock.clone(), options.connect_timeout);
        let replicas = options
            .replicas
            .map_or(Duration::ZERO, |asked| asked.within);
        let replicas_patience = replicas * 2 + options.response_timeout;
        let started = clock.now();
        let seeds = Seeds::parse(url, options.tcp_nodelay)?;
        let action = format!("connect to the cluster of {seeds}");
        let near = own_runtime.then(Handle::try_current).and_then(Result::ok);
        let near_id = near.as_ref().map(Handle::id);
        let store = Arc::new(Self {
            nodes: Nodes::new(seeds, options, Arc::clone(&listener), runtime.clone(), near),
            listener,
            near: near_id,
            process: Process::present(),
            clock: clock.clone(),
            replicas_patience,
        });
        let first = Arc::clone(&store);
        let mut connecting = Connecting(runtime.spawn(async move { first.begin(patience).await }));
        let connected = match (&mut connecting.0).await {
            Ok(connected) => connected,
            Err(error) => Err(unexpected(error)),
        };
        connected.map_err(|error| error.into_lock_error(action, clock.now().since(started)))?;
        Ok(store)
    }

    /// Learns who has which slots, and waits for the first of them.
    async fn begin(&self, patience: Duration) -> Result<(), StoreError> {
        let mut until = Instant::now() + patience;
        let seeds = self.nodes.seeds.places().to_vec();
        let layout = self.nodes.seeds.layout(seeds, patience).await?;
        self.nodes.adopt(layout)?;
        let owners = self.nodes.owners();
        let mut connecting: FuturesUnordered<_> = owners
            .iter()
            .map(|node| async { node.store.home.connection().await.map(drop) })
            .collect();
        let (mut is_up, mut refusal) = (false, None);
        while let Ok(Some(connected)) = timeout_at(until, connecting.next()).await {
            match connected {
                Ok(()) => {
                    is_up = true;
                    until = until.min(Instant::now() + OTHERS);
                }
                Err(error) => refusal = Some(error),
            }
        }
        match (is_up, refusal) {
            (true, _) => Ok(()),
            (false, Some(refusal)) => Err(refusal),
            (false, None) => Err(unreachable(&owners)),
        }
    }

    /// Asks the node that has the slot, wherever that is now. Tries again while the nodes have not
    /// agreed on that, as long as there is patience.
    async fn at_owner<T, F, A>(
        &self,
        slot: Slot,
        needs: Needs<'_>,
        by: By,
        ask: F,
    ) -> Result<T, StoreError>
    where
        F: Fn(Arc<Node>, By) -> A,
        A: Future<Output = Result<T, StoreError>>,
    {
        self.process.is_present()?;
        let until = Instant::now() + by.patience;
        let left = || By {
            patience: until.saturating_duration_since(Instant::now()),
            ..by
        };
        let (mut backoff, mut moved) = (Backoff::default(), false);
        loop {
            let node = self.owner_up(slot, until).await?;
            let error = match ask(Arc::clone(&node), left()).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let error = match redirection(&error, slot, &node.place) {
                Some(Redirection::Moved(place)) => {
                    self.nodes.suspects.notify_one();
                    let owner = self.nodes.at(&place, left().patience).await?;
                    self.nodes.note(slot, owner);
                    if !std::mem::replace(&mut moved, true) {
                        continue;
                    }
                    unsettled(slot, &error)
                }
                Some(Redirection::Ask(place)) => {
                    let there = self.nodes.at(&place, left().patience).await?;
                    match self.at_next_owner(&node, there, needs, left(), &ask).await {
                        Some(Ok(answer)) => return Ok(answer),
                        Some(Err(error)) if !is_unsettled(&error) => return Err(error),
                        Some(Err(_)) | None => unsettled(slot, &error),
                    }
                }
                None if is_unsettled(&error) => {
                    self.nodes.suspects.notify_one();
                    unsettled(slot, &error)
                }
                None => {
                    if error.transient {
                        self.nodes.suspects.notify_one();
                    }
                    return Err(error);
                }
            };
            let pause = backoff.next().min(SETTLING);
            if matches!(needs, Needs::OnePlace) || left().patience <= pause {
                return Err(error);
            }
            sleep(pause).await;
        }
    }

    /// Asks the node that is about to have the slot, of which the present one does not have the lock any
    /// more; `None`: it is not to be asked yet.
    async fn at_next_owner<T, F, A>(
        &self,
        present: &Node,
        next: Arc<Node>,
        needs: Needs<'_>,
        by: By,
        ask: &F,
    ) -> Option<Result<T, StoreError>>
    where
        F: Fn(Arc<Node>, By) -> A,
        A: Future<Output = Result<T, StoreError>>,
    {
        match needs {
            Needs::OnePlace => return None,
            Needs::Lock => {}
            Needs::All(keys) => match present.store.have_left(keys, by).await {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(Err(error)),
            },
        }
        Some(ask(next, By { asking: true, ..by }).await)
    }

    /// The node that has this slot, once it can be asked.
    async fn owner_up(&self, slot: Slot, until: Instant) -> Result<Arc<Node>, StoreError> {
        if let Some(node) = self.nodes.owner(slot)
            && node.store.home.present().is_some()
        {
            return Ok(node);
        }
        let mut changes = self.nodes.changes();
        loop {
            changes.mark_unchanged();
            let owner = self.nodes.owner(slot);
            let Some(node) = owner else {
                self.nodes.suspects.notify_one();
                if timeout_at(until, changes.changed()).await.is_err() {
                    return Err(ownerless(slot));
                }
                continue;
            };
            if node.store.home.present().is_some() {
                return Ok(node);
            }
            self.nodes.suspects.notify_one();
            tokio::select! {
                connected = node.store.home.connection() => {
                    connected?;
                    return Ok(node);
                }
                _ = changes.changed() => {}
                () = tokio::time::sleep_until(until) => return Err(down(&node)),
            }
        }
    }

    /// Looks who has which slots whenever there is reason to, and for as long as one of them is missing.
    async fn keep_looking(&self) {
        loop {
            self.nodes.suspects.notified().await;
            let mut pause = PAUSE;
            loop {
                self.look().await;
                sleep(pause).await;
                let owners = self.nodes.owners();
                if owners.iter().all(|node| node.store.home.is_up()) {
                    break;
                }
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }

    async fn look(&self) {
        let mut places = self.nodes.known();
        fastrand::shuffle(&mut places);
        places.truncate(ASKED);
        let layout = self.nodes.seeds.layout(places, PATIENCE).await;
        match layout.and_then(|layout| self.nodes.adopt(layout)) {
            // Locks may be gone, and what waits at the former owner is told nothing.
            Ok(Some(changed)) => {
                tracing::debug!("slots of the cluster have other owners");
                let which = Which::new(move |key| changed[Slot::of(key).index()]);
                (self.listener)(News::SomeChanged(which));
            }
            Ok(None) => {}
            Err(error) => tracing::debug!(%error, "no node says who has which slots"),
        }
    }

    /// Takes locks of one slot.
    async fn acquire_in(
        &self,
        slot: Slot,
        claims: &[Claim],
        (lease, count, waits): (Duration, u32, bool),
        by: By,
    ) -> Result<Acquired, StoreError> {
        let keys: Vec<&Key> = claims.iter().map(|claim| &claim.key).collect();
        let ask = |node: Arc<Node>, by| async move {
            let answer = node.store.acquire(claims, lease, count, waits, by).await;
            if let Ok(Acquired::Held { in_line: true, .. }) = answer {
                node.shards.wish(slot);
            }
            answer
        };
        self.at_owner(slot, Needs::All(&keys), by, ask).await
    }

    async fn release(&self, release: &Release<'_>, by: By) -> Result<Released, StoreError> {
        let slot = Slot::of(release.key);
        let ask = |node: Arc<Node>, by| async move {
            let answer = node.store.release(release, by).await;
            if let Ok(Released::Done(Onward::InLine { .. })) = answer {
                node.shards.wish(slot);
            }
            answer
        };
        let needs = Needs::All(std::slice::from_ref(&release.key));
        self.at_owner(slot, needs, by, ask).await
    }

    /// Renews locks of one slot.
    async fn renew_in(&self, slot: Slot, batch: &[Renewal], by: By) -> Result<Renewed, StoreError> {
        let ask =
            |batch| move |node: Arc<Node>, by| async move { Node::renew(&node, batch, by).await };
        if batch.len() > 1 {
            match self.at_owner(slot, Needs::OnePlace, by, ask(batch)).await {
                Err(error) if is_unsettled(&error) => {}
                outcome => return outcome,
            }
        }
        let each = batch.iter().map(std::slice::from_ref);
        let each = each.map(|batch| self.at_owner(slot, Needs::Lock, by, ask(batch)));
        joined(join_all(each).await)
    }
}

impl Node {
    async fn renew(&self, batch: &[Renewal], by: By) -> Result<Renewed, StoreError> {
        self.store.renew(batch, by).await
    }

    async fn replicate(&self, claims: &[Claim], lease: Duration) -> Result<(), StoreError> {
        self.store.replicate(claims, lease).await
    }
}

/// One answer of several, in their order.
fn joined(parts: Vec<Result<Renewed, StoreError>>) -> Result<Renewed, StoreError> {
    let parts: Vec<Renewed> = parts.into_iter().collect::<Result<_, _>>()?;
    let sent_at = parts.iter().map(|part| part.sent_at).min();
    Ok(Renewed {
        sent_at: sent_at.ok_or_else(|| not_sent("there is nothing to renew"))?,
        held: parts.into_iter().flat_map(|part| part.held).collect(),
    })
}

impl Store for ClusterStore {
    fn route(&self) -> Route {
        if self.near.is_some() && caller() == self.near {
            Route::Near
        } else {
            Route::Home
        }
    }

    fn group(&self, key: &Key) -> u16 {
        Slot::of(key).number()
    }

    fn acquire<'a>(
        &'a self,
        claims: &'a [Claim],
        lease: Duration,
        count: u32,
        waits: bool,
        by: (Route, Duration),
    ) -> Answer<'a, Acquired> {
        Box::pin(async move {
            let terms = (lease, count, waits);
            match several::by_slot(claims).as_slice() {
                [(slot, _)] => self.acquire_in(*slot, claims, terms, by.into()).await,
                groups => self.acquire_across(claims, groups, terms, by.into()).await,
            }
        })
    }

    fn release<'a>(&'a self, release: Release<'a>, by: (Route, Duration)) -> Answer<'a, Released> {
        Box::pin(async move { self.release(&release, by.into()).await })
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
        timeout: Duration,
        silence: Duration,
    ) -> Answer<'a, Renewed> {
        let by = By {
            silence: Some(silence),
            ..(Route::Home, timeout).into()
        };
        Box::pin(async move {
            // In the order of the answers; groups are one slot each, so there is one run of them.
            let runs = batch.chunk_by(|one, next| Slot::of(&one.key) == Slot::of(&next.key));
            let runs = runs.map(|run| self.renew_in(Slot::of(&run[0].key), run, by));
            joined(join_all(runs).await)
        })
    }

    fn replicate<'a>(&'a self, claims: &'a [Claim], lease: Duration) -> Answer<'a, ()> {
        let by: By = (Route::Home, self.replicas_patience).into();
        let ask = move |claim| {
            move |node: Arc<Node>, _| async move { Node::replicate(&node, claim, lease).await }
        };
        Box::pin(async move {
            let each = claims.iter().map(|claim| {
                let (slot, claim) = (Slot::of(&claim.key), std::slice::from_ref(claim));
                self.at_owner(slot, Needs::Lock, by, ask(claim))
            });
            try_join_all(each).await.map(drop)
        })
    }

    fn inspect<'a>(&'a self, key: &'a Key, timeout: Duration) -> Answer<'a, Option<Entry>> {
        let ask = move |node: Arc<Node>, by| async move { node.store.inspect(key, by).await };
        let by = (Route::Home, timeout).into();
        Box::pin(async move {
            let (slot, needs) = (Slot::of(key), Needs::Lock);
            self.at_owner(slot, needs, by, ask).await
        })
    }

    fn background(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move { self.keep_looking().await })
    }
}

/// Whether a URL names nodes of a cluster.
pub(crate) fn is_meant(url: &str) -> bool {
    seeds::is_meant(url)
}

/// Where a node says that this slot is. What it says of another concerns somebody else's request, which
/// was answered together with this one.
fn redirection(error: &StoreError, slot: Slot, asked: &Place) -> Option<Redirection> {
    let Elsewhere(error) = error.source.downcast_ref()?;
    let (address, number) = error.redirect_node()?;
    if number != slot.number() {
        return None;
    }
    let place = Place::parse(address, asked)?;
    if error.kind() == ErrorKind::Server(ServerErrorKind::Ask) {
        Some(Redirection::Ask(place))
    } else {
        Some(Redirection::Moved(place))
    }
}

/// Whether the nodes have not agreed yet on who has a slot.
fn is_unsettled(error: &StoreError) -> bool {
    error.source.is::<Elsewhere>() || error.source.is::<Unsettled>() || is_settling(error)
}

/// A slot that is on its way from one node to another.
#[derive(Debug, thiserror::Error)]
#[error("slot {slot} of the cluster is on its way from one node to another ({answer})")]
struct Unsettled {
    slot: u16,
    answer: String,
}

fn unsettled(slot: Slot, error: &StoreError) -> StoreError {
    let answer = match error.source.downcast_ref() {
        Some(Elsewhere(error)) => error.to_string(),
        None => error.to_string(),
    };
    let slot = slot.number();
    passing(Unsettled { slot, answer })
}

fn ownerless(slot: Slot) -> StoreError {
    let slot = slot.number();
    passing(format!("no node of the cluster has slot {slot}"))
}

fn down(node: &Node) -> StoreError {
    let (place, why) = (&node.place, node.store.home.why_down());
    passing(format!("the node at {place} cannot be reached: {why}"))
}

fn unreachable(owners: &[Arc<Node>]) -> StoreError {
    let reasons: Vec<String> = owners.iter().map(|node| down(node).to_string()).collect();
    passing(reasons.join("; "))
}

/// What was not done, and may be done a moment later.
fn passing(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> StoreError {
    StoreError {
        transient: true,
        ..not_sent(why)
    }
}
