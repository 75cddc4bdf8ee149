//! The store in a Postgres database: each request is one call of a SQL function, and so one transaction.
//!
//! A client has two sessions, both on its own runtime. One carries what changes locks, in order: a later request for an owner
//! therefore never overtakes an earlier one. The other renews, reads and listens, because a change may wait for a row or for the
//! disk.

mod address;
mod dial;
mod directory;
mod errors;
mod link;
mod migration;
mod parameter;
mod pooler;
mod replies;
mod requests;
mod schema;
mod session;
mod statements;
mod stream;
#[cfg(feature = "tls")]
mod tls;
mod transaction;

use std::{pin::pin, sync::Arc, time::Duration};

use futures_util::future::{Either, join_all};
use rlock_proto::{
    key::Key,
    lease::Time,
    mode::LockMode,
    store::{
        AcquireRequest, Acquired, Applied, Change, Claim, Listener, Notification, Renewal,
        RenewalOutcome, Renewed, StoredLock,
    },
};
use tokio::{
    sync::OnceCell,
    time::{Instant, timeout_at},
};
use tokio_postgres::Row;

pub(crate) use self::address::PostgresEndpoint;
pub(in crate::store) use self::{
    dial::LookingSession,
    pooler::{DATABASE, ELSEWHERE},
    schema::Schema,
};
use self::{
    errors::{classify, needs_session},
    link::Link,
    parameter::Parameter,
    replies::{only, read_acquired, read_difference, read_entry, read_renewed},
    requests::{Request, call},
};
use super::{BoxFuture, ReplyFuture, Replying, SendOptions, Store, StoreError, joined};
use crate::{
    metrics,
    store::{keyspace::Keyspace, options::StoreOptions},
};

/// How often a request is repeated because its session has ended.
const MOST_REPEATS: usize = 2;

/// The time in which a renewal that has waited for a row replies.
const REPLIES: Duration = Duration::from_millis(50);

pub(crate) struct PostgresStore {
    keyspace: Keyspace,
    schema: String,
    changes: Arc<Link>,
    background: Arc<Link>,
    /// Set once both links are known to lead to one database.
    is_one_database: OnceCell<()>,
}

impl PostgresStore {
    /// Makes a store that is not connected.
    pub(crate) fn of(
        endpoint: PostgresEndpoint,
        options: &StoreOptions,
        listener: &Listener,
    ) -> Arc<Self> {
        let background = Link::new(
            endpoint.of_listeners(),
            options.clone(),
            Some(Arc::clone(listener)),
        );
        Arc::new(Self {
            keyspace: Keyspace::new(options.prefix.clone()),
            schema: endpoint.schema.name.clone(),
            changes: Link::new(endpoint, options.clone(), None),
            background,
            is_one_database: OnceCell::new(),
        })
    }

    fn options(&self) -> &StoreOptions {
        &self.background.options
    }

    fn prefix(&self) -> &str {
        &self.options().prefix
    }

    /// Sends a request, again if its session has ended. Returns the rows, and the time at which it was sent.
    ///
    /// The background itself repeats releases, whose second reply is ambiguous, and renewals, which have a schedule.
    async fn call(
        &self,
        request: Request,
        send: SendOptions,
    ) -> Result<(Vec<Row>, Time), StoreError> {
        let deadline = Instant::now() + send.timeout;
        let is_repeated =
            request.name == "acquire" || !request.is_change() && request.name != "renew";
        let (mut repeats, mut maybe_executed) = (0, false);
        loop {
            let error = match self.attempt(&request, send, deadline).await {
                Ok(reply) => return Ok(reply),
                Err(Failed { error, has_ended }) if has_ended && is_repeated => error,
                Err(Failed { error, .. }) => return Err(error.or_executed(maybe_executed)),
            };
            maybe_executed |= error.maybe_executed;
            if repeats == MOST_REPEATS || Instant::now() >= deadline {
                return Err(error.or_executed(maybe_executed));
            }
            repeats += 1;
        }
    }

