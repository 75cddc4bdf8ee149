//! The local lines: per client and key one caller at a time deals with the store, the others stand
//! in line, first come, first served. To the store a line is one waiter, whoever stands at its head.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use crate::store::Which;
use crate::{
    hold::Hold,
    key::Key,
    owner::OwnerId,
    release::ReleaseQueue,
    store::{Next, Onward, Route, TokenBlock},
    sync::{Mutex, MutexGuard, PoisonError, oneshot},
};

/// A line per key that somebody holds or waits for; lines without anybody are forgotten.
pub(crate) struct Queues {
    lines: Mutex<HashMap<Key, Arc<Line>>>,
    pub(crate) releases: ReleaseQueue,
    /// How many callers of this process a lock serves after the first, at the most, while other clients
    /// wait for it: those who stood in line when it came, and no more than these.
    in_a_row: usize,
}

#[derive(Default)]
struct Line(Mutex<State>);

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    /// What the store is asked for, on behalf of whoever has the turn.
    asked: Option<Arc<Hold>>,
    /// An ended hold whose ownership is kept for the next caller.
    retained: Option<Arc<Hold>>,
    /// Whether other clients wait for the lock, as far as is known.
    wanted: bool,
    /// How many further callers are served before other clients are.
    in_a_row: usize,
    places: u64,
    /// Whether requests for the next owner, before the release that names it, may still be executed.
    next_in_doubt: bool,
}

struct Waiting {
    place: u64,
    terms: WaiterTerms,
    turn: oneshot::Sender<Turn>,
}

/// What is asked of the store on behalf of a waiter.
#[derive(Clone, Copy)]
pub(crate) struct WaiterTerms {
    pub(crate) lease: Duration,
    /// Whether its lease is renewed.
    pub(crate) watchdog: bool,
    /// Where it is told of the lock.
    pub(crate) told_by: Route,
}

/// The right to deal with the store about a key. Dropping it passes it to the next in line, together
/// with what the store was asked for.
pub(crate) struct Turn(Option<Standing>);

/// Somebody who has the turn, or waits for it.
struct Standing {
    queues: Arc<Queues>,
    key: Key,
    line: Arc<Line>,
}

impl Line {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The lock came to this process.
    fn arrived(&mut self, most: usize, wanted: bool) {
        self.in_a_row = self.waiting.len().min(most);
        self.wanted |= wanted;
    }

    /// Returns the retained hold, if no caller waits for it already.
    fn take_retained(&mut self) -> Option<Arc<Hold>> {
        self.retained.take_if(|_| self.waiting.is_empty())
    }
}

impl Queues {
    pub(crate) fn new(in_a_row: usize) -> Self {
        Self {
            lines: Mutex::default(),
            releases: ReleaseQueue::default(),
            in_a_row,
        }
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<Key, Arc<Line>>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nobody has a turn, or waits for one.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.lines().is_empty()
    }

    fn line(&self, key: &Key) -> Option<Arc<Line>> {
        self.lines().get(key).cloned()
    }

    fn standing(self: &Arc<Self>, key: &Key, line: &Arc<Line>) -> Standing {
        Standing {
            queues: Arc::clone(self),
            key: key.clone(),
            line: Arc::clone(line),
        }
    }

    /// The turn, if nobody has it.
    pub(crate) fn try_turn(self: &Arc<Self>, key: &Key) -> Option<Turn> {
        let retained = {
            let mut lines = self.lines();
            let Some(line) = lines.get(key) else {
                return Some(self.open(&mut lines, key));
            };
            line.state().take_retained()
        };
        retained?.resume()
    }

    /// Has all retained locks given back.
    pub(crate) fn end_retentions(&self) {
        let lines: Vec<_> = self.lines().values().cloned().collect();
        for line in lines {
            let retained = line.state().retained.take();
            if let Some(hold) = retained {
                hold.end_retention();
            }
        }
    }

    /// Looks after a retained lock: callers or other clients may have asked for it just before it was, or its tokens
    /// came, or will not come.
    pub(crate) fn look_after(&self, key: &Key) {
        let Some(line) = self.line(key) else {
            return;
        };
        let (retained, is_wanted) = {
            let mut state = line.state();
            if state.waiting.is_empty() && !state.wanted {
                return;
            }
            (state.retained.take(), state.wanted)
        };
        match retained {
            Some(hold) if is_wanted => hold.end_retention(),
            Some(hold) => drop(hold.resume()),
            None => {}
        }
    }

