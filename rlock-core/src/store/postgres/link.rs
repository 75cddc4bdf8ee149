//! The session that requests use now: opens it, opens it again with backoff when it has ended or is silent, and logs an outage once.

use std::{
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use rlock_proto::store::{KeyFilter, Listener, Notification};
use tokio::{
    sync::watch,
    time::{timeout, timeout_at},
};

use super::{
    address::PostgresEndpoint,
    session::{Executor, Inbox, Opening, Session},
};
use crate::{
    backoff::Backoff,
    metrics::ConnectionMetrics,
    store::{StoreError, options::StoreOptions},
    wording::shown,
};

/// The time-out of the first attempt to reconnect.
const FIRST_TIMEOUT: Duration = Duration::from_millis(500);
/// The pause before the next attempt after a server refused this client.
const REFUSED: Duration = Duration::from_secs(2);

/// A session that is replaced when it ends.
pub(super) struct Link {
    pub(super) endpoint: PostgresEndpoint,
    pub(super) options: StoreOptions,
    /// Receives the notifications, if the session listens.
    listener: Option<Listener>,
    metrics: Option<ConnectionMetrics>,
    state: watch::Sender<LinkState>,
    /// The number of attempts to connect so far.
    epochs: AtomicU64,
    /// The process that executed the requests of the last session, or how to find it.
    former: Mutex<Option<Executor>>,
    /// Whether the waiters of this client have to poll, because a pooler serves the last session.
    polls: AtomicBool,
}

#[derive(Default)]
struct LinkState {
    session: Option<Arc<Session>>,
    /// The error of the last attempt to connect, if it failed.
    error: Option<StoreError>,
}

impl Link {
    /// Makes the link of a client that listens, if there is a listener.
    pub(super) fn new(
        endpoint: PostgresEndpoint,
        options: StoreOptions,
        listener: Option<Listener>,
    ) -> Arc<Self> {
        Arc::new(Self {
            endpoint,
            metrics: (listener.is_some()).then(|| ConnectionMetrics::new(options.server)),
            options,
            listener,
            state: watch::Sender::default(),
            epochs: AtomicU64::new(0),
            former: Mutex::default(),
            polls: AtomicBool::new(false),
        })
    }

    /// Returns the session, once there is one. Returns the error of the last attempt to connect if the server refused it.
    pub(super) async fn session(&self) -> Result<Arc<Session>, StoreError> {
        let mut states = self.state.subscribe();
        let is_known = |state: &LinkState| {
            let refused = state.error.as_ref().is_some_and(|error| !error.transient);
            state.session.is_some() || refused
        };
        let state = states.wait_for(is_known).await;
        let state = state.map_err(|_| self.why_down())?;
        let error = || state.error.clone().unwrap_or_else(|| self.why_down());
        state.session.clone().ok_or_else(error)
    }

    /// Waits until there is a session.
    pub(super) async fn until_up(&self) {
        let mut states = self.state.subscribe();
        let _ = states.wait_for(|state| state.session.is_some()).await;
    }

    /// Returns the session, or why there is none by the deadline.
    pub(super) async fn session_by(
        &self,
        deadline: tokio::time::Instant,
    ) -> Result<Arc<Session>, StoreError> {
        let up = timeout_at(deadline, self.session()).await;
        up.map_err(|_| self.why_down())?
    }

    /// Returns whether the waiters of this client have to poll.
    pub(super) fn polls(&self) -> bool {
        self.polls.load(Ordering::Relaxed)
    }

    fn former(&self) -> MutexGuard<'_, Option<Executor>> {
        self.former.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns why there is no session.
    pub(super) fn why_down(&self) -> StoreError {
        let error = self.state.borrow().error.clone();
        error.unwrap_or_else(|| StoreError::new(true, false, "the client is not connected"))
    }

    /// Gives up a session that failed or is silent. Does nothing if it was replaced already.
    pub(super) fn give_up(&self, epoch: u64) {
        let given_up = self.state.send_if_modified(|state| {
            let present = state.session.as_ref();
            let is_present = present.is_some_and(|session| session.epoch == epoch);
            if is_present {
                *state = LinkState::default();
            }
            is_present
        });
        if given_up {
            tracing::debug!(address = %self.endpoint, epoch, "connection given up");
            self.notify(Notification::Disconnected);
        }
    }

    pub(super) fn notify(&self, notification: Notification) {
        if let Some(listener) = &self.listener {
            listener(notification);
        }
    }

    /// Opens a session, and uses it.
    async fn open(self: &Arc<Self>, within: Duration) -> Result<(), StoreError> {
        let epoch = self.epochs.fetch_add(1, Ordering::Relaxed) + 1;
        let former = self.former().clone();
        let link = Arc::downgrade(self);
        let listener = self.listener.clone();
        let opened = Session::open(Opening {
            epoch,
            endpoint: &self.endpoint,
            options: &self.options,
            within,
            former,
            inbox: listener.map(|listener| Inbox::new(listener, self.options.clone())),
            ended: Box::new(move || {
                if let Some(link) = link.upgrade() {
                    link.give_up(epoch);
                }
            }),
        });
        let late = |_| {
            let source = format!("no reply within {}", shown(within));
            Err(StoreError::new(true, false, source))
        };
        let opened = timeout(within, opened).await.unwrap_or_else(late);
        let session = match opened {
            Ok(session) => Arc::new(session),
            Err(error) => {
                self.state.send_replace(LinkState {
                    session: None,
                    error: Some(error.clone()),
                });
                return Err(error);
            }
        };
        *self.former() = Some(session.executor.clone());
        if !self.polls.swap(session.polls, Ordering::Relaxed)
            && session.polls
            && self.listener.is_some()
        {
            tracing::warn!(address = %self.endpoint, "a pooler drops notifications, so waiters poll; name the server itself by `direct=` in the URL");
        }
        let is_over = Arc::clone(&session);
        self.state.send_replace(LinkState {
            session: Some(session),
            error: None,
        });
        // It may have ended before it was the present one, and an idle client sends no request that would notice.
        if is_over.has_ended() {
            self.give_up(epoch);
        }
        self.count(true);
        Ok(())
    }

    /// Connects for the first time.
    pub(super) async fn connect(self: &Arc<Self>) -> Result<(), StoreError> {
        self.open(self.options.connect_timeout).await
    }

    /// Keeps a session up for as long as the client lives.
    pub(super) async fn keep_up(self: Arc<Self>) {
        let (address, mut backoff) = (&self.endpoint, Backoff::default());
        let mut was_up = self.state.borrow().session.is_some();
        loop {
            let mut states = self.state.subscribe();
            let _ = states.wait_for(|state| state.session.is_none()).await;
            self.count(false);
            let (began, mut is_logged) = (Instant::now(), !was_up || self.listener.is_none());
            if !mem::replace(&mut is_logged, true) {
                tracing::info!(%address, "connection lost, connecting again");
            }
            let mut within = FIRST_TIMEOUT.min(self.options.connect_timeout);
            let (mut is_first, mut is_refused) = (true, false);
            while let Err(error) = self.open(within).await {
                tracing::debug!(%address, %error, "connecting failed");
                if mem::take(&mut is_first) && !was_up && self.listener.is_some() {
                    tracing::warn!(%address, %error, "the server cannot be reached yet");
                } else if error.is_refusal && !mem::replace(&mut is_refused, true) {
                    tracing::warn!(%address, %error, "the server refuses to connect again");
                }
                let refused = (!error.transient).then_some(REFUSED);
                let pause = refused.unwrap_or_else(|| backoff.next());
                tokio::time::sleep(pause).await;
                within = (within * 2).min(self.options.connect_timeout);
            }
            backoff = Backoff::default();
            // What happened in between was not notified.
            self.notify(Notification::SomeChanged(KeyFilter::All));
            if mem::replace(&mut was_up, true)
                && let Some(metrics) = &self.metrics
            {
                metrics.reconnected();
                tracing::info!(%address, after = %shown(began.elapsed()), "connected again");
            }
        }
    }

    fn count(&self, is_up: bool) {
        if let Some(metrics) = &self.metrics {
            metrics.is_up(is_up);
        }
    }
}
