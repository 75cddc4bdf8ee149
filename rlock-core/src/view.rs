//! An entry's view of its hold: the state of the hold, limited by the entry's own `max_hold` and
//! end.

use std::{
    panic::{RefUnwindSafe, UnwindSafe},
    sync::Arc,
    time::Duration,
};

use crate::{
    client::LockClient,
    error::LostCause,
    hold::{EntryId, Hold, MaxHold, Terms},
    lease::Time,
    watchdog::report,
};

#[derive(Clone)]
pub(crate) struct View {
    pub(crate) client: LockClient,
    pub(crate) hold: Arc<Hold>,
    entry: EntryId,
    max_hold: Option<Arc<MaxHold>>,
}

// As for the client: no foreign code runs while a hold's state changes.
impl UnwindSafe for View {}
impl RefUnwindSafe for View {}

impl View {
    pub(crate) fn new(client: &LockClient, hold: &Arc<Hold>, entry: EntryId, terms: Terms) -> Self {
        Self {
            client: client.clone(),
            hold: Arc::clone(hold),
            entry,
            max_hold: terms.until.and_then(|_| hold.max_hold(entry)),
        }
    }

    pub(crate) fn entry(&self) -> EntryId {
        self.entry
    }

    /// Returns why the entry is no longer valid, if it is not. Reports a loss that no other part
    /// has reported.
    ///
    /// Does not check whether the entry has left; see [`View::left`].
    pub(crate) fn broken(&self) -> Option<LostCause> {
        let cause = self.cause()?;
        self.notice_and_report(cause);
        Some(cause)
    }

    /// The same in a destructor: the background reports the loss.
    pub(crate) fn notice_at_drop(&self) {
        if let Some(cause) = self.cause()
            && self.notice(cause)
        {
            self.client.core().watchdog.report_later(&self.hold, cause);
        }
    }

    fn cause(&self) -> Option<LostCause> {
        let until = self.max_hold.as_ref().map(|limit| limit.at);
        let over = until.filter(|until| self.now() >= *until);
        match (self.hold.broken(), over) {
            // What came first is what counts.
            (Some(LostCause::Expired), Some(until)) if until <= self.hold.valid_until() => {
                Some(LostCause::MaxHold)
            }
            (None, Some(_)) => Some(LostCause::MaxHold),
            (broken, _) => broken,
        }
    }

    fn notice_and_report(&self, cause: LostCause) {
        if self.notice(cause) {
            report(&self.hold, cause);
        }
    }

    /// Returns whether the loss is to be reported: nothing noticed it before.
    fn notice(&self, cause: LostCause) -> bool {
        if self.hold.lost().is_some() {
            return false;
        }
        let watchdog = &self.client.core().watchdog;
        match &self.max_hold {
            Some(limit) if cause == LostCause::MaxHold => limit.notice(),
            _ => watchdog.lose_unreported(&self.hold, cause),
        }
    }

    /// Returns why the entry has left, if it has: `Released`, unless the hold was lost before.
    pub(crate) fn left(&self) -> Option<LostCause> {
        self.hold.left(self.entry).map(|cause| self.first_of(cause))
    }

    /// Resolves when the entry has left.
    pub(crate) async fn until_left(&self) -> LostCause {
        self.first_of(self.hold.until_left(self.entry).await)
    }

    fn first_of(&self, left: LostCause) -> LostCause {
        match &self.max_hold {
            Some(limit) if limit.is_noticed() => LostCause::MaxHold,
            _ => left,
        }
    }

    fn now(&self) -> Time {
        self.client.core().clock.now()
    }

    pub(crate) fn valid_for(&self) -> Duration {
        if self.broken().is_some() {
            return Duration::ZERO;
        }
        let until = self.max_hold.as_ref().map_or(Time::NEVER, |limit| limit.at);
        self.hold.valid_until().min(until).since(self.now())
    }

    pub(crate) async fn lost(&self) -> LostCause {
        let Some(limit) = &self.max_hold else {
            return self.hold.until_lost().await;
        };
        let core = self.client.core();
        let cause = core.in_runtime(async {
            tokio::select! {
                biased;
                cause = self.hold.until_lost() => cause,
                () = core.clock.sleep_until(limit.at) => LostCause::MaxHold,
            }
        });
        let cause = cause.await;
        self.notice_and_report(cause);
        cause
    }
}
