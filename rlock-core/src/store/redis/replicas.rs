//! Waits until replicas have a lock that was granted.
//!
//! `WAIT` speaks of what its own connection wrote, and blocks later commands of that connection. A lock may be granted by
//! any connection, even another client's, when that one hands it off. So a connection of its own writes once more, after
//! the grant, to a key that belongs to the lock, and waits for that: writes reach replicas in the order in which the
//! master executed them. The same connection checks whether the owner still has the lock, because it may lead to another
//! master than the one that granted it. Requests that arrive during a `WAIT` share the next one.

use std::{sync::Arc, time::Duration};

use redis::{
    ErrorKind, Pipeline, ProtocolVersion, RedisError, RedisResult, Value,
    aio::MultiplexedConnection, from_redis_value, pipe,
};
use tokio::{
    sync::{Mutex, mpsc, oneshot},
    time::timeout,
};

use super::{
    commands::millis,
    connection::plain,
    errors::{classify, not_yet},
    link::Link,
};
use crate::{
    options::Replicas,
    store::{Claim, StoreError},
    wait::Backoff,
};

/// How many requests share one `WAIT`.
const PER_WAIT: usize = 256;

pub(super) struct Witness {
    link: Arc<Link>,
    asked: Replicas,
    queue: mpsc::UnboundedSender<Granted>,
    queued: Mutex<mpsc::UnboundedReceiver<Granted>>,
}

/// Locks that were granted together.
struct Granted {
    claims: Vec<Claim>,
    lease: Duration,
    reply: oneshot::Sender<Result<Seen, StoreError>>,
}

/// The reply of the master.
#[derive(Clone, Copy)]
struct Seen {
    held: bool,
    replicas: usize,
}

impl Witness {
    pub(super) fn new(link: Arc<Link>, asked: Replicas) -> Self {
        let (queue, queued) = mpsc::unbounded_channel();
        Self {
            link,
            asked,
            queue,
            queued: Mutex::new(queued),
        }
    }

    /// Succeeds when as many replicas as are asked for have these locks.
    pub(super) async fn confirm(
        &self,
        claims: &[Claim],
        lease: Duration,
    ) -> Result<(), StoreError> {
        let Replicas { least, within } = self.asked;
        let (reply, receiver) = oneshot::channel();
        let _ = self.queue.send(Granted {
            claims: claims.to_vec(),
            lease,
            reply,
        });
        // One `WAIT` may be in flight, and this one comes after it.
        let longest = within * 2 + self.link.options.response_timeout;
        let Ok(Ok(seen)) = timeout(longest, receiver).await else {
            return Err(StoreError::no_answer(longest));
        };
        let seen = seen?;
        if !seen.held {
            return Err(not_yet(
                "the master that was asked for its replicas does not have the lock; another may have taken its place",
            ));
        }
        if seen.replicas < least {
            return Err(not_yet(format!(
                "{} of the {least} replicas asked for had it within {within:?}, so it was given back; \
                 see whether the replicas are up, or ask for fewer or wait longer with `replicas`",
                seen.replicas
            )));
        }
        Ok(())
    }

    /// Runs for as long as the client lives.
    pub(super) async fn run(&self) {
        let mut queued = self.queued.lock().await;
        let (mut connection, mut granted) = (None, Vec::new());
        let mut backoff = Backoff::default();
        loop {
            if granted.is_empty() {
                queued.recv_many(&mut granted, PER_WAIT).await;
            }
            while granted.len() < PER_WAIT
                && let Ok(more) = queued.try_recv()
            {
                granted.push(more);
            }
            granted.retain(|granted| !granted.reply.is_closed());
            if granted.is_empty() {
                continue;
            }
            granted = self.answer(&mut connection, granted).await;
            if granted.is_empty() {
                backoff = Backoff::default();
            } else {
                tokio::time::sleep(backoff.next()).await;
            }
        }
    }

    /// Asks for all, and replies to each. Returns those whose reply may be another a moment later.
    async fn answer(
        &self,
        connection: &mut Option<MultiplexedConnection>,
        granted: Vec<Granted>,
    ) -> Vec<Granted> {
        let answers = self.ask(connection, &granted).await.unwrap_or_else(|error| {
            *connection = None;
            tracing::debug!(address = %self.link.address, %error, "replicas cannot be asked for");
            vec![Err(error); granted.len()]
        });
        let mut again = Vec::new();
        for (granted, answer) in granted.into_iter().zip(answers) {
            match answer {
                Err(error) if error.transient => again.push(granted),
                answer => drop(granted.reply.send(answer)),
            }
        }
        again
    }

    /// Fails if `WAIT` does. Otherwise each lock may fail for itself.
    async fn ask(
        &self,
        connection: &mut Option<MultiplexedConnection>,
        granted: &[Granted],
    ) -> Result<Vec<Result<Seen, StoreError>>, StoreError> {
        let longest = self.asked.within + self.link.options.response_timeout;
        let asked = timeout(longest, async {
            let connection = if let Some(connection) = connection {
                connection
            } else {
                let server = self.link.address.server(longest).await?;
                let client = server.client(ProtocolVersion::RESP2)?;
                connection.insert(plain(&client).await?)
            };
            let request = self.request(granted);
            let answers = connection.send_packed_commands(&request, 0, request.len());
            read(answers.await?, granted)
        });
        match asked.await {
            Ok(answers) => answers.map_err(classify),
            Err(_) => Err(StoreError::no_answer(longest)),
        }
    }

    fn request(&self, granted: &[Granted]) -> Pipeline {
        let commands = &self.link.commands;
        let mut request = pipe();
        for Granted { claims, lease, .. } in granted {
            let fence_ttl = millis(commands.fence_retention + *lease);
            for Claim { key, owner } in claims {
                let (lock, owner) = (commands.keyspace.lock(key), owner.to_string());
                let fence = format!("{lock}:fence");
                request.cmd("PEXPIRE").arg(fence).arg(fence_ttl);
                request.cmd("HEXISTS").arg(lock).arg(owner);
            }
        }
        let Replicas { least, within } = self.asked;
        request.cmd("WAIT").arg(least).arg(millis(within));
        request
    }
}

/// Reads two replies for each lock, and the number of replicas. A lock whose name leads to another key fails for itself.
fn read(answers: Vec<Value>, granted: &[Granted]) -> RedisResult<Vec<Result<Seen, StoreError>>> {
    let claims: usize = granted.iter().map(|granted| granted.claims.len()).sum();
    let number = |answer: Value| Ok(from_redis_value::<usize>(answer.extract_error()?)?);
    let mut facts: Vec<RedisResult<usize>> = answers.into_iter().map(number).collect();
    let waited = facts.pop().filter(|_| facts.len() == 2 * claims);
    let wrong = || RedisError::from((ErrorKind::UnexpectedReturnType, "answers are missing"));
    let replicas = match waited.ok_or_else(wrong)? {
        Ok(replicas) => replicas,
        // The first refusal explains best what is amiss with the server.
        Err(last) => return Err(facts.into_iter().find_map(Result::err).unwrap_or(last)),
    };
    let mut facts = facts.into_iter();
    let seen = granted.iter().map(|granted| {
        // All of them, so that the next lock begins with its own.
        let own: Vec<_> = facts.by_ref().take(2 * granted.claims.len()).collect();
        let own: RedisResult<Vec<usize>> = own.into_iter().collect();
        let held = own.map_err(classify)?.iter().all(|fact| *fact == 1);
        Ok(Seen { held, replicas })
    });
    Ok(seen.collect())
}
