//! The table of a cluster's nodes: which master serves a slot, and the connections to it.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use rlock_proto::{
    key::Key,
    store::{HashSlot, KeyFilter, Listener, Notification},
};
use tokio::{
    runtime::Handle,
    sync::{Notify, watch},
    time::{Instant, timeout_at},
};

use super::{
    discovery::Seeds,
    slots::{Layout, NodeAddr},
};
use crate::store::{
    StoreError,
    endpoint::ServerEndpoint,
    keyspace::Keyspace,
    options::StoreOptions,
    redis::{
        RedisStore,
        errors::{not_yet, unexpected},
    },
    tasks::{AbortOnDrop, supervised},
};

/// A node and its connections, which end with it.
pub(super) struct Node {
    pub(super) addr: NodeAddr,
    pub(super) store: Arc<RedisStore>,
    keeper: AbortOnDrop,
}

impl Node {
    /// Returns the error of a node that cannot be reached.
    pub(super) fn down(&self) -> StoreError {
        let (addr, reason) = (&self.addr, self.store.why_down());
        not_yet(format!("the node at {addr} cannot be reached: {reason}"))
    }
}

/// Opens the first connection of a node. If this fails, [`keep`] connects.
async fn open(store: Arc<RedisStore>) {
    let _ = store.background.connect().await;
}

/// Replaces the connections of a node when they fail, and reports that changes were missed.
async fn keep(store: Arc<RedisStore>, rediscover: Arc<Notify>) {
    // Another node may have replaced a silent node, whose connection never breaks.
    let suspect = async {
        loop {
            store.background.until(true).await;
            store.background.until(false).await;
            rediscover.notify_one();
        }
    };
    tokio::join!(store.keep_up(), suspect);
}

pub(super) struct Nodes {
    pub(super) seeds: Seeds,
    pub(super) options: StoreOptions,
    pub(super) listener: Listener,
    background: Handle,
    pub(super) callers: Option<Handle>,
    /// Nodes are not dropped while it is locked: they call the listener.
    pub(super) table: watch::Sender<Table>,
    /// Notified when there is reason to discover the masters again.
    pub(super) rediscover: Arc<Notify>,
}

pub(super) struct Table {
    /// By slot.
    masters: Vec<Option<Arc<Node>>>,
    nodes: HashMap<NodeAddr, Arc<Node>>,
    /// Why no layout has been adopted yet.
    failure: Option<StoreError>,
}

impl Nodes {
    pub(super) fn new(
        seeds: Seeds,
        options: StoreOptions,
        listener: Listener,
        background: Handle,
        callers: Option<Handle>,
    ) -> Self {
        let failure = not_yet("no node of the cluster has said yet who has which slots");
        Self {
            seeds,
            options,
            listener,
            background,
            callers,
            table: watch::Sender::new(Table {
                masters: vec![None; usize::from(HashSlot::COUNT)],
                nodes: HashMap::new(),
                failure: Some(failure),
            }),
            rediscover: Arc::default(),
        }
    }

    /// Returns the nodes that have slots.
    pub(super) fn masters(&self) -> Vec<Arc<Node>> {
        let Table { masters, nodes, .. } = &*self.table.borrow();
        let nodes = nodes.values().filter(|node| has_slots(masters, node));
        nodes.cloned().collect()
    }

    /// Returns a key that begins with this text for each master.
    pub(super) fn keys_at_masters(&self, text: &str) -> Result<Vec<String>, StoreError> {
        /// Misses a master with only one slot with a probability of about one in ten million.
        const MOST: u32 = 16 * HashSlot::COUNT as u32;

        // A copy, because the search may take long, and a master may leave the table.
        let masters = self.table.borrow().masters.clone();
        let mut missing: HashSet<_> = masters.iter().flatten().map(|node| &node.addr).collect();
        let mut keys = Vec::with_capacity(missing.len());
        for n in 0..MOST {
            if missing.is_empty() {
                break;
            }
            let name = format!("{text}:{n}");
            let key = Key::parse(&name).map_err(unexpected)?;
            let master = masters[HashSlot::of(&key).index()].as_ref();
            if master.is_some_and(|master| missing.remove(&master.addr)) {
                keys.push(name);
            }
        }
        match missing.into_iter().next() {
            Some(addr) => Err(not_yet(format!("found no key of the node at {addr}"))),
            None => Ok(keys),
        }
    }

