//! How far the store has been asked for a lock, on behalf of a line of callers.

use std::time::Duration;

use crate::{
    clock::ClientClock,
    lease::Time,
    store::{Grant, Place, Route, TokenBlock},
    sync::{Mutex, MutexGuard, Notify, PoisonError},
    wait::fallback,
};

/// The longest sleep of a waiter that the store notifies. A lost notification delays the waiter by
/// this much.
const UNTOLD: Duration = Duration::from_secs(5);
/// The same limit for the first waiter, if the store does not report that a lock became free
/// without a release. One process asks for each key. A shorter sleep would lose more locks to
/// unseen replies: the store keeps such a lock for a whole lease.
const UNWATCHED: Duration = Duration::from_secs(2);
/// The shortest time between two requests of a waiter that is notified of changes. Most changes are
/// renewals, which come every few milliseconds if leases are short.
const BETWEEN_CHANGES: Duration = Duration::from_millis(500);

pub(crate) struct Asking {
    clock: ClientClock,
    state: Mutex<State>,
    /// The store told something.
    told: Notify,
}

#[derive(Default)]
struct State {
    step: Step,
    /// A request may be executed of which no answer was seen.
    in_doubt: bool,
    /// One of them takes back what it does not give, whenever it is executed.
    taken_back: bool,
    /// The way that it took.
    route: Route,
    /// The way by which the lock was read last, so that changes by another way are told; `None`: by
    /// none since it was given.
    reader: Option<Route>,
    /// When the first request was about to be sent.
    begun: Option<Time>,
    /// Grants of this token, or of a smaller one, are over: the store refused after them.
    past: u64,
    /// When to ask again, as was told since the last request was about to be sent: its answer may be
    /// seen after that.
    advised: Option<Time>,
    /// Another client has changed the lock since then.
    changed: bool,
}

#[derive(Clone, Copy, Default)]
enum Step {
    /// The store knows nothing of it.
    #[default]
    Unasked,
    /// The lock was not granted before `since`. `look`: when to ask again without a notification.
    /// `in_line`: the place in the store's wait queue.
    Waiting {
        since: Time,
        look: Time,
        in_line: Option<Place>,
    },
    Granted(Grant),
}

impl State {
    /// Schedules the first waiter's next request after a change of the lock. Returns whether it
    /// asks sooner.
    fn look_after_change(&mut self) -> bool {
        let Step::Waiting {
            since,
            look,
            in_line: Some(Place { first: true, .. }),
        } = &mut self.step
        else {
            return false;
        };
        let at = (*since + BETWEEN_CHANGES).min(*look);
        self.changed && std::mem::replace(look, at) > at
    }
}