    /// Other clients wait for the lock of this key.
    pub(crate) fn wanted(&self, key: &Key) {
        let Some(line) = self.line(key) else {
            return;
        };
        let retained = {
            let mut state = line.state();
            state.wanted = true;
            state.retained.take()
        };
        if let Some(hold) = retained {
            hold.end_retention();
        }
    }

    fn open(self: &Arc<Self>, lines: &mut HashMap<Key, Arc<Line>>, key: &Key) -> Turn {
        let line = Arc::default();
        let standing = self.standing(key, &line);
        lines.insert(key.clone(), line);
        Turn(Some(standing))
    }

    /// Waits in line. Dropping the future leaves the line.
    pub(crate) async fn turn(self: &Arc<Self>, key: &Key, terms: WaiterTerms) -> Turn {
        match self.stand(key, terms) {
            Ok(turn) => turn,
            Err(waiter) => waiter.turn().await,
        }
    }

    fn stand(self: &Arc<Self>, key: &Key, terms: WaiterTerms) -> Result<Turn, Waiter> {
        let mut lines = self.lines();
        let Some(line) = lines.get(key) else {
            return Ok(self.open(&mut lines, key));
        };
        let (sender, turn) = oneshot::channel();
        let mut state = line.state();
        let place = state.places;
        state.places += 1;
        state.waiting.push_back(Waiting {
            place,
            terms,
            turn: sender,
        });
        let waiter = Waiter {
            standing: self.standing(key, line),
            place,
            turn,
        };
        let retained = state.retained.take();
        drop(state);
        drop(lines);
        // The turn goes to the first who waits.
        drop(retained.and_then(|hold| hold.resume()));
        Err(waiter)
    }

    /// The store gave an owner that waited its lock.
    pub(crate) fn granted(
        &self,
        key: &Key,
        owner: OwnerId,
        block: TokenBlock,
        ttl: Duration,
        wanted: bool,
    ) {
        let Some(line) = self.line(key) else {
            return;
        };
        let mut state = line.state();
        let Some(hold) = state.asked.clone().filter(|hold| hold.owner == owner) else {
            return;
        };
        state.arrived(self.in_a_row, wanted);
        drop(state);
        hold.asking.granted(block, ttl, wanted);
    }

    /// The store says that an owner does well to ask again after this long.
    pub(crate) fn ask_again(&self, key: &Key, owner: OwnerId, after: Duration) {
        let asked = self.line(key).and_then(|line| line.state().asked.clone());
        if let Some(hold) = asked.filter(|hold| hold.owner == owner) {
            hold.asking.look_after(after);
        }
    }

    /// Notes that another client changed the lock of this key: its holder renewed it, or it is
    /// free.
    pub(crate) fn changed(&self, key: &Key) {
        let asked = self.line(key).and_then(|line| line.state().asked.clone());
        if let Some(hold) = asked {
            hold.asking.changed();
        }
    }

    /// What was asked for is not wanted any more.
    fn give_back(&self, asked: Option<Arc<Hold>>) {
        if let Some(hold) = asked
            && hold.asking.concerns_store()
        {
            hold.finish();
            self.releases.push(hold);
        }
    }

    /// Whoever waits for the store about these keys may have missed its answer.
    pub(crate) fn ask_again_about(&self, which: &Which) {
        let lines: Vec<_> = {
            let lines = self.lines();
            let meant = lines.iter().filter(|(key, _)| which.has(key));
            meant.map(|(_, line)| Arc::clone(line)).collect()
        };
        for line in lines {
            let asked = line.state().asked.clone();
            if let Some(hold) = asked {
                hold.asking.look_after(Duration::ZERO);
            }
        }
    }
}

