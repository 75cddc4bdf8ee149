//! The floor of a quorum: the same two requests to every server at once, with the replies of all. A
//! pair takes two round trips to the slowest server.

use std::{sync::Arc, time::Duration};

use anyhow::{Result, ensure};
use futures_util::future::try_join_all;
use redis::{Client, Script, aio::MultiplexedConnection};

use super::{
    BoxFuture, Contestant, Inside, Seat, inside,
    raw::{give_back, take, unlock},
};

pub(super) struct RawOnAll {
    servers: Vec<MultiplexedConnection>,
    unlock: Arc<Script>,
    lease: Duration,
}

impl RawOnAll {
    pub(super) async fn connect(urls: &[String], lease: Duration) -> Result<Self> {
        let servers = urls.iter().map(|url| async move {
            let client = Client::open(url.as_str())?;
            client.get_multiplexed_async_connection().await
        });
        Ok(Self {
            servers: try_join_all(servers).await?,
            unlock: Arc::new(unlock()),
            lease,
        })
    }
}

impl Contestant for RawOnAll {
    fn seat<'a>(&'a self, key: &str) -> BoxFuture<'a, Result<Box<dyn Seat>>> {
        let seat = RawSeat {
            key: format!("raw:{key}"),
            servers: self.servers.clone(),
            unlock: Arc::clone(&self.unlock),
            lease: self.lease,
        };
        Box::pin(async { Ok(Box::new(seat) as Box<dyn Seat>) })
    }
}

struct RawSeat {
    key: String,
    servers: Vec<MultiplexedConnection>,
    unlock: Arc<Script>,
    lease: Duration,
}

impl Seat for RawSeat {
    fn pair(&mut self, stay: Duration) -> BoxFuture<'_, Result<Inside>> {
        Box::pin(async move {
            let (key, unlock, lease) = (&self.key, &self.unlock, self.lease);
            let servers = self.servers.iter_mut();
            let taken = try_join_all(servers.map(|server| take(server, key, lease))).await?;
            ensure!(taken.into_iter().all(|taken| taken), "the key was taken");
            let inside = inside(stay);
            let servers = self.servers.iter_mut();
            let given_back = servers.map(|server| give_back(server, unlock, key));
            let given_back = try_join_all(given_back).await?;
            ensure!(
                given_back.into_iter().all(|given| given),
                "the key did not exist"
            );
            Ok(inside)
        })
    }
}
