//! The store on a quorum: a lock is held if more than half of several independent servers grant it.
//!
//! [`redlock`] is the algorithm. A [`QuorumCall`] asks all members, and [`rlock_proto::quorum`] counts their replies. Each member is a
//! [`RedisStore`] with one connection. A quorum has no wait queue. A release notifies all waiters at every member, and each of them
//! asks again after a pause of its own.

mod call;
mod directory;
mod inspect;
mod redlock;

use std::{sync::Arc, time::Duration};

use futures_util::future::{Either, join_all};
use rlock_proto::{
    key::Key,
    lease::MAX_LEASE,
    quorum::{majority, of_member},
    store::{
        AcquireRequest, Acquired, Applied, Change, Claim, Listener, Renewal, Renewed, StoredLock,
    },
};

use self::call::{LateReplies, Members, QuorumCall};
use super::{
    BoxFuture, ReplyFuture, Replying, SendOptions, Store, StoreError, endpoint::ServerEndpoint,
    redis::RedisStore, retry_within,
};
use crate::{
    clock::ClientClock,
    error::LockError,
    store::{
        floor::Floor,
        options::StoreOptions,
        run_ids::{RunIds, SameServer},
    },
};

/// How long a new client waits for further members once a majority is connected.
const LATE_CONNECTIONS: Duration = Duration::from_millis(500);

pub(crate) struct QuorumStore {
    members: Members,
    clock: ClientClock,
    floor: Arc<Floor>,
    late: Box<[LateReplies]>,
    is_held: IsHeld,
}

/// Returns whether this client still has a lock.
pub(crate) type IsHeld = Arc<dyn Fn(&Claim) -> bool + Send + Sync>;

impl QuorumStore {
    /// Makes a store that is not connected.
    pub(crate) fn new(
        servers: &[ServerEndpoint],
        options: StoreOptions,
        listener: Listener,
        is_held: IsHeld,
    ) -> Self {
        let members = servers.len();
        warn_of_even(members);
        let listener: Listener = Arc::new(move |event| {
            if let Some(event) = of_member(event, members, fastrand::f64) {
                listener(event);
            }
        });
        let options = StoreOptions {
            run_ids: Some(Arc::<RunIds>::default()),
            ..options
        };
        let member = |(server, endpoint): (usize, &ServerEndpoint)| {
            let options = StoreOptions {
                server,
                ..options.clone()
            };
            RedisStore::of(endpoint.clone(), &options, &listener, None)
        };
        Self {
            members: servers.iter().enumerate().map(member).collect(),
            clock: options.clock.clone(),
            floor: options.floor,
            late: servers.iter().map(|_| LateReplies::new()).collect(),
            is_held,
        }
    }

    /// Connects to a majority. The others join when they can be reached.
    async fn connect_all(&self) -> Result<(), StoreError> {
        let mut call = QuorumCall::to_all(&self.members, RedisStore::connect);
        let is_same = |error: &&StoreError| error.source.is::<SameServer>();
        // Each connection has its own time-out, which is shorter. A member that connects later lacks earlier locks.
        call.late = LATE_CONNECTIONS;
        call.collect(MAX_LEASE, |call| call.errors().any(|error| is_same(&error)))
            .await;
        match call.errors().find(is_same) {
            Some(error) => Err(error.clone()),
            None => call.needs_majority(),
        }
    }
}

/// Warns of an even number of servers, because it tolerates no more losses than one server fewer would.
fn warn_of_even(servers: usize) {
    if servers.is_multiple_of(2) {
        let tolerated = servers - majority(servers);
        tracing::warn!(
            servers,
            tolerated,
            "an even number of servers tolerates no more losses than one fewer would: use an odd number"
        );
    }
}

/// Returns the error for a server that two URLs name, if that is why the store could not connect.
pub(crate) fn named_twice(error: &StoreError) -> Option<LockError> {
    let SameServer { address, other } = error.source.downcast_ref()?;
    let both = format!("`{other}` and `{address}`");
    let way_out = "both lead to the same server, and one that votes twice is not a majority: \
                   each server is named once";
    Some(LockError::invalid_option("urls", both, way_out))
}

impl Store for QuorumStore {
    fn acquire<'a>(
        &'a self,
        request: &'a AcquireRequest,
        send: SendOptions,
    ) -> Replying<'a, Acquired> {
        Either::Right(Box::pin(self.acquire_all(request.clone(), send)))
    }

    fn apply<'a>(&'a self, change: &'a Change, send: SendOptions) -> Replying<'a, Applied> {
        Either::Right(Box::pin(self.apply_all(change.clone(), send)))
    }

    fn renew<'a>(
        &'a self,
        renewals: &'a [Renewal],
        lease: Duration,
        send: SendOptions,
    ) -> ReplyFuture<'a, Renewed> {
        Box::pin(self.renew_all(renewals, lease, send))
    }

    fn describe(&self) -> String {
        format!("a quorum of {} servers", self.members.len())
    }

    fn ping(&self, timeout: Duration) -> ReplyFuture<'_, ()> {
        Box::pin(retry_within(timeout, move |remaining| async move {
            let mut call = QuorumCall::to_each(&self.members, move |member| async move {
                member.ping(remaining).await
            });
            call.collect(remaining, |call| {
                call.has_majority() || call.lacks_majority()
            })
            .await;
            call.needs_majority()
        }))
    }

    fn inspect<'a>(
        &'a self,
        key: &'a Key,
        send: SendOptions,
    ) -> ReplyFuture<'a, Option<StoredLock>> {
        Box::pin(self.inspect_all(key, send))
    }

    fn connect(self: Arc<Self>) -> ReplyFuture<'static, ()> {
        Box::pin(async move { self.connect_all().await })
    }

    fn background(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let members = self.members.iter();
            let members = members.map(|member| Arc::clone(member).background());
            let late = self.late.iter().map(LateReplies::run);
            tokio::join!(join_all(members), join_all(late));
        })
    }
}
