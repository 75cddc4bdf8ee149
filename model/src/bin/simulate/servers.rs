//! A simulated server: the rules of the embedded store, with a clock and fences of its own.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rlock_model::requests::{self, Answer, Body, Fences as _};
use rlock_proto::embedded;
use uuid::Uuid;

use crate::{
    key::Key,
    lease::Time,
    mode::LockMode,
    owner::OwnerId,
    store::{GRACE, Notification, ReleaseRequest},
};

/// The wall-clock time at which a simulation begins, in nanoseconds.
const EPOCH: u64 = 1_700_000_000_000_000_000;
/// How long a server keeps a fence after the lease of its grant.
pub(crate) const RETENTION: Duration = Duration::from_secs(5);

/// Returns how long a server keeps a fence that a request sets.
fn fence_ttl(body: &Body) -> Duration {
    let lease = match body {
        Body::Acquire(request, _) => request.lease,
        Body::SetCount(set) => set.lease,
        Body::Downgrade(..) | Body::Release(..) => GRACE,
        Body::Renew(renewal, lease) if renewal.keeps_fence => *lease * 2,
        Body::Renew(_, lease) | Body::Restore(_, lease) => *lease,
    };
    RETENTION + lease.max(GRACE)
}

/// The fences of the keys of a request: the last one, and the server's clock in the unit of fences, or the floor.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fences {
    last: u64,
    clock: u64,
    is_set: bool,
}

impl embedded::Fences for Fences {
    fn next(&mut self) -> u64 {
        self.last = self.clock.max(self.last + 1);
        self.is_set = true;
        self.last
    }

    /// A fence that was forgotten was smaller than the clock.
    fn last(&self) -> u64 {
        match self {
            Self { last: 0, clock, .. } => clock - 1,
            Self { last, .. } => *last,
        }
    }
}

impl requests::Fences for Fences {
    fn raise(&mut self, least: u64) {
        self.last = self.last.max(least);
    }

    fn keep(&mut self) {
        self.is_set = true;
    }
}

/// The state of a server.
pub(crate) type State = embedded::State<Fences>;

/// The last fence of a key, until a time of the server's clock.
#[derive(Clone)]
struct Kept {
    fence: u64,
    until: Time,
}

pub(crate) struct Server {
    pub(crate) state: State,
    fences: BTreeMap<Key, Kept>,
    /// The largest fence of each key, whether or not the server still has it.
    largest: BTreeMap<Key, u64>,
    /// Its clock at the start of the run.
    clock: u64,
    is_member: bool,
    /// The notifications that are not sent yet.
    outbox: Arc<Mutex<Vec<(Uuid, Notification)>>>,
    pub(crate) paused_until: u64,
    /// Until when it is down: requests are not executed.
    pub(crate) down_until: u64,
    /// How often it has restarted.
    pub(crate) restarts: u64,
}

impl Server {
    pub(crate) fn new(is_member: bool) -> Self {
        Self {
            state: State::default(),
            fences: BTreeMap::new(),
            largest: BTreeMap::new(),
            clock: EPOCH,
            is_member,
            outbox: Arc::default(),
            paused_until: 0,
            down_until: 0,
            restarts: 0,
        }
    }

