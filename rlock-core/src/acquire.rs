//! Taking a lock: re-entry through the chain, else the local queue, then the store, then waiting.

use std::{sync::Arc, time::Duration};

use tokio::time::timeout;

use crate::{
    client::LockClient,
    core::Core,
    error::{LockError, LostCause},
    guard::LockGuard,
    hold::{Hold, Terms},
    key::Key,
    lease::{Time, valid_until},
    queue::Turn,
    release::Unsettled,
    scope,
    store::{Acquired, StoreError, Watch},
    wait::{Backoff, fallback},
};

/// How long an acquire may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// One request, and no waiting.
    Never,
    For(Duration),
    Forever,
}

/// What is asked for, all options checked.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) key: Key,
    pub(crate) lease: Duration,
    pub(crate) wait: Wait,
    pub(crate) watchdog: bool,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) at_least: Option<Duration>,
}

/// Why there is no guard.
pub(crate) enum Refused {
    /// Another has the lock, as far as is known for this long unless renewed.
    Taken {
        waited: Duration,
        remaining: Option<Duration>,
    },
    Failed(LockError),
}

impl From<LockError> for Refused {
    fn from(error: LockError) -> Self {
        Self::Failed(error)
    }
}

/// Takes the lock for the current call chain.
pub(crate) async fn acquire(client: &LockClient, request: &Request) -> Result<LockGuard, Refused> {
    let core = client.core();
    let _call = core.call();
    let attempt = Attempt::new(client, request);
    core.in_runtime(async {
        tokio::select! {
            biased;
            () = core.closed() => Err(LockError::Closed { action: attempt.action() }.into()),
            outcome = attempt.run() => outcome,
        }
    })
    .await
}

/// One call's way to a lock.
struct Attempt<'a> {
    client: &'a LockClient,
    core: &'a Core,
    request: &'a Request,
    started: Time,
    deadline: Time,
}

impl<'a> Attempt<'a> {
    fn new(client: &'a LockClient, request: &'a Request) -> Self {
        let started = Time::now();
        let deadline = match request.wait {
            Wait::Never => started,
            Wait::For(wait) => started + wait,
            Wait::Forever => Time::NEVER,
        };
        Self {
            client,
            core: client.core(),
            request,
            started,
            deadline,
        }
    }

    async fn run(&self) -> Result<LockGuard, Refused> {
        if let Some(hold) = scope::hold_of(self.core.id, &self.request.key)
            && let Some(guard) = self.enter(&hold).await?
        {
            return Ok(guard);
        }
        let turn = self.turn().await?;
        self.first(turn).await
    }

    /// Whether the call asks once and does not wait.
    fn asks_once(&self) -> bool {
        matches!(self.request.wait, Wait::Never | Wait::For(Duration::ZERO))
    }

    fn left(&self) -> Duration {
        self.deadline.since(Time::now())
    }

    fn waited(&self) -> Duration {
        Time::now().since(self.started)
    }

    /// How long one request may take.
    fn request_timeout(&self) -> Duration {
        let most = self.core.options.response_timeout;
        if self.asks_once() {
            most
        } else {
            self.left().min(most)
        }
    }

    fn action(&self) -> String {
        format!("acquire lock `{}`", self.request.key)
    }

    fn taken(&self, remaining: Option<Duration>) -> Refused {
        Refused::Taken {
            waited: self.waited(),
            remaining,
        }
    }

    fn failed(&self, error: StoreError) -> Refused {
        Refused::Failed(error.into_lock_error(self.action(), self.waited()))
    }

    fn terms(&self) -> Terms {
        let now = Time::now();
        Terms {
            lease: self.request.lease,
            watchdog: self.request.watchdog,
            until: self.request.max_hold.map(|most| now + most),
            keep_until: self.request.at_least.map(|least| now + least),
        }
    }

