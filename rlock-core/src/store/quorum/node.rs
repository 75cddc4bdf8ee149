//! One server of a quorum, and how it behaved lately.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use super::ballot::{Asked, Vote};
use crate::{
    few::Few,
    key::Key,
    owner::OwnerId,
    store::{
        Acquired, Claim, Entry, Next, Onward, Release, Released, Renewal, Renewed, Route, Store,
        StoreError,
        redis::{RedisStore, is_forgotten},
    },
};

/// How a server behaved lately.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// It failed, or let others answer first by far, and has not answered since.
    failing: AtomicBool,
    answers: AtomicU64,
    /// Somebody of this process may stand in line there.
    line: AtomicBool,
}

impl Health {
    pub(super) fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Acquire)
    }

    pub(super) fn fails(&self) {
        self.failing.store(true, Ordering::Release);
    }

    fn noted<T>(&self, vote: Vote<T>) -> Vote<T> {
        if vote.is_ok() {
            self.answers.fetch_add(1, Ordering::Relaxed);
        }
        self.failing.store(vote.is_err(), Ordering::Release);
        vote
    }

    /// How often it has answered.
    pub(super) fn answers(&self) -> u64 {
        self.answers.load(Ordering::Relaxed)
    }

    pub(super) fn has_line(&self) -> bool {
        self.line.load(Ordering::Acquire)
    }

    /// Whoever stands in line there is told, or gone.
    pub(super) fn leave_line(&self) -> bool {
        self.line.swap(false, Ordering::AcqRel)
    }

    fn stand_in_line(&self) {
        self.line.store(true, Ordering::Release);
    }
}

pub(super) struct Node {
    pub(super) number: usize,
    pub(super) address: String,
    pub(super) store: Arc<RedisStore>,
    pub(super) health: Arc<Health>,
    /// How long one request may go unanswered.
    patience: Duration,
}

/// What all servers are asked for.
#[derive(Clone)]
pub(super) struct Wanted {
    pub(super) claims: Arc<[Claim]>,
    pub(super) lease: Duration,
    pub(super) count: u32,
}

/// What all servers are to have less of, but for the token.
#[derive(Debug, Clone)]
pub(super) struct Given {
    pub(super) key: Key,
    pub(super) owner: OwnerId,
    pub(super) token: u64,
    pub(super) count: u32,
    pub(super) keep: Duration,
    /// Who waits for it in this process.
    pub(super) next: Option<Next>,
}

impl Given {
    /// What an owner got of one claim is taken back.
    pub(super) fn back(claim: &Claim, token: u64) -> Self {
        Self {
            key: claim.key.clone(),
            owner: claim.owner,
            token,
            count: 0,
            keep: Duration::ZERO,
            next: None,
        }
    }
}

impl Node {
    pub(super) fn new(
        number: usize,
        store: Arc<RedisStore>,
        health: Arc<Health>,
        patience: Duration,
    ) -> Self {
        Self {
            number,
            address: store.address(),
            store,
            health,
            patience,
        }
    }

    /// Whether it can be expected to answer soon.
    pub(super) fn is_well(&self) -> bool {
        self.store.is_up() && !self.health.is_failing()
    }

    /// Why there is no answer yet.
    pub(super) fn why_silent(&self) -> StoreError {
        let silent = StoreError::silent();
        if self.store.is_up() {
            return silent;
        }
        StoreError {
            source: self.store.why_down().source,
            ..silent
        }
    }

    /// Asks for locks. Where there is no connection, it fails at once, or waits for one if `until_up`.
    /// Nothing is sent once it is `over`: what gives the locks back may have been sent by then.
    pub(super) fn acquire(
        self: &Arc<Self>,
        wanted: &Wanted,
        waits: bool,
        over: Arc<AtomicBool>,
        until_up: bool,
    ) -> Asked<Acquired> {
        let (node, wanted) = (Arc::clone(self), wanted.clone());
        Box::pin(async move {
            let Wanted {
                claims,
                lease,
                count,
            } = wanted;
            let ask = |shared| {
                let store = &node.store;
                store.acquire_once(&claims, (lease, count), waits, shared, node.patience)
            };
            let asked = async {
                let mut answer = ask(true).await;
                if matches!(answer, Ok(None)) && !over.load(Ordering::Acquire) {
                    answer = ask(false).await;
                }
                if answer.as_ref().is_err_and(is_forgotten) && !over.load(Ordering::Acquire) {
                    answer = ask(false).await;
                }
                // It was left alone, and is not wanted any more.
                answer?.ok_or_else(|| node.store.why_down())
            };
            let vote = node.once_up(until_up.then(|| Arc::clone(&over)), asked);
            let vote = vote.await;
            if let Ok(Acquired::Held {
                in_line: Some(_), ..
            }) = vote
            {
                node.health.stand_in_line();
            }
            (node.number, vote)
        })
    }

