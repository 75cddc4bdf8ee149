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
mod schema;
mod session;
#[cfg(feature = "tls")]
mod tls;

use std::{pin::pin, sync::Arc, time::Duration};

use futures_util::future::Either;
use rlock_proto::{
    few::Few,
    key::Key,
    lease::Time,
    mode::LockMode,
    owner::OwnerId,
    store::{
        AcquireRequest, Acquired, Applied, Change, Claim, Listener, Notification, QueuePlace,
        Renewal, RenewalOutcome, Renewed, StoredLock, TakenBy,
    },
};
use tokio::time::{Instant, timeout_at};
use tokio_postgres::{Row, Statement};

pub(crate) use self::address::PostgresEndpoint;
use self::{
    errors::{classify, ends_session},
    link::Link,
    session::{Parameter, Statements},
};
use super::{
    BoxFuture, ReplyFuture, Replying, SendOptions, Store, StoreError,
    redis::{RedisOptions, keyspace::Keyspace},
};
use crate::metrics;

/// How often a request is repeated because its session has ended.
const MOST_REPEATS: usize = 2;

pub(crate) struct PostgresStore {
    keyspace: Keyspace,
    schema: String,
    changes: Arc<Link>,
    background: Arc<Link>,
}

/// A call of a function.
struct Request {
    /// Its name in metrics.
    name: &'static str,
    statement: fn(&Statements) -> &Statement,
    parameters: Vec<Parameter>,
}

impl Request {
    fn new(
        name: &'static str,
        statement: fn(&Statements) -> &Statement,
        parameters: Vec<Parameter>,
    ) -> Self {
        Self {
            name,
            statement,
            parameters,
        }
    }

    fn is_change(&self) -> bool {
        matches!(self.name, "acquire" | "set_count" | "downgrade" | "release")
    }
}

/// Returns whole milliseconds, the unit of the functions.
fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Returns a fence, which is less than 2^46.
fn signed(fence: u64) -> i64 {
    i64::try_from(fence).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}

impl PostgresStore {
    /// Makes a store that is not connected.
    pub(crate) fn of(
        endpoint: PostgresEndpoint,
        options: &RedisOptions,
        listener: &Listener,
    ) -> Arc<Self> {
        let background = Link::new(
            endpoint.clone(),
            options.clone(),
            Some(Arc::clone(listener)),
        );
        Arc::new(Self {
            keyspace: Keyspace::new(options.prefix.clone()),
            schema: endpoint.schema.clone(),
            changes: Link::new(endpoint, options.clone(), None),
            background,
        })
    }

    fn options(&self) -> &RedisOptions {
        &self.background.options
    }

    fn prefix(&self) -> &str {
        &self.options().prefix
    }

    fn retention(&self) -> Parameter {
        Box::new(millis(self.options().fence_retention))
    }

    fn floor(&self) -> Parameter {
        Box::new(signed(self.options().floor.next()))
    }

    fn lock(&self, key: &Key) -> Parameter {
        Box::new(self.keyspace.lock(key))
    }

    /// Returns the names of the locks, and the owners.
    fn claims<'a>(&self, claims: impl Iterator<Item = &'a Claim>) -> [Parameter; 2] {
        let named = |claim: &Claim| (self.keyspace.lock(&claim.key), claim.owner.to_string());
        let (keys, owners): (Vec<String>, Vec<String>) = claims.map(named).unzip();
        [Box::new(keys), Box::new(owners)]
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

    /// Sends a request once. A session that is silent for a while is replaced, and a late reply still counts.
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
        let session = timeout_at(deadline, link.session()).await;
        let session = session.map_err(|_| link.why_down()).and_then(|up| up)?;
        let started = Instant::now();
        let sent_at = self.options().clock.now();
        let timer = metrics::RequestTimer::begin(request.name, started);
        let mut reply = pin!(session.execute(request.statement, &request.parameters));
        let silence = send.silence.unwrap_or(self.options().response_timeout / 2);
        let silent_at = started + silence;
        let mut outcome = timeout_at(deadline.min(silent_at), &mut reply).await;
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
                let has_ended = ends_session(&error);
                if has_ended {
                    link.give_up(session.epoch);
                }
                let error = classify(&error);
                Err(Failed { error, has_ended })
            }
        }
    }

    async fn granted(
        &self,
        request: &AcquireRequest,
        send: SendOptions,
    ) -> Result<Acquired, StoreError> {
        let [keys, owners] = self.claims(request.claims.iter());
        let parameters = vec![
            keys,
            owners,
            Box::new(millis(request.lease)),
            self.retention(),
            Box::new(request.waits),
            self.floor(),
        ];
        let asks = Request::new("acquire", |all| &all.acquire, parameters);
        let (rows, sent_at) = self.call(asks, send).await?;
        let row = only(&rows)?;
        let fences: Vec<i64> = row.get("fences");
        let fences: Few<u64> = fences.into_iter().map(unsigned).collect();
        fences
            .iter()
            .for_each(|fence| self.options().floor.note(*fence));
        if let Some(differs) = row.get("differs") {
            self.report_difference(request, differs);
        }
        let taken: Option<i32> = row.get("taken");
        let Some(taken) = taken else {
            return Ok(Acquired::Granted {
                fences,
                wanted: row.get("wanted"),
                sent_at,
            });
        };
        let (ttl, queued): (Option<i64>, i32) = (row.get("ttl"), row.get("queued"));
        Ok(Acquired::Taken {
            claim: usize::try_from(taken).unwrap_or_default(),
            ttl: Some(Duration::from_millis(unsigned(ttl.unwrap_or_default()))),
            queued: (queued > 0).then_some(QueuePlace {
                first: queued == 2,
                watched: false,
                probes: queued == 3,
            }),
            sent_at,
            fences,
            retired: false,
            by: TakenBy::Unnamed,
        })
    }

    /// Reports that another holder of a lock has a different number of permits.
    fn report_difference(&self, request: &AcquireRequest, differs: &str) {
        let differs = differs.split_once('/');
        let differs = differs.and_then(|(n, theirs)| Some((n.parse().ok()?, theirs.parse().ok()?)));
        let Some((n, theirs)) = differs else { return };
        if let Some(Claim { key, owner }) = request.claims.get::<usize>(n)
            && let LockMode::Permits(mine) = owner.mode()
        {
            let key = key.clone();
            self.background
                .notify(Notification::PermitsDiffer { key, mine, theirs });
        }
    }

    fn change(&self, change: &Change) -> Request {
        match change {
            Change::SetCount(set) => Request::new(
                "set_count",
                |all| &all.set_count,
                vec![
                    self.lock(&set.key),
                    Box::new(set.owner.to_string()),
                    Box::new(i32::try_from(set.count).unwrap_or(i32::MAX)),
                    Box::new(millis(set.lease)),
                    self.retention(),
                ],
            ),
            Change::Downgrade(downgrade) => Request::new(
                "downgrade",
                |all| &all.downgrade,
                vec![
                    self.lock(&downgrade.key),
                    Box::new(downgrade.owner.to_string()),
                    Box::new(signed(downgrade.fence)),
                    self.retention(),
                    self.floor(),
                ],
            ),
            Change::Release(release) => Request::new(
                "release",
                |all| &all.release,
                vec![
                    self.lock(&release.key),
                    Box::new(release.owner.to_string()),
                    Box::new(signed(release.fence)),
                    // Rounded up: the lock stays taken for at least this long.
                    Box::new(millis(release.min_hold + Duration::from_nanos(999_999))),
                    self.retention(),
                    self.floor(),
                ],
            ),
        }
    }
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