    /// Returns `true` if the masters are known, and all are connected.
    pub(super) fn are_up(&self) -> bool {
        let masters = self.masters();
        !masters.is_empty() && masters.iter().all(|node| node.store.background.is_up())
    }

    /// Returns the nodes that can be asked about the cluster.
    pub(super) fn known(&self) -> HashSet<NodeAddr> {
        let nodes = &self.table.borrow().nodes;
        nodes.keys().chain(&self.seeds.addrs).cloned().collect()
    }

    /// Waits until a layout has been adopted. Fails at once if a node refuses this client.
    pub(super) async fn until_known(&self, until: Instant) -> Result<(), StoreError> {
        let mut table = self.table.subscribe();
        let refused = |failure: &StoreError| !failure.transient;
        let settled = table.wait_for(|table| table.failure.as_ref().is_none_or(refused));
        let _ = timeout_at(until, settled).await;
        self.table.borrow().failure.clone().map_or(Ok(()), Err)
    }

    /// Records why discovery failed. Returns `false` if the masters are known from before.
    pub(super) fn fails(&self, error: &StoreError) -> bool {
        self.table.send_if_modified(|table| {
            let is_unknown = table.failure.is_some();
            if is_unknown {
                table.failure = Some(error.clone());
            }
            is_unknown
        })
    }

    /// Returns the node at this address. Makes it if it is missing.
    pub(super) fn at(&self, addr: &NodeAddr) -> Arc<Node> {
        let known = |table: &Table| table.nodes.get(addr).cloned();
        if let Some(node) = known(&self.table.borrow()) {
            return node;
        }
        let mut node = Arc::new(self.make(addr));
        let mut unused = None;
        self.table.send_if_modified(|table| {
            match known(table) {
                Some(other) => unused = Some(std::mem::replace(&mut node, other)),
                None => drop(table.nodes.insert(addr.clone(), Arc::clone(&node))),
            }
            false
        });
        drop(unused);
        node
    }

    fn make(&self, addr: &NodeAddr) -> Node {
        let endpoint = ServerEndpoint::Fixed(self.seeds.info(addr));
        let keyspace = Keyspace::at_node(self.options.prefix.clone(), addr);
        let (listener, callers) = (&self.listener, self.callers.as_ref());
        let store = RedisStore::new(endpoint, keyspace, &self.options, listener, callers);
        let (kept, rediscover) = (Arc::clone(&store), Arc::clone(&self.rediscover));
        let keeper = async move {
            supervised("node", || open(Arc::clone(&kept))).await;
            supervised("node", || keep(Arc::clone(&kept), Arc::clone(&rediscover))).await;
        };
        Node {
            addr: addr.clone(),
            store,
            keeper: AbortOnDrop::new(&self.background.spawn(keeper)),
        }
    }

    /// Records that a node names another as the master of a slot.
    pub(super) fn note(&self, slot: HashSlot, node: &Arc<Node>) {
        let mut former = Some(Arc::clone(node));
        let is_changed = self.table.send_if_modified(|table| {
            std::mem::swap(&mut table.masters[slot.index()], &mut former);
            former.is_none_or(|former| former.addr != node.addr)
        });
        if is_changed {
            self.report(vec![slot]);
        }
    }

    /// Reports that slots have other masters: locks may be gone, and the former master notifies no waiter.
    fn report(&self, slots: Vec<HashSlot>) {
        (self.listener)(Notification::SomeChanged(KeyFilter::Slots(slots)));
    }

    /// Adopts the layout that a node reports.
    pub(super) fn adopt(&self, layout: &Layout) {
        let mut masters = vec![None; usize::from(HashSlot::COUNT)];
        for (first, last, addr) in &layout.ranges {
            masters[usize::from(*first)..=usize::from(*last)].fill(Some(self.at(addr)));
        }
        let (mut changed, mut unused) = (Vec::new(), Vec::new());
        let is_changed = self.table.send_if_modified(|table| {
            std::mem::swap(&mut table.masters, &mut masters);
            let former = table.masters.iter().zip(&masters);
            changed.extend((0..).zip(former).filter_map(|(slot, (master, former))| {
                let [master, former] =
                    [master, former].map(|node| node.as_ref().map(|it| &it.addr));
                (master != former).then_some(HashSlot(slot))
            }));
            table.failure = None;
            let Table { masters, nodes, .. } = table;
            unused.extend(nodes.extract_if(|_, node| !has_slots(masters, node)));
            !changed.is_empty()
        });
        drop(unused);
        if is_changed {
            tracing::debug!("slots of the cluster have other masters");
            self.report(changed);
        }
    }
}

