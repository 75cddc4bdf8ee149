//! The local queues. For each key, one caller of the client has the turn and may ask the store. All others wait in the
//! order of their calls. To the store, a local queue is one waiter.

mod retention;
mod turn;
mod unpolled;

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

pub(crate) use self::turn::Turn;
use self::{
    turn::{Member, Waiting},
    unpolled::IDLE,
};
use super::{Ownership, ReleaseQueue};
use crate::{
    clock::ClientClock,
    key::Key,
    options::LockOptions,
    owner::OwnerId,
    store::{GRACE, KeyFilter},
    sync::{
        Mutex, MutexGuard, Notify, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        oneshot,
    },
};

/// The queue of each key that this client owns or a caller waits for.
#[derive(Default)]
pub(crate) struct LocalQueues {
    queues: Mutex<HashMap<Key, Arc<LocalQueue>>>,
    pub(crate) releases: ReleaseQueue,
    /// How many local waiters are served in a row while other clients wait. Only waiters that were queued when this
    /// client received the lock are counted.
    local_handovers: usize,
    /// Whether nothing is retained any more, because the client ends.
    draining: AtomicBool,
    clock: ClientClock,
    /// Notified when a caller begins to wait. From then on, the background takes turns back from calls that are not
    /// polled, for as long as callers wait.
    pub(crate) waits: Notify,
    is_watched: AtomicBool,
}

struct LocalQueue {
    key: Key,
    state: Mutex<QueueState>,
    /// The latest time at which the call with the turn acts next, in nanoseconds. After that, it is not being polled.
    acts_by: AtomicU64,
    /// How long the store may keep the lock for that call, in nanoseconds.
    kept_until: AtomicU64,
}

#[derive(Default)]
struct QueueState {
    waiting: VecDeque<Waiter>,
    /// The ownership that the caller with the turn asks for, or has.
    current: Option<Arc<Ownership>>,
    /// Whether the current ownership is retained: the next caller may take it.
    is_retained: bool,
    /// The release of the current ownership, while no call has the turn.
    release: Release,
    /// Whether other clients wait for the lock, as far as is known.
    wanted: bool,
    /// How many further callers are served before other clients are.
    handovers: usize,
    places: u64,
    /// The number of the present turn. A turn with another number was taken back.
    turn: u64,
}

/// The release of an ownership that no call has.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Release {
    #[default]
    None,
    /// Its callers gave it up, and it has the turn until it is released.
    GivenUp,
    /// It was released, or its release is under way, and the turn is on its way to the next call.
    Done,
}

struct Waiter {
    place: u64,
    options: LockOptions,
    turn: oneshot::Sender<Turn>,
}

impl LocalQueue {
    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn current(&self) -> Option<Arc<Ownership>> {
        self.state().current.clone()
    }
}

impl QueueState {
    fn arrived(&mut self, most: usize, wanted: bool) {
        self.handovers = self.waiting.len().min(most);
        self.wanted |= wanted;
    }

    /// Returns the retained ownership. The caller has to resume it, or to end its retention.
    fn take_retained(&mut self) -> Option<Arc<Ownership>> {
        let is_retained = std::mem::take(&mut self.is_retained);
        is_retained.then(|| self.current.clone()).flatten()
    }

    fn take_given_up(&mut self) -> Option<Arc<Ownership>> {
        let is_given_up = self.release == Release::GivenUp;
        if is_given_up {
            self.release = Release::None;
        }
        is_given_up.then(|| self.current.clone()).flatten()
    }
}

impl LocalQueues {
    pub(crate) fn new(local_handovers: usize, clock: ClientClock) -> Self {
        Self {
            local_handovers,
            clock,
            ..Self::default()
        }
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<Key, Arc<LocalQueue>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether no caller has a turn or waits for one.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.queues().is_empty()
    }

    fn queue(&self, key: &Key) -> Option<Arc<LocalQueue>> {
        self.queues().get(key).cloned()
    }