    /// Asks once there is a connection.
    async fn once_up<T>(
        &self,
        over: Option<Arc<AtomicBool>>,
        asked: impl Future<Output = Vote<T>>,
    ) -> Vote<T> {
        let vote = match self.up(over).await {
            Ok(()) => asked.await,
            Err(error) => Err(error),
        };
        self.health.noted(vote)
    }

    async fn up(&self, over: Option<Arc<AtomicBool>>) -> Result<(), StoreError> {
        if self.store.is_up() {
            return Ok(());
        }
        let Some(over) = over else {
            return Err(self.store.why_down());
        };
        let up = tokio::time::timeout(self.patience, self.store.until_up()).await;
        up.map_err(|_| self.store.why_down())??;
        if over.load(Ordering::Acquire) {
            return Err(self.store.why_down());
        }
        Ok(())
    }

    pub(super) async fn release_within(&self, given: &Given, patience: Duration) -> Vote<Released> {
        let release = Release {
            key: &given.key,
            owner: given.owner,
            token: given.token,
            count: given.count,
            keep: given.keep,
            next: given.next,
        };
        let released = self.store.release(release, (Route::Home, patience)).await;
        if let Ok(Released::Done(Onward::InLine { .. })) = released {
            self.health.stand_in_line();
        }
        self.health.noted(released)
    }

    pub(super) fn release(self: &Arc<Self>, given: Given) -> Asked<Released> {
        let node = Arc::clone(self);
        Box::pin(async move {
            let vote = if node.store.is_up() {
                node.release_within(&given, node.patience).await
            } else {
                Err(node.store.why_down())
            };
            (node.number, vote)
        })
    }

    pub(super) fn renew(
        self: &Arc<Self>,
        batch: Arc<[Renewal]>,
        (patience, silence): (Duration, Duration),
        over: Option<Arc<AtomicBool>>,
    ) -> Asked<Renewed> {
        let node = Arc::clone(self);
        Box::pin(async move {
            let asked = node.store.renew(&batch, patience, silence);
            (node.number, node.once_up(over, asked).await)
        })
    }

    pub(super) fn inspect(
        self: &Arc<Self>,
        key: Key,
        over: Option<Arc<AtomicBool>>,
    ) -> Asked<Option<Entry>> {
        let node = Arc::clone(self);
        Box::pin(async move {
            let asked = node.store.inspect(&key, node.patience);
            (node.number, node.once_up(over, asked).await)
        })
    }

    /// Raises the tokens of locks that their owners hold; answers whether they hold them all.
    pub(super) fn raise(self: &Arc<Self>, wanted: &Wanted, tokens: Few<u64>) -> Asked<bool> {
        let (node, wanted) = (Arc::clone(self), wanted.clone());
        Box::pin(async move {
            let mut held = true;
            for (claim, token) in wanted.claims.iter().zip(tokens) {
                let raised = node.store.raise(claim, token, wanted.lease, node.patience);
                match node.health.noted(raised.await) {
                    Ok(holds) => held &= holds,
                    Err(error) => return (node.number, Err(error)),
                }
            }
            (node.number, Ok(held))
        })
    }

    /// Checks that the server replies.
    pub(super) fn ping(self: &Arc<Self>, patience: Duration) -> Asked<()> {
        let node = Arc::clone(self);
        Box::pin(async move {
            let answer = node.store.answers_when_up(patience).await;
            (node.number, node.health.noted(answer))
        })
    }

    /// Whether the server answers within that time.
    pub(super) async fn answers(&self, patience: Duration) -> bool {
        let answers = self.store.answers(patience).await;
        self.health.noted(answers).is_ok()
    }
}

/// Whether a release was carried out, now or before.
pub(super) fn is_done(released: &Released) -> bool {
    matches!(released, Released::Done(_))
}