/// Ends the nodes' connections when it is dropped.
pub(super) struct KeepUp<'a>(pub(super) &'a Nodes);

impl Drop for KeepUp<'_> {
    fn drop(&mut self) {
        // After a panic the background goes on.
        if !std::thread::panicking() {
            for node in self.0.table.borrow().nodes.values() {
                node.keeper.abort();
            }
        }
    }
}

impl Table {
    pub(super) fn master(&self, slot: HashSlot) -> Option<Arc<Node>> {
        self.masters[slot.index()].clone()
    }
}

fn has_slots(masters: &[Option<Arc<Node>>], node: &Arc<Node>) -> bool {
    let mut masters = masters.iter().flatten();
    masters.any(|master| Arc::ptr_eq(master, node))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::store::endpoint::Endpoint;

    type Reported = Arc<Mutex<Vec<Notification>>>;

    /// Returns nodes, and what they report.
    fn nodes() -> (Nodes, Reported) {
        let options = StoreOptions::for_tests(uuid::Uuid::nil());
        let endpoint = Endpoint::parse("redis-cluster://127.0.0.1:1").expect("valid");
        let Endpoint::Cluster(endpoint) = endpoint else {
            panic!("a cluster");
        };
        let seeds = Seeds::new(endpoint, options.connection.clone());
        let reported = Reported::default();
        let events = Arc::clone(&reported);
        let listener = Arc::new(move |event| events.lock().expect("no panic").push(event));
        let nodes = Nodes::new(seeds, options, listener, Handle::current(), None);
        (nodes, reported)
    }

    /// All slots have the master at this port.
    fn view(port: u16) -> Layout {
        let host = "127.0.0.1".to_owned();
        let master = NodeAddr { host, port };
        Layout {
            epoch: 1,
            ranges: vec![(0, HashSlot::COUNT - 1, master)],
        }
    }

    #[tokio::test]
    async fn a_master_that_a_redirection_names_is_reported_at_once_and_only_once() {
        let key = |key| Key::parse(key).expect("valid");
        let (nodes, reported) = nodes();
        nodes.adopt(&view(1));
        let of = |at: usize| {
            let reported = reported.lock().expect("no panic");
            let Some(Notification::SomeChanged(which)) = reported.get(at) else {
                panic!("{reported:?}");
            };
            (which.matches(&key("moved")), which.matches(&key("other")))
        };
        assert_eq!(of(0), (true, true));
        let slot = HashSlot::of(&key("moved"));
        let mut layout = view(2);
        let master = layout.ranges[0].2.clone();
        for _ in 0..2 {
            nodes.note(slot, &nodes.at(&master));
        }
        assert_eq!(of(1), (true, false));
        let at = u16::try_from(slot.index()).expect("a slot");
        layout.ranges[0] = (at, at, master);
        let rest = view(1);
        let addr = rest.ranges[0].2.clone();
        layout.ranges.extend([
            (0, at - 1, addr.clone()),
            (at + 1, HashSlot::COUNT - 1, addr),
        ]);
        nodes.adopt(&layout);
        assert_eq!(reported.lock().expect("no panic").len(), 2);
    }

    #[tokio::test]
    async fn each_master_has_a_key_or_the_keys_are_an_error() {
        let (nodes, _) = nodes();
        let mut layout = view(1);
        for port in 2..5 {
            let [(.., addr)] = &view(port).ranges[..] else {
                panic!("one master");
            };
            layout.ranges.push((port, port, addr.clone()));
        }
        nodes.adopt(&layout);
        let keys = nodes.keys_at_masters("k").expect("a key for each");
        let masters = nodes.table.borrow();
        let slots = keys.iter().map(|key| Key::parse(key).expect("valid"));
        let owners = slots.filter_map(|key| masters.master(HashSlot::of(&key)));
        let ports: HashSet<u16> = owners.map(|node| node.addr.port).collect();
        assert_eq!((keys.len(), ports), (4, HashSet::from([1, 2, 3, 4])));
        let error = nodes.keys_at_masters("{k}").expect_err("all in one slot");
        assert!(
            error
                .to_string()
                .contains("found no key of the node at 127.0.0.1:"),
            "{error}"
        );
    }
}
