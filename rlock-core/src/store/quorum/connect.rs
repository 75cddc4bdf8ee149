//! How a quorum is put together.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::{
    runtime::Handle,
    sync::Notify,
    time::{Instant, timeout_at},
};

use super::{
    MOST_SERVERS, QuorumStore,
    errors::no_majority,
    line,
    node::{Health, Node},
    stragglers::Stragglers,
    votes::majority,
};
use crate::{
    clock::ClientClock,
    error::LockError,
    limits::{invalid_url, invalid_urls},
    scheme::{Kind, Scheme, known},
    store::{
        Listener, StoreError,
        redis::{RedisOptions, RedisStore, Roster, SameServer, connecting},
    },
};

/// How long to wait for the other servers once a majority is connected or impossible.
const OTHERS: Duration = Duration::from_millis(100);

impl QuorumStore {
    /// Connects to a majority; the others join when they can be reached.
    pub(crate) async fn connect(
        urls: &[String],
        options: RedisOptions,
        listener: Listener,
        runtime: &Handle,
    ) -> Result<Arc<Self>, LockError> {
        let clock = options.clock.clone();
        let started = clock.now();
        let options = RedisOptions {
            roster: Some(Arc::<Roster>::default()),
            ..options
        };
        let nodes = nodes(urls, &options, &listener)?;
        let first = connect_all(nodes.clone(), runtime.clone());
        let connected = connecting(runtime.spawn(first)).await;
        connected.map_err(|error| {
            if let Some(SameServer { address, other }) = error.source.downcast_ref() {
                let both = format!("`{other}` and `{address}`");
                let way_out = "both lead to the same server, and one that votes twice is no majority: \
                               each server is named once";
                return invalid_urls(both, way_out);
            }
            let action = format!("connect to a quorum of {} servers", nodes.len());
            error.into_lock_error(action, clock.now().since(started))
        })?;
        Ok(Arc::new(Self::of(nodes, clock, listener)))
    }

    /// Makes a store that connects in the background.
    pub(crate) fn lazy(
        urls: &[String],
        options: RedisOptions,
        listener: Listener,
    ) -> Result<Self, LockError> {
        let clock = options.clock.clone();
        let options = RedisOptions {
            roster: Some(Arc::<Roster>::default()),
            ..options
        };
        let nodes = nodes(urls, &options, &listener)?;
        Ok(Self::of(nodes, clock, listener))
    }

    fn of(nodes: Vec<Arc<Node>>, clock: ClientClock, listener: Listener) -> Self {
        Self {
            nodes: nodes.into(),
            clock,
            listener,
            stragglers: Stragglers::new(),
            stood: Notify::new(),
        }
    }
}

fn nodes(
    urls: &[String],
    options: &RedisOptions,
    listener: &Listener,
) -> Result<Vec<Arc<Node>>, LockError> {
    if urls.is_empty() {
        let way_out = "a quorum needs servers: three, or five, that do not fail together";
        return Err(invalid_urls("[]".to_owned(), way_out));
    }
    if urls.len() > MOST_SERVERS {
        let way_out = "a quorum has 32 servers at most; three or five are enough";
        return Err(invalid_urls(format!("{} URLs", urls.len()), way_out));
    }
    let mut nodes: Vec<Arc<Node>> = Vec::with_capacity(urls.len());
    for (number, url) in urls.iter().enumerate() {
        if !Scheme::of(url).is_some_and(|scheme| is_server(scheme.kind)) {
            let known = known(is_server);
            return Err(invalid_url(
                url,
                format!("a quorum is made of single servers: {known}"),
            ));
        }
        let health = Arc::<Health>::default();
        let hears = line::listener(Arc::clone(&health), Arc::clone(listener));
        let store = Arc::new(RedisStore::prepare(url, options.clone(), &hears)?);
        let node = Node::new(number, store, health, options.response_timeout);
        if nodes.iter().any(|other| other.address == node.address) {
            let way_out = "each server is named once: one that votes twice is no majority";
            return Err(invalid_urls(format!("`{}`, twice", node.address), way_out));
        }
        nodes.push(Arc::new(node));
    }
    Ok(nodes)
}

fn is_server(kind: Kind) -> bool {
    matches!(kind, Kind::Server | Kind::Socket | Kind::Sentinels)
}

async fn connect_all(nodes: Vec<Arc<Node>>, runtime: Handle) -> Result<(), StoreError> {
    let connect = |node: &Arc<Node>| {
        let (node, runtime) = (Arc::clone(node), &runtime);
        async move { (node.number, node.store.connect_home(runtime).await) }
    };
    let mut pending: FuturesUnordered<_> = nodes.iter().map(connect).collect();
    let majority = majority(nodes.len());
    let (mut connected, mut failures) = (0, Vec::new());
    let mut open: Vec<usize> = (0..nodes.len()).collect();
    let mut until = None;
    loop {
        let next = match until {
            Some(until) => timeout_at(until, pending.next()).await.unwrap_or(None),
            None => pending.next().await,
        };
        if let Some((number, _)) = &next {
            open.retain(|open| open != number);
        }
        match next {
            Some((_, Ok(()))) => connected += 1,
            Some((_, Err(error))) if error.source.is::<SameServer>() => return Err(error),
            Some((number, Err(error))) => {
                let address = nodes[number].address.clone();
                failures.push((address, error));
            }
            None if connected >= majority => return Ok(()),
            None => {
                let silent = open.iter().map(|number| &nodes[*number]);
                let silent = silent.map(|node| (node.address.clone(), StoreError::silent()));
                failures.extend(silent);
                return Err(no_majority(nodes.len(), connected, failures));
            }
        }
        // The error describes each server.
        if connected >= majority || failures.len() > nodes.len() - majority {
            until.get_or_insert_with(|| Instant::now() + OTHERS);
        }
    }
}