    /// Returns a replica that has all data, to which no client is connected.
    pub(crate) fn successor(&self) -> Self {
        let mut state = self.state.clone();
        state.clients.clear();
        Self {
            state,
            fences: self.fences.clone(),
            largest: self.largest.clone(),
            clock: self.clock,
            ..Self::new(self.is_member)
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

    /// Disconnects a client. Its owners keep their places in wait queues until they are passed over.
    pub(crate) fn leaves(&mut self, client: Uuid) {
        self.state.clients.remove(&client);
    }

    /// Returns the time of its clock.
    pub(crate) fn time(&self, now: u64) -> Time {
        Time::from_nanos(self.clock + now)
    }

    /// Sets the clock ahead of the true time, or back behind it. Returns whether it steps back.
    pub(crate) fn set_clock(&mut self, now: u64, by: u64, is_ahead: bool) -> bool {
        self.forget_fences(now);
        let before = self.clock;
        self.clock = if is_ahead { EPOCH + by } else { EPOCH - by };
        self.clock < before
    }

    /// Forgets the fences whose time has ended.
    fn forget_fences(&mut self, now: u64) {
        let time = self.time(now);
        self.fences.retain(|_, kept| kept.until > time);
    }

    /// Forgets all fences, as by eviction.
    pub(crate) fn lose_fences(&mut self) {
        self.fences.clear();
    }

    /// Returns the largest fence that a key has had.
    pub(crate) fn largest_fence(&self, key: &Key) -> u64 {
        self.largest.get(key).copied().unwrap_or_default()
    }

    /// Returns the owners that have a lock at this time of the server's clock.
    pub(crate) fn owners(&self, key: &Key, at: Time) -> Vec<OwnerId> {
        let lock = self.state.locks.get(key);
        let holders = lock.into_iter().flat_map(|lock| &lock.holders);
        let present = holders.filter(|holder| holder.expires > at && !holder.owner.is_kept());
        present.map(|holder| holder.owner).collect()
    }

    /// Returns whether the server has the last fence of a key.
    pub(crate) fn has_fence(&self, key: &Key) -> bool {
        self.fences.contains_key(key)
    }

    /// Returns whether the server has the last fence of a key at this time.
    pub(crate) fn keeps_fence(&mut self, now: u64, key: &Key) -> bool {
        self.forget_fences(now);
        self.has_fence(key)
    }

    /// Returns whether the next fence of a key may be smaller than its last one, unless a request passes a floor.
    pub(crate) fn may_shrink(&mut self, now: u64, key: &Key) -> bool {
        self.forget_fences(now);
        let is_behind =
            rlock_proto::store::fence_at(self.time(now).nanos() / 1_000) <= self.largest_fence(key);
        is_behind && !self.has_fence(key)
    }

    /// Releases a lock by force. As a release that passes its fence, this keeps the fence.
    pub(crate) fn revoke(&mut self, now: u64, key: &Key) {
        let keys = std::slice::from_ref(key);
        self.change(now, (keys, RETENTION + GRACE, 0), |server, time| {
            server.state.fences.keep();
            server.state.revoke(key, time);
        });
    }

    /// Changes the state at the time of the server's clock, with the fences of these keys, the time for which new ones are
    /// kept, and a floor.
    fn change<T>(
        &mut self,
        now: u64,
        (keys, ttl, floor): (&[Key], Duration, u64),
        change: impl FnOnce(&mut Self, Time) -> T,
    ) -> T {
        self.forget_fences(now);
        let (time, kept) = (self.time(now), &self.fences);
        let last = keys.iter().filter_map(|key| Some(kept.get(key)?.fence));
        self.state.fences = Fences {
            last: last.max().unwrap_or_default(),
            clock: requests::least(rlock_proto::store::fence_at(time.nanos() / 1_000), floor),
            is_set: false,
        };
        let reply = change(self, time);
        let Fences { last, is_set, .. } = self.state.fences;
        for key in keys.iter().filter(|_| is_set && last > 0) {
            // If it is for several locks, the request may have left the fences of some as they were.
            let others = (keys.len() > 1).then(|| self.kept(key, time));
            let until = time + ttl.max(others.unwrap_or_default());
            self.fences.insert(key.clone(), Kept { fence: last, until });
            let largest = self.largest.entry(key.clone()).or_default();
            *largest = last.max(*largest);
        }
        reply
    }

    /// Returns how long a fence is kept that this release must not shorten: another owner may have the lock.
    fn kept_for_others(&mut self, release: &ReleaseRequest, now: u64) -> Duration {
        let (key, time) = (&release.key, self.time(now));
        let is_held = self.state.held_by(key, release.owner, time).is_some();
        if is_held && release.owner.mode() == LockMode::Exclusive {
            return Duration::ZERO;
        }
        self.kept(key, time)
    }

    /// Returns how long the last fence of a key is still kept.
    fn kept(&self, key: &Key, time: Time) -> Duration {
        let kept = self.fences.get(key);
        kept.map_or(Duration::ZERO, |kept| kept.until.since(time))
    }

    /// Executes a request.
    pub(crate) fn execute(&mut self, body: &Body, now: u64) -> Answer {
        let keys = body.keys();
        let floor = match body {
            Body::Acquire(_, floor) | Body::Downgrade(_, floor) | Body::Release(_, floor) => *floor,
            Body::SetCount(_) | Body::Renew(..) | Body::Restore(..) => 0,
        };
        let others = match body {
            Body::Release(release, _) => self.kept_for_others(release, now),
            Body::Renew(renewal, _) => self.kept(&renewal.claim.key, self.time(now)),
            Body::SetCount(set) => self.kept(&set.key, self.time(now)),
            Body::Downgrade(downgrade, _) => self.kept(&downgrade.key, self.time(now)),
            _ => Duration::ZERO,
        };
        let ttl = fence_ttl(body).max(others);
        self.change(now, (&keys, ttl, floor), |server, time| {
            let retention = RETENTION + GRACE;
            requests::execute(&mut server.state, body, server.is_member, retention, time)
        })
    }

    /// Continues with other data: an older copy, or none. Fences follow the clock.
    pub(crate) fn restart(&mut self, state: State) {
        self.restarts += 1;
        let clients = std::mem::take(&mut self.state.clients);
        self.state = state;
        self.fences.clear();
        self.state.clients = clients;
    }

    /// Deletes a lock. All clients learn that it has changed.
    pub(crate) fn delete(&mut self, key: &Key) {
        self.state.locks.remove(key);
        let mut clients: Vec<Uuid> = self.state.clients.keys().copied().collect();
        clients.sort_unstable();
        for client in clients {
            self.state
                .notify(client, Notification::Changed(key.clone()));
        }
    }

    /// Returns the notifications that follow from what happened.
    pub(crate) fn take_events(&mut self) -> Vec<(Uuid, Notification)> {
        for (listener, event) in std::mem::take(&mut self.state.messages) {
            listener(event);
        }
        std::mem::take(&mut *self.outbox.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
