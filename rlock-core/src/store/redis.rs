//! The store on one Redis or Valkey server: chooses the connection for each request, and repeats it.

pub(super) mod address;
mod caller_link;
pub(super) mod capabilities;
pub(super) mod commands;
mod connection;
pub(super) mod dial;
mod directory;
pub(super) mod errors;
mod exchange;
#[cfg(test)]
mod fake;
mod for_quorum;
mod foreign;
pub(super) mod link;
#[cfg(any(test, fuzzing))]
pub(crate) mod properties;
mod replicas;
mod replies;
pub(crate) mod scripts;
pub(super) mod sentinel;
mod usage;

use std::{sync::Arc, time::Duration};

use futures_util::future::{Either, OptionFuture};
use redis::Value;
use rlock_proto::{
    key::Key,
    lease::Time,
    mode::LockMode,
    store::{
        AcquireRequest, Acquired, Applied, Change, Claim, Listener, Notification, Renewal,
        RenewalOutcome, Renewed, StoredLock,
    },
};
use tokio::{runtime::Handle, time::Instant};

use self::{
    address::Address,
    caller_link::CallerLink,
    commands::{Commands, Operation},
    dial::boxed,
    errors::{MOST_REPEATS, is_foreign, is_of_replica, is_refused, may_be_repeated},
    link::Link,
    replicas::ReplicaCheck,
};
use super::{
    BoxFuture, ReplyFuture, Replying, SendOptions, Store, StoreError, endpoint::ServerEndpoint,
    keyspace::Keyspace, options::StoreOptions,
};

/// The shortest time without a reply after which the client tries another connection.
pub(super) const SHORTEST_SILENCE: Duration = Duration::from_millis(50);

pub(crate) struct RedisStore {
    pub(super) commands: Arc<Commands>,
    pub(super) background: Arc<Link>,
    caller: Option<CallerLink>,
    replica_check: Option<ReplicaCheck>,
}

impl RedisStore {
    /// Makes a store that is not connected.
    pub(crate) fn of(
        endpoint: ServerEndpoint,
        options: &StoreOptions,
        listener: &Listener,
        callers: Option<&Handle>,
    ) -> Arc<Self> {
        let keyspace = Keyspace::new(options.prefix.clone());
        Self::new(endpoint, keyspace, options, listener, callers)
    }

    pub(super) fn new(
        endpoint: ServerEndpoint,
        keyspace: Keyspace,
        options: &StoreOptions,
        listener: &Listener,
        callers: Option<&Handle>,
    ) -> Arc<Self> {
        let commands = Arc::new(Commands::new(keyspace, options));
        let address = Address::new(endpoint, options.connection.clone());
        let (scripts, listener) = (Arc::clone(&commands), Arc::clone(listener));
        let background = Link::new(address, scripts, options.clone(), listener, None);
        let replica_check = |asked| ReplicaCheck::new(Arc::clone(&background), asked);
        Arc::new(Self {
            commands,
            caller: callers.map(|runtime| CallerLink::new(&background, runtime)),
            replica_check: options.replicas.map(replica_check),
            background,
        })
    }

    /// Sends a request. `read` reads its reply, and gets the time at which it was sent.
    ///
    /// Sends the request again within its time-out if the next connection may serve it, because a call that does not wait
    /// sends no other request.
    pub(super) async fn call<T>(
        &self,
        call: Operation<'_>,
        send: SendOptions,
        read: impl FnOnce(Value, Time) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let deadline = Instant::now() + send.timeout;
        let reply = match self.attempt(call, send, deadline).await {
            Err(error) => boxed(self.repeat(call, send, deadline, error)).await,
            reply => reply,
        };
        let (reply, sent_at) = reply?;
        read(reply, sent_at)
    }

    /// Sends a request again after this error, at most once for each connection that may have ended.
    ///
    /// A repetition follows what the failed connection carried, as a request in doubt does. The background itself repeats
    /// releases, whose second reply is ambiguous, and renewals, which have a schedule.
    async fn repeat(
        &self,
        call: Operation<'_>,
        send: SendOptions,
        deadline: Instant,
        mut error: StoreError,
    ) -> Result<(Value, Time), StoreError> {
        let is_change = matches!(call, Operation::Acquire(..));
        for number in 0..MOST_REPEATS {
            let is_served_elsewhere = if self.commands.keyspace.are_of_cluster {
                // A cluster routes the request itself, by the slots' new masters.
                false
            } else if is_of_replica(&error) {
                // The next connection may lead to the master, by the Sentinels or a balancer. The other members of a quorum
                // decide sooner.
                is_change && number == 0 && self.background.options.run_ids.is_none()
            } else {
                (is_change || !call.writes()) && may_be_repeated(&error)
            };
            if !is_served_elsewhere {
                break;
            }
            let in_doubt = error.maybe_executed && is_change;
            let send = send.in_doubt(send.in_doubt || in_doubt);
            match self.attempt(call, send, deadline).await {
                Err(next) => error = next.or_executed(in_doubt),
                reply => return reply,
            }
        }
        if is_foreign(&error)
            && let Some(words) = self.find_foreign(call, deadline).await
        {
            error = error.reworded(words);
        }
        Err(error)
    }

