//! Giving up on answers that do not come. A timer for each request costs about as much as the rest of
//! it, so all requests under way share one clock that ticks while there are any.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::atomic::{AtomicBool, Ordering},
    task::Poll,
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, sleep, timeout_at},
};

use crate::store::BoxFuture;

/// How late a deadline may be noticed.
const TICK: Duration = Duration::from_millis(25);
/// Shorter patience gets a timer of its own.
const SHORT: Duration = Duration::from_millis(500);
/// So many ticks without a request, and the clock stops.
const IDLE: u32 = 80;

#[derive(Default)]
pub(super) struct Patience {
    tick: Notify,
    /// Somebody has waited since the last tick.
    used: AtomicBool,
    /// The clock goes; else it is to be started.
    goes: AtomicBool,
    start: Notify,
}

impl Patience {
    /// The answer, if it comes by the deadline. What is asked for `seldom` has a timer of its own: else
    /// the clock would hardly ever stop.
    pub(super) async fn by<T>(
        &self,
        deadline: Instant,
        seldom: bool,
        answer: &mut BoxFuture<'_, T>,
    ) -> Option<T> {
        if seldom || deadline < Instant::now() + SHORT {
            return timeout_at(deadline, answer).await.ok();
        }
        self.by_ticks(deadline, answer).await
    }

    async fn by_ticks<T>(&self, deadline: Instant, answer: &mut BoxFuture<'_, T>) -> Option<T> {
        let mut tick = pin!(None);
        poll_fn(|cx| {
            if let Poll::Ready(output) = answer.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
            if tick.is_none() {
                tick.set(Some(self.tick.notified()));
                self.keep_going();
            }
            while let Some(ticked) = tick.as_mut().as_pin_mut() {
                if ticked.poll(cx).is_pending() {
                    break;
                }
                if Instant::now() >= deadline {
                    return Poll::Ready(None);
                }
                tick.set(Some(self.tick.notified()));
                self.keep_going();
            }
            Poll::Pending
        })
        .await
    }

    fn keep_going(&self) {
        // In one order with the clock's own look at both, or it might stop under somebody who waits.
        if !self.used.load(Ordering::SeqCst) {
            self.used.store(true, Ordering::SeqCst);
        }
        if !self.goes.load(Ordering::SeqCst) {
            self.start.notify_one();
        }
    }

    /// Ticks for as long as somebody waits.
    pub(super) async fn run(&self) {
        loop {
            self.goes.store(true, Ordering::SeqCst);
            let mut idle = 0;
            while idle < IDLE {
                sleep(TICK).await;
                if self.used.swap(false, Ordering::SeqCst) {
                    idle = 0;
                    self.tick.notify_waiters();
                } else {
                    idle += 1;
                }
            }
            self.goes.store(false, Ordering::SeqCst);
            // Whoever came in between saw the clock going.
            if !self.used.load(Ordering::SeqCst) {
                self.start.notified().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{future::pending, sync::Arc};

    use super::*;

    #[tokio::test]
    async fn an_answer_that_does_not_come_is_given_up_at_its_deadline_and_not_before() {
        let patience = Arc::new(Patience::default());
        let clock = Arc::clone(&patience);
        let clock = tokio::spawn(async move { clock.run().await });
        for wait in [Duration::from_millis(10), SHORT + TICK * 4] {
            let started = Instant::now();
            let mut answer: BoxFuture<'_, ()> = Box::pin(pending());
            let answer = patience.by(started + wait, false, &mut answer).await;
            assert!(answer.is_none());
            let took = started.elapsed();
            assert!(
                took >= wait && took < wait + Duration::from_secs(2),
                "{took:?}"
            );
        }
        let mut answer: BoxFuture<'_, i32> = Box::pin(async { 7 });
        let deadline = Instant::now() + SHORT * 2;
        let answer = patience.by(deadline, false, &mut answer).await;
        assert_eq!(answer, Some(7));
        clock.abort();
    }
}
