//! The nodes of a cluster that locks are asked of: each a server with connections of its own.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::Duration,
};

use tokio::{runtime::Handle, sync::watch, task::JoinHandle, time::Instant};

use super::{
    super::{RedisOptions, RedisStore, calls::Calls},
    layout::{Layout, Place},
    seeds::Seeds,
    slot::{SLOTS, Slot},
};
use crate::store::{Listener, StoreError};

/// How long a node is kept that has no slots, as one that is about to get its first.
const UNUSED: Duration = Duration::from_secs(30);

pub(super) struct Nodes {
    pub(super) seeds: Seeds,
    options: RedisOptions,
    calls: Arc<Calls>,
    listener: Listener,
    /// Where the nodes' connections live.
    home: Handle,
    near: Option<Handle>,
    table: RwLock<Table>,
    /// Counts the changes of owners.
    changes: watch::Sender<u64>,
}

struct Table {
    /// By slot.
    owners: Vec<Option<Arc<Node>>>,
    nodes: HashMap<Place, Arc<Node>>,
    /// Who may know more.
    known: Vec<Place>,
}

/// One of them. Its connections end with it.
pub(super) struct Node {
    pub(super) place: Place,
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
        let calls = Arc::new(Calls::new(options.prefix.clone()));
        Self {
            seeds,
            options,
            calls,
            listener,
            home,
            near,
            table: RwLock::new(Table {
                owners: vec![None; usize::from(SLOTS)],
                nodes: HashMap::new(),
                known: Vec::new(),
            }),
            changes: watch::Sender::new(0),
        }
    }

    fn table(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves at each change of owners from now on.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    pub(super) fn owner(&self, slot: Slot) -> Option<Arc<Node>> {
        self.table().owners[usize::from(slot.number())].clone()
    }

    /// Those that have slots.
    pub(super) fn owners(&self) -> Vec<Arc<Node>> {
        let mut owners: Vec<Arc<Node>> = Vec::new();
        for owner in self.table().owners.iter().flatten() {
            let is_known = |known: &Arc<Node>| Arc::ptr_eq(known, owner);
            if !owners.last().is_some_and(is_known) && !owners.iter().any(is_known) {
                owners.push(Arc::clone(owner));
            }
        }
        owners
    }

    /// Who can be asked about the cluster.
    pub(super) fn known(&self) -> Vec<Place> {
        let mut known = self.table().known.clone();
        for seed in self.seeds.places() {
            if !known.contains(seed) {
                known.push(seed.clone());
            }
        }
        known
    }

    /// The node at this place.
    pub(super) fn at(&self, place: &Place) -> Result<Arc<Node>, StoreError> {
        if let Some(node) = self.table().nodes.get(place) {
            node.is_wanted();
            return Ok(Arc::clone(node));
        }
        self.node(&mut self.change(), place)
    }

    fn node(&self, table: &mut Table, place: &Place) -> Result<Arc<Node>, StoreError> {
        if let Some(node) = table.nodes.get(place) {
            node.is_wanted();
            return Ok(Arc::clone(node));
        }
        let address = self.seeds.address(place).map_err(super::super::classify)?;
        let store = RedisStore::of_cluster(
            &address,
            &self.options,
            &self.calls,
            &self.listener,
            self.near.as_ref(),
        );
        let node = Arc::new(Node::new(place.clone(), store, &self.home));
        table.nodes.insert(place.clone(), Arc::clone(&node));
        Ok(node)
    }

    /// A node says that another has this slot.
    pub(super) fn note(&self, slot: Slot, place: &Place) -> Result<(), StoreError> {
        {
            let mut table = self.change();
            let node = self.node(&mut table, place)?;
            table.owners[usize::from(slot.number())] = Some(node);
        }
        self.changes.send_modify(|changes| *changes += 1);
        Ok(())
    }

    /// Takes over what a node says of the whole cluster. Answers whether any slot has another owner.
    pub(super) fn adopt(&self, layout: Layout) -> Result<bool, StoreError> {
        let mut owners = vec![None; usize::from(SLOTS)];
        let (former, dropped);
        let changed = {
            let mut table = self.change();
            for (first, last, place) in &layout.ranges {
                let node = self.node(&mut table, place)?;
                for slot in *first..=*last {
                    owners[usize::from(slot)] = Some(Arc::clone(&node));
                }
            }
            let place = |owner: &Option<Arc<Node>>| owner.as_ref().map(|node| node.place.clone());
            let changed = owners.iter().zip(&table.owners);
            let changed = changed.fold(false, |any, (new, old)| any || place(new) != place(old));
            former = std::mem::replace(&mut table.owners, owners);
            table.known = layout.places;
            dropped = table.drop_unused();
            changed
        };
        // Their connections end here, with nothing locked.
        drop((former, dropped));
        if changed {
            self.changes.send_modify(|changes| *changes += 1);
        }
        Ok(changed)
    }
}

impl Table {
    fn drop_unused(&mut self) -> Vec<Arc<Node>> {
        let owners: Vec<*const Node> = {
            let mut owners: Vec<_> = self.owners.iter().flatten().map(Arc::as_ptr).collect();
            owners.dedup();
            owners
        };
        let unused = |node: &Arc<Node>| !owners.contains(&Arc::as_ptr(node)) && node.is_unused();
        let places: Vec<Place> = self
            .nodes
            .values()
            .filter(|node| unused(node))
            .map(|node| node.place.clone())
            .collect();
        places
            .iter()
            .filter_map(|place| self.nodes.remove(place))
            .collect()
    }
}

impl Node {
    fn new(place: Place, store: RedisStore, runtime: &Handle) -> Self {
        let store = Arc::new(store);
        let kept = Arc::clone(&store);
        Self {
            place,
            store,
            wanted: Mutex::new(Instant::now()),
            keeper: runtime.spawn(async move {
                // A node that cannot be reached now is looked for by what follows.
                let _ = kept.home.connect().await;
                kept.keep_up().await;
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

impl Drop for Node {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}