impl Asking {
    pub(crate) fn new(clock: ClientClock) -> Self {
        Self {
            clock,
            state: Mutex::default(),
            told: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request is about to be sent. Answers whether an earlier one is still in doubt.
    pub(crate) fn begin(&self, route: Route) -> bool {
        let mut state = self.state();
        state.route = route;
        state.advised = None;
        state.changed = false;
        if state.begun.is_none() {
            state.begun = Some(self.clock.now());
        }
        std::mem::replace(&mut state.in_doubt, true)
    }

    /// The request that is about to be sent may take back what it was given: it is for other locks too,
    /// all or none, or for several servers.
    pub(crate) fn may_be_taken_back(&self) {
        self.state().taken_back = true;
    }

    /// It has not, or that is over.
    pub(crate) fn is_not_taken_back(&self) {
        self.state().taken_back = false;
    }

    /// What was given before is being taken back, maybe later than what is given next.
    pub(crate) fn spoil(&self) {
        let mut state = self.state();
        state.in_doubt = true;
        state.taken_back = true;
    }

    /// Whether what was given may have been taken back, or may still be: then it is for nobody.
    pub(crate) fn is_spoilt(&self) -> bool {
        let state = self.state();
        state.in_doubt && state.taken_back
    }

    /// The way that a request takes which is not to overtake an earlier one; `None`: there is none.
    pub(crate) fn route_in_doubt(&self) -> Option<Route> {
        let state = self.state();
        state.in_doubt.then_some(state.route)
    }

    /// The answers to all requests were seen.
    pub(crate) fn certain(&self) {
        let mut state = self.state();
        state.in_doubt = false;
        state.taken_back = false;
    }

    /// The store answered that another has the lock, and that this one does not wait there.
    pub(crate) fn refused(&self, sent_at: Time, ttl: Option<Duration>) {
        self.state().step = Step::Waiting {
            since: sent_at,
            look: self.clock.now() + fallback(ttl, UNTOLD),
            in_line: None,
        };
    }

    /// At `since` the owner stood in line.
    pub(crate) fn in_line(&self, since: Time, ttl: Option<Duration>, place: Place) {
        let mut state = self.state();
        let look = match state.step {
            // It was heard of before this answer was seen, and may have been given after it.
            Step::Granted(grant) if grant.is_fresh(grant.ttl, self.clock.now()) => return,
            Step::Granted(_) => self.clock.now(),
            Step::Unasked | Step::Waiting { .. } => {
                let most = if place.first && !place.watched {
                    UNWATCHED
                } else {
                    UNTOLD
                };
                self.clock.now() + fallback(ttl, most)
            }
        };
        let advised = state.advised.take().unwrap_or(look);
        state.step = Step::Waiting {
            since,
            look: look.min(advised),
            in_line: Some(place),
        };
        state.look_after_change();
    }

    /// The store gave it nothing, and put it nowhere.
    pub(crate) fn not_given(&self, since: Time) {
        let mut state = self.state();
        state.step = match state.step {
            Step::Unasked | Step::Waiting { in_line: None, .. } => Step::Unasked,
            // It may still have its place.
            Step::Waiting { .. } | Step::Granted(_) => Step::Waiting {
                since,
                look: since,
                in_line: Some(Place::BEHIND),
            },
        };
    }

    /// The store refused when this was the last token: a message that tells of an earlier grant comes
    /// too late.
    pub(crate) fn is_past(&self, token: u64) {
        let mut state = self.state();
        state.past = state.past.max(token);
        if let Step::Granted(grant) = state.step
            && grant.block.fence() <= token
        {
            state.step = Step::Waiting {
                since: grant.since,
                look: grant.since,
                in_line: Some(Place::BEHIND),
            };
        }
    }

    /// The store gave the lock, and nothing is in doubt.
    pub(crate) fn given(&self, grant: Grant) {
        let mut state = self.state();
        state.step = Step::Granted(grant);
        state.in_doubt = false;
        state.taken_back = false;
        state.reader = Some(state.route);
    }

    /// The owner keeps the lock that another hold of it had. Grants up to that fence are over.
    pub(crate) fn handed_over(&self, grant: Grant, before: &Self, fence: u64) {
        let reader = before.state().reader;
        let mut state = self.state();
        state.step = Step::Granted(grant);
        state.reader = reader;
        state.past = fence;
    }

    /// A request that changes and reads the lock is about to be sent by this way. Answers whether the
    /// way of the one before is told of that, as of a foreign change.
    pub(crate) fn reads_by(&self, route: Route) -> bool {
        let before = self.state().reader.replace(route);
        before.is_some_and(|before| before != route)
    }

    /// The store tells that it gave the lock to the owner in line.
    pub(crate) fn granted(&self, block: TokenBlock, ttl: Duration, wanted: bool) {
        let mut state = self.state();
        if block.fence() <= state.past {
            return;
        }
        let since = match state.step {
            Step::Waiting { since, .. } => Some(since),
            // The answer that it waits is not seen yet.
            Step::Unasked | Step::Granted(_) => state.begun,
        };
        if let Some(since) = since {
            state.step = Step::Granted(Grant {
                block,
                since,
                ttl,
                wanted,
            });
            state.reader = None;
        }
        drop(state);
        self.told.notify_one();
    }

    /// Whoever waits is to ask again after this long at the latest.
    pub(crate) fn look_after(&self, after: Duration) {
        let at = self.clock.now() + after;
        let mut state = self.state();
        state.advised = Some(state.advised.map_or(at, |advised| advised.min(at)));
        if let Step::Waiting { look, .. } = &mut state.step {
            *look = (*look).min(at);
        }
        drop(state);
        self.told.notify_one();
    }

    /// Notes that another client changed the lock: its holder renewed it, or it is free. The first
    /// waiter asks again, and thereby subscribes to the next change. All other waiters leave it to
    /// the first.
    pub(crate) fn changed(&self) {
        let sooner = {
            let mut state = self.state();
            state.changed = true;
            state.look_after_change()
        };
        if sooner {
            self.told.notify_one();
        }
    }

    /// The lock, if it was given.
    pub(crate) fn grant(&self) -> Option<Grant> {
        match self.state().step {
            Step::Granted(grant) => Some(grant),
            Step::Unasked | Step::Waiting { .. } => None,
        }
    }

    /// Whether the store keeps a place for the owner, as far as is known.
    pub(crate) fn is_in_line(&self) -> bool {
        matches!(
            self.state().step,
            Step::Waiting {
                in_line: Some(_),
                ..
            }
        )
    }

    /// Whether the store may have something for the owner, or keep a place for it.
    pub(crate) fn concerns_store(&self) -> bool {
        let state = self.state();
        state.in_doubt
            || match state.step {
                Step::Unasked => false,
                Step::Waiting { in_line, .. } => in_line.is_some(),
                Step::Granted(_) => true,
            }
    }

    /// Resolves when it is time to look: the lock was given, or it is to be asked for; at `deadline`
    /// at the latest.
    pub(crate) async fn wait(&self, deadline: Time) {
        loop {
            let told = self.told.notified();
            let look = match self.state().step {
                Step::Waiting { look, .. } => look.min(deadline),
                Step::Unasked | Step::Granted(_) => return,
            };
            let left = look.since(self.clock.now());
            if left.is_zero() {
                return;
            }
            let _ = tokio::time::timeout(left, told).await;
        }
    }
}