    /// Returns the current ownership of this key, granted or not.
    pub(crate) fn current(&self, key: &Key) -> Option<Arc<Ownership>> {
        self.queue(key)?.current()
    }

    /// Returns the ownership of this key, if the client owns it.
    pub(crate) fn owned(&self, key: &Key) -> Option<Arc<Ownership>> {
        self.current(key).filter(|ownership| ownership.is_owned())
    }

    /// Returns the first of the keys of all queues for which this holds, in ascending order.
    pub(crate) fn first_keys(&self, most: usize, is_meant: impl Fn(&Key) -> bool) -> Vec<Key> {
        let mut keys: Vec<Key> = {
            let queues = self.queues();
            queues.keys().filter(|key| is_meant(key)).cloned().collect()
        };
        let by_text = |one: &Key, other: &Key| one.as_str().cmp(other.as_str());
        // To sort all of them for each part of a list would take seconds with many locks.
        if keys.len() > most {
            keys.select_nth_unstable_by(most, by_text);
            keys.truncate(most);
        }
        keys.sort_unstable_by(by_text);
        keys
    }

    /// Returns the number of callers that wait for this key, besides the one with the turn, and whether other clients
    /// wait for it.
    pub(crate) fn waiters(&self, key: &Key) -> (usize, bool) {
        self.queue(key).map_or((0, false), |queue| {
            let state = queue.state();
            (state.waiting.len(), state.wanted)
        })
    }

    /// Applies the message that the store handed the lock off to an owner in its wait queue.
    pub(crate) fn handed_off(
        &self,
        key: &Key,
        owner: OwnerId,
        fence: u64,
        ttl: Duration,
        wanted: bool,
    ) {
        let Some(queue) = self.queue(key) else {
            return;
        };
        let current = queue.current().filter(|current| current.owner == owner);
        let Some(ownership) = current else {
            return;
        };
        let arrived = || {
            queue.state().arrived(self.local_handovers, wanted);
            let now = self.clock.now();
            queue.acts_by(now + GRACE);
            queue.kept_until(now + ttl);
        };
        ownership.handed_off(fence, ttl, wanted, arrived);
    }

    fn member(self: &Arc<Self>, queue: &Arc<LocalQueue>) -> Member {
        Member {
            queues: Arc::clone(self),
            queue: Arc::clone(queue),
        }
    }

    /// Returns the turn, if no other caller has it or waits for it.
    pub(crate) fn try_turn(self: &Arc<Self>, key: &Key) -> Option<Turn> {
        let retained = {
            let mut queues = self.queues();
            let Some(queue) = queues.get(key) else {
                return Some(self.open(&mut queues, key));
            };
            let mut state = queue.state();
            if !state.waiting.is_empty() {
                return None;
            }
            state.take_retained()
        };
        retained?.resume()
    }

    /// Returns the turn, or a place in the queue, if the call only follows a release of this client. Returns `None` if
    /// another call of this client has the lock, asks for it, or waits for it.
    pub(crate) fn follow_release(
        self: &Arc<Self>,
        key: &Key,
        options: &LockOptions,
    ) -> Option<Result<Turn, Waiting>> {
        let mut queues = self.queues();
        let Some(queue) = queues.get(key) else {
            return Some(Ok(self.open(&mut queues, key)));
        };
        // In this order: a release that ends marks the queue before its ownership leaves the turn.
        let is_releasing = queue.current().is_some_and(|own| own.is_releasing());
        let mut state = queue.state();
        let follows = state.waiting.is_empty() && (is_releasing || state.release == Release::Done);
        follows.then(|| Err(self.join(queue, &mut state, options)))
    }

    /// Returns the turn, or a place in the queue.
    pub(crate) fn enqueue(
        self: &Arc<Self>,
        key: &Key,
        options: &LockOptions,
    ) -> Result<Turn, Waiting> {
        let (waiting, retained, given_up) = {
            let mut queues = self.queues();
            let Some(queue) = queues.get(key) else {
                return Ok(self.open(&mut queues, key));
            };
            let mut state = queue.state();
            let retained = state.take_retained();
            // A call that may wait asks without waiting for that release: the store keeps the order.
            let given_up = state.take_given_up();
            (self.join(queue, &mut state, options), retained, given_up)
        };
        // The turn goes to the first waiter.
        drop(retained.and_then(|ownership| ownership.resume()));
        drop(given_up.and_then(|ownership| ownership.leave_turn()));
        Err(waiting)
    }

