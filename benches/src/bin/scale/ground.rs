//! Starts the servers under measurement.

use clap::ValueEnum;
use rlock_testkit::{MASTERS, RedisCluster, RedisServer};

/// The kind of store.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// One server.
    Server,
    /// A cluster of three masters, each with a replica.
    Cluster,
}

pub(crate) enum Ground {
    Server(Box<RedisServer>),
    Cluster(RedisCluster),
}

impl Ground {
    pub(crate) async fn start(kind: Kind) -> Self {
        match kind {
            Kind::Server => Self::Server(Box::new(RedisServer::start())),
            Kind::Cluster => Self::Cluster(RedisCluster::start().await),
        }
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Server(server) => server.url(),
            Self::Cluster(cluster) => cluster.url(),
        }
    }

    pub(crate) fn masters(&self) -> Vec<&RedisServer> {
        match self {
            Self::Server(server) => vec![server],
            Self::Cluster(cluster) => (0..MASTERS).map(|n| cluster.node(n)).collect(),
        }
    }

    pub(crate) fn replicas(&self) -> Vec<&RedisServer> {
        match self {
            Self::Server(_) => Vec::new(),
            Self::Cluster(cluster) => (0..MASTERS).map(|n| cluster.replica_of(n)).collect(),
        }
    }
}
