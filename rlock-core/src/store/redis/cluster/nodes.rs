//! The nodes of a cluster that locks are asked of: each a server with connections of its own.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::{Notify, watch},
    task::JoinHandle,
    time::Instant,
};

use super::{
    super::{
        RedisOptions, RedisStore,
        calls::Calls,
        errors::{classify, unexpected},
        link::Link,
        names::Names,
    },
    layout::{Layout, Place},
    seeds::Seeds,
    slot::{SLOTS, Slot},
};
use crate::{
    key::Key,
    store::{Listener, News, StoreError, Which},
};

/// How long a node is kept that has no slots, as one that is about to get its first.
const UNUSED: Duration = Duration::from_secs(30);
/// For how long nobody is believed whose view is older than one that was seen: it was cut off from the
/// others. After that the cluster may be another one.
const OVERTAKEN: Duration = Duration::from_secs(30);

pub(super) struct Nodes {
    pub(super) seeds: Seeds,
    options: RedisOptions,
    listener: Listener,
    /// Where the nodes' connections live.
    home: Handle,
    near: Option<Handle>,
    /// Nodes are neither made nor dropped while it is locked: they tell the listener of it.
    table: Arc<RwLock<Table>>,
    /// Counts the changes of owners.
    changes: watch::Sender<u64>,
    /// There is reason to look who has which slots.
    pub(super) suspects: Arc<Notify>,
}

struct Table {
    /// By slot.
    owners: Vec<Option<Arc<Node>>>,
    nodes: HashMap<Place, Arc<Node>>,
    /// All that are known, and what the cluster calls them.
    names: HashMap<Place, String>,
    /// The epoch of the view that was adopted last, and when that was.
    seen: (u64, Instant),
    /// Why no node has reported the slots yet.
    failure: Option<StoreError>,
}

/// One of them. Its connections end with it.
pub(super) struct Node {
    pub(super) place: Place,
    /// What the cluster calls it.
    name: String,
    pub(super) store: Arc<RedisStore>,
    /// When it was looked for last.
    wanted: Mutex<Instant>,
    keeper: JoinHandle<()>,
}

impl Nodes {
    pub(super) fn new(
        seeds: Seeds,
        options: RedisOptions,
        listener: Listener,
        home: Handle,
        near: Option<Handle>,
    ) -> Self {
        Self {
            seeds,
            options,
            listener,
            home,
            near,
            table: Arc::new(RwLock::new(Table {
                owners: vec![None; usize::from(SLOTS)],
                nodes: HashMap::new(),
                names: HashMap::new(),
                seen: (0, Instant::now()),
                failure: None,
            })),
            changes: watch::Sender::new(0),
            suspects: Arc::default(),
        }
    }

