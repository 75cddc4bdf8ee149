//! The connections of a plan: the caller and the subscribers. They close with its turn, so that the
//! next plan finds a clean server.

use std::time::Duration;

use anyhow::Result;
use futures_util::StreamExt as _;
use redis::{AsyncConnectionConfig, Client, aio::MultiplexedConnection};
use rlock_testkit::RedisServer;
use tokio::task::JoinSet;

use crate::plan::Plan;

/// The limit for one batch. Tools that count instructions slow it down fifty times.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Caller {
    pub(crate) connection: MultiplexedConnection,
    _listening: JoinSet<()>,
}

impl Caller {
    /// Connects as the plan requires.
    pub(crate) async fn of(plan: &Plan, server: &RedisServer) -> Result<Self> {
        // Clients connect in the same way: with client tracking and messages, over RESP3.
        let client = Client::open(format!("{}?protocol=resp3", server.url()))?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(PATIENCE))
            .set_response_timeout(Some(PATIENCE));
        let connecting = client.get_multiplexed_async_connection_with_config(&config);
        let mut connection = connecting.await?;
        if plan.tracking {
            let mut tracking = redis::cmd("CLIENT");
            tracking.arg("TRACKING").arg("ON").arg("NOLOOP");
            tracking.exec_async(&mut connection).await?;
        }
        let mut listening = JoinSet::new();
        for channel in &plan.listens {
            let mut messages = client.get_async_pubsub().await?;
            messages.subscribe(channel).await?;
            listening.spawn(messages.into_on_message().for_each(async |_| ()));
        }
        Ok(Self {
            connection,
            _listening: listening,
        })
    }
}
