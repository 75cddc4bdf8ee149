//! The local queues: per client and key one caller at a time deals with the store, the others stand
//! in line, first come, first served.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::OwnedMutexGuard;

use crate::key::Key;

/// A line per key that somebody holds or waits for; lines without anybody are forgotten.
#[derive(Default)]
pub(crate) struct Queues {
    lines: Arc<Lines>,
}

#[derive(Default)]
struct Lines(Mutex<HashMap<Key, Arc<tokio::sync::Mutex<()>>>>);

impl Lines {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Arc<tokio::sync::Mutex<()>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to deal with the store about a key. Dropping it passes it to the next in line.
pub(crate) struct Turn {
    // Declared first: the place is given up before the line is looked at.
    _place: OwnedMutexGuard<()>,
    _standing: Standing,
}

/// Somebody who holds or waits in a line; the last to go removes the line.
struct Standing {
    lines: Arc<Lines>,
    key: Key,
    line: Option<Arc<tokio::sync::Mutex<()>>>,
}

impl Queues {
    fn stand(&self, key: &Key) -> (Standing, Arc<tokio::sync::Mutex<()>>) {
        let line = Arc::clone(self.lines.lock().entry(key.clone()).or_default());
        let standing = Standing {
            lines: Arc::clone(&self.lines),
            key: key.clone(),
            line: Some(Arc::clone(&line)),
        };
        (standing, line)
    }

    /// Waits in line. Dropping the future leaves the line.
    pub(crate) async fn turn(&self, key: &Key) -> Turn {
        // Tokio's mutex is fair: it serves in the order of asking.
        let (standing, line) = self.stand(key);
        let place = line.lock_owned().await;
        Turn {
            _place: place,
            _standing: standing,
        }
    }

    /// The turn, if nobody has it and nobody waits for it.
    pub(crate) fn try_turn(&self, key: &Key) -> Option<Turn> {
        let (standing, line) = self.stand(key);
        let place = line.try_lock_owned().ok()?;
        Some(Turn {
            _place: place,
            _standing: standing,
        })
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        let mut lines = self.lines.lock();
        drop(self.line.take());
        // One reference left is the map's own: everybody else holds one for as long as they stand.
        if lines
            .get(&self.key)
            .is_some_and(|line| Arc::strong_count(line) == 1)
        {
            lines.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nothing_is_left_of_a_line_when_everybody_is_gone() {
        let queues = Queues::default();
        let key = Key::parse("k").expect("valid");
        let turn = queues.try_turn(&key).expect("free");
        assert!(queues.try_turn(&key).is_none());
        let mut waiting = Box::pin(queues.turn(&key));
        assert!(
            std::future::poll_fn(|cx| std::task::Poll::Ready(
                waiting.as_mut().poll(cx).is_pending()
            ))
            .await
        );
        drop(turn);
        assert!(queues.try_turn(&key).is_none(), "the waiter comes first");
        drop(waiting);
        drop(queues.try_turn(&key).expect("free again"));
        assert!(queues.lines.lock().is_empty());
    }
}
