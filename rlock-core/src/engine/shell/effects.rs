//! Carries out the effects of an input: wakes calls and bodies, and passes requests to the background.

use std::{
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    task::Waker,
};

use rlock_proto::{
    few::Few,
    key::Key,
    lease::Time,
    machine::{CallId, HoldEnd, Loss, Owner, Request, Revoked, Step},
    mode::LockMode,
};

use super::{Shell, begins::Begins};
use crate::{engine::hold_record::HoldRecord, metrics, observe::EndedHold};

/// The call that an input comes from, and the effects of the input.
#[derive(Default)]
pub(super) struct Effects {
    pub(super) call: Option<CallId>,
    /// The waker of the call, if it is polled and does not have to be woken already. If it has to wait, its waker is
    /// registered; otherwise it has none afterwards.
    pub(super) waker: Option<Waker>,
    /// A waker of the call that is no longer registered.
    pub(super) former: Option<Waker>,
    pub(super) step: Option<Step>,
    pub(super) revoked: Option<Revoked>,
    pub(super) requests: Vec<Request>,
    pub(super) deeds: Few<Deed>,
    pub(super) seen: Vec<Seen>,
    /// Whether the background has to look for work.
    pub(super) has_work: bool,
    /// Whether the client is ending. Its end waits for changes by inputs.
    pub(super) is_ending: bool,
}

/// An effect that waits until the mutex is free, because wakers and recorders of metrics are foreign code.
pub(super) enum Deed {
    Wake(Waker),
    /// The hold has ended or is lost.
    End(Arc<HoldRecord>, HoldEnd, metrics::Held),
}

/// Something to log or to close outside of the mutex.
pub(super) enum Seen {
    Lost(Box<Loss>, Option<Arc<HoldRecord>>),
    Ended(EndedHold),
    GaveUp(GivenUp),
    Other(Box<dyn FnOnce() + Send>),
}

/// A lock whose release the client gave up.
pub(super) struct GivenUp {
    pub(super) key: Key,
    pub(super) owner: Owner,
    pub(super) mode: LockMode,
    pub(super) was_held: bool,
}

impl Shell {
    /// Carries out the effects of an input, except for the step of the call and the logs.
    pub(super) fn act(&self, effects: &mut Effects, begins: Option<&mut Begins>, now: Time) {
        if !effects.requests.is_empty() {
            for request in effects.requests.drain(..) {
                let mut pending = None;
                self.call_out(|| {
                    pending = request.is_release().then(metrics::PendingRelease::begin);
                });
                self.state().ledger.work.requests.push((request, pending));
            }
        }
        // Before subscribers learn of the holds: one that panics ends them, so they have to be counted by then.
        if let (Some(Step::Entered(entered)), Some(begins)) = (&effects.step, begins) {
            let begun = entered.iter().filter(|entered| entered.began.is_some());
            begun.for_each(|_| self.call_out(|| begins.counters.holds()));
        }
        for seen in &effects.seen {
            if let Seen::Lost(loss, _) = seen {
                self.call_out(|| metrics::lock(loss.site).lost(loss.cause));
            }
        }
        if !effects.deeds.is_empty() {
            for deed in mem::take(&mut effects.deeds) {
                self.perform(deed, now);
            }
        }
        if let Some(former) = effects.former.take() {
            self.call_out(|| drop(former));
        }
        if effects.has_work {
            self.wake.notify_one();
        }
        if effects.is_ending {
            self.call_out(|| self.ended.notify_waiters());
        }
    }

    fn perform(&self, deed: Deed, now: Time) {
        match deed {
            Deed::Wake(waker) => self.call_out(|| waker.wake()),
            Deed::End(hold, end, counted) => {
                self.call_out(|| counted.ends(end, || now));
                self.call_out(|| {
                    hold.passenger().inspect(|passenger| passenger.ends());
                });
                self.announcements.ends(&hold);
                if end == HoldEnd::Lost {
                    self.call_out(|| hold.notify_loss());
                }
            }
        }
    }

