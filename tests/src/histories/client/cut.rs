//! Calls of a history that their caller drops at a random time.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
    time::Duration,
};

use fastrand::Rng;

/// The time when a caller drops its call.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cut {
    Never,
    /// After this many polls.
    Polls(u32),
    After(Duration),
}

impl Cut {
    /// Drops this percentage of calls.
    pub(super) fn by_chance(rng: &mut Rng, percent: u8) -> Self {
        if rng.u8(..100) >= percent {
            Self::Never
        } else if rng.bool() {
            Self::Polls(rng.u32(1..8))
        } else {
            Self::After(Duration::from_micros(rng.u64(100..300_000)))
        }
    }

    /// Returns the output of the call, unless it is dropped before.
    pub(super) async fn short<F: Future>(self, call: F) -> Option<F::Output> {
        match self {
            Self::Never => Some(call.await),
            Self::After(pause) => tokio::time::timeout(pause, call).await.ok(),
            Self::Polls(most) => {
                let mut call = pin!(call);
                let mut polls = 0;
                poll_fn(|cx| match call.as_mut().poll(cx) {
                    Poll::Ready(answer) => Poll::Ready(Some(answer)),
                    Poll::Pending => {
                        polls += 1;
                        if polls < most {
                            Poll::Pending
                        } else {
                            Poll::Ready(None)
                        }
                    }
                })
                .await
            }
        }
    }
}
