//! The options of a client that concern its servers: time-outs, replicas, TLS and credentials.

use std::{sync::Arc, time::Duration};

use uuid::Uuid;

use super::{
    credentials::Credentials, floor::Floor, provider::Provider, run_ids::RunIds, tls::Tls,
};
use crate::{clock::ClientClock, limits::SHORTEST_FENCE_RETENTION, options::Replicas};

#[derive(Clone)]
pub(crate) struct StoreOptions {
    /// The client, which receives the notifications for its owners.
    pub(crate) client: Uuid,
    pub(crate) clock: ClientClock,
    pub(crate) prefix: String,
    pub(crate) fence_retention: Duration,
    /// The floor of new fences, which all servers of the store share.
    pub(crate) floor: Arc<Floor>,
    pub(crate) connection: ConnectionSettings,
    pub(crate) connect_timeout: Duration,
    pub(crate) response_timeout: Duration,
    pub(crate) replicas: Option<Replicas>,
    /// The index of the server in the configuration. The nodes of a cluster share it.
    pub(crate) server: usize,
    /// The servers of the quorum, if this one is a member.
    pub(crate) run_ids: Option<Arc<RunIds>>,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            client: Uuid::nil(),
            clock: ClientClock::default(),
            prefix: "lock:".to_owned(),
            fence_retention: SHORTEST_FENCE_RETENTION,
            floor: Arc::default(),
            connection: ConnectionSettings::default(),
            connect_timeout: Duration::from_secs(5),
            response_timeout: Duration::from_secs(2),
            replicas: None,
            server: 0,
            run_ids: None,
        }
    }
}

/// The connection settings that a URL does not contain.
#[derive(Clone)]
pub(crate) struct ConnectionSettings {
    pub(crate) nodelay: bool,
    pub(crate) tls: Tls,
    pub(crate) credentials: Option<Provider<Credentials>>,
}

impl Default for ConnectionSettings {
    fn default() -> Self {
        Self {
            nodelay: true,
            tls: Tls::default(),
            credentials: None,
        }
    }
}
