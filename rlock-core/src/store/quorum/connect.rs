//! How a quorum is put together.

use std::{sync::Arc, time::Duration};

use tokio::{runtime::Handle, sync::Notify, time::Instant};

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
        endpoint::{ServerEndpoint, invalid_urls},
        redis::{RedisOptions, RedisStore, RunIds, SameServer, connecting},
    },
};

/// Longer than any time-out of a connection.
const ALL: Duration = Duration::from_secs(24 * 60 * 60);

impl QuorumStore {
    /// Connects to a majority; the others join when they can be reached.
    pub(crate) async fn connect(
        servers: &[ServerEndpoint],
        options: RedisOptions,
        listener: Listener,
        runtime: &Handle,
    ) -> Result<Arc<Self>, LockError> {
        let store = Self::lazy(servers, options, listener)?;
        let started = store.clock.now();
        let first = connect_all(Arc::clone(&store.members), runtime.clone());
        let connected = connecting(runtime.spawn(first)).await;
        connected.map_err(|error| {
            if let Some(SameServer { address, other }) = error.source.downcast_ref() {
                let both = format!("`{other}` and `{address}`");
                let way_out = "both lead to the same server, and one that votes twice is no majority: \
                               each server is named once";
                return invalid_urls(both, way_out);
            }
            let action = format!("connect to {}", store.describe());
            error.into_lock_error(action, store.clock.now().since(started))
        })?;
        Ok(Arc::new(store))
    }

    /// Makes a store that connects in the background.
    pub(crate) fn lazy(
        servers: &[ServerEndpoint],
        options: RedisOptions,
        listener: Listener,
    ) -> Result<Self, LockError> {
        let clock = options.clock.clone();
        let run_ids = Some(Arc::<RunIds>::default());
        let options = RedisOptions { run_ids, ..options };
        Ok(Self {
            members: members(servers, &options, &listener)?.into(),
            clock,
            listener,
            detached: Detached::new(),
            queued: Notify::new(),
        })
    }
}

fn members(
    servers: &[ServerEndpoint],
    options: &RedisOptions,
    listener: &Listener,
) -> Result<Vec<Arc<Member>>, LockError> {
    let member = |(number, server): (usize, &ServerEndpoint)| {
        let health = Arc::<Health>::default();
        let listener = queueing::listener(Arc::clone(&health), Arc::clone(listener));
        let options = RedisOptions {
            server: number,
            ..options.clone()
        };
        let store = RedisStore::lazy(server.clone(), &options, &listener, None);
        Ok(Arc::new(Member {
            number,
            address: store.address(),
            store,
            health,
            timeout: options.response_timeout,
        }))
    };
    servers.iter().enumerate().map(member).collect()
}

async fn connect_all(members: Members, runtime: Handle) -> Result<(), StoreError> {
    let mut call = QuorumCall::to_all(&members, |member, _| {
        let runtime = runtime.clone();
        async move { member.store.connect_background(&runtime).await }
    });
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
