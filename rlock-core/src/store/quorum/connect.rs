//! How a quorum is put together.

use std::{sync::Arc, time::Duration};

use tokio::{sync::Notify, time::Instant};

use super::{
    QuorumStore,
    call::{Members, QuorumCall, Wait},
    detached::Detached,
    member::{Health, Member},
    queueing,
    verdict::Verdict,
};
use crate::{
    error::LockError,
    store::{
        Listener, Store, StoreError,
        endpoint::ServerEndpoint,
        redis::{RedisOptions, RedisStore, RunIds, SameServer},
    },
};

/// Longer than any time-out of a connection.
const ALL: Duration = Duration::from_secs(24 * 60 * 60);

impl QuorumStore {
    /// Makes a store that is not connected.
    pub(crate) fn new(
        servers: &[ServerEndpoint],
        options: RedisOptions,
        listener: Listener,
    ) -> Self {
        let clock = options.clock.clone();
        let run_ids = Some(Arc::<RunIds>::default());
        let options = RedisOptions { run_ids, ..options };
        Self {
            members: members(servers, &options, &listener),
            clock,
            listener,
            detached: servers.iter().map(|_| Detached::new()).collect(),
            queued: Notify::new(),
        }
    }
}

/// Returns the error for a server that two URLs name, if that is why the store could not connect.
pub(crate) fn named_twice(error: &StoreError) -> Option<LockError> {
    let SameServer { address, other } = error.source.downcast_ref()?;
    let both = format!("`{other}` and `{address}`");
    let way_out = "both lead to the same server, and one that votes twice is no majority: \
                   each server is named once";
    Some(LockError::invalid_option("urls", both, way_out))
}

fn members(servers: &[ServerEndpoint], options: &RedisOptions, listener: &Listener) -> Members {
    let member = |(number, server): (usize, &ServerEndpoint)| {
        let health = Arc::<Health>::default();
        let listener = queueing::listener(Arc::clone(&health), Arc::clone(listener));
        let options = RedisOptions {
            server: number,
            ..options.clone()
        };
        Arc::new(Member {
            number,
            store: RedisStore::of(server.clone(), &options, &listener, None),
            health,
            timeout: options.response_timeout,
        })
    };
    servers.iter().enumerate().map(member).collect()
}

/// Connects to a majority. The others join when they can be reached.
pub(super) async fn connect_all(members: &Members) -> Result<(), StoreError> {
    let mut call = QuorumCall::to_all(members, |member, _| Arc::clone(&member.store).connect());
    let same = |call: &QuorumCall<()>| {
        let mut errors = call.failures().map(|(_, error)| error);
        errors
            .find(|error| error.source.is::<SameServer>())
            .cloned()
    };
    call.collect(Instant::now() + ALL, |call| match call.verdict(|()| true) {
        _ if same(call).is_some() => Wait::Over,
        Verdict::Open => Wait::Full,
        // The error names each server.
        _ if call.awaits_any() => Wait::Late,
        _ => Wait::Over,
    })
    .await;
    match same(&call) {
        Some(error) => Err(error),
        None if call.has_majority() => Ok(()),
        None => Err(call.error()),
    }
}
