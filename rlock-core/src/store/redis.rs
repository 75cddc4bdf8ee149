//! The store on one Redis or Valkey server: chooses the connection for each request, and repeats it.

pub(super) mod address;
mod caller_link;
pub(super) mod capabilities;
pub(super) mod commands;
mod connection;
pub(super) mod dial;
mod directory;
pub(super) mod errors;
#[cfg(test)]
mod fake;
mod floor;
mod for_quorum;
pub(super) mod keyspace;
pub(super) mod link;
mod options;
#[cfg(any(test, fuzzing))]
pub(crate) mod properties;
mod replicas;
mod replies;
pub(crate) mod scripts;
pub(super) mod sentinel;
mod usage;

use std::{
    pin::pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::future::{Either, OptionFuture};
use redis::{Value, cmd};
use rlock_proto::{
    escape_control::escape_control,
    key::Key,
    lease::Time,
    mode::LockMode,
    store::{
        AcquireRequest, Acquired, Applied, Change, Claim, Listener, Notification, Renewal,
        RenewalOutcome, Renewed, StoredLock,
    },
};
use tokio::{
    runtime::Handle,
    time::{Instant, timeout_at},
};

use self::{
    address::Address,
    caller_link::CallerLink,
    commands::{Commands, Operation},
    connection::{Connection, gone},
    dial::boxed,
    errors::{
        MOST_REPEATS, classify, is_foreign, is_of_replica, is_read_only, is_refused,
        may_be_repeated, not_yet, wants_password, wants_reconnect,
    },
    keyspace::Keyspace,
    link::Link,
    replicas::ReplicaCheck,
};
pub(crate) use self::{
    dial::connecting,
    floor::Floor,
    for_quorum::{RunIds, SameServer},
    options::RedisOptions,
};
use super::{
    BoxFuture, ReplyFuture, Replying, SendOptions, Store, StoreError, endpoint::ServerEndpoint,
};
use crate::metrics;

/// The shortest time without a reply after which the client tries another connection.
pub(super) const SHORTEST_SILENCE: Duration = Duration::from_millis(50);
/// The time in which a request is sent, if there is a connection. A silence may be as long as the time-out.
const SENDING: Duration = Duration::from_millis(5);

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
        options: &RedisOptions,
        listener: &Listener,
        callers: Option<&Handle>,
    ) -> Arc<Self> {
        let keyspace = Keyspace::new(options.prefix.clone());
        Self::new(endpoint, keyspace, options, listener, callers)
    }

    pub(super) fn new(
        endpoint: ServerEndpoint,
        keyspace: Keyspace,
        options: &RedisOptions,
        listener: &Listener,
        callers: Option<&Handle>,
    ) -> Arc<Self> {
        let of_quorum = options.run_ids.is_some();
        let floor = Arc::clone(&options.floor);
        let commands = Commands::new(
            keyspace,
            options.fence_retention,
            floor,
            options.client,
            of_quorum,
        );
        let commands = Arc::new(commands);
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

    /// Names a key that other software wrote, and its type, after the server refused a request for that reason.
    async fn find_foreign(&self, call: Operation<'_>, deadline: Instant) -> Option<String> {
        const TYPES: [(&str, &str); 4] = [
            ("", "hash"),
            (":shared", "zset"),
            (":queue", "zset"),
            (":fence", "string"),
        ];
        let connection = self.background_connection(deadline).await.ok()?;
        for (suffix, own) in TYPES {
            for key in call.keys() {
                // Each refusal has a line in the server's `ACL LOG`.
                if connection.refuses_type.load(Ordering::Relaxed) {
                    return None;
                }
                let name = format!("{}{suffix}", self.commands.keyspace.lock(key));
                let ask = cmd("TYPE").arg(&name).take();
                let send = SendOptions::new(deadline.saturating_duration_since(Instant::now()));
                let reply = self.attempt(Operation::LookUp(&ask), send, deadline).await;
                if reply.as_ref().is_err_and(is_refused) {
                    connection.refuses_type.store(true, Ordering::Relaxed);
                }
                if let Value::SimpleString(found) = reply.ok()?.0
                    && found != own
                    && found != "none"
                {
                    let name = escape_control(&name);
                    // A quorum names the member.
                    let is_alone = self.background.options.run_ids.is_none();
                    let place = is_alone.then(|| format!(" on {}", self.describe()));
                    return Some(format!(
                        "the key `{name}`{} holds a {found} of other software (WRONGTYPE); delete it on the server, or \
                         use another `prefix`",
                        place.unwrap_or_default()
                    ));
                }
            }
        }
        None
    }

    /// Sends a request once. Returns its reply, and the time at which it was sent.
    ///
    /// The callers' connection carries changes that are made on their runtime, and those that must not overtake an
    /// earlier one. If their runtime is blocked or has ended, it does not reply. The next request then uses the
    /// background connection.
    async fn attempt(
        &self,
        call: Operation<'_>,
        send: SendOptions,
        deadline: Instant,
    ) -> Result<(Value, Time), StoreError> {
        let background = &self.background;
        // All other requests are about what an owner has already.
        if matches!(call, Operation::Acquire(..))
            && let Some(by) = background.address.next_promotion_by()
        {
            boxed(self.until_promoted(by, deadline)).await?;
        }
        let started = Instant::now();
        let caller = self.caller.as_ref().filter(|_| call.is_change());
        if caller.is_some() && send.in_doubt {
            boxed(self.round_trip(deadline, send)).await?;
        }
        let caller = caller.filter(|caller| send.in_doubt || caller.is_callers());
        // A silent server may execute a request much later, which only renewals are worth.
        let usable = |link: &Link| match call {
            Operation::Renew(..) => link.present(),
            _ => link.replying(),
        };
        let of_caller = caller.and_then(|caller| Some((&caller.link, usable(&caller.link)?)));
        let present = of_caller.or_else(|| Some((background, usable(background)?)));
        let (link, connection) = match present {
            Some(present) => present,
            // Boxed, because few requests wait for a connection, and it would make each larger.
            None => (
                background,
                boxed(self.background_connection(deadline)).await?,
            ),
        };
        let sent_at = background.options.clock.now();
        let reply = self.exchange(call, link, &connection, deadline, send).await;
        let in_doubt = reply.as_ref().is_err_and(|error| error.maybe_executed);
        // The wait of a call may end before the reply is late.
        if !link.is_background() && in_doubt && started.elapsed() >= self.silence() {
            link.give_up(connection.epoch);
        }
        Ok((reply?, sent_at))
    }

    async fn background_connection(
        &self,
        deadline: Instant,
    ) -> Result<Arc<Connection>, StoreError> {
        let up = timeout_at(deadline, self.background.connection()).await;
        up.map_err(|_| self.background.why_down())?
    }

    /// Waits until the server has executed what the background connection carried, and read what a former connection of
    /// the callers carried.
    async fn round_trip(&self, deadline: Instant, send: SendOptions) -> Result<(), StoreError> {
        // Every user has this permission: a refused `PING` would fill the server's `ACL LOG`.
        let (time, send) = (cmd("TIME"), send.silence(self.silence() / 2));
        let mut until = deadline.min(Instant::now() + self.silence());
        loop {
            let connection = self.background_connection(deadline).await?;
            let call = Operation::LookUp(&time);
            let reply = self.exchange(call, &self.background, &connection, until, send);
            match reply.await {
                // The background connection may be dead as well. Then the next one replies.
                Err(error) if error.maybe_executed && until < deadline => until = deadline,
                Err(error) if !is_refused(&error) => return Err(error.not_executed()),
                _ => return Ok(()),
            }
        }
    }

    /// Waits for a reply on this connection.
    ///
    /// After a while without a reply the link opens another connection, because this one may be dead. A late reply
    /// still counts.
    async fn exchange(
        &self,
        call: Operation<'_>,
        link: &Link,
        connection: &Connection,
        deadline: Instant,
        send: SendOptions,
    ) -> Result<Value, StoreError> {
        let started = Instant::now();
        let request = metrics::RequestTimer::begin(call.name(), started);
        connection.usage.begin(started.into_std());
        let mut reply = pin!(link.send(connection, call, send));
        let silent_at = started + send.silence.unwrap_or_else(|| self.silence());
        let mut outcome = timeout_at(deadline.min(silent_at), &mut reply).await;
        // A request that waited for its connection may have little time left.
        if outcome.is_err() && silent_at <= deadline + SENDING {
            link.doubt(connection.epoch);
            outcome = timeout_at(deadline, &mut reply).await;
            if outcome.is_ok() {
                link.trust(connection.epoch);
            }
        }
        let Ok(mut reply) = outcome else {
            request.timed_out();
            return Err(StoreError::no_reply(send.timeout));
        };
        if connection.promotion != link.address.promotion() {
            // The new master lacks everything that this server has done since the promotion.
            reply = Err(gone());
        }
        request.replied(reply.is_ok());
        reply.map_err(|error| {
            let is_of_login = wants_password(&error);
            if is_read_only(&error) {
                self.leave_replica(link, connection.epoch);
            } else if wants_reconnect(&error) || is_of_login {
                link.give_up(connection.epoch);
            }
            let mut error = classify(error);
            // The next connection has other credentials.
            error.transient |= is_of_login && link.address.settings.credentials.is_some();
            error
        })
    }

    /// Gives up the connection that met a replica. If it is still in use, the other connection probably leads there, too.
    fn leave_replica(&self, link: &Link, epoch: u64) {
        if !link.give_up_replica(epoch) {
            return;
        }
        for link in self.links() {
            if let Some(connection) = link.present() {
                link.give_up_replica(connection.epoch);
            }
        }
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

    /// Waits until a Sentinel names the replica that it promotes, because that replica may lack the locks that the master
    /// grants now.
    async fn until_promoted(&self, by: Instant, deadline: Instant) -> Result<(), StoreError> {
        let promoted = self.background.address.until_promoted(by);
        let promoted = timeout_at(deadline, promoted).await;
        promoted.map_err(|_| not_yet("a Sentinel is about to name another master"))?;
        self.links().for_each(|link| link.leave_former_master());
        Ok(())
    }

    /// Returns whether the server reports changes of the keys that this client reads.
    fn is_watched(&self) -> bool {
        (self.background.present()).is_some_and(|connection| connection.is_tracked)
    }

    /// Returns how long a reply may be missing. Shorter than the time-out, so the next attempt has a new connection.
    fn silence(&self) -> Duration {
        self.background.options.response_timeout / 2
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
                && let LockMode::Permits(mine) = owner.mode()
            {
                let key = key.clone();
                let differ = Notification::PermitsDiffer { key, mine, theirs };
                (self.background.listener)(differ);
            }
            let acquired = replies::read_acquired(reply, claims, sent_at, watched)?;
            if let Acquired::Granted { fences, .. } | Acquired::Taken { fences, .. } = &acquired {
                fences
                    .iter()
                    .for_each(|fence| self.commands.floor.note(*fence));
            }
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