    /// Enters a hold of the call chain once more; `None` when it has ended.
    async fn enter(&self, hold: &Arc<Hold>) -> Result<Option<LockGuard>, Refused> {
        if !self.core.counts_entries() {
            return match hold.enter_locally(self.terms()) {
                Some(Ok(entry)) => {
                    self.core.watchdog.track(hold);
                    Ok(Some(LockGuard::new(
                        self.client,
                        hold,
                        entry,
                        self.terms().until,
                    )))
                }
                Some(Err(lost)) => Err(lost.into()),
                None => Ok(None),
            };
        }
        let Ok(_changing) = timeout(self.request_timeout(), hold.changing.lock()).await else {
            return Err(self.failed(StoreError::busy()));
        };
        match hold.enterable() {
            None => return Ok(None),
            Some(Err(lost)) => return Err(lost.into()),
            Some(Ok(())) => {}
        }
        let unsettled = Unsettled::new(self.core, hold);
        let count = hold.count() + 1;
        let mut backoff = Backoff::default();
        loop {
            let answer = self.ask(hold, count).await;
            match answer {
                Ok(Acquired::Granted { sent_at, .. }) => {
                    let terms = self.terms();
                    let entry = hold.enter(terms, sent_at);
                    self.core.watchdog.track(hold);
                    unsettled.disarm();
                    return Ok(Some(LockGuard::new(self.client, hold, entry, terms.until)));
                }
                Ok(Acquired::Held { .. } | Acquired::NotHeld) => {
                    self.core.watchdog.lose(hold, LostCause::Removed);
                    return Err(hold.lost_error(LostCause::Removed).into());
                }
                Err(error) => self.pause(&mut backoff, error).await?,
            }
            if let Some(cause) = hold.broken() {
                return Err(hold.lost_error(cause).into());
            }
        }
    }

    /// This process's turn to ask the store.
    async fn turn(&self) -> Result<Turn, Refused> {
        let key = &self.request.key;
        if let Some(turn) = self.core.queues.try_turn(key) {
            return Ok(turn);
        }
        if self.asks_once() {
            return Err(self.taken(None));
        }
        let turn = timeout(self.left(), self.core.queues.turn(key)).await;
        turn.map_err(|_| self.taken(None))
    }

    /// Takes the lock for a fresh owner.
    async fn first(&self, turn: Turn) -> Result<LockGuard, Refused> {
        let Request { key, lease, .. } = self.request;
        let hold = Arc::new(Hold::new(
            key.clone(),
            self.core.fresh_owner(),
            *lease,
            turn,
        ));
        let mut unsettled = Unsettled::new(self.core, &hold);
        let mut ambiguous = false;
        let mut backoff = Backoff::default();
        let mut watch: Option<Box<dyn Watch>> = None;
        let mut last_held = None;
        loop {
            unsettled.arm();
            let cut_short = self.left() < self.core.options.response_timeout;
            match self.ask(&hold, 1).await {
                Ok(Acquired::Granted { token, sent_at })
                    if valid_until(sent_at, *lease) > Time::now() =>
                {
                    let terms = self.terms();
                    hold.set_token(token);
                    let entry = hold.enter(terms, sent_at);
                    self.core.watchdog.track(&hold);
                    unsettled.disarm();
                    return Ok(LockGuard::new(self.client, &hold, entry, terms.until));
                }
                // Granted, but the lease may have ended before the answer arrived: ask again.
                Ok(Acquired::Granted { .. } | Acquired::NotHeld) => {
                    ambiguous = true;
                    self.pause(&mut backoff, StoreError::late()).await?;
                }
                Ok(Acquired::Held { ttl }) => {
                    if !ambiguous {
                        unsettled.relax();
                    }
                    if self.asks_once() || self.left().is_zero() {
                        return Err(self.taken(ttl));
                    }
                    last_held = Some(ttl);
                    self.wait(&mut watch, ttl).await;
                    if self.left().is_zero() {
                        return Err(self.taken(ttl));
                    }
                }
                Err(error) => {
                    if error.maybe_executed {
                        ambiguous = true;
                    } else if !ambiguous {
                        unsettled.relax();
                    }
                    // The wait ended during the last request: what is known is that it was taken.
                    if let (true, true, Some(ttl)) = (cut_short, error.maybe_executed, last_held) {
                        return Err(self.taken(ttl));
                    }
                    self.pause(&mut backoff, error).await?;
                }
            }
        }
    }

    async fn ask(&self, hold: &Hold, count: u32) -> Result<Acquired, StoreError> {
        let timeout = self.request_timeout();
        self.core
            .store
            .acquire(&hold.key, hold.owner, self.request.lease, count, timeout)
            .await
    }

    /// Pauses after a failure, or gives up.
    async fn pause(&self, backoff: &mut Backoff, error: StoreError) -> Result<(), Refused> {
        let pause = backoff.next();
        if !error.transient || self.asks_once() || self.left() <= pause {
            return Err(self.failed(error));
        }
        tokio::time::sleep(pause).await;
        Ok(())
    }

    /// Waits until it may be worth asking again.
    async fn wait(&self, watch: &mut Option<Box<dyn Watch>>, ttl: Option<Duration>) {
        match watch {
            None => {
                // The lock may have been released before the watch began, so ask again at once.
                let watch = watch.insert(Arc::clone(&self.core.store).watch(&self.request.key));
                let _ = timeout(self.request_timeout(), watch.ready()).await;
            }
            Some(watch) => {
                let _ = timeout(fallback(ttl).min(self.left()), watch.woken()).await;
            }
        }
    }
}
