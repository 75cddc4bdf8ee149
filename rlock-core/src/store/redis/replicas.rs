//! Waits until replicas have a lock that was granted.
//!
//! `WAIT` speaks of what its own connection wrote, and holds up whatever comes after it there. A lock may
//! be granted by any connection, even another client's, when that one gives it on. So a connection of
//! its own writes once more, after the grant, to a key that belongs to the lock, and waits for that: writes
//! reach replicas in the order in which the master executed them. The same connection asks whether the
//! owner still has the lock, because it may lead to another master than the one that granted it.
//!
//! What is asked for while it waits leaves together, with one `WAIT` for all.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use redis::{
    ErrorKind, Pipeline, RedisError, RedisResult, Value, aio::MultiplexedConnection,
    from_redis_value, pipe,
};
use tokio::{
    sync::{Notify, oneshot},
    time::timeout,
};

use super::{address::Address, calls::Calls, connection::plain, errors::classify, scripts::millis};
use crate::{
    options::Replicas,
    store::{Claim, StoreError},
    wait::Backoff,
};

/// How many locks one `WAIT` is for, at the most.
const TOGETHER: usize = 256;

pub(super) struct Witness {
    address: Address,
    calls: Arc<Calls>,
    asked: Replicas,
    /// How long the server may take beyond the time that `WAIT` may take.
    response_timeout: Duration,
    waiting: Mutex<Vec<Granted>>,
    some: Notify,
}

/// Locks that were granted together, and who wants to know how many replicas have them.
struct Granted {
    claims: Vec<Claim>,
    lease: Duration,
    answer: oneshot::Sender<Result<Seen, StoreError>>,
}

/// What the master said.
#[derive(Clone, Copy)]
struct Seen {
    held: bool,
    replicas: usize,
}

impl Witness {
    pub(super) fn new(
        address: Address,
        calls: Arc<Calls>,
        asked: Replicas,
        response_timeout: Duration,
    ) -> Self {
        Self {
            address,
            calls,
            asked,
            response_timeout,
            waiting: Mutex::default(),
            some: Notify::new(),
        }
    }