/// Returns the only row of a reply.
fn only(rows: &[Row]) -> Result<&Row, StoreError> {
    let none = || StoreError::ambiguous("the server replied without a row");
    rows.first().ok_or_else(none)
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
            let (rows, _) = self.call(self.change(change), send).await?;
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
            let [keys, owners] = self.claims(renewals.iter().map(|renewal| &renewal.claim));
            let fences = renewals.iter().map(|renewal| signed(renewal.fence));
            let fences: Vec<i64> = fences.collect();
            let parameters = vec![
                keys,
                owners,
                Box::new(fences) as _,
                Box::new(millis(lease)) as _,
                self.retention(),
            ];
            let asks = Request::new("renew", |all| &all.renew, parameters);
            let (rows, sent_at) = self.call(asks, send).await?;
            let replies: Vec<i64> = only(&rows)?.get(0);
            let outcome = |reply: i64| match reply.unsigned_abs() {
                0 => RenewalOutcome::Lost,
                fence => {
                    let fence = if fence == 1 { 0 } else { fence };
                    self.options().floor.note(fence);
                    let wanted = reply < 0;
                    RenewalOutcome::Held { wanted, fence }
                }
            };
            Ok(Renewed {
                kept: replies.into_iter().map(outcome).collect(),
                sent_at,
            })
        })
    }

    fn system(&self) -> Option<&'static str> {
        Some("postgresql")
    }

    fn describe(&self) -> String {
        self.background.endpoint.to_string()
    }

    fn ping(&self, timeout: Duration) -> ReplyFuture<'_, ()> {
        Box::pin(async move {
            let ping = Request::new("ping", |all| &all.ping, Vec::new());
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
            let asks = Request::new("inspect", |all| &all.inspect, vec![self.lock(key)]);
            let (rows, _) = self.call(asks, send).await?;
            let row = only(&rows)?;
            let owners: Option<Vec<String>> = row.get("owners");
            let mut owners = owners.unwrap_or_default().into_iter();
            let Some(owner) = owners.next() else {
                return Ok(None);
            };
            let parse = |text: String| OwnerId::parse(&text);
            let queue: Vec<String> = row.get("queue");
            let (count, holders): (i32, i32) = (row.get("entries"), row.get("holders"));
            let fence: Option<i64> = row.get("last_fence");
            Ok(Some(StoredLock {
                owner,
                count: u32::try_from(count).unwrap_or_default(),
                ttl: Some(Duration::from_millis(unsigned(row.get("ttl")))),
                fence: fence.map(unsigned),
                other_fences: Vec::new(),
                queue: queue.into_iter().filter_map(parse).collect(),
                holders: usize::try_from(holders).unwrap_or_default(),
                others: owners.filter_map(parse).collect(),
            }))
        })
    }

    fn connect(self: Arc<Self>) -> ReplyFuture<'static, ()> {
        Box::pin(async move {
            self.background.connect().await?;
            self.changes.connect().await
        })
    }

    fn background(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let (background, changes) = (&self.background, &self.changes);
            tokio::join!(
                Arc::clone(background).keep_up(),
                Arc::clone(changes).keep_up()
            );
        })
    }
}