    /// Sends a request once. A session that is silent for a while is replaced. That ends its requests, but the late reply of one that
    /// cannot be ended, such as during a slow write to the disk, still counts.
    async fn attempt(
        &self,
        request: &Request,
        send: SendOptions,
        deadline: Instant,
    ) -> Result<(Vec<Row>, Time), Failed> {
        let link = if request.is_change() {
            &self.changes
        } else {
            &self.background
        };
        self.ensure_one_database(deadline).await?;
        let session = link.session_by(deadline).await?;
        let started = Instant::now();
        let sent_at = self.options().clock.now();
        let timer = metrics::RequestTimer::begin(request.name, started);
        let mut reply = pin!(session.execute(request));
        let silence = send.silence.unwrap_or(self.options().response_timeout / 2);
        let mut silent_at = started + silence;
        let mut outcome = timeout_at(deadline.min(silent_at), &mut reply).await;
        // Replies to earlier requests, which may have waited for rows, are signs of life.
        while outcome.is_err() && silent_at < deadline.min(session.heard() + silence) {
            silent_at = session.heard() + silence;
            outcome = timeout_at(deadline.min(silent_at), &mut reply).await;
        }
        if outcome.is_err() && silent_at <= deadline {
            link.give_up(session.epoch);
            outcome = timeout_at(deadline, &mut reply).await;
        }
        let Ok(reply) = outcome else {
            timer.timed_out();
            return Err(StoreError::no_reply(send.timeout).into());
        };
        timer.replied(reply.is_ok());
        match reply {
            Ok(rows) => Ok((rows, sent_at)),
            Err(error) => {
                let has_ended = needs_session(&error);
                if has_ended {
                    link.give_up(session.epoch);
                }
                let error = classify(&error);
                Err(Failed { error, has_ended })
            }
        }
    }

    /// Checks once that `direct` leads to the database of the pooler, because otherwise each renewal would lose its lock.
    async fn ensure_one_database(&self, deadline: Instant) -> Result<(), StoreError> {
        if !self.changes.endpoint.has_direct() || self.is_one_database.initialized() {
            return Ok(());
        }
        let check = async || {
            let changes = self.changes.session_by(deadline).await?;
            let direct = self.background.session_by(deadline).await;
            let direct = direct.map_err(|error| self.at_direct(error))?;
            if direct.database().await? == changes.database().await? {
                Ok(())
            } else {
                Err(StoreError::new(false, false, pooler::ELSEWHERE))
            }
        };
        let checked = timeout_at(deadline, self.is_one_database.get_or_try_init(check)).await;
        let late = |_| {
            StoreError::new(
                true,
                false,
                "no reply in time to the question which database it is",
            )
        };
        checked.map_err(late)?.map(|&()| ())
    }

    fn at_direct(&self, error: StoreError) -> StoreError {
        error.at(format!("`direct`, {}", self.background.endpoint))
    }

    async fn renewed(
        &self,
        renewals: &[Renewal],
        lease: Duration,
        send: SendOptions,
    ) -> Result<Renewed, StoreError> {
        let (rows, sent_at) = self.call(self.renews(renewals, lease), send).await?;
        let replies: Vec<i64> = only(&rows)?.get(0);
        let kept: Vec<_> = replies.into_iter().map(read_renewed).collect();
        for outcome in &kept {
            if let RenewalOutcome::Held { fence, .. } = outcome {
                self.options().floor.note(*fence);
            }
        }
        Ok(Renewed { kept, sent_at })
    }

    /// Renews each lock by a request of its own, because the server rolls back all of a request.
    async fn renewed_one_by_one(
        &self,
        renewals: &[Renewal],
        lease: Duration,
        send: SendOptions,
    ) -> Result<Renewed, StoreError> {
        let each = renewals.chunks(1);
        joined(join_all(each.map(|one| self.renewed(one, lease, send))).await)
    }

    async fn granted(
        &self,
        ask: &AcquireRequest,
        send: SendOptions,
    ) -> Result<Acquired, StoreError> {
        let (rows, sent_at) = self.call(self.acquires(ask), send).await?;
        let row = only(&rows)?;
        if let Some((n, theirs)) = read_difference(row)
            && let Some(Claim { key, owner }) = ask.claims.get(n)
            && let LockMode::Permits { of: mine, .. } = owner.mode()
        {
            let key = key.clone();
            let differ = Notification::PermitsDiffer { key, mine, theirs };
            self.background.notify(differ);
        }
        let acquired = read_acquired(row, sent_at, self.changes.polls());
        let floor = &self.options().floor;
        acquired.fences().for_each(|fence| floor.note(fence));
        Ok(acquired)
    }
}