impl Turn {
    fn state(&self) -> Option<MutexGuard<'_, State>> {
        self.0.as_ref().map(|standing| standing.line.state())
    }

    pub(crate) fn queues(&self) -> Option<Arc<Queues>> {
        self.0.as_ref().map(|standing| Arc::clone(&standing.queues))
    }

    fn most_in_a_row(&self) -> usize {
        let standing = self.0.as_ref();
        standing.map_or(0, |standing| standing.queues.in_a_row)
    }

    /// What the store is asked for: what whoever had the turn before left off, if that can be relied on,
    /// and if news of it come to where this caller is told; else this.
    pub(crate) fn ask_for(
        &self,
        told_by: impl FnOnce() -> Route,
        fresh: impl FnOnce() -> Arc<Hold>,
    ) -> Arc<Hold> {
        self.give_back_useless(told_by);
        match self.state() {
            Some(mut state) => {
                if state.asked.is_none() {
                    state.wanted = false;
                }
                Arc::clone(state.asked.get_or_insert_with(fresh))
            }
            None => fresh(),
        }
    }

    fn give_back_useless(&self, told_by: impl FnOnce() -> Route) {
        let is_useless = |hold: &mut Arc<Hold>| {
            // The client's own thread hears for whoever waits, the callers' runtime for its tasks alone.
            let is_deaf = || hold.owner.is_near() && told_by() == Route::Home;
            hold.asking.is_spoilt() || hold.is_over() || hold.asking.grant().is_none() && is_deaf()
        };
        let useless = self
            .state()
            .and_then(|mut state| state.asked.take_if(is_useless));
        if let Some(standing) = &self.0 {
            standing.queues.give_back(useless);
        }
    }

    /// The store gave what it was asked for; whether it came from elsewhere, or from the holder
    /// before in the same line.
    pub(crate) fn served(&self, arrived: bool, wanted: bool) {
        if let Some(mut state) = self.state() {
            state.asked = None;
            if arrived {
                state.arrived(self.most_in_a_row(), wanted);
            }
        }
    }

    /// Has the next in line take the ownership as it is, if it `fits`: other clients do not come first, and a
    /// hold can succeed without a request. Returns whether there is one.
    pub(crate) fn hand_over(
        &self,
        fits: impl FnOnce(&WaiterTerms) -> bool,
        successor: impl FnOnce(Duration) -> Arc<Hold>,
    ) -> bool {
        let Some(mut state) = self.state() else {
            return false;
        };
        if state.wanted && state.in_a_row == 0 {
            return false;
        }
        let Some(next) = state.waiting.front().map(|next| next.terms) else {
            return false;
        };
        if !fits(&next) {
            return false;
        }
        state.in_a_row = state.in_a_row.saturating_sub(1);
        state.asked = Some(successor(next.lease));
        true
    }

    /// Keeps the ownership for the next caller.
    pub(crate) fn retain(&self, hold: &Arc<Hold>) {
        if let Some(mut state) = self.state() {
            state.retained = Some(Arc::clone(hold));
        }
    }

    /// Does not keep it any more. Returns where it is given back.
    pub(crate) fn end_retention(&self, hold: &Arc<Hold>) -> Option<Arc<Queues>> {
        let standing = self.0.as_ref()?;
        let is_it = |retained: &mut Arc<Hold>| Arc::ptr_eq(retained, hold);
        let retained = standing.line.state().retained.take_if(is_it);
        drop(retained);
        Some(Arc::clone(&standing.queues))
    }

    /// Has whoever gets the turn take a retained ownership.
    pub(crate) fn resume(&self, successor: Arc<Hold>) {
        if let Some(mut state) = self.state() {
            state.asked = Some(successor);
        }
    }

    /// Whether other clients wait for the lock, as far as is known.
    pub(crate) fn is_wanted(&self) -> bool {
        self.state().is_some_and(|state| state.wanted)
    }

    /// Whether callers of this process wait for the lock.
    pub(crate) fn has_waiters(&self) -> bool {
        self.state().is_some_and(|state| !state.waiting.is_empty())
    }

    /// Who is next in line, and what a release is to give it.
    pub(crate) fn next(
        &self,
        fresh: impl FnOnce(WaiterTerms) -> Arc<Hold>,
        route: Route,
    ) -> Option<Next> {
        let mut state = self.state()?;
        let terms = state.waiting.front()?.terms;
        if state.asked.is_none() {
            // What is known of the present ownership says nothing of the next.
            state.wanted = false;
        }
        let hold = state.asked.get_or_insert_with(|| fresh(terms));
        let in_doubt = hold.asking.begin(route);
        let owner = hold.owner;
        state.next_in_doubt = in_doubt;
        Some(Next {
            owner,
            lease: terms.lease,
        })
    }

    /// What a release gave the next in line.
    pub(crate) fn went_on(&self, onward: Onward) {
        let Some(mut state) = self.state() else {
            return;
        };
        match onward {
            Onward::Granted(grant) => state.arrived(self.most_in_a_row(), grant.wanted),
            Onward::InLine { .. } | Onward::Unknown => {}
        }
        let (asked, in_doubt) = (state.asked.clone(), state.next_in_doubt);
        drop(state);
        let Some(hold) = asked else {
            return;
        };
        match onward {
            Onward::Granted(grant) => hold.asking.given(grant),
            Onward::InLine { since, place } => {
                hold.asking.in_line(since, None, place);
                if !in_doubt {
                    hold.asking.certain();
                }
            }
            Onward::Unknown => {}
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(standing) = self.0.take() {
            standing.pass_on();
        }
    }
}

