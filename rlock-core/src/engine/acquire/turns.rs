//! The turns of a call for its keys, and the wait for them.

use futures_util::FutureExt;
use tokio::time::timeout;

use super::Attempt;
use crate::{
    engine::{
        ask::Contended,
        ownership::{Ownership, Turn},
    },
    error::LockError,
    few::Few,
    key::Key,
    store::StoreError,
};

impl Attempt<'_> {
    /// Gets the turns of all keys. Unless the call has the one at this index, another call has it.
    ///
    /// While the call waits for one turn it keeps no other: that would block other callers of a free lock.
    pub(super) async fn turns(
        &self,
        keys: &[&Key],
        (mut at, mut have): (usize, Option<Turn>),
        contended: &mut Option<Contended>,
    ) -> Result<Few<Turn>, LockError> {
        loop {
            let turn = match have.take() {
                Some(turn) => turn,
                None if self.asks_once() => self.turn_after_release(keys[at]).await?,
                None => self.turn(keys[at], (at, contended)).await?,
            };
            match self.try_turns(keys, Some((at, turn))) {
                Ok(turns) => return Ok(turns),
                Err(taken) => at = taken,
            }
        }
    }

    /// Returns all turns, or the index of one that another caller has.
    pub(super) fn try_turns(
        &self,
        keys: &[&Key],
        mut have: Option<(usize, Turn)>,
    ) -> Result<Few<Turn>, usize> {
        let mut turns = Few::new();
        for (at, key) in keys.iter().enumerate() {
            let turn = match have.take_if(|(had, _)| *had == at) {
                Some((_, turn)) => Some(turn),
                None => self.core.queues.try_turn(key),
            };
            turns.push(turn.ok_or(at)?);
        }
        Ok(turns)
    }

    /// Gets the turn of a call that does not wait, if only a release of this client precedes the call.
    async fn turn_after_release(&self, key: &Key) -> Result<Turn, LockError> {
        let options = &self.request.options;
        let waiting = match self.core.queues.follow_release(key, options) {
            None => return Err(self.taken(key, None)),
            Some(Ok(turn)) => return Ok(turn),
            Some(Err(waiting)) => waiting,
        };
        let limit = self.core.options.response_timeout;
        let left = (self.call.started + limit).since(self.now());
        let turn = Box::pin(timeout(left, waiting.turn())).await;
        turn.map_err(|_| self.failed(StoreError::no_reply(limit)))
    }

    async fn turn(
        &self,
        key: &Key,
        (at, contended): (usize, &mut Option<Contended>),
    ) -> Result<Turn, LockError> {
        let waiting = match self.core.queues.enqueue(key, &self.request.options) {
            Ok(turn) => return Ok(turn),
            Err(waiting) => waiting,
        };
        let mut turn = Box::pin(waiting.turn());
        // A retained ownership, or one that is being released, leaves the turn at once.
        if let Some(turn) = turn.as_mut().now_or_never() {
            return Ok(turn);
        }
        *contended = Some(Contended { at, ttl: None });
        self.call.waits();
        let turn = Box::pin(timeout(self.left(), turn)).await;
        turn.map_err(|_| self.taken(key, None))
    }

    /// Waits for the contended lock among several. Passes on the turns of the others meanwhile, because those locks may
    /// be free.
    pub(super) async fn wait_for_one(
        &self,
        keys: &[&Key],
        mut turns: Few<Turn>,
        ownership: &Ownership,
        contended: Contended,
    ) -> Result<Few<Turn>, LockError> {
        let Contended { at, ttl } = contended;
        let turn = turns.swap_remove(at);
        drop(turns);
        turn.waits_for(ownership);
        self.until_reported(ownership).await;
        if self.left().is_zero() {
            return Err(self.taken(keys[at], ttl));
        }
        self.turns(keys, (at, Some(turn)), &mut Some(contended))
            .await
    }
}
