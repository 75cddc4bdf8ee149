//! The embedded store: the same semantics as a server's, inside one process.

use std::{
    collections::{HashMap, VecDeque},
    future::ready,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::sync::Notify;

use super::{
    Acquired, Answer, BoxFuture, Claim, Entry, KEPT, Released, Renewal, Renewed, Store, Watch,
};
use crate::{
    key::Key,
    lease::{Time, wall_clock_micros},
    owner::OwnerId,
};

/// How many ended holds are remembered, to answer a repeated release as the first one was.
const REMEMBERED_RELEASES: usize = 64;
/// Below this many locks, nobody looks for expired ones.
const SWEEP_FROM: usize = 64;

/// Locks that live in this process.
#[derive(Default)]
pub(crate) struct MemoryStore {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    locks: HashMap<Key, Lock>,
    /// The locks that the last sweep left; the next one is due at twice as many.
    swept: usize,
    last_token: u64,
    released: VecDeque<OwnerId>,
    watches: HashMap<Key, Vec<Arc<Notify>>>,
}

struct Lock {
    owner: OwnerId,
    count: u32,
    token: u64,
    expires: Time,
    /// Given back, but to stay taken until it expires.
    kept: bool,
}

impl MemoryStore {
    /// The store that every client in this process finds under `name`, for as long as one uses it.
    pub(crate) fn named(name: &str) -> Arc<Self> {
        static STORES: LazyLock<Mutex<HashMap<String, Weak<MemoryStore>>>> =
            LazyLock::new(Mutex::default);
        let mut stores = STORES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = stores.get(name).and_then(Weak::upgrade) {
            return store;
        }
        stores.retain(|_, store| store.strong_count() > 0);
        let store = Arc::new(Self::default());
        stores.insert(name.to_owned(), Arc::downgrade(&store));
        store
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The lock on `key`, unless it has expired.
    fn live(&mut self, key: &Key, now: Time) -> Option<&mut Lock> {
        if self.locks.get(key).is_some_and(|lock| lock.expires <= now) {
            self.locks.remove(key);
        }
        self.locks.get_mut(key)
    }

    fn held_by(&mut self, key: &Key, owner: OwnerId, now: Time) -> Option<&mut Lock> {
        self.live(key, now)
            .filter(|lock| lock.owner == owner && !lock.kept)
    }

    fn acquire(&mut self, claims: &[Claim], lease: Duration, count: u32) -> Acquired {
        let now = Time::now();
        for (claim, Claim { key, owner }) in claims.iter().enumerate() {
            match self.live(key, now) {
                Some(lock) if lock.owner == *owner && !lock.kept => {}
                Some(lock) => {
                    let ttl = Some(lock.expires.since(now));
                    return Acquired::Held { claim, ttl };
                }
                None if count > 1 => return Acquired::NotHeld,
                None => {}
            }
        }
        let tokens = claims
            .iter()
            .map(|claim| self.grant(claim, now + lease, count, now))
            .collect();
        Acquired::Granted {
            tokens,
            sent_at: now,
        }
    }

    /// Gives a lock that is free, or the owner's own.
    fn grant(&mut self, claim: &Claim, expires: Time, count: u32, now: Time) -> u64 {
        if let Some(lock) = self.live(&claim.key, now) {
            lock.count = count;
            lock.expires = lock.expires.max(expires);
            return lock.token;
        }
        self.sweep(now);
        let token = wall_clock_micros().max(self.last_token + 1);
        self.last_token = token;
        let lock = Lock {
            owner: claim.owner,
            count,
            token,
            expires,
            kept: false,
        };
        self.locks.insert(claim.key.clone(), lock);
        token
    }

    fn release(&mut self, key: &Key, owner: OwnerId, count: u32, keep: Duration) -> Released {
        let now = Time::now();
        let Some(lock) = self.held_by(key, owner, now) else {
            return if self.released.contains(&owner) {
                Released::Released
            } else {
                Released::NotHeld
            };
        };
        if count > 0 {
            lock.count = count;
            return Released::Released;
        }
        if keep.is_zero() {
            self.locks.remove(key);
        } else {
            lock.kept = true;
            lock.expires = now + keep;
        }
        if self.released.len() == REMEMBERED_RELEASES {
            self.released.pop_front();
        }
        self.released.push_back(owner);
        Released::Released
    }

    /// Forgets expired locks, seldom enough to cost little for each new one.
    fn sweep(&mut self, now: Time) {
        if self.locks.len() >= SWEEP_FROM.max(self.swept * 2) {
            self.locks.retain(|_, lock| lock.expires > now);
            self.swept = self.locks.len();
        }
    }
}

impl Store for MemoryStore {
    fn acquire<'a>(
        &'a self,
        claims: &'a [Claim],
        lease: Duration,
        count: u32,
        _timeout: Duration,
    ) -> Answer<'a, Acquired> {
        let answer = self.state().acquire(claims, lease, count);
        Box::pin(ready(Ok(answer)))
    }

    fn release<'a>(
        &'a self,
        key: &'a Key,
        owner: OwnerId,
        count: u32,
        keep: Duration,
        _timeout: Duration,
    ) -> Answer<'a, Released> {
        let (answer, watches) = {
            let mut state = self.state();
            let answer = state.release(key, owner, count, keep);
            let given_back = count == 0 && answer == Released::Released;
            (
                answer,
                state.watches.get(key).filter(|_| given_back).cloned(),
            )
        };
        // Whoever is woken may run at once, so not under the mutex.
        for watch in watches.into_iter().flatten() {
            watch.notify_one();
        }
        Box::pin(ready(Ok(answer)))
    }

    fn renew<'a>(
        &'a self,
        batch: &'a [Renewal],
        _timeout: Duration,
        _silence: Duration,
    ) -> Answer<'a, Renewed> {
        let now = Time::now();
        let mut state = self.state();
        let mut extend = |renewal: &Renewal| {
            let lock = state.held_by(&renewal.key, renewal.owner, now);
            lock.map(|lock| lock.expires = lock.expires.max(now + renewal.lease))
                .is_some()
        };
        let held = batch.iter().map(&mut extend).collect();
        Box::pin(ready(Ok(Renewed { held, sent_at: now })))
    }

    fn inspect<'a>(&'a self, key: &'a Key, _timeout: Duration) -> Answer<'a, Option<Entry>> {
        let now = Time::now();
        let entry = self.state().live(key, now).map(|lock| Entry {
            owner: if lock.kept {
                KEPT.to_owned()
            } else {
                lock.owner.to_string()
            },
            count: lock.count,
            ttl: Some(lock.expires.since(now)),
            token: Some(lock.token),
        });
        Box::pin(ready(Ok(entry)))
    }

    fn watch(self: Arc<Self>, key: &Key) -> Box<dyn Watch> {
        let notify = Arc::new(Notify::new());
        self.state()
            .watches
            .entry(key.clone())
            .or_default()
            .push(Arc::clone(&notify));
        Box::new(MemoryWatch {
            store: self,
            key: key.clone(),
            notify,
        })
    }

    fn background(self: Arc<Self>) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

