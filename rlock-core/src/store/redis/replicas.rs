//! Waits until replicas have a lock that was granted.
//!
//! `WAIT` covers the writes of its own connection, and blocks later commands of that connection. A lock may be granted
//! over any connection, even over another client's by a hand-off. So a separate connection writes to a key of the lock
//! after the grant, and waits for that write. Writes reach replicas in the order in which the master executed them.
//!
//! The connection may lead to a newer master than the one that granted the lock. It therefore also checks whether the
//! owner still has the lock. Requests that arrive during a `WAIT` share the next one.

use std::{sync::Arc, time::Duration};

use redis::{
    Pipeline, ProtocolVersion, RedisResult, Value, aio::MultiplexedConnection, from_redis_value,
    pipe,
};
use rlock_proto::{mode::LockMode, store::Claim};
use tokio::{
    sync::{Mutex, mpsc, oneshot},
    time::{Instant, timeout, timeout_at},
};

use super::{
    address::{LOGIN, classify_login},
    connection::gone,
    dial::plain,
    errors::not_yet,
    link::Link,
    scripts::millis,
};
use crate::{backoff::Backoff, metrics, options::Replicas, store::StoreError, wording::shown};

/// The number of requests that share one `WAIT`.
const PER_WAIT: usize = 256;
/// How long before the end of the time `WAIT` replies at least, unless that is more than half of it.
const BEFORE_END: Duration = Duration::from_millis(200);

pub(super) struct ReplicaCheck {
    link: Arc<Link>,
    asked: Replicas,
    queue: mpsc::UnboundedSender<Granted>,
    queued: Mutex<mpsc::UnboundedReceiver<Granted>>,
}

/// Locks that were granted together.
struct Granted {
    claims: Vec<Claim>,
    lease: Duration,
    /// When its caller stops waiting.
    until: Instant,
    reply: oneshot::Sender<Result<Confirmed, StoreError>>,
}

/// The number of replicas that have the locks, or `None` if the master does not have them.
type Confirmed = Option<usize>;

impl ReplicaCheck {
    pub(super) fn new(link: Arc<Link>, asked: Replicas) -> Self {
        let (queue, queued) = mpsc::unbounded_channel();
        Self {
            link,
            asked,
            queue,
            queued: Mutex::new(queued),
        }
    }

    /// Returns `Ok` when the required number of replicas has these locks.
    pub(super) async fn confirm(
        &self,
        claims: &[Claim],
        lease: Duration,
    ) -> Result<(), StoreError> {
        let Replicas { least, within } = self.asked;
        let request = metrics::RequestTimer::begin("replicate", Instant::now());
        let advice = "check that the replicas are up, or require fewer or allow more time with `wait_for_replicas`";
        let until = Instant::now() + within;
        let confirmed = timeout_at(until, self.confirmed(claims, lease, until));
        let Ok(confirmed) = confirmed.await else {
            request.timed_out();
            return Err(not_yet(format!(
                "the master did not confirm within {} that the required replicas ({least}) have the lock, so it is released; {advice}",
                shown(within),
            )));
        };
        request.replied(confirmed.is_ok());
        match confirmed? {
            Some(replicas) if replicas >= least => Ok(()),
            Some(replicas) => Err(not_yet(format!(
                "{replicas} of the {least} required replicas had the lock within {}, so it was released; {advice}",
                shown(within),
            ))),
            None => Err(not_yet(
                "the master does not have the lock; another server may have been promoted",
            )),
        }
    }

    /// Asks until the master replies.
    async fn confirmed(
        &self,
        claims: &[Claim],
        lease: Duration,
        until: Instant,
    ) -> Result<Confirmed, StoreError> {
        let mut backoff = Backoff::default();
        loop {
            let (reply, receiver) = oneshot::channel();
            let claims = claims.to_vec();
            let _ = self.queue.send(Granted {
                claims,
                lease,
                until,
                reply,
            });
            match receiver.await {
                Ok(Err(error)) if error.transient => tokio::time::sleep(backoff.next()).await,
                Ok(confirmed) => return confirmed,
                Err(_) => return Err(not_yet("the client is closed")),
            }
        }
    }

