//! The servers: the rules of the embedded store, with a clock of their own and older copies of their data.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use uuid::Uuid;

use crate::{
    fences::{self, Fences},
    key::Key,
    lease::Time,
    owner::OwnerId,
    store::{
        AcquireRequest, Acquired, Event, Listener, QueuePlace, ReleaseRequest, Released, Renewal,
        RenewalOutcome, State,
    },
};

/// The wall-clock time at which a simulation begins, in seconds.
const EPOCH: u64 = 1_700_000_000;
/// How long a lock stays taken after a release at a member of a quorum, until its waiters are notified.
const NOTIFIED: Duration = Duration::from_millis(5);

/// The notifications of a server that are not sent yet.
type Outbox = Arc<Mutex<Vec<(Uuid, Event)>>>;

/// What a server is asked for.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    Acquire(AcquireRequest),
    Release(ReleaseRequest),
    Renew(Renewal, Duration),
}

/// What a server replies.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Acquired(Acquired),
    Released(Released),
    Renewed(RenewalOutcome),
}

pub(crate) struct Server {
    pub(crate) state: State,
    fences: Fences,
    /// How far its clock is ahead of the start, in nanoseconds.
    ahead: u64,
    is_member: bool,
    outbox: Outbox,
    copy: Option<State>,
    pub(crate) paused_until: u64,
}

impl Server {
    pub(crate) fn new(is_member: bool) -> Self {
        Self {
            state: State::default(),
            fences: Fences::default(),
            ahead: EPOCH * 1_000_000_000,
            is_member,
            outbox: Outbox::default(),
            copy: None,
            paused_until: 0,
        }
    }

    pub(crate) fn joins(&mut self, client: Uuid) {
        let outbox = Arc::clone(&self.outbox);
        let listener: Listener = Arc::new(move |event| {
            let mut outbox = outbox.lock().unwrap_or_else(PoisonError::into_inner);
            outbox.push((client, event));
        });
        self.state.clients.insert(client, listener);
    }

    pub(crate) fn leaves(&mut self, client: Uuid) {
        self.state.queues.leave_all(client);
        self.state.clients.remove(&client);
    }

    /// Returns the time of its clock.
    pub(crate) fn time(&self, now: u64) -> Time {
        Time::from_nanos(self.ahead + now)
    }

    pub(crate) fn last_fence(&self) -> u64 {
        self.fences.last
    }

    /// Changes the state at the time of the server's clock, with its fences.
    fn change<T>(&mut self, now: u64, change: impl FnOnce(&mut Self, Time) -> T) -> T {
        let time = self.time(now);
        self.fences.clock = time.nanos() / 64_000;
        let mut fences = self.fences;
        let reply = fences::with(&mut fences, || change(self, time));
        self.fences = fences;
        reply
    }

    /// Executes a request.
    pub(crate) fn execute(&mut self, body: &Body, now: u64) -> Answer {
        let answer = self.change(now, |server, time| match body {
            Body::Acquire(request) if server.is_member => {
                Answer::Acquired(server.acquire_of_member(request, time))
            }
            Body::Acquire(request) => Answer::Acquired(server.state.acquire(request, time)),
            Body::Release(release) if server.is_member => {
                Answer::Released(server.release_of_member(release, time))
            }
            Body::Release(release) => Answer::Released(server.state.release(release, time)),
            Body::Renew(renewal, lease) => {
                let renewals = std::slice::from_ref(renewal);
                Answer::Renewed(server.state.renew(renewals, *lease, time).kept[0])
            }
        });
        // A quorum carries the largest fence to its members.
        let least = match body {
            Body::Release(release) => release.fence,
            Body::Renew(renewal, _) => renewal.fence,
            Body::Acquire(_) => 0,
        };
        if self.is_member {
            self.fences.last = self.fences.last.max(least);
        }
        answer
    }

