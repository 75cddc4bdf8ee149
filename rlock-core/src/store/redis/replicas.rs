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
    AsyncConnectionConfig, ErrorKind, Pipeline, RedisError, RedisResult, Value,
    aio::MultiplexedConnection, from_redis_value, pipe,
};
use tokio::{
    sync::{Notify, oneshot},
    time::timeout,
};

use super::{
    address::Address,
    calls::Calls,
    errors::classify,
    script::Shown,
    scripts::{FENCE_TTL, millis},
};
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

    /// What is to leave now, without what nobody wants to know any more.
    fn take(&self) -> Vec<Granted> {
        let mut waiting = self.waiting();
        waiting.retain(|granted| !granted.answer.is_closed());
        let most = waiting.len().min(TOGETHER);
        waiting.drain(..most).collect()
    }

    /// Runs for as long as the client lives.
    pub(super) async fn run(&self) {
        let mut connection = None;
        loop {
            let mut granted = self.take();
            if granted.is_empty() {
                self.some.notified().await;
                continue;
            }
            let mut backoff = Backoff::default();
            while !granted.is_empty() {
                match self.ask(&mut connection, &granted).await {
                    Ok(answers) => {
                        for (granted, seen) in granted.drain(..).zip(answers) {
                            // Whoever wanted to know may be gone.
                            let _ = granted.answer.send(Ok(seen));
                        }
                    }
                    Err(error) => {
                        connection = None;
                        tracing::debug!(address = %self.address, %error, "replicas cannot be asked for");
                        if error.transient {
                            tokio::time::sleep(backoff.next()).await;
                            granted.retain(|granted| !granted.answer.is_closed());
                        } else {
                            for granted in granted.drain(..) {
                                let _ = granted.answer.send(Err(error.clone()));
                            }
                        }
                    }
                }
            }
        }
    }

    async fn ask(
        &self,
        connection: &mut Option<MultiplexedConnection>,
        granted: &[Granted],
    ) -> Result<Vec<Seen>, StoreError> {
        let patience = self.asked.within + self.response_timeout;
        let asked = timeout(patience, async {
            let connection = match connection {
                Some(connection) => connection,
                None => connection.insert(self.connect().await?),
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

    async fn connect(&self) -> RedisResult<MultiplexedConnection> {
        let server = self.address.server().await?;
        // Time-outs are ours, here and above.
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None);
        let client = server.without_pushes();
        client
            .get_multiplexed_async_connection_with_config(&config)
            .await
    }

    fn request(&self, granted: &[Granted]) -> Pipeline {
        let mut request = pipe();
        for Granted { claims, lease, .. } in granted {
            for claim in claims {
                let lock = self.calls.names.lock(&claim.key);
                request
                    .cmd("PEXPIRE")
                    .arg(format!("{lock}:fence"))
                    .arg(millis(FENCE_TTL + *lease))
                    .cmd("HEXISTS")
                    .arg(Shown(lock))
                    .arg(Shown(claim.owner));
            }
        }
        request
            .cmd("WAIT")
            .arg(self.asked.least)
            .arg(millis(self.asked.within));
        request
    }
}

/// Two answers for each lock, and the number of replicas.
fn read(answers: Vec<Value>, granted: &[Granted]) -> RedisResult<Vec<Seen>> {
    let answers = answers.into_iter().map(|answer| {
        let answer = answer.extract_error()?;
        Ok(from_redis_value::<usize>(answer)?)
    });
    let answers: Vec<usize> = answers.collect::<RedisResult<_>>()?;
    let wrong = || RedisError::from((ErrorKind::UnexpectedReturnType, "answers are missing"));
    let (replicas, facts) = answers.split_last().ok_or_else(wrong)?;
    let mut facts = facts.chunks_exact(2);
    let seen = granted.iter().map(|granted| {
        let mut held = true;
        for _ in &granted.claims {
            held &= facts.next().ok_or_else(wrong)? == [1, 1];
        }
        Ok(Seen {
            held,
            replicas: *replicas,
        })
    });
    seen.collect()
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