    /// Asks the master about the grants that are queued, and replies to each.
    pub(super) async fn run(&self) {
        let mut queued = self.queued.lock().await;
        let (mut connection, mut granted) = (None, Vec::new());
        loop {
            queued.recv_many(&mut granted, PER_WAIT).await;
            granted.retain(|granted| !granted.reply.is_closed());
            if granted.is_empty() {
                continue;
            }
            let replies = match self.ask(&mut connection, &granted).await {
                Ok(confirmed) => confirmed.into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error); granted.len()],
            };
            if !replies.iter().all(|reply| matches!(reply, Ok(Some(_)))) {
                // It may be a former master.
                connection = None;
            }
            for (granted, reply) in granted.drain(..).zip(replies) {
                let _ = granted.reply.send(reply);
            }
        }
    }

    /// Returns an error if `WAIT` fails.
    async fn ask(
        &self,
        connection: &mut Option<(u64, MultiplexedConnection)>,
        granted: &[Granted],
    ) -> Result<Vec<Confirmed>, StoreError> {
        let until = granted.iter().map(|granted| granted.until).max();
        let left = || until.map_or(Duration::ZERO, |until| until.duration_since(Instant::now()));
        let longest = left();
        let asked = timeout(longest, async {
            let latest = self.link.address.promotion();
            connection.take_if(|(promotion, _)| *promotion != latest);
            let (promotion, connection) = if let Some(connection) = connection {
                connection
            } else {
                let server = self.link.address.server(longest).await?;
                let server = server.with_login().await?;
                let client = server.client(ProtocolVersion::RESP2)?;
                connection.insert((server.promotion, plain(&client).await?))
            };
            // The reply to `WAIT` arrives before the last caller stops waiting, unless little time is left.
            let left = left();
            let waits = left.saturating_sub(BEFORE_END.max(left / 10)).max(left / 2);
            let request = self.request(granted, waits);
            let answers = connection.send_packed_commands(&request, 0, request.len());
            let answers = answers.await?;
            if *promotion != self.link.address.promotion() {
                return Err(gone());
            }
            read(answers, granted)
        });
        let answers = asked.await.map_err(|_| StoreError::no_reply(longest))?;
        answers.map_err(|error| classify_login(&self.link.address.settings, error, LOGIN))
    }

    fn request(&self, granted: &[Granted], waits: Duration) -> Pipeline {
        let commands = &self.link.commands;
        let mut request = pipe();
        for Granted { claims, lease, .. } in granted {
            let fence_ttl = commands.fence_ttl(*lease);
            for Claim { key, owner } in claims {
                let lock = commands.keyspace.lock(key);
                let fence = format!("{lock}:fence");
                request.cmd("PEXPIRE").arg(fence).arg(fence_ttl);
                let (command, of_owners) = match owner.mode() {
                    LockMode::Exclusive => ("HEXISTS", lock),
                    _ => ("ZSCORE", format!("{lock}:shared")),
                };
                request.cmd(command).arg(of_owners).arg(owner.to_string());
            }
        }
        // Without a time-out, `WAIT` never returns.
        let waits = millis(waits).max(1);
        request.cmd("WAIT").arg(self.asked.least).arg(waits);
        request
    }
}

/// Reads two replies for each lock, and the number of replicas. Where one of a lock's replies is an error, the master
/// does not have it: another key took its place.
fn read(answers: Vec<Value>, granted: &[Granted]) -> RedisResult<Vec<Confirmed>> {
    let number = |answer: Value| match answer.extract_error()? {
        // The score of an owner that shares its lock.
        Value::Nil => Ok(0),
        Value::BulkString(_) => Ok(1),
        answer => Ok(from_redis_value::<usize>(answer)?),
    };
    let mut facts: Vec<RedisResult<usize>> = answers.into_iter().map(number).collect();
    let replicas = match facts.pop().ok_or_else(gone)? {
        Ok(replicas) => replicas,
        // The first refusal explains the cause best.
        Err(last) => return Err(facts.into_iter().find_map(Result::err).unwrap_or(last)),
    };
    let mut facts = facts.into_iter();
    let confirmed = granted.iter().map(|granted| {
        let asked = 2 * granted.claims.len();
        let own = facts.by_ref().take(asked);
        let held = own.filter(|fact| matches!(fact, Ok(1))).count() == asked;
        held.then_some(replicas)
    });
    Ok(confirmed.collect())
}