struct MemoryWatch {
    store: Arc<MemoryStore>,
    key: Key,
    notify: Arc<Notify>,
}

impl Watch for MemoryWatch {
    fn ready(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(ready(()))
    }

    fn woken(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(self.notify.notified())
    }
}

impl Drop for MemoryWatch {
    fn drop(&mut self) {
        let mut state = self.store.state();
        if let Some(watches) = state.watches.get_mut(&self.key) {
            watches.retain(|notify| !Arc::ptr_eq(notify, &self.notify));
            if watches.is_empty() {
                state.watches.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const LEASE: Duration = Duration::from_secs(30);

    fn owner(sequence: u64) -> OwnerId {
        OwnerId::new(Uuid::nil(), sequence)
    }

    fn claim(key: &str, sequence: u64) -> [Claim; 1] {
        [Claim {
            key: Key::parse(key).expect("valid"),
            owner: owner(sequence),
        }]
    }

    #[test]
    fn a_repeated_release_answers_what_the_first_one_answered() {
        let key = Key::parse("k").expect("valid");
        let mut state = State::default();
        state.acquire(&claim("k", 1), LEASE, 1);
        assert_eq!(
            state.release(&key, owner(1), 0, Duration::ZERO),
            Released::Released
        );
        state.acquire(&claim("k", 2), LEASE, 1);
        assert_eq!(
            state.release(&key, owner(1), 0, Duration::ZERO),
            Released::Released
        );
        assert_eq!(
            state.release(&key, owner(3), 0, Duration::ZERO),
            Released::NotHeld
        );
        assert!(state.held_by(&key, owner(2), Time::now()).is_some());
    }

    #[test]
    fn expired_locks_do_not_pile_up() {
        let mut state = State::default();
        for n in 0..10_000 {
            state.acquire(&claim(&format!("k:{n}"), n), Duration::ZERO, 1);
        }
        assert!(state.locks.len() <= 2 * SWEEP_FROM, "{}", state.locks.len());
    }
}