    fn table(&self) -> RwLockReadGuard<'_, Table> {
        read(&self.table)
    }

    fn change(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn connect_timeout(&self) -> Duration {
        self.options.connect_timeout
    }

    pub(super) fn kept(&self) -> Kept<'_> {
        Kept(self)
    }

    /// Resolves at each change of owners from now on.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub(super) fn owner(&self, slot: Slot) -> Option<Arc<Node>> {
        self.table().owner(slot).cloned()
    }

    /// Those that have slots.
    pub(super) fn owners(&self) -> Vec<Arc<Node>> {
        self.table().masters()
    }

    /// Who can be asked about the cluster.
    pub(super) fn known(&self) -> Vec<Place> {
        let mut known: Vec<Place> = self.table().names.keys().cloned().collect();
        for seed in self.seeds.places() {
            if !known.contains(seed) {
                known.push(seed.clone());
            }
        }
        known
    }

    /// The node at this place. One that was not heard of before is asked for its name.
    pub(super) async fn at(
        &self,
        place: &Place,
        patience: Duration,
    ) -> Result<Arc<Node>, StoreError> {
        let name = {
            let table = self.table();
            if let Some(node) = table.nodes.get(place) {
                node.is_wanted();
                return Ok(Arc::clone(node));
            }
            table.names.get(place).cloned()
        };
        let name = match name {
            Some(name) => name,
            None => self.seeds.name(place, patience).await?,
        };
        self.node(place, &name, |_, _| true)
    }

    /// The node at this place, which has slots. One that had none until now is connected to anew: what is
    /// known of its time (`Calls::opened_at`) is from when another was the master, whose tokens it may
    /// not have.
    pub(super) async fn master_at(
        &self,
        place: &Place,
        patience: Duration,
    ) -> Result<Arc<Node>, StoreError> {
        let node = self.at(place, patience).await?;
        self.node(place, &node.name, Table::is_master)
    }

    /// The node of this name; made, if it is not there or not as it should be.
    fn node(
        &self,
        place: &Place,
        name: &str,
        will_do: impl Fn(&Table, &Arc<Node>) -> bool,
    ) -> Result<Arc<Node>, StoreError> {
        let known = |table: &Table| {
            let node = table.nodes.get(place);
            let node = node.filter(|node| node.name == name && will_do(table, node));
            node.cloned()
        };
        if let Some(node) = known(&self.table()) {
            return Ok(node);
        }
        let made = Arc::new(self.make(place, name)?);
        // What is not needed is dropped when the table is free.
        let (node, _other) = {
            let mut table = self.change();
            if let Some(node) = known(&table) {
                (node, Some(made))
            } else {
                let other = table.nodes.insert(place.clone(), Arc::clone(&made));
                table.names.insert(place.clone(), name.to_owned());
                (made, other)
            }
        };
        Ok(node)
    }

    fn make(&self, place: &Place, name: &str) -> Result<Node, StoreError> {
        let address = self.seeds.address(place).map_err(classify)?;
        let names = Names::at_node(self.options.prefix.clone(), name);
        let calls = Arc::new(Calls::new(names, self.options.fence_retention));
        let (listener, near) = (self.listener_at(place), self.near.as_ref());
        let store = RedisStore::of_cluster(&address, &self.options, &calls, &listener, near);
        let suspects = Arc::clone(&self.suspects);
        Ok(Node::new(place, name, store, suspects, &self.home))
    }

    /// Passes on what a node tells: of its own locks only. A connection that is lost is reason to look at
    /// the cluster.
    fn listener_at(&self, place: &Place) -> Listener {
        let (suspects, listener) = (Arc::clone(&self.suspects), Arc::clone(&self.listener));
        let (table, place) = (Arc::downgrade(&self.table), place.clone());
        Arc::new(move |news| match news {
            News::AllChanged => {
                let (table, place) = (table.clone(), place.clone());
                listener(News::SomeChanged(Which::new(move |key| {
                    let table = table.upgrade();
                    table.is_some_and(|table| read(&table).has_at(key, &place))
                })));
            }
            News::Disconnected => {
                suspects.notify_one();
                listener(News::Disconnected);
            }
            news => listener(news),
        })
    }

    /// Returns why no node has reported the slots yet.
    pub(super) fn failure(&self) -> Option<StoreError> {
        self.table().failure.clone()
    }

    /// Records that no node reports the slots. Returns `true` at the first failure.
    pub(super) fn fails(&self, error: StoreError) -> bool {
        if !self.owners().is_empty() {
            return false;
        }
        let is_first = self.change().failure.replace(error).is_none();
        self.changes.send_modify(|changes| *changes += 1);
        is_first
    }

    /// A node says that this one has the slot.
    pub(super) fn note(&self, slot: Slot, node: Arc<Node>) {
        let former = self.change().owners[slot.index()].replace(node);
        drop(former);
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Takes over what a node says of the whole cluster. Answers which slots have other owners now, if
    /// there are any.
    pub(super) fn adopt(&self, layout: Layout) -> Result<Option<Vec<bool>>, StoreError> {
        if self.table().has_overtaken(layout.epoch) {
            return Ok(None);
        }
        let mut owners = vec![None; usize::from(SLOTS)];
        let mut masters: HashMap<&Place, Arc<Node>> = HashMap::new();
        for (first, last, place) in &layout.ranges {
            let name = layout.names.get(place);
            let name = name.ok_or_else(|| unexpected(format!("{place} has no name")))?;
            let node = match masters.get(place) {
                Some(node) => Arc::clone(node),
                None => self.node(place, name, Table::is_master)?,
            };
            masters.insert(place, Arc::clone(&node));
            owners[usize::from(*first)..=usize::from(*last)].fill(Some(node));
        }
        let (former, unused, changed) = {
            let mut table = self.change();
            let changed = owners.iter().zip(&table.owners);
            let changed: Vec<bool> = changed
                .map(|(owner, former)| match (owner, former) {
                    (Some(owner), Some(former)) => owner.name != former.name,
                    (None, None) => false,
                    _ => true,
                })
                .collect();
            let former = std::mem::replace(&mut table.owners, owners);
            table.names = layout.names;
            table.seen = (layout.epoch, Instant::now());
            table.failure = None;
            (former, table.take_unused(), changed)
        };
        drop((former, unused));
        if !changed.contains(&true) {
            return Ok(None);
        }
        self.changes.send_modify(|changes| *changes += 1);
        Ok(Some(changed))
    }
}

/// Until this is dropped the nodes' connections are kept up.
pub(super) struct Kept<'a>(&'a Nodes);

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        // After a panic the background goes on.
        if !std::thread::panicking() {
            for node in self.0.table().nodes.values() {
                node.keeper.abort();
            }
        }
    }
}