impl Standing {
    /// Passes the turn to the next who still waits; what nobody waits for any more goes back to the
    /// store.
    fn pass_on(mut self) {
        loop {
            let next = self.line.state().waiting.pop_front();
            let Some(next) = next else {
                match self.close() {
                    Ok(()) => return,
                    Err(standing) => self = standing,
                }
                continue;
            };
            match next.turn.send(Turn(Some(self))) {
                Ok(()) => return,
                // It has just given up.
                Err(mut turn) => match turn.0.take() {
                    Some(standing) => self = standing,
                    None => return,
                },
            }
        }
    }

    /// Forgets the line, unless somebody came.
    fn close(self) -> Result<(), Self> {
        let asked = {
            let mut lines = self.queues.lines();
            let mut state = self.line.state();
            if !state.waiting.is_empty() {
                drop(state);
                drop(lines);
                return Err(self);
            }
            lines.remove(&self.key);
            state.asked.take()
        };
        self.queues.give_back(asked);
        Ok(())
    }
}

/// Somebody in line. Dropping it leaves the line.
struct Waiter {
    standing: Standing,
    place: u64,
    turn: oneshot::Receiver<Turn>,
}

impl Waiter {
    async fn turn(mut self) -> Turn {
        match (&mut self.turn).await {
            Ok(turn) => turn,
            // Whoever takes a place out of the line sends it the turn.
            Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        // Places are in ascending order.
        let mut state = self.standing.line.state();
        if let Ok(at) = state
            .waiting
            .binary_search_by_key(&self.place, |waiting| waiting.place)
        {
            state.waiting.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, pin::Pin, task::Poll};

    use super::*;

    const TERMS: WaiterTerms = WaiterTerms {
        lease: Duration::from_secs(30),
        watchdog: true,
        told_by: Route::Home,
    };

    async fn stands<F: Future>(mut waiting: Pin<&mut F>) -> bool {
        poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx).is_pending())).await
    }

    #[tokio::test]
    async fn nothing_is_left_of_a_line_when_everybody_is_gone() {
        let queues = Arc::new(Queues::new(16));
        let key = Key::parse("k").expect("valid");
        let turn = queues.try_turn(&key).expect("free");
        assert!(queues.try_turn(&key).is_none());
        let mut waiting = Box::pin(queues.turn(&key, TERMS));
        assert!(stands(waiting.as_mut()).await);
        drop(turn);
        assert!(queues.try_turn(&key).is_none(), "the waiter comes first");
        drop(waiting);
        drop(queues.try_turn(&key).expect("free again"));
        assert!(queues.is_empty());
    }

    #[tokio::test]
    async fn whoever_gives_up_leaves_no_place_behind() {
        let queues = Arc::new(Queues::new(16));
        let key = Key::parse("k").expect("valid");
        let turn = queues.try_turn(&key).expect("free");
        for _ in 0..10 {
            let mut waiting = Box::pin(queues.turn(&key, TERMS));
            assert!(stands(waiting.as_mut()).await);
        }
        assert!(turn.state().expect("held").waiting.is_empty());
    }
}