    fn links(&self) -> impl Iterator<Item = &Arc<Link>> {
        let caller = self.caller.as_ref().map(|caller| &caller.link);
        caller.into_iter().chain([&self.background])
    }

    /// Leaves each master as soon as a Sentinel names its successor. The holds are renewed there at once.
    async fn keep_following(&self) {
        let mut promotions = self.background.address.promotions();
        while promotions.changed().await.is_ok() {
            self.links().for_each(|link| link.leave_former_master());
        }
    }

    /// Returns whether the server reports changes of the keys that this client reads.
    fn is_watched(&self) -> bool {
        (self.background.present()).is_some_and(|connection| connection.is_tracked)
    }

    /// Keeps the connections up while it is polled.
    pub(super) async fn keep_up(&self) {
        let (caller, background) = (self.caller.as_ref(), &self.background);
        let keep_tracked = caller.map(|caller| caller.keep_tracked(background));
        let within = background.options.connect_timeout;
        tokio::join!(
            Arc::clone(background).keep_up(),
            background.address.keep_listening(within),
            self.keep_following(),
            OptionFuture::from(keep_tracked),
            OptionFuture::from(self.replica_check.as_ref().map(ReplicaCheck::run)),
        );
    }
}

impl Store for RedisStore {
    fn acquire<'a>(
        &'a self,
        request: &'a AcquireRequest,
        send: SendOptions,
    ) -> Replying<'a, Acquired> {
        let read = |mut reply, sent_at| {
            let (claims, watched) = (request.claims.len(), self.is_watched());
            if let Some((claim, theirs)) = replies::take_number(&mut reply)
                && let Some(Claim { key, owner }) = request.claims.get(claim)
                && let LockMode::Permits { of: mine, .. } = owner.mode()
            {
                let key = key.clone();
                let differ = Notification::PermitsDiffer { key, mine, theirs };
                (self.background.listener)(differ);
            }
            let acquired = replies::read_acquired(reply, claims, sent_at, watched)?;
            acquired
                .fences()
                .for_each(|fence| self.commands.floor.note(fence));
            Ok(acquired)
        };
        Either::Right(boxed(self.call(
            Operation::Acquire(request, None),
            send,
            read,
        )))
    }

    fn apply<'a>(&'a self, change: &'a Change, send: SendOptions) -> Replying<'a, Applied> {
        let read = |reply, _| replies::read_applied(&reply);
        Either::Right(boxed(self.call(Operation::Change(change), send, read)))
    }

    fn renew<'a>(
        &'a self,
        renewals: &'a [Renewal],
        lease: Duration,
        send: SendOptions,
    ) -> ReplyFuture<'a, Renewed> {
        // The lease may end before the ordinary time-out.
        let silence = send.silence.unwrap_or_default().max(SHORTEST_SILENCE);
        let send = send.silence(silence.min(self.silence()));
        let read = |reply, sent_at| {
            let renewed = replies::read_renewed(reply, renewals.len(), sent_at)?;
            for outcome in &renewed.kept {
                if let RenewalOutcome::Held { fence, .. } = outcome {
                    self.commands.floor.note(*fence);
                }
            }
            Ok(renewed)
        };
        Box::pin(self.call(Operation::Renew(renewals, lease), send, read))
    }

    fn replicate<'a>(&'a self, claims: &'a [Claim], lease: Duration) -> ReplyFuture<'a, ()> {
        Box::pin(async move {
            match &self.replica_check {
                Some(replica_check) => replica_check.confirm(claims, lease).await,
                None => Err(StoreError::no_replicas()),
            }
        })
    }

    fn describe(&self) -> String {
        self.background.address.to_string()
    }

    fn ping(&self, timeout: Duration) -> ReplyFuture<'_, ()> {
        Box::pin(async move {
            let send = SendOptions::new(timeout).silence(timeout);
            match self.call(Operation::Ping, send, |_, _| Ok(())).await {
                // A refused `PING` proves as much.
                Err(error) if is_refused(&error) => Ok(()),
                reply => reply,
            }
        })
    }

    fn inspect<'a>(
        &'a self,
        key: &'a Key,
        send: SendOptions,
    ) -> ReplyFuture<'a, Option<StoredLock>> {
        let read = |reply, _| replies::read_entry(reply);
        Box::pin(self.call(Operation::Inspect(key), send, read))
    }

    fn connect(self: Arc<Self>) -> ReplyFuture<'static, ()> {
        Box::pin(async move {
            self.background.connect().await?;
            if let Some(caller) = &self.caller {
                caller.connected().await;
            }
            Ok(())
        })
    }

    fn background(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move { self.keep_up().await })
    }
}

#[cfg(test)]
mod tests;