    /// Acquires at a member of a quorum. Waiters do not come before other owners.
    fn acquire_of_member(&mut self, request: &AcquireRequest, now: Time) -> Acquired {
        let queues: Vec<Vec<OwnerId>> = (request.claims.iter())
            .map(|claim| self.state.queues.of(&claim.key).collect())
            .collect();
        for (claim, queue) in request.claims.iter().zip(&queues) {
            for owner in queue {
                self.state.queues.leave(&claim.key, *owner);
            }
        }
        let mut acquired = self.state.acquire(request, now);
        for (claim, queue) in request.claims.iter().zip(&queues) {
            let joined = self.state.queues.first(&claim.key).is_some();
            self.state.queues.leave(&claim.key, claim.owner);
            let is_granted = matches!(acquired, Acquired::Granted { .. });
            for owner in queue
                .iter()
                .filter(|owner| !is_granted || **owner != claim.owner)
            {
                self.state.queues.join(&claim.key, *owner, now);
            }
            if joined {
                self.state.queues.join(&claim.key, claim.owner, now);
            }
        }
        let is_wanted = |key: &Key| self.state.queues.first(key).is_some();
        match &mut acquired {
            Acquired::Granted { wanted, .. } => {
                *wanted = request.claims.iter().any(|claim| is_wanted(&claim.key));
            }
            Acquired::Taken { claim, queued, .. } => {
                let claim = &request.claims[*claim];
                let first = self.state.queues.first(&claim.key) == Some(claim.owner);
                *queued = queued.map(|place| QueuePlace { first, ..place });
            }
            Acquired::NotOwner => {}
        }
        acquired
    }

    /// Releases at a member of a quorum, and makes all waiters ask again.
    fn release_of_member(&mut self, release: &ReleaseRequest, now: Time) -> Released {
        let is_held = self
            .state
            .held_by(&release.key, release.owner, now)
            .is_some();
        if release.count > 0 || !is_held {
            return self.state.release(release, now);
        }
        let waiters: Vec<OwnerId> = self.state.queues.of(&release.key).collect();
        for owner in &waiters {
            self.state.queues.leave(&release.key, *owner);
        }
        let mut release = release.clone();
        if release.at_least.is_zero() && !waiters.is_empty() {
            release.at_least = NOTIFIED;
        }
        let released = self.state.release(&release, now);
        for owner in waiters {
            let (key, after) = (release.key.clone(), release.at_least);
            self.state
                .notify(owner.client(), Event::Retry { key, owner, after });
        }
        released
    }

    /// Takes a lock from its holder.
    pub(crate) fn revoke(&mut self, key: &Key, now: u64) {
        self.change(now, |server, time| server.state.revoke(key, time));
    }

    /// Returns the notifications that follow from what happened.
    pub(crate) fn take_events(&mut self) -> Vec<(Uuid, Event)> {
        for (listener, event) in std::mem::take(&mut self.state.messages) {
            listener(event);
        }
        std::mem::take(&mut *self.outbox.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes a copy, which takes over later.
    pub(crate) fn copy(&mut self) {
        self.copy = Some(self.state.clone());
    }

    /// Restarts without data.
    pub(crate) fn clear(&mut self) {
        self.copy = Some(State::default());
        self.go_back();
    }

    /// Continues with the copy, if it still has one.
    pub(crate) fn go_back(&mut self) {
        if let Some(copy) = self.copy.take() {
            let clients = std::mem::take(&mut self.state.clients);
            self.state = copy;
            self.state.clients = clients;
            // Fences follow the clock.
            self.fences.last = 0;
        }
    }

    pub(crate) fn lose_fence(&mut self) {
        self.fences.last = 0;
    }

    /// Sets the clock ahead of the true time, or back behind it.
    pub(crate) fn set_clock(&mut self, by: u64, is_ahead: bool) {
        let from = EPOCH * 1_000_000_000;
        self.ahead = if is_ahead { from + by } else { from - by };
    }
}
