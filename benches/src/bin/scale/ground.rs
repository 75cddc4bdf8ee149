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
    /// Like `Cluster`, after its replicas have gone.
    Masters,
}

pub(crate) enum Ground {
    Server(Box<RedisServer>),
    Cluster {
        cluster: RedisCluster,
        followed: bool,
    },
}

impl Ground {
    pub(crate) async fn start(kind: Kind) -> Self {
        let followed = match kind {
            Kind::Server => return Self::Server(Box::new(RedisServer::start())),
            Kind::Cluster => true,
            Kind::Masters => false,
        };
        let cluster = RedisCluster::start().await;
        if !followed {
            for master in 0..MASTERS {
                cluster.replica_of(master).kill();
            }
        }
        Self::Cluster { cluster, followed }
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Server(server) => server.url(),
            Self::Cluster { cluster, .. } => cluster.url(),
        }
    }

    pub(crate) fn masters(&self) -> impl Iterator<Item = &RedisServer> {
        let (one, several) = match self {
            Self::Server(server) => (Some(&**server), None),
            Self::Cluster { cluster, .. } => (None, Some(cluster)),
        };
        let several = several.into_iter();
        let several = several.flat_map(|cluster| (0..MASTERS).map(|n| cluster.node(n)));
        one.into_iter().chain(several)
    }

    pub(crate) fn replicas(&self) -> impl Iterator<Item = &RedisServer> {
        let cluster = match self {
            Self::Cluster {
                cluster,
                followed: true,
            } => Some(cluster),
            _ => None,
        };
        let cluster = cluster.into_iter();
        cluster.flat_map(|cluster| (0..MASTERS).map(|n| cluster.replica_of(n)))
    }
}