fn read(table: &RwLock<Table>) -> RwLockReadGuard<'_, Table> {
    table.read().unwrap_or_else(PoisonError::into_inner)
}

impl Table {
    fn owner(&self, slot: Slot) -> Option<&Arc<Node>> {
        self.owners[slot.index()].as_ref()
    }

    fn has_at(&self, key: &Key, place: &Place) -> bool {
        let owner = self.owner(Slot::of(key));
        owner.is_some_and(|owner| owner.place == *place)
    }

    fn has_overtaken(&self, epoch: u64) -> bool {
        let (newest, at) = self.seen;
        epoch < newest && at.elapsed() < OVERTAKEN
    }

    fn is_master(&self, node: &Arc<Node>) -> bool {
        let mut owners = self.owners.iter().flatten();
        owners.any(|owner| Arc::ptr_eq(owner, node))
    }

    fn masters(&self) -> Vec<Arc<Node>> {
        let mut masters: Vec<Arc<Node>> = Vec::new();
        for owner in self.owners.iter().flatten() {
            let is_owner = |known: &Arc<Node>| Arc::ptr_eq(known, owner);
            // Most slots have the owner of the one before.
            if !masters.last().is_some_and(is_owner) && !masters.iter().any(is_owner) {
                masters.push(Arc::clone(owner));
            }
        }
        masters
    }

    /// Takes out what has no slots, and was not looked for lately.
    fn take_unused(&mut self) -> Vec<Arc<Node>> {
        let masters = self.masters();
        let is_used = |node: &Arc<Node>| {
            !node.is_unused() || masters.iter().any(|master| Arc::ptr_eq(master, node))
        };
        let (used, unused): (HashMap<_, _>, HashMap<_, _>) = std::mem::take(&mut self.nodes)
            .into_iter()
            .partition(|(_, node)| is_used(node));
        self.nodes = used;
        unused.into_values().collect()
    }
}

impl Node {
    fn new(
        place: &Place,
        name: &str,
        store: RedisStore,
        suspects: Arc<Notify>,
        runtime: &Handle,
    ) -> Self {
        let store = Arc::new(store);
        let kept = Arc::clone(&store);
        Self {
            place: place.clone(),
            name: name.to_owned(),
            store,
            wanted: Mutex::new(Instant::now()),
            keeper: runtime.spawn(async move {
                // A node that cannot be reached now is looked for by what follows.
                let _ = kept.home.connect().await;
                tokio::join!(kept.keep_up(), suspect_in_doubt(&kept.home, &suspects));
            }),
        }
    }

    fn is_wanted(&self) {
        *self.wanted.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn is_unused(&self) -> bool {
        let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        wanted.elapsed() > UNUSED
    }
}

/// A node that stands still breaks no connection, and another may have taken its place: renewals would
/// wait for its answer until their leases end.
async fn suspect_in_doubt(link: &Link, suspects: &Notify) {
    loop {
        link.until(true).await;
        link.until(false).await;
        suspects.notify_one();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::redis::tls::Tls;

    const PATIENCE: Duration = Duration::from_millis(1);

    fn nodes() -> Nodes {
        let options = RedisOptions {
            fence_retention: Duration::from_secs(24 * 60 * 60),
            client: uuid::Uuid::nil(),
            clock: crate::clock::ClientClock::default(),
            prefix: "lock".to_owned(),
            tcp_nodelay: true,
            connect_timeout: PATIENCE,
            response_timeout: PATIENCE,
            replicas: None,
            tls: Tls::default(),
            roster: None,
        };
        let seeds = Seeds::parse("redis-cluster://127.0.0.1:1", true, Tls::default());
        let seeds = seeds.expect("valid");
        Nodes::new(seeds, options, Arc::new(drop), Handle::current(), None)
    }

    /// All slots have the master at this port.
    fn view(epoch: u64, port: u16) -> Layout {
        let host = "127.0.0.1".to_owned();
        let master = Place { host, port };
        Layout {
            epoch,
            names: HashMap::from([(master.clone(), format!("node {port}"))]),
            ranges: vec![(0, SLOTS - 1, master)],
        }
    }

    #[tokio::test]
    async fn what_a_node_says_that_was_cut_off_is_passed_over_for_a_while() {
        let nodes = nodes();
        let master = || nodes.owners().iter().map(|node| node.place.port).max();
        let adopt = |view| nodes.adopt(view).expect("it makes sense").is_some();
        assert!(adopt(view(4, 1)));
        assert!(adopt(view(5, 2)));
        assert!(!adopt(view(4, 1)));
        assert_eq!(master(), Some(2));
        assert!(adopt(view(5, 3)), "a slot may move within an epoch");
        // Then it is another cluster.
        nodes.change().seen.1 -= OVERTAKEN;
        assert!(adopt(view(1, 1)));
        assert_eq!(master(), Some(1));
    }
}
