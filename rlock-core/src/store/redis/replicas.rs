//! Waits until replicas have a lock that was granted.
//!
//! `WAIT` covers the writes of its own connection, and blocks later commands of that connection. A lock may be granted
//! over any connection, even over another client's by a hand-off. So a separate connection writes to a key of the lock
//! after the grant, and waits for that write. Writes reach replicas in the order in which the master executed them.
//!
//! The connection may lead to a newer master than the one that granted the lock. It therefore also checks whether the
//! owner still has the lock. The server serves the calls of a client one after another.

use std::{sync::Arc, time::Duration};

use redis::{Pipeline, RedisResult, Value, from_redis_value, pipe};
use tokio::time::{Instant, sleep, timeout};

use super::{
    batch::gone,
    commands::millis,
    errors::{classify, not_yet},
    link::Link,
};
use crate::{
    metrics,
    options::Replicas,
    store::{Claim, StoreError},
    wait::Backoff,
};

pub(super) struct ReplicaCheck {
    /// The link for `WAIT` only. The background keeps it up.
    pub(super) link: Arc<Link>,
    asked: Replicas,
}

/// The number of replicas that have the locks, or `None` if the master does not have them.
type Confirmed = Option<usize>;

impl ReplicaCheck {
    pub(super) fn new(background: &Arc<Link>, asked: Replicas) -> Self {
        let link = Link::new(
            background.address.clone(),
            Arc::clone(&background.commands),
            background.options.clone(),
            // The other connections report changes.
            Arc::new(drop),
            Some(Arc::clone(background)),
        );
        Self { link, asked }
    }

    /// Returns `Ok` when the required number of replicas has these locks.
    pub(super) async fn confirm(
        &self,
        claims: &[Claim],
        lease: Duration,
    ) -> Result<(), StoreError> {
        let Replicas { least, within } = self.asked;
        let request = metrics::RequestTimer::begin("replicate", Instant::now());
        // The `WAIT` of another call may be in flight before this one.
        let longest = within * 2 + self.link.options.response_timeout;
        let confirmed = timeout(longest, self.confirmed(claims, lease));
        let Ok(confirmed) = confirmed.await else {
            request.timed_out();
            return Err(StoreError::no_reply(longest));
        };
        request.replied(confirmed.is_ok());
        match confirmed? {
            Some(replicas) if replicas >= least => Ok(()),
            Some(replicas) => Err(not_yet(format!(
                "{replicas} of the {least} required replicas had the lock within {within:?}, so it was released; \
                 check that the replicas are up, or require fewer or allow more time with `replicas`",
            ))),
            None => Err(not_yet(
                "the master does not have the lock; another server may have been promoted",
            )),
        }
    }

    /// Asks until the master replies.
    async fn confirmed(&self, claims: &[Claim], lease: Duration) -> Result<Confirmed, StoreError> {
        let longest = self.asked.within + self.link.options.response_timeout;
        let request = self.request(claims, lease);
        let mut backoff = Backoff::default();
        loop {
            let connection = self.link.connection().await?;
            let mut multiplexed = connection.multiplexed.clone();
            let answers = multiplexed.send_packed_commands(&request, 0, request.len());
            let confirmed = match timeout(longest, answers).await {
                Ok(answers) => answers.and_then(read).map_err(classify),
                Err(_) => Err(StoreError::no_reply(longest)),
            };
            if !matches!(confirmed, Ok(Some(_))) {
                // It may lead to a former master.
                self.link.give_up(connection.epoch);
            }
            match confirmed {
                Err(error) if error.transient => sleep(backoff.next()).await,
                confirmed => return confirmed,
            }
        }
    }

    fn request(&self, claims: &[Claim], lease: Duration) -> Pipeline {
        let commands = &self.link.commands;
        let fence_ttl = millis(commands.fence_retention + lease);
        let mut request = pipe();
        for Claim { key, owner } in claims {
            let (lock, owner) = (commands.keyspace.lock(key), owner.to_string());
            let fence = format!("{lock}:fence");
            request.cmd("PEXPIRE").arg(fence).arg(fence_ttl);
            request.cmd("HEXISTS").arg(lock).arg(owner);
        }
        let Replicas { least, within } = self.asked;
        request.cmd("WAIT").arg(least).arg(millis(within));
        request
    }
}

/// Reads two replies for each lock, and the number of replicas. Where one of a lock's replies is an error, the master
/// does not have it: another key took its place.
fn read(answers: Vec<Value>) -> RedisResult<Confirmed> {
    let number = |answer: Value| Ok(from_redis_value::<usize>(answer.extract_error()?)?);
    let mut facts: Vec<RedisResult<usize>> = answers.into_iter().map(number).collect();
    match facts.pop().ok_or_else(gone)? {
        Ok(replicas) => {
            let are_held = facts.iter().all(|fact| matches!(fact, Ok(1)));
            Ok(are_held.then_some(replicas))
        }
        // The first refusal explains the cause best.
        Err(last) => Err(facts.into_iter().find_map(Result::err).unwrap_or(last)),
    }
}
