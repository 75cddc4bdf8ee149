//! The nodes that a URL names, from which the others are learnt; and how all of them are spoken to.

use std::{fmt, time::Duration};

use futures_util::future::try_join;
use redis::{
    ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo, RedisError, RedisResult, Value,
    aio::MultiplexedConnection, cmd,
};
use tokio::time::timeout;

use super::{
    super::{
        address::{Address, LOGIN, Manner, Server, not_understood},
        connection::{boxed, plain},
        errors::{classify, classify_login, not_sent},
        hosts::{Hosts, elsewhere, wrong},
        newest::newest,
        tls::Tls,
    },
    layout::{Layout, Place},
};
use crate::{error::LockError, store::StoreError};

pub(super) struct Seeds {
    places: Vec<Place>,
    /// A node, but for its address.
    node: ConnectionInfo,
    manner: Manner,
}

impl Seeds {
    /// Reads `redis-cluster://[user:password@]host[:port],…[?options]`. User, password and options are
    /// those of all nodes.
    pub(super) fn parse(url: &str, nodelay: bool, tls: Tls) -> Result<Self, LockError> {
        let manner = Manner::of(url, nodelay, tls)?;
        Self::read(url, manner).map_err(|error| not_understood(url, &error))
    }

    fn read(url: &str, manner: Manner) -> RedisResult<Self> {
        let Hosts {
            scheme,
            login,
            names,
            path: database,
            query,
        } = Hosts::parse(url)?;
        if !matches!(database, "" | "0") {
            return Err(wrong("a cluster has one database, and its number is 0"));
        }
        let (mut places, mut node) = (Vec::new(), None);
        for host in names {
            let info = format!("{scheme}://{login}{host}/?{query}").into_connection_info()?;
            let (ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. }) =
                info.addr()
            else {
                return Err(wrong("nodes of a cluster listen at ports"));
            };
            places.push(Place {
                host: host.clone(),
                port: *port,
            });
            node = Some(info);
        }
        Ok(Self {
            places,
            node: node.ok_or_else(|| wrong("it names no host"))?,
            manner,
        })
    }

    pub(super) fn places(&self) -> &[Place] {
        &self.places
    }

    /// How a node is connected to.
    pub(super) fn address(&self, place: &Place) -> RedisResult<Address> {
        Address::at(&self.at(place), &self.manner)
    }

    fn at(&self, place: &Place) -> ConnectionInfo {
        elsewhere(&self.node, place.host.clone(), place.port)
    }

    /// Asks all of these nodes at once who has which slots.
    pub(super) async fn layout(
        &self,
        places: Vec<Place>,
        patience: Duration,
    ) -> Result<Layout, StoreError> {
        let asked = places.iter().map(|place| async move {
            let answer = timeout(patience, boxed(self.ask(place))).await;
            answer.unwrap_or_else(|_| Err(no_answer(place, patience)))
        });
        let layout = newest(asked, |layout: &Layout| layout.epoch, patience).await;
        layout.unwrap_or_else(|| Err(not_sent("there is no node to ask")))
    }

    async fn ask(&self, place: &Place) -> Result<Layout, StoreError> {
        let failed = |error: RedisError| {
            let shown = error.to_string();
            if shown.contains("cluster support disabled") {
                return not_sent(format!(
                    "{place} is no node of a cluster ({shown}); connect to it by `redis://{place}`"
                ));
            }
            StoreError {
                maybe_executed: false,
                ..classify_login(error, LOGIN)
            }
        };
        let (info, slots) = self.answers(place).await.map_err(failed)?;
        let layout = Layout::read(&info, &slots, place);
        let layout = layout.filter(|layout| !layout.ranges.is_empty());
        layout.ok_or_else(|| StoreError {
            transient: true,
            ..not_sent(format!("{place} knows no node that has slots"))
        })
    }

    /// What the cluster calls the node at this place.
    pub(super) async fn name(
        &self,
        place: &Place,
        patience: Duration,
    ) -> Result<String, StoreError> {
        let answer = async {
            let mut connection = self.connection(place).await?;
            cmd("CLUSTER")
                .arg("MYID")
                .query_async(&mut connection)
                .await
        };
        let answer = timeout(patience, answer).await;
        let answer = answer.map_err(|_| no_answer(place, patience))?;
        answer.map_err(|error| StoreError {
            maybe_executed: false,
            ..classify(error)
        })
    }

    async fn connection(&self, place: &Place) -> RedisResult<MultiplexedConnection> {
        let server = Server::new(&self.at(place), &self.manner)?;
        plain(&server).await
    }

    async fn answers(&self, place: &Place) -> RedisResult<(String, Value)> {
        let connection = self.connection(place).await?;
        let (mut one, mut other) = (connection.clone(), connection);
        let info = async {
            let info = cmd("CLUSTER").arg("INFO").query_async(&mut one).await;
            // It may be refused: then all count alike.
            Ok(info.unwrap_or_default())
        };
        let mut slots = cmd("CLUSTER");
        slots.arg("SLOTS");
        try_join(info, slots.query_async(&mut other)).await
    }
}

/// Shows the addresses; never a password.
impl fmt::Display for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, place) in self.places.iter().enumerate() {
            let before = if n == 0 { "" } else { ", " };
            write!(f, "{before}{place}")?;
        }
        Ok(())
    }
}

fn no_answer(place: &Place, after: Duration) -> StoreError {
    let waited = format!("no answer from {place} within {after:?}");
    StoreError {
        maybe_executed: false,
        ..classify(RedisError::from((ErrorKind::Io, "time-out", waited)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_nodes_and_shows_no_password() {
        let url = "redis-cluster://app:s3cret@one,two:1,[::1]:2/?protocol=resp2";
        let seeds = Seeds::parse(url, true, Tls::default()).expect("valid");
        assert_eq!(seeds.to_string(), "one:6379, two:1, ::1:2");
        let elsewhere = Place {
            host: "three".to_owned(),
            port: 3,
        };
        let info = seeds.at(&elsewhere);
        assert_eq!(info.redis_settings().password(), Some("s3cret"));
        let address = seeds.address(&elsewhere).expect("valid");
        assert_eq!(address.to_string(), "three:3");
        for (url, reason) in [
            ("redis-cluster://u:s3cret@one,,two", "host without a name"),
            ("redis-cluster://u:s3cret@", "host without a name"),
            (
                "redis-cluster://u:s3cret@one:99999",
                "`redis-cluster://…@one:99999`",
            ),
            ("redis-cluster://u:s3cret@one,two/1", "one database"),
            ("redis-cluster://u:12/s3cret@one", "%2F"),
            ("redis-cluster:one", "expected `redis-cluster://[user:"),
        ] {
            let error = Seeds::parse(url, true, Tls::default()).err().expect(url);
            let shown = format!("{error} {error:?}");
            assert!(shown.contains(reason), "{shown}");
            assert!(!shown.contains("s3cret"), "{shown}");
            assert!(shown.contains("`redis-cluster:"), "{shown}");
        }
    }
}
