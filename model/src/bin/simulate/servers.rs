//! The servers: the rules of the embedded store, with a clock and fences of their own.

use std::{
    cell::Cell,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use uuid::Uuid;

use crate::{
    key::Key,
    lease::Time,
    owner::OwnerId,
    store::{
        AcquireRequest, Acquired, Claim, Event, QueuePlace, ReleaseRequest, Released, Renewal,
        Renewed, State,
    },
};

/// The wall-clock time at which a simulation begins, in nanoseconds.
const EPOCH: u64 = 1_700_000_000_000_000_000;
/// How long a lock stays taken after a release at a member of a quorum, until its waiters are notified.
const NOTIFIED: Duration = Duration::from_millis(5);

/// What a server is asked for.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    Acquire(AcquireRequest),
    Release(ReleaseRequest),
    Renew(Renewal, Duration),
}

impl Body {
    /// Returns the lease that an acquire asks for.
    pub(crate) fn lease(&self) -> Option<Duration> {
        match self {
            Self::Acquire(request) => Some(request.lease),
            Self::Release(_) | Self::Renew(..) => None,
        }
    }
}

/// What a server replies.
#[derive(Debug)]
pub(crate) enum Answer {
    Acquired(Acquired),
    Released(Released),
    Renewed(Renewed),
}

/// The fences of one server: the last one, and its clock in units of 64 µs.
#[derive(Clone, Copy, Debug, Default)]
struct Fences {
    last: u64,
    clock: u64,
}

thread_local! {
    /// The fences of the server that executes a request.
    static FENCES: Cell<Fences> = const { Cell::new(Fences { last: 0, clock: 0 }) };
}

pub(crate) fn next_fence() -> u64 {
    let mut fences = FENCES.get();
    fences.last = fences.clock.max(fences.last + 1);
    FENCES.set(fences);
    fences.last
}

pub(crate) fn last_fence() -> u64 {
    FENCES.get().last
}

/// Makes the next fence at least this one.
fn raise_fence(least: u64) {
    let fences = FENCES.get();
    FENCES.set(Fences {
        last: fences.last.max(least - 1),
        ..fences
    });
}

pub(crate) struct Server {
    pub(crate) state: State,
    pub(crate) last_fence: u64,
    /// Its clock at the start of the run.
    clock: u64,
    is_member: bool,
    /// The notifications that are not sent yet.
    outbox: Arc<Mutex<Vec<(Uuid, Event)>>>,
    pub(crate) paused_until: u64,
}

impl Server {
    pub(crate) fn new(is_member: bool) -> Self {
        Self {
            state: State::default(),
            last_fence: 0,
            clock: EPOCH,
            is_member,
            outbox: Arc::default(),
            paused_until: 0,
        }
    }

    pub(crate) fn joins(&mut self, client: Uuid) {
        let outbox = Arc::clone(&self.outbox);
        let listener = move |event| {
            let mut outbox = outbox.lock().unwrap_or_else(PoisonError::into_inner);
            outbox.push((client, event));
        };
        self.state.clients.insert(client, Arc::new(listener));
    }

    pub(crate) fn leaves(&mut self, client: Uuid) {
        self.state.queues.leave_all(client);
        self.state.clients.remove(&client);
    }

    /// Returns the time of its clock.
    pub(crate) fn time(&self, now: u64) -> Time {
        Time::from_nanos(self.clock + now)
    }

    /// Sets the clock ahead of the true time, or back behind it.
    pub(crate) fn set_clock(&mut self, by: u64, is_ahead: bool) {
        self.clock = if is_ahead { EPOCH + by } else { EPOCH - by };
    }

    /// Changes the state at the time of the server's clock, with its fences.
    pub(crate) fn change<T>(&mut self, now: u64, change: impl FnOnce(&mut Self, Time) -> T) -> T {
        let time = self.time(now);
        FENCES.set(Fences {
            last: self.last_fence,
            clock: time.nanos() / 64_000,
        });
        let reply = change(self, time);
        self.last_fence = last_fence();
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
                let Claim { key, owner } = &renewal.claim;
                let is_held = server.state.held_by(key, *owner, time).is_some();
                if server.is_member && renewal.fence > 0 && is_held {
                    raise_fence(renewal.fence);
                }
                let renewals = std::slice::from_ref(renewal);
                Answer::Renewed(server.state.renew(renewals, *lease, time))
            }
        });
        // A quorum carries the largest fence to its members.
        if let Body::Release(release) = body
            && self.is_member
        {
            self.last_fence = self.last_fence.max(release.fence);
        }
        answer
    }

    /// Acquires at a member of a quorum. Waiters do not come before other owners.
    fn acquire_of_member(&mut self, request: &AcquireRequest, now: Time) -> Acquired {
        let queues = std::mem::take(&mut self.state.queues);
        let mut acquired = self.state.acquire(request, now);
        let joined = std::mem::replace(&mut self.state.queues, queues);
        let queues = &mut self.state.queues;
        for claim in request.claims.iter() {
            if joined.first(&claim.key).is_some() {
                queues.join(&claim.key, claim.owner, now);
            } else if matches!(acquired, Acquired::Granted { .. }) {
                queues.leave(&claim.key, claim.owner);
            }
        }
        match &mut acquired {
            Acquired::Granted { wanted, .. } => {
                let mut keys = request.claims.iter().map(|claim| &claim.key);
                *wanted = keys.any(|key| queues.first(key).is_some());
            }
            Acquired::Taken { claim, queued, .. } => {
                let claim = &request.claims[*claim];
                let first = queues.first(&claim.key) == Some(claim.owner);
                *queued = queued.map(|place| QueuePlace { first, ..place });
            }
            Acquired::NotOwner => {}
        }
        acquired
    }

    /// Releases at a member of a quorum, and makes all waiters ask again.
    fn release_of_member(&mut self, release: &ReleaseRequest, now: Time) -> Released {
        let (key, mut release) = (&release.key, release.clone());
        let is_held = self.state.held_by(key, release.owner, now).is_some();
        if release.count > 0 || !is_held {
            return self.state.release(&release, now);
        }
        let waiters: Vec<OwnerId> = self.state.queues.of(key).collect();
        for owner in &waiters {
            self.state.queues.leave(key, *owner);
        }
        if release.at_least.is_zero() && !waiters.is_empty() {
            release.at_least = NOTIFIED;
        }
        let released = self.state.release(&release, now);
        for owner in waiters {
            let (key, after) = (key.clone(), release.at_least);
            self.state
                .notify(owner.client(), Event::Retry { key, owner, after });
        }
        released
    }

    /// Continues with other data: an older copy, or none. Fences follow the clock.
    pub(crate) fn restart(&mut self, state: State) {
        let clients = std::mem::take(&mut self.state.clients);
        (self.state, self.last_fence) = (state, 0);
        self.state.clients = clients;
    }

    /// Deletes a lock. All clients learn that it has changed.
    pub(crate) fn delete(&mut self, key: &Key) {
        self.state.locks.remove(key);
        let mut clients: Vec<Uuid> = self.state.clients.keys().copied().collect();
        clients.sort_unstable();
        for client in clients {
            self.state.notify(client, Event::Changed(key.clone()));
        }
    }

    /// Returns the notifications that follow from what happened.
    pub(crate) fn take_events(&mut self) -> Vec<(Uuid, Event)> {
        for (listener, event) in std::mem::take(&mut self.state.messages) {
            listener(event);
        }
        std::mem::take(&mut *self.outbox.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
