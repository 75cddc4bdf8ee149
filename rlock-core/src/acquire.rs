//! Taking locks: re-entry through the chain, else the local queues, then the store, then waiting.

mod enter;
mod fresh;
mod holder;
mod replicated;

use std::time::Duration;

use crate::{
    client::LockClient,
    clock::ClientClock,
    core::Core,
    error::{LockError, whole_millis},
    few::Few,
    guard::LockGuard,
    hold::Terms,
    key::Key,
    lease::Time,
    options::Wait,
    scope,
    store::StoreError,
    wait::Backoff,
};

/// What is asked for, all options checked.
#[derive(Debug)]
pub(crate) struct Request {
    /// In ascending order, each once: so that calls which want the same keys never wait for each
    /// other.
    pub(crate) keys: Few<Key>,
    pub(crate) lease: Duration,
    pub(crate) wait: Wait,
    pub(crate) watchdog: bool,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) at_least: Option<Duration>,
    pub(crate) retain: Duration,
}

impl Request {
    /// From now on.
    fn terms(&self, clock: &ClientClock) -> Terms {
        terms(clock, self.lease, self.watchdog, self.max_hold, self.retain)
    }
}

/// What an entry that begins now asks of its hold.
pub(crate) fn terms(
    clock: &ClientClock,
    lease: Duration,
    watchdog: bool,
    max_hold: Option<Duration>,
    retain: Duration,
) -> Terms {
    Terms {
        lease,
        watchdog,
        until: max_hold.map(|most| clock.now() + most),
        retain,
    }
}

/// Why there is no guard.
pub(crate) enum Refused {
    /// Another has the lock of this key, as far as is known for this long unless renewed.
    Taken {
        key: Key,
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

/// Takes the locks of all keys for the current call chain, or none of them.
pub(crate) async fn acquire(
    client: &LockClient,
    request: &Request,
) -> Result<Few<LockGuard>, Refused> {
    let core = client.core();
    let _call = core.call();
    let attempt = Attempt::new(client, request);
    // Calls inside of a hold may need further locks to finish.
    let is_inside = scope::is_inside_hold_of(core.id);
    let outcome = core.in_runtime_within(attempt.longest(), async {
        tokio::select! {
            biased;
            () = core.closed() => Err(LockError::Closed { action: attempt.action() }.into()),
            () = core.draining(), if !is_inside => {
                Err(LockError::Draining { action: attempt.action() }.into())
            }
            outcome = attempt.run() => outcome,
        }
    });
    let outcome = outcome.await;
    outcome.unwrap_or_else(|| Err(attempt.failed(StoreError::stands_still())))
}

/// Enters the hold that the current call chain is inside of, where that needs neither the store nor any
/// waiting; `None`: there is none, so it is to be asked for.
pub(crate) fn enter_at_once(
    client: &LockClient,
    key: &str,
    terms: Terms,
    at_least: Option<Duration>,
) -> Option<Result<LockGuard, LockError>> {
    let core = client.core();
    if core.counts_entries() {
        return None;
    }
    let _call = core.call();
    if core.is_closed() {
        return None;
    }
    let hold = scope::hold_of(core.id, key)?;
    let entry = match hold.enter_locally(terms)? {
        Ok(entry) => entry,
        Err(cause) => return Some(Err(enter::lost(core, &hold, cause))),
    };
    let guard = enter::guard(client, &hold, entry, terms);
    if let Some(least) = at_least {
        hold.keep_until(core.clock.now() + least);
    }
    Some(Ok(guard))
}

/// So close to its end a wait is over.
const NOTICED: Duration = Duration::from_millis(10);

/// One call's way to its locks.
struct Attempt<'a> {
    client: &'a LockClient,
    core: &'a Core,
    request: &'a Request,
    started: Time,
    deadline: Time,
}

impl<'a> Attempt<'a> {
    fn new(client: &'a LockClient, request: &'a Request) -> Self {
        let started = client.core().clock.now();
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

    async fn run(&self) -> Result<Few<LockGuard>, Refused> {
        let mut guards = Few::new();
        let mut fresh = Few::new();
        for key in &self.request.keys {
            let guard = match scope::hold_of(self.core.id, key.as_str()) {
                Some(hold) => self.enter(&hold).await?,
                None => None,
            };
            match guard {
                Some(guard) => guards.push(guard),
                None => fresh.push(key),
            }
        }
        if !fresh.is_empty() {
            let mut taken = match self.take(fresh).await {
                Ok(taken) => taken,
                Err(refused) => return Err(self.with_holder(refused).await),
            };
            if self.core.options.replicas.is_some() {
                taken = self.replicated(taken).await?;
            }
            guards.extend(taken);
        }
        if let Some(least) = self.request.at_least {
            let until = self.now() + least;
            guards
                .iter()
                .for_each(|guard| guard.view().hold.keep_until(until));
        }
        Ok(guards)
    }

    /// Whether the call asks once and does not wait.
    fn asks_once(&self) -> bool {
        matches!(self.request.wait, Wait::Never | Wait::For(Duration::ZERO))
    }

    fn now(&self) -> Time {
        self.core.clock.now()
    }

    fn left(&self) -> Duration {
        self.deadline.since(self.now())
    }

    fn waited(&self) -> Duration {
        self.now().since(self.started)
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

    /// Returns the longest time that the call may take, including a request in flight when its wait
    /// ends.
    fn longest(&self) -> Option<Duration> {
        let options = &self.core.options;
        let replicas = options
            .replicas
            .map_or(Duration::ZERO, |asked| asked.within);
        let beyond = options.response_timeout + replicas * 2;
        match self.request.wait {
            Wait::Never => Some(beyond),
            Wait::For(wait) => Some(wait + beyond),
            Wait::Forever => None,
        }
    }

    fn action(&self) -> String {
        let keys: Vec<&str> = self.request.keys.iter().map(Key::as_str).collect();
        format!("acquire lock `{}`", keys.join("`, `"))
    }

    fn taken(&self, key: &Key, remaining: Option<Duration>) -> Refused {
        Refused::Taken {
            key: key.clone(),
            waited: self.waited(),
            remaining: remaining.map(whole_millis),
        }
    }

    fn failed(&self, error: StoreError) -> Refused {
        Refused::Failed(error.into_lock_error(self.action(), self.waited()))
    }

    fn terms(&self) -> Terms {
        self.request.terms(&self.core.clock)
    }

    /// Pauses after a failure, or gives up. Towards the end of the wait pauses are shorter, so that none
    /// of them ends it.
    async fn pause(&self, backoff: &mut Backoff, error: StoreError) -> Result<(), Refused> {
        if !error.transient || self.asks_once() {
            return Err(self.failed(error));
        }
        tokio::time::sleep(backoff.next().min(self.left() / 2)).await;
        // Nothing is answered in no time; this error says more than that one would.
        if self.left() <= NOTICED {
            return Err(self.failed(error));
        }
        Ok(())
    }
}