    /// Succeeds when as many replicas as are asked for have these locks.
    pub(super) async fn confirm(
        &self,
        claims: &[Claim],
        lease: Duration,
    ) -> Result<(), StoreError> {
        let Replicas { least, within } = self.asked;
        let (answer, receiver) = oneshot::channel();
        self.waiting().push(Granted {
            claims: claims.to_vec(),
            lease,
            answer,
        });
        self.some.notify_one();
        // One `WAIT` may be under way, and this one comes after it.
        let patience = within * 2 + self.response_timeout;
        let seen = timeout(patience, receiver).await;
        let seen = match seen {
            Ok(Ok(seen)) => seen?,
            Ok(Err(_)) | Err(_) => return Err(StoreError::no_answer(patience)),
        };
        if !seen.held {
            return Err(too_few(
                "the master that was asked for its replicas does not have the lock; another may have \
                 taken its place"
                    .to_owned(),
            ));
        }
        if seen.replicas < least {
            return Err(too_few(format!(
                "{} of the {least} replicas asked for had it within {within:?}, so it was given back; \
                 see whether the replicas are up, or ask for fewer or wait longer with `replicas`",
                seen.replicas
            )));
        }
        Ok(())
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Granted>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is to leave now beside these, without what nobody wants to know any more.
    fn with_others(&self, mut granted: Vec<Granted>) -> Vec<Granted> {
        let mut waiting = self.waiting();
        granted.retain(|granted| !granted.answer.is_closed());
        waiting.retain(|granted| !granted.answer.is_closed());
        let most = waiting.len().min(TOGETHER.saturating_sub(granted.len()));
        granted.extend(waiting.drain(..most));
        granted
    }

    /// Runs for as long as the client lives.
    pub(super) async fn run(&self) {
        let (mut connection, mut again) = (None, Vec::new());
        let mut backoff = Backoff::default();
        loop {
            let granted = self.with_others(std::mem::take(&mut again));
            if granted.is_empty() {
                self.some.notified().await;
                continue;
            }
            again = self.answer(&mut connection, granted).await;
            if again.is_empty() {
                backoff = Backoff::default();
            } else {
                tokio::time::sleep(backoff.next()).await;
            }
        }
    }

    /// Asks for all, and answers each. What may be answered otherwise a moment later is returned.
    async fn answer(
        &self,
        connection: &mut Option<MultiplexedConnection>,
        granted: Vec<Granted>,
    ) -> Vec<Granted> {
        let answers = match self.ask(connection, &granted).await {
            Ok(answers) => answers,
            Err(error) => {
                *connection = None;
                tracing::debug!(address = %self.address, %error, "replicas cannot be asked for");
                granted.iter().map(|_| Err(error.clone())).collect()
            }
        };
        let mut again = Vec::new();
        for (granted, answer) in granted.into_iter().zip(answers) {
            match answer {
                Err(error) if error.transient => again.push(granted),
                answer => {
                    // Whoever wanted to know may be gone.
                    let _ = granted.answer.send(answer);
                }
            }
        }
        again
    }

    /// Fails where `WAIT` does, which speaks of all; else each may fail for itself.
    async fn ask(
        &self,
        connection: &mut Option<MultiplexedConnection>,
        granted: &[Granted],
    ) -> Result<Vec<Result<Seen, StoreError>>, StoreError> {
        let patience = self.asked.within + self.response_timeout;
        let asked = timeout(patience, async {
            let connection = match connection {
                Some(connection) => connection,
                None => connection.insert(self.connect(patience).await?),
            };
            let request = self.request(granted);
            let answers = connection.send_packed_commands(&request, 0, request.len());
            read(answers.await?, granted)
        });
        match asked.await {
            Ok(answers) => answers.map_err(classify),
            Err(_) => Err(StoreError::no_answer(patience)),
        }
    }

    async fn connect(&self, patience: Duration) -> RedisResult<MultiplexedConnection> {
        let server = self.address.server(patience).await?;
        plain(&server).await
    }

    fn request(&self, granted: &[Granted]) -> Pipeline {
        let mut request = pipe();
        for Granted { claims, lease, .. } in granted {
            for claim in claims {
                let lock = self.calls.names.lock(&claim.key);
                request
                    .cmd("PEXPIRE")
                    .arg(format!("{lock}:fence"))
                    .arg(millis(self.calls.fence_retention + *lease))
                    .cmd("HEXISTS")
                    .arg(lock)
                    .arg(claim.owner.to_string());
            }
        }
        request
            .cmd("WAIT")
            .arg(self.asked.least)
            .arg(millis(self.asked.within));
        request
    }
}

/// Two answers for each lock, and the number of replicas. A lock whose name leads to something else fails
/// for itself.
fn read(answers: Vec<Value>, granted: &[Granted]) -> RedisResult<Vec<Result<Seen, StoreError>>> {
    let claims: usize = granted.iter().map(|granted| granted.claims.len()).sum();
    let number = |answer: Value| Ok(from_redis_value::<usize>(answer.extract_error()?)?);
    let mut facts: Vec<RedisResult<usize>> = answers.into_iter().map(number).collect();
    let waited = facts.pop().filter(|_| facts.len() == 2 * claims);
    let wrong = || RedisError::from((ErrorKind::UnexpectedReturnType, "answers are missing"));
    let replicas = match waited.ok_or_else(wrong)? {
        Ok(replicas) => replicas,
        // What was refused first says best what is amiss with the server.
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

/// The lock is there, but not where it was to be as well.
fn too_few(what: String) -> StoreError {
    let source: Box<dyn std::error::Error + Send + Sync> = what.into();
    StoreError {
        transient: true,
        maybe_executed: false,
        foreign: false,
        source: source.into(),
    }
}
