//! The nodes that a URL names, and how all nodes are asked about the cluster.

use std::{fmt, time::Duration};

use redis::{
    ConnectionInfo, FromRedisValue, Pipeline, ProtocolVersion, RedisError, RedisResult, Value, pipe,
};
use tokio::time::timeout;

use super::slots::{Layout, NodeAddr};
use crate::store::{
    StoreError,
    endpoint::ClusterEndpoint,
    redis::{
        address::{ConnectionSettings, LOGIN, Server, elsewhere},
        connection::plain,
        errors::{classify_login, not_sent, not_yet, timed_out},
        sentinel::highest_epoch,
    },
};

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

    /// Returns the connection to a node.
    pub(super) fn info(&self, addr: &NodeAddr) -> ConnectionInfo {
        elsewhere(&self.node, addr.host.clone(), addr.port)
    }

    /// Asks these nodes for the layout of the cluster, all at once.
    pub(super) async fn layout(
        &self,
        addrs: Vec<NodeAddr>,
        patience: Duration,
    ) -> Result<Layout, StoreError> {
        let asked = addrs.iter().map(|addr| self.layout_of(addr, patience));
        let layout = highest_epoch(asked, |layout: &Layout| layout.epoch, patience).await;
        layout.unwrap_or_else(|| Err(not_sent("there is no node to ask")))
    }

    async fn layout_of(&self, addr: &NodeAddr, patience: Duration) -> Result<Layout, StoreError> {
        let mut commands = pipe();
        commands.cmd("CLUSTER").arg("INFO");
        commands.cmd("CLUSTER").arg("SLOTS").ignore_errors();
        let (info, slots): (RedisResult<String>, RedisResult<Value>) =
            self.query(addr, &commands, patience).await?;
        let slots = slots.map_err(|error| {
            let shown = error.to_string();
            if shown.contains("cluster support disabled") {
                return not_sent(format!(
                    "{addr} is no node of a cluster ({shown}); connect to it by `redis://{addr}`"
                ));
            }
            refused(error)
        })?;
        // Where `CLUSTER INFO` is refused, all layouts count alike.
        let layout = Layout::read(&info.unwrap_or_default(), &slots, addr);
        layout.ok_or_else(|| not_yet(format!("{addr} knows no node that has slots")))
    }

    /// Asks a node for its id.
    pub(super) async fn id(
        &self,
        addr: &NodeAddr,
        patience: Duration,
    ) -> Result<String, StoreError> {
        let mut my_id = pipe();
        my_id.cmd("CLUSTER").arg("MYID");
        let (id,) = self.query(addr, &my_id, patience).await?;
        Ok(id)
    }

    /// Connects to a node for these commands.
    async fn query<T: FromRedisValue>(
        &self,
        addr: &NodeAddr,
        commands: &Pipeline,
        patience: Duration,
    ) -> Result<T, StoreError> {
        let replies = Box::pin(async {
            let server = Server::new(self.info(addr), self.settings.clone());
            let client = server.client(ProtocolVersion::RESP2)?;
            commands.query_async(&mut plain(&client).await?).await
        });
        let replies = timeout(patience, replies).await.unwrap_or_else(|_| {
            Err(timed_out(format!(
                "no answer from {addr} within {patience:?}"
            )))
        });
        replies.map_err(refused)
    }
}

/// Classifies an error of a request that changes nothing.
fn refused(error: RedisError) -> StoreError {
    classify_login(error, LOGIN).not_executed()
}

/// Shows the addresses; never a password.
impl fmt::Display for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let addrs: Vec<String> = self.addrs.iter().map(ToString::to_string).collect();
        f.write_str(&addrs.join(", "))
    }
}
