//! The nodes of a cluster that locks are asked of: each a server with connections of its own.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::Duration,
};

use tokio::{runtime::Handle, sync::watch, task::JoinHandle, time::Instant};

use super::{
    super::{
        RedisOptions, RedisStore,
        calls::Calls,
        errors::{classify, unexpected},
        names::Names,
        scripts::Scripts,
    },
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
    /// All that are known, and what the cluster calls them.
    names: HashMap<Place, String>,
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
            table: RwLock::new(Table {
                owners: vec![None; usize::from(SLOTS)],
                nodes: HashMap::new(),
                names: HashMap::new(),
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
        {
            let mut table = self.change();
            if table.nodes.contains_key(place) || table.names.contains_key(place) {
                return self.node(&mut table, place);
            }
        }
        let name = self.seeds.name(place, patience).await?;
        let mut table = self.change();
        table.names.insert(place.clone(), name);
        self.node(&mut table, place)
    }

    fn node(&self, table: &mut Table, place: &Place) -> Result<Arc<Node>, StoreError> {
        let name = table.names.get(place);
        if let Some(node) = table.nodes.get(place)
            // Another may have come to the same place.
            && name.is_none_or(|name| node.name == *name)
        {
            node.is_wanted();
            return Ok(Arc::clone(node));
        }
        let name = name.ok_or_else(|| unexpected(format!("{place} has no name")))?;
        let address = self.seeds.address(place).map_err(classify)?;
        let calls = Calls {
            names: Names::at_node(self.options.prefix.clone(), name),
            scripts: Scripts::new(),
        };
        let store = RedisStore::of_cluster(
            &address,
            &self.options,
            &Arc::new(calls),
            &self.listener,
            self.near.as_ref(),
        );
        let node = Arc::new(Node::new(place, name, store, &self.home));
        table.nodes.insert(place.clone(), Arc::clone(&node));
        Ok(node)
    }

    /// A node says that another has this slot.
    pub(super) fn note(&self, slot: Slot, node: Arc<Node>) {
        self.change().owners[usize::from(slot.number())] = Some(node);
        self.changes.send_modify(|changes| *changes += 1);
    }

    /// Takes over what a node says of the whole cluster. Answers whether any slot has another owner.
    pub(super) fn adopt(&self, layout: Layout) -> Result<bool, StoreError> {
        let mut owners = vec![None; usize::from(SLOTS)];
        let (former, dropped);
        let changed = {
            let mut table = self.change();
            table.names = layout.names;
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
    fn new(place: &Place, name: &str, store: RedisStore, runtime: &Handle) -> Self {
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
