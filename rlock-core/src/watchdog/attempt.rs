//! One attempt at a renewal. A failure is logged when it happens, not when the lease ends.

use std::{future::Future, sync::Arc, time::Duration};

use tokio::time::timeout;

use super::Watchdog;
use crate::{
    core::Core,
    hold::Hold,
    lease::{Time, renewal_attempt},
    store::StoreError,
};

/// A sent message of renewals.
pub(super) struct Attempt {
    sent: Time,
    /// The number of the attempt within the lease.
    number: u128,
    /// The attempt counts as failed after this time without a reply. A later reply is still used.
    pause: Duration,
}

impl Attempt {
    /// Makes an attempt that is sent at `sent`, when `left` of the lease remained.
    pub(super) fn new(core: &Core, sent: Time, lease: Duration, left: Duration) -> Self {
        let pause = renewal_attempt(lease);
        let passed = lease.saturating_sub(left).saturating_sub(lease / 4);
        Self {
            sent,
            number: 1 + passed.as_nanos() / pause.as_nanos().max(1),
            pause: pause.min(core.options.response_timeout),
        }
    }

    /// Waits for the reply until the next attempt is due. The wait continues while the server
    /// replies to earlier attempts: a busy server will come to this one.
    pub(super) async fn in_time<F>(&self, watchdog: &Watchdog, answer: &mut F) -> Option<F::Output>
    where
        F: Future + Unpin,
    {
        loop {
            if let Ok(answer) = timeout(self.pause, &mut *answer).await {
                return Some(answer);
            }
            let now = watchdog.clock.now();
            if !watchdog.agenda().line.holds(self.sent, now, self.pause) {
                return None;
            }
        }
    }

    pub(super) fn no_answer(&self) -> StoreError {
        StoreError::no_answer(self.pause)
    }

    /// Logs one failure for all of these holds, with the hold whose lease ends first. Logs nothing
    /// if none of them is held any more, because a loss is the last log line of a hold.
    pub(super) fn report<'a>(
        &self,
        watchdog: &Watchdog,
        holds: impl IntoIterator<Item = &'a Arc<Hold>>,
        error: &StoreError,
    ) {
        let present = holds
            .into_iter()
            .filter(|hold| hold.is_held() && hold.broken().is_none());
        let (mut count, mut first) = (0, None::<(Time, &Hold)>);
        for hold in present {
            count += 1;
            let end = hold.valid_until();
            if first.is_none_or(|(earliest, _)| end < earliest) {
                first = Some((end, hold));
            }
        }
        let Some((end, hold)) = first else {
            return;
        };
        let remaining = end.since(watchdog.clock.now());
        tracing::warn!(key = %hold.key, owner = %hold.owner, holds = count, attempt = self.number, ?remaining, %error,
            "renewal failed, it will be tried again");
    }
}