    /// Calls foreign code: a recorder of metrics, or a waker, whose drop may drop a future. If it panics, the effects that follow
    /// are carried out all the same, because the machine relies on each of them. The background logs the panic, because the
    /// caller is not to blame, and may be unwinding already.
    pub(in crate::engine) fn call_out(&self, call: impl FnOnce()) {
        if catch_unwind(AssertUnwindSafe(call)).is_err() {
            self.later(|| {
                tracing::error!("a waker or a metrics recorder panicked");
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::Future,
        sync::atomic::{AtomicU32, Ordering},
        task::{Context, Wake},
    };

    use super::*;
    use crate::{LockClient, LockError};

    struct Panics;

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a waker that panics");
        }
    }

    #[derive(Default)]
    struct Counts(AtomicU32);

    impl Wake for Counts {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn a_waker_that_panics_keeps_no_other_call_from_being_woken() {
        let client = LockClient::in_memory();
        let _guard = client.lock("a").acquire().await.expect("free");
        let [mut first, mut second] = [(); 2].map(|()| Box::pin(client.lock("a").acquire()));
        let woken = Arc::new(Counts::default());
        let wakers = [
            Waker::from(Arc::new(Panics)),
            Waker::from(Arc::clone(&woken)),
        ];
        let [panics, counts] = wakers.each_ref().map(Context::from_waker);
        let polled = [(&mut first, panics), (&mut second, counts)]
            .map(|(call, mut cx)| call.as_mut().poll(&mut cx).is_pending());
        assert_eq!(polled, [true; 2], "the guard holds the lock");
        // One input ends both calls.
        drop(client.shutdown().await);
        assert!(woken.0.load(Ordering::Relaxed) > 0);
        assert!(matches!(second.await, Err(LockError::Closed { .. })));
    }

    #[tokio::test]
    async fn a_waker_that_panics_as_it_is_dropped_costs_its_call_nothing() {
        struct PanicsLast;

        impl Wake for PanicsLast {
            fn wake(self: Arc<Self>) {}
        }

        impl Drop for PanicsLast {
            fn drop(&mut self) {
                panic!("a waker that panics as it is dropped");
            }
        }

        let client = LockClient::in_memory();
        let guard = client.lock("a").acquire().await.expect("free");
        let mut call = Box::pin(client.lock("a").acquire());
        let waker = Waker::from(Arc::new(PanicsLast));
        assert!(
            call.as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        // The client has the last clone of it.
        catch_unwind(AssertUnwindSafe(|| drop(waker))).expect("it is not dropped yet");
        drop(guard);
        assert!(call.await.expect("the guard has released it").is_valid());
    }

    #[cfg(feature = "metrics")]
    mod recorder {
        use std::{cell::Cell, time::Duration};

        use ::metrics::{
            Counter, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString,
            Unit, with_local_recorder,
        };

        use super::*;

        thread_local!(static PANICS: Cell<bool> = const { Cell::new(false) });

        /// A recorder whose gauges panic on one thread.
        struct PanicsHere;

        impl GaugeFn for PanicsHere {
            fn increment(&self, _: f64) {
                assert!(!PANICS.get(), "a recorder that panics");
            }

            fn decrement(&self, value: f64) {
                self.increment(value);
            }

            fn set(&self, _: f64) {}
        }

        impl Recorder for PanicsHere {
            fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
            fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
            fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

            fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
                Counter::noop()
            }

            fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
                Gauge::from_arc(Arc::new(Self))
            }

            fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
                Histogram::noop()
            }
        }

        #[test]
        fn a_recorder_that_panics_neither_loses_a_hold_nor_keeps_its_release_back() {
            with_local_recorder(&PanicsHere, || {
                let client = LockClient::in_memory();
                let lock = client.lock("a").wait(Duration::from_secs(60));
                PANICS.set(true);
                let guard =
                    pollster::block_on(lock.acquire()).expect("the recorder decides nothing");
                assert!(guard.is_valid());
                drop(guard);
                // It may have to wait for the release.
                drop(pollster::block_on(lock.acquire()).expect("the guard has released it"));
                PANICS.set(false);
            });
        }
    }
}
