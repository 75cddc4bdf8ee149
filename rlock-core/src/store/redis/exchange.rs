//! Over which connection a request goes, what must precede it there, and how long its reply may be missing.

use std::{pin::pin, sync::Arc, time::Duration};

use redis::{Value, cmd};
use rlock_proto::lease::Time;
use tokio::time::{Instant, timeout_at};

use super::{
    RedisStore,
    commands::Operation,
    connection::{Connection, gone},
    dial::boxed,
    errors::{classify, is_read_only, is_refused, not_yet, wants_password, wants_reconnect},
    link::Link,
};
use crate::{
    metrics,
    store::{SendOptions, StoreError},
};

/// The time in which a request is sent, if there is a connection. A silence may be as long as the time-out.
const SENDING: Duration = Duration::from_millis(5);

impl RedisStore {
    /// Sends a request once. Returns its reply, and the time at which it was sent.
    ///
    /// The callers' connection carries changes that are made on their runtime, and those that must not overtake an
    /// earlier one. If their runtime is blocked or has ended, it does not reply. The next request then uses the
    /// background connection.
    pub(super) async fn attempt(
        &self,
        call: Operation<'_>,
        send: SendOptions,
        deadline: Instant,
    ) -> Result<(Value, Time), StoreError> {
        let background = &self.background;
        // Only an acquire grants something new; all other requests concern a lock that an owner has already.
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

    pub(super) async fn background_connection(
        &self,
        deadline: Instant,
    ) -> Result<Arc<Connection>, StoreError> {
        let up = timeout_at(deadline, self.background.connection()).await;
        up.map_err(|_| self.background.why_down())?
    }

    /// Waits until the server has executed what the background connection carried. What a connection
    /// that was given up carried may still arrive: the server refuses such an acquire after its owner's release.
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
    pub(super) async fn exchange(
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

    /// Waits until a Sentinel names the replica that it promotes, because that replica may lack the locks that the master
    /// grants now.
    async fn until_promoted(&self, by: Instant, deadline: Instant) -> Result<(), StoreError> {
        let promoted = self.background.address.until_promoted(by);
        let promoted = timeout_at(deadline, promoted).await;
        promoted.map_err(|_| not_yet("a Sentinel is about to name another master"))?;
        self.links().for_each(|link| link.leave_former_master());
        Ok(())
    }

    /// Returns how long a reply may be missing. Shorter than the time-out, so the next attempt has a new connection.
    pub(super) fn silence(&self) -> Duration {
        self.background.options.response_timeout / 2
    }
}