/// Returns how long a session may be silent during a renewal: as usual, but not longer than the caller allows, unless it may
/// wait for a row for that time.
fn silence_of_renewal(lease: Duration, longest: Option<Duration>, usual: Duration) -> Duration {
    let [shortest, most] = [50, 250].map(Duration::from_millis);
    // As in `renew.sql`.
    let row_wait = (lease / 12).clamp(shortest, most);
    longest.unwrap_or(usual).min(usual).max(row_wait + REPLIES)
}

/// An attempt that failed.
struct Failed {
    error: StoreError,
    /// Whether its session has ended, and the next one may serve the request.
    has_ended: bool,
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self {
            error,
            has_ended: false,
        }
    }
}

impl Store for PostgresStore {
    fn acquire<'a>(
        &'a self,
        request: &'a AcquireRequest,
        send: SendOptions,
    ) -> Replying<'a, Acquired> {
        Either::Right(Box::pin(self.granted(request, send)))
    }

    fn apply<'a>(&'a self, change: &'a Change, send: SendOptions) -> Replying<'a, Applied> {
        Either::Right(Box::pin(async move {
            let (rows, _) = self.call(self.changes(change), send).await?;
            let is_done: bool = only(&rows)?.get(0);
            Ok(if is_done {
                Applied::Done
            } else {
                Applied::NotHeld
            })
        }))
    }

    fn renew<'a>(
        &'a self,
        renewals: &'a [Renewal],
        lease: Duration,
        send: SendOptions,
    ) -> ReplyFuture<'a, Renewed> {
        Box::pin(async move {
            let began = Instant::now();
            let usual = self.options().response_timeout / 2;
            let send = send.silence(silence_of_renewal(lease, send.silence, usual));
            match self.renewed(renewals, lease, send).await {
                // One row may be the cause, such as one that another transaction keeps.
                Err(error) if error.is_refusal && error.transient && renewals.len() > 1 => {
                    let timeout = send.timeout.saturating_sub(began.elapsed());
                    let send = SendOptions { timeout, ..send };
                    self.renewed_one_by_one(renewals, lease, send).await
                }
                renewed => renewed,
            }
        })
    }

    fn system(&self) -> Option<&'static str> {
        Some("postgresql")
    }

    fn describe(&self) -> String {
        self.changes.endpoint.to_string()
    }

    fn ping(&self, timeout: Duration) -> ReplyFuture<'_, ()> {
        Box::pin(async move {
            let ping = call!(ping());
            let send = SendOptions::new(timeout).silence(timeout);
            self.call(ping, send).await.map(drop)
        })
    }

    fn inspect<'a>(
        &'a self,
        key: &'a Key,
        send: SendOptions,
    ) -> ReplyFuture<'a, Option<StoredLock>> {
        Box::pin(async move {
            let asks = call!(inspect(self.keyspace.lock(key)));
            let (rows, _) = self.call(asks, send).await?;
            Ok(read_entry(only(&rows)?))
        })
    }

    fn connect(self: Arc<Self>) -> ReplyFuture<'static, ()> {
        Box::pin(async move {
            if !self.changes.endpoint.has_direct() {
                self.background.connect().await?;
                return self.changes.connect().await;
            }
            self.changes.connect().await?;
            let direct = self.background.connect().await;
            direct.map_err(|error| self.at_direct(error))?;
            let deadline = Instant::now() + self.options().connect_timeout;
            self.ensure_one_database(deadline).await
        })
    }

    fn background(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let background = async {
                if self.changes.endpoint.has_direct() {
                    // Only that session creates the tables.
                    self.changes.until_up().await;
                }
                Arc::clone(&self.background).keep_up().await;
            };
            tokio::join!(background, Arc::clone(&self.changes).keep_up());
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renewal_detects_a_silent_session_as_soon_as_other_requests_but_not_while_it_waits_for_a_row()
     {
        for (lease, usual, silence) in [
            (150, 1_000, 100),
            (1_200, 1_000, 400),
            (30_000, 1_000, 1_000),
            (3_600_000, 1_000, 1_000),
            (30_000, 10, 300),
        ] {
            let [lease, usual, silence] = [lease, usual, silence].map(Duration::from_millis);
            assert_eq!(silence_of_renewal(lease, Some(lease / 3), usual), silence);
        }
    }
}
