//! One entry's sight of its hold: the hold's state, cut short by the entry's own `max_hold`.

use std::{sync::Arc, time::Duration};

use crate::{client::LockClient, error::LostCause, hold::Hold, lease::Time};

#[derive(Clone)]
pub(crate) struct View {
    pub(crate) client: LockClient,
    pub(crate) hold: Arc<Hold>,
    /// When the entry has been held for its `max_hold`.
    pub(crate) until: Option<Time>,
}

impl View {
    /// Why the entry is not to be relied on any more, if so.
    pub(crate) fn broken(&self) -> Option<LostCause> {
        let over = self.until.filter(|until| self.now() >= *until);
        match (self.hold.broken(), over) {
            // What came first is what counts.
            (Some(LostCause::Expired), Some(until)) if until <= self.hold.valid_until() => {
                Some(LostCause::MaxHold)
            }
            (None, Some(_)) => Some(LostCause::MaxHold),
            (broken, _) => broken,
        }
    }

    fn now(&self) -> Time {
        self.client.core().clock.now()
    }

    pub(crate) fn valid_for(&self) -> Duration {
        if self.broken().is_some() {
            return Duration::ZERO;
        }
        let end = self
            .hold
            .valid_until()
            .min(self.until.unwrap_or(Time::NEVER));
        end.since(self.now())
    }

    pub(crate) async fn lost(&self) -> LostCause {
        let Some(until) = self.until else {
            return self.hold.until_lost().await;
        };
        let core = self.client.core();
        core.in_runtime(async {
            tokio::select! {
                biased;
                cause = self.hold.until_lost() => cause,
                () = core.clock.sleep_until(until) => LostCause::MaxHold,
            }
        })
        .await
    }
}