    fn join(
        self: &Arc<Self>,
        queue: &Arc<LocalQueue>,
        state: &mut QueueState,
        options: &LockOptions,
    ) -> Waiting {
        let (sender, turn) = oneshot::channel();
        let place = state.places;
        state.places += 1;
        state.waiting.push_back(Waiter {
            place,
            options: *options,
            turn: sender,
        });
        if !self.is_watched.swap(true, Ordering::AcqRel) {
            self.waits.notify_one();
        }
        Waiting {
            member: self.member(queue),
            place,
            turn,
        }
    }

    fn open(self: &Arc<Self>, queues: &mut HashMap<Key, Arc<LocalQueue>>, key: &Key) -> Turn {
        let acts_by = self.clock.now() + IDLE;
        let queue = Arc::new(LocalQueue {
            key: key.clone(),
            state: Mutex::default(),
            acts_by: AtomicU64::new(acts_by.nanos()),
            kept_until: AtomicU64::new(0),
        });
        let member = self.member(&queue);
        queues.insert(key.clone(), queue);
        member.turn(0)
    }

    /// Forgets all ownerships when the client has ended. An ownership that was not released keeps its turn, and the turn
    /// keeps the queues.
    pub(crate) fn forget_all(&self) {
        let queues: Vec<_> = self.queues().values().cloned().collect();
        for queue in queues {
            let current = queue.state().current.take();
            drop(current);
        }
    }

    /// Doubts all requests for these keys, and makes their waiters ask the store again, because messages may have been
    /// missed.
    pub(crate) fn ask_again(&self, filter: &KeyFilter) {
        let queues: Vec<_> = {
            let queues = self.queues();
            let meant = queues.iter().filter(|(key, _)| filter.matches(key));
            meant.map(|(_, queue)| Arc::clone(queue)).collect()
        };
        for ownership in queues.iter().filter_map(|queue| queue.current()) {
            ownership.doubt();
            ownership.ask_after(Duration::ZERO);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, pin::Pin, task::Poll};

    use super::*;

    async fn its_turn(queues: &Arc<LocalQueues>, key: &Key) -> Turn {
        match queues.enqueue(key, &LockOptions::default()) {
            Ok(turn) => turn,
            Err(waiting) => waiting.turn().await,
        }
    }

    async fn stands<F: Future>(mut waiting: Pin<&mut F>) -> bool {
        poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx).is_pending())).await
    }

    #[tokio::test]
    async fn nothing_is_left_of_a_queue_when_all_callers_are_gone() {
        let queues = Arc::new(LocalQueues::new(16, ClientClock::default()));
        let key = Key::parse("k").expect("valid");
        let turn = queues.try_turn(&key).expect("free");
        assert!(queues.try_turn(&key).is_none());
        let mut waiting = Box::pin(its_turn(&queues, &key));
        assert!(stands(waiting.as_mut()).await);
        drop(turn);
        assert!(queues.try_turn(&key).is_none(), "the waiter comes first");
        drop(waiting);
        drop(queues.try_turn(&key).expect("free again"));
        assert!(queues.is_empty());
    }

    #[tokio::test]
    async fn a_caller_that_gives_up_leaves_no_place_behind() {
        let queues = Arc::new(LocalQueues::new(16, ClientClock::default()));
        let key = Key::parse("k").expect("valid");
        let turn = queues.try_turn(&key).expect("free");
        for _ in 0..10 {
            let mut waiting = Box::pin(its_turn(&queues, &key));
            assert!(stands(waiting.as_mut()).await);
        }
        assert!(turn.state().waiting.is_empty());
    }
}
