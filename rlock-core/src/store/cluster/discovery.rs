//! Discovers the masters of a cluster: at first from the nodes of the URL, later from all known nodes.

use std::{fmt, time::Duration};

use futures_util::future::select_ok;
use redis::{ConnectionInfo, ProtocolVersion, RedisError, RedisResult, Value, pipe};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::{
    ClusterStore,
    slots::{Layout, NodeAddr},
};
use crate::store::{
    StoreError,
    endpoint::ClusterEndpoint,
    options::ConnectionSettings,
    redis::{
        address::{LOGIN, Server, classify_login, elsewhere},
        dial::plain,
        errors::{not_sent, not_yet, timed_out},
        sentinel::highest_epoch,
    },
};
use crate::wording::shown;

/// The time-out of the first discovery. A short one notices the end of an outage sooner.
const FIRST_TIMEOUT: Duration = Duration::from_millis(500);
/// How many nodes are asked at once.
const ASKED: usize = 3;
/// The first and the longest pause between two discoveries, while a master is missing.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

impl ClusterStore {
    /// Discovers the masters, and waits until one is connected. Requests wait for the others.
    pub(super) async fn begin(&self, within: Duration) -> Result<(), StoreError> {
        let until = Instant::now() + within;
        self.discover(self.nodes.seeds.addrs.clone(), within)
            .await?;
        let masters = self.nodes.masters();
        let connecting = masters.iter().map(|node| Box::pin(node.store.until_up()));
        match timeout_at(until, select_ok(connecting)).await {
            Ok(connected) => connected.map(drop),
            Err(_) => Err(masters[0].down()),
        }
    }

    /// Discovers the masters again whenever there is reason to, and for as long as one is missing.
    pub(super) async fn keep_discovering(&self) {
        let longest = self.nodes.options.connect_timeout;
        let first = (FIRST_PAUSE, FIRST_TIMEOUT.min(longest));
        let ((mut pause, mut within), mut is_warned) = (first, false);
        loop {
            if self.nodes.are_up() {
                self.nodes.rediscover.notified().await;
                (pause, within) = first;
            }
            let asked = fastrand::choose_multiple(self.nodes.known(), ASKED);
            if let Err(error) = self.discover(asked, within).await {
                tracing::debug!(%error, "no node says who has which slots");
                if self.nodes.fails(&error) && !std::mem::replace(&mut is_warned, true) {
                    let (address, reason) = (&self.nodes.seeds, error.to_string());
                    tracing::warn!(%address, reason, "the cluster cannot be reached yet");
                }
                within = (within * 2).min(longest);
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn discover(&self, asked: Vec<NodeAddr>, within: Duration) -> Result<(), StoreError> {
        let layout = self.nodes.seeds.layout(asked, within).await?;
        self.nodes.adopt(&layout);
        Ok(())
    }
}

/// The nodes that a URL names, and how nodes are asked about the cluster.
pub(super) struct Seeds {
    pub(super) addrs: Vec<NodeAddr>,
    /// A node, but for its address.
    node: ConnectionInfo,
    settings: ConnectionSettings,
}

impl Seeds {
    pub(super) fn new(endpoint: ClusterEndpoint, settings: ConnectionSettings) -> Self {
        let addr = |(host, port)| NodeAddr { host, port };
        Self {
            addrs: endpoint.nodes.into_iter().map(addr).collect(),
            node: endpoint.node,
            settings,
        }
    }

    pub(super) fn info(&self, addr: &NodeAddr) -> ConnectionInfo {
        elsewhere(&self.node, addr.host.clone(), addr.port)
    }

    /// Asks these nodes for the layout of the cluster, all at once.
    pub(super) async fn layout(
        &self,
        addrs: Vec<NodeAddr>,
        within: Duration,
    ) -> Result<Layout, StoreError> {
        let asked = addrs.iter().map(|addr| self.layout_of(addr, within));
        let layout = highest_epoch(asked, |layout: &Layout| layout.epoch, 0, within).await;
        layout.unwrap_or_else(|| Err(not_sent("there is no node to ask")))
    }

    async fn layout_of(&self, addr: &NodeAddr, within: Duration) -> Result<Layout, StoreError> {
        let mut commands = pipe();
        commands.cmd("CLUSTER").arg("INFO");
        commands.cmd("CLUSTER").arg("SLOTS").ignore_errors();
        let replies = Box::pin(async {
            let server = Server::new(self.info(addr), self.settings.clone());
            let server = server.with_login().await?;
            let client = server.client(ProtocolVersion::RESP2)?;
            commands.query_async(&mut plain(&client).await?).await
        });
        let late = |_| {
            let within = shown(within);
            Err(timed_out(format!("no reply from {addr} within {within}")))
        };
        let replies = timeout(within, replies).await.unwrap_or_else(late);
        let (info, slots): (RedisResult<String>, RedisResult<Value>) =
            replies.map_err(|error| self.refused(error))?;
        let slots = slots.map_err(|error| {
            let shown = error.to_string();
            if shown.contains("cluster support disabled") {
                return not_sent(format!(
                    "{addr} is not a node of a cluster ({shown}); connect to it by `redis://{addr}`"
                ));
            }
            self.refused(error)
        })?;
        // Where `CLUSTER INFO` is refused, all layouts count alike.
        let layout = Layout::read(&info.unwrap_or_default(), &slots, addr);
        layout.ok_or_else(|| not_yet(format!("{addr} knows no node that has slots")))
    }

    /// Classifies an error of a request that changes nothing.
    fn refused(&self, error: RedisError) -> StoreError {
        classify_login(&self.settings, error, LOGIN).not_executed()
    }
}

/// Shows the addresses; never a password.
impl fmt::Display for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addrs: Vec<String> = self.addrs.iter().map(ToString::to_string).collect();
        f.write_str(&addrs.join(", "))
    }
}
